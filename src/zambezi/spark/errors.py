"""The errors of the source, the sink and the pipelines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from heapq import nsmallest
from typing import Final

from zambezi.errors import ZambeziError

_SIMILAR: Final = 10  # names in an error


class SparkError(ZambeziError):
    """The base of all errors of the source, the sink and the pipelines."""


class OptionError(SparkError):
    """An unknown option, or a value that is not allowed. The text names the option and what is allowed."""


class SchemaError(SparkError):
    """A schema with columns that do not exist. The text says which columns exist."""


class DamagedLog(SparkError):
    """Bytes in a journal that are not valid messages."""


class NoSuchStream(SparkError):
    """A stream in the options that does not exist."""


def no_such_stream(missing: Sequence[str], known: Collection[str]) -> NoSuchStream:
    """Return the error for streams that do not exist, with the names that are most like the first of them.

    >>> no_such_stream(["reading"], ["readings", "alarms"])
    NoSuchStream("there is no stream 'reading': similar names are 'readings' (of 2 streams)")
    """
    similar = get_close_matches(missing[0], known, _SIMILAR)
    if similar:
        of_all = f" (of {len(known):,} streams)" if len(similar) < len(known) else ""
        there_are = f"similar names are {_quoted(similar)}{of_all}"
    elif known:
        more = f" and {len(known) - _SIMILAR:,} more" if len(known) > _SIMILAR else ""
        there_are = f"there are {_quoted(nsmallest(_SIMILAR, known))}{more}"
    else:
        there_are = "there are none"
    return NoSuchStream(f"there is no stream {_quoted(missing)}: {there_are}")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(ascii, names))


class DataLoss(SparkError):
    """The loss of messages that a query should have read. `failOnDataLoss` decides whether it is raised."""

    count = 0  # of the messages, if it is known


class Trimmed(DataLoss):
    """Messages that retention removed before the query read them. `oldest` is the first sequence that is kept."""

    def __init__(self, text: str, oldest: int, count: int = 0) -> None:
        super().__init__(text)
        self.oldest = oldest
        self.count = count


class Replaced(DataLoss):
    """A stream that was deleted and made again, or lost its end: its incarnation is not the one the query has read."""


class Vanished(DataLoss):
    """A stream that does not exist any more."""


class MovedAway(DataLoss):
    """A stream that another broker has now: the rest of a range must be read there. `SharedBackend` does so."""


class ConnectionLost(SparkError):
    """A broken connection to the broker that could not be made again in time."""


class Silent(ConnectionLost):
    """A broker that has sent nothing for as long as `timeout` says."""


class Refused(SparkError):
    """A request that the broker refused. The text has its reason."""


class NotRepeatable(SparkError):
    """A retried task whose rows differ from those of an earlier attempt, so that the sink cannot find out which of them
    are published."""


class Superseded(SparkError):
    """An attempt of a task that goes on although Spark has started another one. It publishes nothing more."""


class JavaMissing(SparkError):
    """A machine without a Java that Spark can run on."""
