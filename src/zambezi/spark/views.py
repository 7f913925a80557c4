"""Spark SQL over streams: a stream is a view of its name.

    views = StreamViews(spark, {"endpoint": "tcp://127.0.0.1:5671"})
    views.query("SELECT key, count(*) FROM readings GROUP BY key").show()

A view is made when a query names it, so ten thousand streams cost nothing. It is made anew for each query, which sees
the messages that are there then. The view `messages` has the messages of all streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.utils import is_remote

from zambezi.spark.errors import SparkError
from zambezi.spark.pipelines.running import plain_errors
from zambezi.spark.quiet import unlogged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES: Final = "messages"
_MISSING: Final = "TABLE_OR_VIEW_NOT_FOUND"


class NoSuchView(SparkError):
    """A query names something that cannot be the name of a stream."""


class StreamViews:
    """The streams of a broker, or of a directory, as views of a Spark session."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._options = dict(options)
        self._made: set[str] = set()

    def query(self, text: str) -> DataFrame:
        """Return the result of a query, after making the views that it names."""
        self._check_options(text)
        while self._made:
            self._spark.catalog.dropTempView(self._made.pop())
        while True:
            try:
                with unlogged():
                    return self._spark.sql(text)
            except AnalysisException as error:
                name = _missing_name(error)
                if name is None or name in self._made:
                    with plain_errors():
                        raise
                self._make(name)

    def _check_options(self, text: str) -> None:
        """Raise an error if a query gives options to a view: Spark would ignore them, and the result would be wrong."""
        if is_remote():
            return
        try:
            with unlogged():
                java: Any = self._spark._jsparkSession
                leaves = java.sessionState().sqlParser().parsePlan(text).collectLeaves()
        except PySparkException:
            return  # Spark tells what is wrong when it runs the query
        for number in range(leaves.size()):
            leaf = leaves.apply(number)
            if leaf.getClass().getSimpleName() == "UnresolvedRelation" and not leaf.options().isEmpty():
                raise NoSuchView(
                    f"the options after WITH do not reach the view {leaf.tableName()}: give them with --option, or "
                    "select rows with WHERE sequence > 50, or timestamp, key and stream"
                )

    def _make(self, name: str) -> None:
        wanted = {"streamPattern": ""} if name == MESSAGES else {"stream": name}
        with plain_errors():
            frame = self._spark.read.format("zeps").options(**self._options, **wanted).load()
            frame.createOrReplaceTempView(f"`{name.replace('`', '``')}`")
        self._made.add(name)


def _missing_name(error: AnalysisException) -> str | None:
    """Return the name of the view that a query lacks, or None if the query fails for another reason."""
    if error.getCondition() != _MISSING:
        return None
    relation = (error.getMessageParameters() or {}).get("relationName", "")
    parts = relation.removeprefix("`").removesuffix("`").split("`.`")
    if len(parts) > 1:
        raise NoSuchView(f"there is no table {relation}: write the name of a stream with dots as `{'.'.join(parts)}`")
    return parts[0].replace("``", "`")
