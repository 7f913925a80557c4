"""The errors of the source, the sink and the pipelines."""

from __future__ import annotations

from zambezi.errors import ZambeziError


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
