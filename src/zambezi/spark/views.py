"""Spark SQL over streams: a stream is a view of its name.

    views = StreamViews(spark, {"endpoint": "tcp://127.0.0.1:5671"})
    views.query("SELECT key, count(*) FROM readings GROUP BY key").show()

A view is made when a query names it, so ten thousand streams cost nothing. It is made anew for each query, which sees
the messages that are there then. The view `messages` has the messages of all streams.
"""

from __future__ import annotations

import re
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
_WITH: Final = re.compile(r"\bWITH\s*\(", re.IGNORECASE)


class NoSuchView(SparkError):
    """A query names something that cannot be the name of a stream."""


class StreamViews:
    """The streams of a broker, or of a directory, as views of a Spark session."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._options = dict(options)
        self._made: set[str] = set()

    def query(self, text: str) -> DataFrame:
        """Return the result of a query, after making the views that it names.

        `FROM readings WITH ('startingSequence' = '50')` adds options of the source to those of the views.
        """
        given = self._options_in(text)
        while self._made:
            self._spark.catalog.dropTempView(self._made.pop())
        while True:
            try:
                with unlogged():
                    found = self._spark.sql(text)
                break
            except AnalysisException as error:
                name = _missing_name(error)
                if name is None or name in self._made:
                    with plain_errors():
                        raise
                self._make(name, given.get(name, {}))
        # Spark ignores the options of a view: ours has them already, and another one would not.
        for name in given.keys() - self._made:
            raise NoSuchView(f"the options after WITH do not reach the view {name}: give them to the view")
        return found

    def _options_in(self, text: str) -> dict[str, dict[str, str]]:
        """Return the options that a query gives to the names in it."""
        count = len(_WITH.findall(text))
        if not count or is_remote():
            return {}
        try:
            with unlogged():
                java: Any = self._spark._jsparkSession
                leaves = java.sessionState().sqlParser().parsePlan(text).collectLeaves()
        except PySparkException:
            return {}  # Spark tells what is wrong when it runs the query
        found: dict[str, dict[str, str]] = {}
        for leaf in (leaves.apply(number) for number in range(leaves.size())):
            if leaf.getClass().getSimpleName() == "UnresolvedRelation":
                parts = leaf.multipartIdentifier()
                name = ".".join(parts.apply(number) for number in range(parts.size()))
                options = {key: str(value) for key, value in leaf.options().asCaseSensitiveMap().items()}
                count -= bool(options)
                if found.setdefault(name, options) != options:
                    raise NoSuchView(f"all mentions of {name} in a query must have the same options after WITH")
        if count > 0:
            raise NoSuchView("options after WITH work in the FROM of the outermost query only: use --option, or WHERE")
        return {name: options for name, options in found.items() if options}

    def _make(self, name: str, given: Mapping[str, str]) -> None:
        wanted = {"streamPattern": ""} if name == MESSAGES else {"stream": name}
        with plain_errors():
            frame = self._spark.read.format("zeps").options(**{**self._options, **wanted, **given}).load()
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
