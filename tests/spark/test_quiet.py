"""Errors of Spark without a log of PySpark's own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from zambezi.spark import quiet
from zambezi.spark.quiet import unlogged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_error_is_logged_only_outside(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[PySparkException] = []
    monkeypatch.setattr(quiet, "_log", logged.append)
    formatters = [handler.formatter for handler in logging.getLogger().handlers]
    with unlogged():
        with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
            spark.sql("SELECT 1 / 0").collect()
        with unlogged():
            pass
        with pytest.raises(PySparkException, match="no_such_table"):
            spark.sql("SELECT * FROM no_such_table")
    assert logged == []
    assert [handler.formatter for handler in logging.getLogger().handlers] == formatters
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        spark.sql("SELECT 1 / 0").collect()
    assert len(logged) == 1
