"""Sessions that know the data source `zeps`, with the settings that suit it."""

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
    # Rows go between Python and the JVM through a Unix socket, which is faster than TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Conditions on sequence, timestamp, key and stream reach the source.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Arrow's Java looks twice, at each value, whether it is there and within bounds. Spark has looked, too.
    "spark.driver.extraJavaOptions": _ARROW,
    "spark.executor.extraJavaOptions": _ARROW,
    # On a busy machine a Python worker takes its time to start.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


def register(spark: SparkSession) -> SparkSession:
    """Make the format `zeps` known to a session that is there already."""
    spark.dataSource.register(ZepsDataSource)
    return spark


def session(
    master: str | None = None, *, name: str = "zambezi", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session that knows `zeps`, with settings that suit it; `settings` adds others, or overrules these.

    Without a `master` it is what `spark-submit` says, or all cores of this machine. Java is looked for, see
    `zambezi.spark.java`; the workers use the Python that this program runs in.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # or `spark-submit` has started one
        os.environ["JAVA_HOME"] = find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for setting, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(setting, value)
    return register(builder.getOrCreate())
