"""The configuration and the fixtures of all tests, among them the one Spark session of a test run."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.effort import cases
from zambezi.cli.surroundings import SETTINGS, variable
from zambezi.zmtp.testing import Simulation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The time of an example depends on the machine, not on the code: a busy machine must not fail a property, and neither
# must the first run, in which hypothesis builds its Unicode tables.
settings.register_profile(
    "zambezi", max_examples=cases(40), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("zambezi")

# Tests start hundreds of Python processes. Without cached bytecode each of them would compile every module that it
# imports, which takes longer than most of these tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A test run in the background may have been started with SIGINT ignored, and commands that tests interrupt would
# inherit that.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=2000, help="runs of the simulation of brokers and an object store")


@pytest.fixture(scope="session", autouse=True)
def no_contexts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the variables and contexts of the person who runs the tests away from commands."""
    with pytest.MonkeyPatch.context() as patch:
        for setting in (*SETTINGS, "context"):
            patch.delenv(variable(setting), raising=False)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture
def sim() -> Iterator[Simulation]:
    """A simulated event loop, whose kernel sockets are closed at the end of the test."""
    with Simulation() as simulation:
        yield simulation


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers: more than cores, because those that have Spark mostly wait for it."""
    return (os.cpu_count() or 1) + 3


@pytest.hookimpl(wrapper=True)  # a wrapper runs before xdist reads the groups, whenever this file is loaded
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    # A session takes seconds and a gigabyte: with `--dist loadgroup` one worker has it and runs all tests that use it;
    # the tests of pipelines have a second one.
    # Tests that start Spark processes of their own have other workers: the groups `spark-processes`, `spark-clusters`.
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark-pipelines" if "pipelines" in item.path.parts else "spark"))
    return (yield)


@pytest.fixture(scope="session", autouse=True)
def quick_spark(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Settings for every Spark session that this process or a command starts."""
    from tests.spark.jvm import QUICK, worker_python

    os.environ["PYSPARK_PYTHON"] = worker_python(tmp_path_factory.mktemp("python"))
    os.environ["SPARK_SUBMIT_OPTS"] = QUICK


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of all tests that need one."""
    pytest.importorskip("pyspark", reason="pyspark missing: pip install 'zambezi[spark]'")
    from zambezi.spark import session
    from zambezi.spark.errors import JavaMissing
    from zambezi.spark.java import find_java

    try:
        find_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    home = tmp_path_factory.mktemp("spark")
    # `local[2,4]`: Spark retries a task that fails, as on a cluster.
    made = session(
        "local[2,4]",
        name="tests",
        settings={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            # Tables are small here: Spark takes longer to plan a query again, to compile it and to compress its rows
            # than to run it. Tests of commands have sessions of their own with Spark's defaults.
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.shuffle.compress": "false",
            "spark.broadcast.compress": "false",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.task.maxFailures": "4",
            "spark.log.level": "ERROR",
        },
    )
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Restore the log of the process, which a server changes, for the next test."""
    loggers = [logging.getLogger(name) for name in ("zambezi", "asyncio", "aiohttp")]
    before = [(logger.handlers.copy(), logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
