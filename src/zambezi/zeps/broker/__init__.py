"""The broker: an engine of streams, sessions and cursors without sockets, and a shell with sockets and a clock."""

from __future__ import annotations

from zambezi.zeps.broker.depot import StoreOptions
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.broker.face import Broker

__all__ = ["Broker", "Limits", "StoreOptions"]
