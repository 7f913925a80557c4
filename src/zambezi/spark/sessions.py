"""Spark sessions that have the format `zeps`, with the settings that it needs to be fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from zambezi.spark.java import find_java
from zambezi.spark.source import ZepsDataSource

_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
SETTINGS: Final[Mapping[str, str]] = {
    # Rows pass between Python and the JVM through a Unix socket, which is faster than TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark offers filters on sequence, timestamp, key and stream to the source.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Arrow's Java checks twice for each value that it is not null and within bounds. Spark checks that already.
    "spark.driver.extraJavaOptions": _ARROW,
    "spark.executor.extraJavaOptions": _ARROW,
    # On a busy machine a Python worker can take long to start.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


def register(spark: SparkSession) -> SparkSession:
    """Add the format `zeps` to an existing session, and return the session."""
    spark.dataSource.register(ZepsDataSource)
    return spark


def session(
    master: str | None = None, *, name: str = "zambezi", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session that has the format `zeps`. `settings` adds Spark settings, or overrides the defaults.

    Without a `master`, it is the one that `spark-submit` gives, or all cores of this machine. `zambezi.spark.java`
    finds a Java. The Python workers use the interpreter of this program.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # otherwise `spark-submit` has already started Java
        os.environ["JAVA_HOME"] = find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for setting, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(setting, value)
    return register(builder.getOrCreate())
