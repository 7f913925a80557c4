"""Errors of Spark without a log of PySpark's own: whoever catches an error tells what it means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.logger import PySparkLogger

# PySpark logs each error of a query as a line of JSON with the trace of Java, when the exception is created.
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep the loggers of queries silent."""
    # Loggers of another class, as those of `logging.getLogger`, do not accept what PySpark logs.
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled
