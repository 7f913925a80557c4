"""The errors of ZRE nodes."""

from __future__ import annotations

from zambezi.errors import ZambeziError


class ZreError(ZambeziError):
    """The base class of all errors of this package."""


class NoSuchPeer(ZreError):
    """The node has no such peer: it never had, or the peer has left or expired."""


class NodeStopped(ZreError):
    """The node is stopped, or was stopped while the call was waiting."""
