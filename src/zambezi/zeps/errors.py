"""The errors of streams, journals, brokers and their clients. Each says what was wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from zambezi.errors import ZambeziError
from zambezi.zmtp import errors


class ZepsError(ZambeziError):
    """Base of all errors of streams, journals, brokers and their clients."""


class JournalError(ZepsError):
    """A journal, or the data directory, cannot be used."""


class JournalFull(JournalError):
    """The disk has no room for the messages. None of them was appended; the caller can try again."""


class Asleep(JournalError):
    """The journal is idle, and must be woken before it accepts messages: that waits for the disk."""


class OutOfRange(JournalError):
    """The journal does not have a sequence, or not any more; `oldest` is the first one that it has."""

    def __init__(self, text: str, oldest: int = 0) -> None:
        super().__init__(text)
        self.oldest = oldest


class Rewritten(JournalError):
    """A segment was replaced by another one while it was read: the same messages can be read from that one."""


class Absent(JournalError):
    """The disk does not have a message, and the object store has it. After `load`, which blocks, read it again.

    `place` is equal for two errors that the same `load` settles. `problem` is for a caller that lets another thread
    load.
    """

    def __init__(self, text: str, place: object, load: Callable[[], object]) -> None:
        super().__init__(text)
        self.place = place
        self.load = load
        self.problem: ZepsError | None = None

    def check(self) -> None:
        """Raise the problem with which another thread has failed to load, if there is one."""
        if self.problem is not None:
            raise self.problem


class StoreError(ZepsError):
    """The object store cannot be used."""


class StoreSilent(StoreError):
    """The object store does not answer: it may answer later."""


class StoreFull(StoreSilent):
    """The object store has no room now."""


class StoreDamaged(StoreError):
    """An object in the store is missing, or has bytes that no broker writes."""


class PatternError(ZepsError):
    """The pattern of a subscription cannot be parsed."""


class GroupError(ZepsError):
    """A multicast group cannot be used."""


class BrokerError(ZepsError):
    """The broker refused a request; the text is its reason."""


class Moved(BrokerError):
    """Another broker serves the stream, or this one cannot now; clients that know this answer go to another one."""

    PREFIX: ClassVar = "moved:"

    def __init__(self, endpoint: str = "", reason: str = "") -> None:
        super().__init__(f"{self.PREFIX} {endpoint or reason}".rstrip())
        self.endpoint = endpoint  # empty if it is not known: the client asks another broker, or the same one later


class Incarnation(ZepsError):
    """The stream is another one now: it was deleted and created again, or its last messages were lost."""


class QueueFull(ZepsError):
    """The queue of messages that are not confirmed is full, and the publisher does not wait."""


class Fenced(ZepsError):
    """Another program publishes as the same publisher, and has begun later: this one cannot publish any more."""


class ReaderTaken(ZepsError):
    """Another client reads under the same name, or an operator has changed the reader: this one cannot go on."""


class NobodyServes(ZepsError):
    """No server answers such requests now."""


class RequestFailed(ZepsError):
    """A server, or the broker, answered a request with an error; the text is its reason."""


class ClientClosed(ZepsError):
    """The client, stream or subscription is closed."""


class TimedOut(ZepsError, errors.TimedOut):
    """A call did not finish within its timeout."""
