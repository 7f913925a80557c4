"""The outputs of the middleware's engine, which its shell carries out in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from zambezi.mcollective.events import ClientEvent
from zambezi.mcollective.messages import Frames
from zambezi.mcollective.session import Session, Topic
from zambezi.zmtp.frames import Shared


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to one client. An answer to a command with an ID overtakes the messages in the client's queue."""

    session: Session
    frames: Frames
    answer: bool = False


@dataclass(frozen=True, slots=True)
class Deliver:
    """Send the same messages to many clients."""

    sessions: Sequence[Session]
    shared: Shared
    topic: Topic | None = None  # None: a replay, or a report
    sender: Session | None = None  # the client that PUT the messages; None: a replay, or a report
    before: int = 0  # the sequence before the first message, if the topic is kept


@dataclass(frozen=True, slots=True)
class Play:
    """Begin to play the archive to a client that has come back: call `feed`."""

    session: Session


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection of a client."""

    session: Session
    reason: str


@dataclass(frozen=True, slots=True)
class Happened:
    """Tell the program of an event; the shell adds the endpoint."""

    session: Session
    event: ClientEvent


Output: TypeAlias = Send | Deliver | Play | Drop | Happened
