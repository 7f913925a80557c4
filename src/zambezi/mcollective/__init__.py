"""MCollective over ZeroMQ: a middleware for its daemons and clients, a connector, and a fleet of agents in Python.

`Middleware`, `Connector` and `Fleet` block, and any thread may use them; `zambezi.mcollective.asyncio` has the same
names for programs with an event loop. `AgentHost` serves agents, on asyncio.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from zambezi.lazy import exports
from zambezi.mcollective.archive import Archive, Kept, MemoryArchive
from zambezi.mcollective.bounds import Bounds, Counters
from zambezi.mcollective.connector_engine import Message
from zambezi.mcollective.errors import (
    ActionFailed,
    AgentError,
    ArchiveError,
    CommandRefused,
    McollectiveError,
    RuleError,
    Unconfirmed,
)
from zambezi.mcollective.events import (
    CaughtUp,
    ClientConnected,
    ClientGone,
    ClientReturned,
    CommandDenied,
    Complaint,
    SessionLost,
    SessionReady,
    SlowSubscriber,
)
from zambezi.mcollective.report import TopicReport
from zambezi.mcollective.rules import Rule, Rules

if TYPE_CHECKING:
    from zambezi.mcollective.agents import action, agent
    from zambezi.mcollective.host import AgentHost
    from zambezi.mcollective.sync import Connector, Fleet, Middleware

# A program that has not configured logging gets no output.
logging.getLogger("zambezi.mcollective").addHandler(logging.NullHandler())

__all__ = [
    "ActionFailed",
    "AgentError",
    "AgentHost",
    "Archive",
    "ArchiveError",
    "Bounds",
    "CaughtUp",
    "ClientConnected",
    "ClientGone",
    "ClientReturned",
    "CommandDenied",
    "CommandRefused",
    "Complaint",
    "Connector",
    "Counters",
    "Fleet",
    "Kept",
    "McollectiveError",
    "MemoryArchive",
    "Message",
    "Middleware",
    "Rule",
    "RuleError",
    "Rules",
    "SessionLost",
    "SessionReady",
    "SlowSubscriber",
    "TopicReport",
    "Unconfirmed",
    "action",
    "agent",
]

__getattr__ = exports(
    __name__,
    {
        "AgentHost": "host",
        "Connector": "sync",
        "Fleet": "sync",
        "Middleware": "sync",
        "action": "agents",
        "agent": "agents",
    },
)
