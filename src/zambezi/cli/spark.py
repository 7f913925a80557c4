"""The Spark session of commands: its options, its start, and what is missing for it.

This module imports Spark only when a session starts.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from zambezi.cli.errors import InputError, OptionsError
from zambezi.cli.notices import show_warnings, telling, warn
from zambezi.cli.signals import away_from_signals
from zambezi.cli.surroundings import add_context_option, setting_of
from zambezi.errors import ZambeziError

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession

QUIET: Final = 2.0  # seconds, after which a command says that Spark starts
_NEEDED: Final = ("pyspark", "pyarrow", "numpy", "deltalake")
_starting: Final = threading.Event()  # set while Java starts

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    # Hadoop starts a program (chmod) for each small file of a checkpoint on a local disk, and another one for its
    # checksum. The checkpoints of commands are temporary: they need no checksums.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}


class SparkUnavailable(ZambeziError):
    """Spark is not installed, or does not start."""


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a Spark session."""
    options = parser.add_argument_group("Spark")
    options.add_argument(
        "--master",
        metavar="URL",
        help="the cluster: local[2], spark://HOST:7077 or yarn, or sc://HOST for Spark Connect (default: this machine)",
    )
    options.add_argument(
        "--conf", metavar="NAME=VALUE", action="append", default=[], help="a setting of Spark (can be repeated)"
    )
    options.add_argument("--verbose", action="store_true", help="show the log of Spark instead of a progress line")


def check_spark(who: str) -> None:
    """Raise `SparkUnavailable` if a package is missing. `who` is such as "pipelines need"."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkUnavailable(f"{who} Spark: pip install 'zambezi[spark]' ({', '.join(missing)} missing)")


def add_key_options(options: argparse._ArgumentGroup) -> None:
    """Add the options of CURVE, and --context. Spark takes keys, or the files that have them."""
    add_context_option(options)
    options.add_argument(
        "--server-key", metavar="KEY", help="encrypt with CURVE: the broker's public key, or the file that has it"
    )
    options.add_argument("--key", metavar="KEY", dest="own_key", help="your own secret key, or the file that has it")


def fill_in_broker(arguments: argparse.Namespace) -> None:
    """Take the endpoint and the keys that were not given from the environment or from the context."""
    if arguments.server_key is None:
        arguments.server_key = setting_of(arguments, "server_key") or None
        if arguments.server_key is not None and arguments.own_key is None:
            arguments.own_key = setting_of(arguments, "key") or None
    # Last: the context does not count for a command line that names a server.
    arguments.endpoint = arguments.endpoint or setting_of(arguments, "endpoint") or None


def source_place(arguments: argparse.Namespace) -> dict[str, str | None]:
    """Return the options of the Spark source that say where and when messages are: None if they were not given."""
    return {
        "endpoint": arguments.endpoint,
        "path": arguments.path,
        "startingTimestamp": arguments.since.isoformat() if arguments.since else None,
        "endingTimestamp": arguments.until.isoformat() if arguments.until else None,
        "serverKey": arguments.server_key,
        "secretKey": arguments.own_key,
    }


def check_times(arguments: argparse.Namespace) -> None:
    """Raise an error if no message can be in the time that the arguments name."""
    if arguments.since and arguments.until and arguments.since > arguments.until:
        raise OptionsError(
            f"--since {arguments.since.isoformat()} is after --until {arguments.until.isoformat()}: give a time that "
            "begins before it ends"
        )


def check_source(
    arguments: argparse.Namespace, options: Mapping[str, str], *, is_growing: bool = False
) -> Collection[str] | None:
    """Raise an error for wrong options of the source, and if its broker, its directory or a stream is not there.

    `arguments` say which server plans the queries: that of Spark Connect can have other directories, and other brokers.
    A run that follows waits for streams that do not exist yet. Return the streams that the source has now; None if
    that is not known.
    """
    from pyspark.sql.types import StructType  # noqa: PLC0415 - needs Spark

    from zambezi.spark.base_reader import BaseReader  # noqa: PLC0415
    from zambezi.spark.errors import OptionError, no_such_stream  # noqa: PLC0415
    from zambezi.spark.options import BATCH, STREAM, Options  # noqa: PLC0415

    names_streams = any(name in options for name in ("stream", "streams", "streamPattern"))
    chosen = dict(options) if names_streams else {**options, "streamPattern": ""}
    try:
        checked = Options(chosen, STREAM if is_growing else BATCH)
    except OptionError as error:
        raise OptionsError(str(error)) from error
    if "archive" in checked:
        _check_archive(options["archive"], store_options(arguments))
    reader = BaseReader(StructType(), checked)
    if not reader.has_backend or (arguments.master or "").startswith("sc://"):
        return None
    follows = getattr(arguments, "follow", False)
    show_warnings()
    try:
        with telling(f"waiting for {checked['endpoint'] or checked['path']}, which has not answered yet"):
            present = reader.streams()
            missing = reader.missing_streams(present)
            known = reader.backend.streams() if missing or not present else present
    finally:
        reader.close()
    if "path" in checked and not known and not follows:
        raise InputError(f"--path {arguments.path} has no streams: name the data directory of a broker")
    if missing and "archive" not in checked:
        problem = no_such_stream(missing, known)
        if not is_growing:
            raise problem
        if follows:
            warn(f"{problem}; the run begins with it when somebody has published to it")
    return present


def _check_archive(archive: str, stored: Mapping[str, str]) -> None:
    from zambezi.spark.lake.place import Place  # noqa: PLC0415 - needs the extra
    from zambezi.spark.lake.table import LakeTable  # noqa: PLC0415

    table = LakeTable(Place(archive, stored), "archive")
    if table.state is None:
        raise InputError(f"--archive {table.place}: there is no archive; `zambezi pipeline run archive` makes one")


def add_store_options(parser: argparse._ActionsContainer) -> None:
    """Add the option for object stores."""
    parser.add_argument(
        "--store-option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an option of the object store of --out or --archive, such as AWS_ENDPOINT_URL=http://host:8333 (can be "
        "repeated; default: from variables of the environment)",
    )


def store_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the object store that the command line describes."""
    return dict(pair("--store-option", one) for one in arguments.store_option)


def add_source_option(options: argparse._ArgumentGroup, example: str) -> None:
    """Add --option, for options of Spark's source that have no option of their own."""
    options.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help=f"any option of the Spark source, such as {example} (can be repeated)",
    )


def more_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of Spark's source that were given with --option."""
    return dict(pair("--option", one) for one in arguments.option)


def given(options: Mapping[str, str | None]) -> dict[str, str]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def cancel_jobs(spark: SparkSession) -> None:
    """End the jobs that Spark runs now. Any thread can call this, also if Spark has just ended."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415 - needs Spark
    from pyspark.sql.utils import is_remote  # noqa: PLC0415 - needs Spark

    if is_remote():
        spark.interruptAll()
        return
    with contextlib.suppress(Py4JError):
        spark.sparkContext.cancelAllJobs()


def pair(option: str, text: str) -> tuple[str, str]:
    """Return name and value of an option NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise OptionsError(f"{option} {text}: write NAME=VALUE")
    return name, value


@contextlib.contextmanager
def spark_session(arguments: argparse.Namespace, name: str) -> Iterator[SparkSession]:
    """Start a Spark session. The long output of Java at its start goes to a file."""
    from zambezi.spark import session  # noqa: PLC0415 - needs Spark, and takes a second

    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    master = arguments.master or (None if is_submitted else "local[*]")
    is_remote = master is not None and master.startswith("sc://")
    settings = {} if is_remote else dict(_SETTINGS)
    if master is not None and master.startswith("local"):
        settings |= {
            "spark.sql.shuffle.partitions": str(min(8, os.cpu_count() or 2)),
            "spark.driver.memory": "1g",
        }
    settings |= dict(pair("--conf", one) for one in arguments.conf)
    with _announced(), _aside(is_wanted=not arguments.verbose and not is_submitted) as log:
        try:
            spark = away_from_signals(
                lambda _: _start(partial(session, master, name=name, settings=settings)), end_start
            )
        except ZambeziError:
            raise
        except Exception as error:
            where = f"; its output is in {log}" if log else ""
            raise SparkUnavailable(f"Spark did not start: {error}{where}") from error
    if not is_remote:
        _silence_accumulators(spark)
    use_session(spark)
    root = logging.getLogger()
    root.addFilter(_is_not_of_py4j)
    try:
        yield spark
    finally:
        _stop(spark)
        root.removeFilter(_is_not_of_py4j)
        if log:
            with contextlib.suppress(OSError):
                Path(log).unlink()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return whether a record is worth showing. Py4J logs a trace when Java ends, which a signal to all causes."""
    return "py4j" not in record.pathname


def use_session(spark: SparkSession) -> None:
    """Make a session that of this thread. Without that, Spark does not find our format when the thread writes."""
    from zambezi.spark import register  # noqa: PLC0415 - needs Spark

    register(spark)


def _start(start: Callable[[], SparkSession]) -> SparkSession:
    _starting.set()
    try:
        return start()
    finally:
        _starting.clear()


def end_start() -> None:
    """End Java if it is starting: this takes long, and PySpark would leave it to end by itself."""
    if _starting.is_set():
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()


def _stop(spark: SparkSession) -> None:
    """End a session. A signal to all processes, as a service manager sends it, may have ended Java before."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs Spark

    with warnings.catch_warnings(), contextlib.suppress(Py4JError, OSError):
        warnings.simplefilter("ignore", RuntimeWarning)
        spark.stop()


def _silence_accumulators(spark: SparkSession) -> None:
    """Let PySpark's server of accumulators print no traceback when Java ends: it would take that for an error."""
    server: Any = spark.sparkContext._accumulatorServer
    server.handle_error = lambda _request, _address: None


@contextlib.contextmanager
def _announced() -> Iterator[None]:
    """Say that Spark starts, if this takes longer than a moment: no command waits in silence."""
    kept = os.dup(2)  # standard error, wherever it goes meanwhile
    timer = threading.Timer(QUIET, os.write, (kept, b"zambezi: Spark starts; this takes some seconds\n"))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        os.close(kept)


@contextlib.contextmanager
def _aside(*, is_wanted: bool) -> Iterator[str]:
    """Redirect standard error, also of new processes, to a file, and give its name."""
    if not is_wanted:
        yield ""
        return
    handle, name = tempfile.mkstemp(prefix="zambezi-spark-", suffix=".log")
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(handle, 2)
    try:
        yield name
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(handle)
