"""MCollective over ZeroMQ: a middleware for its daemons and clients, a connector, and a fleet of agents in Python.

`zambezi.mcollective.asyncio` has `Middleware` and `Connector` for programs with an event loop, and
`zambezi.mcollective.sync` has the same names for scripts and threads. This module has the names that both need.
"""

from __future__ import annotations

import logging

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

# A program that has not configured logging gets no output.
logging.getLogger("zambezi.mcollective").addHandler(logging.NullHandler())

__all__ = [
    "ActionFailed",
    "AgentError",
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
    "Counters",
    "Kept",
    "McollectiveError",
    "MemoryArchive",
    "Message",
    "Rule",
    "RuleError",
    "Rules",
    "SessionLost",
    "SessionReady",
    "SlowSubscriber",
    "TopicReport",
    "Unconfirmed",
]
