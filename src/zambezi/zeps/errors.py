"""What can go wrong with streams, as errors that say what to do."""

from __future__ import annotations

from zambezi.errors import ZambeziError
from zambezi.zmtp import errors


class ZepsError(ZambeziError):
    """Base of all errors of streams, journals, brokers and their clients."""


class JournalError(ZepsError):
    """A journal, or the directory of journals, cannot be used as it is."""


class JournalFull(JournalError):
    """There is no room for more in the journal now. Nothing of what was to be appended is in it."""


class Asleep(JournalError):
    """The journal was idle, and takes messages again when it is woken: that waits for the disk."""


class OutOfRange(JournalError):
    """A sequence was asked for that the journal does not have, or has no longer; `oldest` is the first that it has."""

    def __init__(self, text: str, oldest: int = 0) -> None:
        super().__init__(text)
        self.oldest = oldest


class PatternError(ZepsError):
    """A subscription's pattern cannot be understood."""


class GroupError(ZepsError):
    """A multicast group that cannot be used."""


class BrokerError(ZepsError):
    """The broker refused what was asked of it, and said why."""


class Incarnation(ZepsError):
    """A stream is not the one that it was: it was deleted and made anew, or its tail was lost."""


class QueueFull(ZepsError):
    """What is not confirmed yet has reached its bound, and the publisher was told not to wait."""


class ClientClosed(ZepsError):
    """The client, stream or subscription is closed."""


class TimedOut(ZepsError, errors.TimedOut):
    """What was waited for did not happen in the time that was given."""
