"""The broker: streams, sessions and cursors without sockets, and the shell that gives them sockets and a clock."""

from __future__ import annotations

from zambezi.zeps.broker.broker import Broker

__all__ = ["Broker"]
