"""ZEPS: streams of messages that a broker journals, and that subscribers replay from any point and then follow live.

`Client` blocks, and any thread may use it; `zambezi.zeps.asyncio.Client` has the same methods for asyncio. `Broker`
stores and serves the streams, on asyncio.
"""

from __future__ import annotations

from zambezi.zeps.broker import Broker
from zambezi.zeps.client.batch import Message, MessageBatch
from zambezi.zeps.errors import (
    BrokerError,
    ClientClosed,
    Incarnation,
    JournalError,
    PatternError,
    QueueFull,
    TimedOut,
    ZepsError,
)
from zambezi.zeps.journal import Policy
from zambezi.zeps.sync import Client

__all__ = [
    "Broker",
    "BrokerError",
    "Client",
    "ClientClosed",
    "Incarnation",
    "JournalError",
    "Message",
    "MessageBatch",
    "PatternError",
    "Policy",
    "QueueFull",
    "TimedOut",
    "ZepsError",
]
