"""Spark sessions that have the format `zeps`, with the settings that it needs to be fast."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from zambezi.spark.java import find_java
from zambezi.spark.plan import CORES
from zambezi.spark.source import ZepsDataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

_REMOTE_FORMATS: Final[WeakKeyDictionary[Any, set[str]]] = WeakKeyDictionary()  # by session of Spark Connect
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

# Spark on one machine listens only there. Otherwise it would listen on a network, where nobody needs it.
LOCAL: Final[Mapping[str, str]] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def register(spark: SparkSession) -> SparkSession:
    """Add the format `zeps` to an existing session, and return the session.

    Nothing is to do if Spark has found the format by itself: to register it again would only cause a warning.
    """
    add_format(spark, ZepsDataSource)
    return spark


def add_format(spark: SparkSession, source: type[DataSource]) -> None:
    """Add a data source to a session that does not have it, and make the session that of this thread.

    Spark looks for a data source in the session that was last used by the thread, which can be another one.
    """
    if is_remote():
        _add_remote_format(spark, source)
        return
    if not _has_format(spark, source.name()):
        spark.dataSource.register(source)
    java: Any = spark._jvm
    java.SparkSession.setActiveSession(spark._jsparkSession)


def _add_remote_format(spark: SparkSession, source: type[DataSource]) -> None:
    """Add a data source to a session of Spark Connect. The server tells only by an error that it has none."""
    known = _REMOTE_FORMATS.setdefault(spark, set())
    if source.name() in known:
        return
    try:
        spark.read.format(source.name()).schema("stream string").load().schema  # noqa: B018 - the server looks it up
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_NOT_FOUND":
            raise
        spark.dataSource.register(source)
    known.add(source.name())


def _has_format(spark: SparkSession, name: str) -> bool:
    try:
        state = spark._jsparkSession.sessionState()
        return bool(state.dataSourceManager().dataSourceExists(name))
    except (AttributeError, Py4JError):
        return False


def cluster_cores(master: str, settings: Mapping[str, str]) -> int | None:
    """Return the cores that tasks can use, as far as the settings say.

    >>> cluster_cores("local[3]", {}), cluster_cores("local-cluster[2,4,1024]", {}), cluster_cores("yarn", {})
    (3, 8, None)
    >>> cluster_cores("spark://host:7077", {"spark.executor.instances": "5", "spark.executor.cores": "4"})
    20
    """
    if master == "local":
        return 1
    found = re.fullmatch(r"local(?:-cluster)?\[(\d+)(?:,\s*(\d+))?(?:,\s*\d+)?\]", master)
    if found is not None:
        return int(found[1]) * (int(found[2]) if master.startswith("local-cluster") else 1)
    if "spark.cores.max" in settings:
        return int(settings["spark.cores.max"])
    if "spark.executor.instances" in settings:
        return int(settings["spark.executor.instances"]) * int(settings.get("spark.executor.cores", "1"))
    return None


def session(
    master: str | None = None, *, name: str = "zambezi", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session that has the format `zeps`. `settings` adds Spark settings, or overrides the defaults.

    Without a `master`, it is the one that `spark-submit` gives, or all cores of this machine. `zambezi.spark.java`
    finds a Java. The Python workers use the interpreter of this program. A `master` such as `sc://host:15002` is a
    server of Spark Connect: it needs no Java here, and has its own Python, in which Zambezi must be installed. Spark on
    this machine alone uses only the loopback interface.
    """
    if master is not None and master.startswith("sc://"):
        return _remote_session(master, settings or {})
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # then `spark-submit` has already started Java
    if not is_submitted:
        os.environ["JAVA_HOME"] = find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    is_local = not is_submitted if master is None else master.startswith("local")
    for setting, value in {**SETTINGS, **(LOCAL if is_local else {}), **(settings or {})}.items():
        builder = builder.config(setting, value)
    cores = cluster_cores(master or "", settings or {})
    if cores is not None:
        os.environ[CORES] = str(cores)  # the processes that plan queries inherit it
    return register(builder.getOrCreate())


def _remote_session(server: str, settings: Mapping[str, str]) -> SparkSession:
    """Return a session of Spark Connect. The other settings are those of the server."""
    builder = SparkSession.builder.remote(server)
    ours = {setting: value for setting, value in SETTINGS.items() if setting.startswith("spark.sql.")}
    for setting, value in {**ours, **settings}.items():
        builder = builder.config(setting, value)
    return register(builder.getOrCreate())
