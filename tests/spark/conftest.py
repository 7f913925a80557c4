"""One session for all tests that need Spark; without pyspark or Java they are skipped, and say why."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MISSING = [name for name in ("pyspark", "pyarrow", "numpy") if importlib.util.find_spec(name) is None]


class _Skipped(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        pytest.skip(f"{', '.join(_MISSING)} missing: pip install 'zambezi[spark]'", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.File | None:
    return _Skipped.from_parent(parent, path=module_path) if _MISSING else None


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A session takes seconds and a gigabyte: with `--dist loadgroup` one worker has it, and the rest does other things.
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from zambezi.spark import session
    from zambezi.spark.errors import JavaMissing
    from zambezi.spark.java import find_java

    try:
        find_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    home = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Xshare:auto",
        "spark.task.maxFailures": "4",
        "spark.log.level": "ERROR",
    }
    # `local[2,4]`: a task that fails is tried again, as on a cluster.
    made = session("local[2,4]", name="tests", settings=settings)
    yield made
    made.stop()
