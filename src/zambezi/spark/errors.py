"""What can go wrong between streams and Spark, as errors that say what to do."""

from __future__ import annotations

from zambezi.errors import ZambeziError


class SparkError(ZambeziError):
    """Base of all errors of the source, the sink and the pipelines."""


class OptionError(SparkError):
    """An option that is not known, or has a value that is not allowed. The text names it and says what is."""


class SchemaError(SparkError):
    """A schema asks for what there is not: the text says which columns there are."""


class DamagedLog(SparkError):
    """Octets that should be messages are not."""


class NoSuchStream(SparkError):
    """A stream was named that is not there."""


class DataLoss(SparkError):
    """Messages that a query should have read cannot be read any more. `failOnDataLoss` decides whether it is raised."""


class Trimmed(DataLoss):
    """Retention removed messages before the query came to them; `oldest` is the first that is left."""

    def __init__(self, text: str, oldest: int) -> None:
        super().__init__(text)
        self.oldest = oldest


class Replaced(DataLoss):
    """The stream was deleted and made anew, or lost its tail: it is another incarnation than the query knows."""


class Vanished(DataLoss):
    """The stream is not there any more."""


class ConnectionLost(SparkError):
    """The connection to the broker broke, and could not be made again in time."""


class Refused(SparkError):
    """The broker refused what was asked of it, and said why."""


class NotRepeatable(SparkError):
    """A task that is tried again has other rows than before, so that it cannot be told which of them are published."""


class JavaMissing(SparkError):
    """There is no Java that Spark could run on."""
