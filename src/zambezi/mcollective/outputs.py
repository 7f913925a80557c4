"""What the engine of the middleware wants done."""

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
    """A message for one client. An answer to a command with an ID goes before all that has not gone out yet."""

    session: Session
    frames: Frames
    answer: bool = False


@dataclass(frozen=True, slots=True)
class Deliver:
    """The same messages for many clients."""

    sessions: Sequence[Session]
    shared: Shared
    topic: Topic | None = None  # None: a replay, or a report


@dataclass(frozen=True, slots=True)
class Drop:
    """End a connection."""

    session: Session
    reason: str


@dataclass(frozen=True, slots=True)
class Happened:
    """Something to be told; where it was, the shell knows."""

    session: Session
    event: ClientEvent


Output: TypeAlias = Send | Deliver | Drop | Happened
