"""The errors of ZRE nodes."""

from __future__ import annotations

from zambezi.errors import ZambeziError


class ZreError(ZambeziError):
    """The base of everything that this package raises."""


class NoSuchPeer(ZreError):
    """The peer is not here: it never was, it left, or it is gone."""


class NodeStopped(ZreError):
    """The node is stopped, or was stopped while the call was waiting."""
