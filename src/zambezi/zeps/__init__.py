"""ZEPS: streams of messages that a broker journals, and that subscribers replay from any point and then follow live.

`Client` blocks, and any thread may use it; `zambezi.zeps.asyncio.Client` has the same methods for asyncio. `Broker`
stores and serves the streams, on asyncio.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from zambezi.lazy import exports
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

if TYPE_CHECKING:
    from zambezi.zeps.broker import Broker
    from zambezi.zeps.client.arguments import Since
    from zambezi.zeps.client.batch import Message, MessageBatch
    from zambezi.zeps.journal import Policy
    from zambezi.zeps.sync import Client

# A program that has not configured logging gets no output.
logging.getLogger("zambezi.zeps").addHandler(logging.NullHandler())

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
    "Since",
    "TimedOut",
    "ZepsError",
]

__getattr__ = exports(
    __name__,
    {
        "Broker": "broker",
        "Client": "sync",
        "Message": "client.batch",
        "MessageBatch": "client.batch",
        "Policy": "journal",
        "Since": "client.arguments",
    },
)
