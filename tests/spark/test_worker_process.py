"""zambezi.spark.worker_process: a Python worker keeps freed memory, and does not collect imported modules."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.spark.schemas import schema_of
from zambezi.spark import sink, source
from zambezi.spark.options import SINK, Options

if TYPE_CHECKING:
    import pytest

PROGRAM = """
import gc
from zambezi.spark import worker_process
from zambezi.spark.worker_process import prepare_worker

kept = []
worker_process.keep_memory = lambda: kept.append(True)

assert gc.get_freeze_count() == 0
prepare_worker()
frozen = gc.get_freeze_count()
assert frozen > 1000
later = [[number] for number in range(1000)]
prepare_worker()
assert gc.get_freeze_count() <= frozen
import zambezi.spark.sink
prepare_worker()
assert gc.get_freeze_count() > frozen + 1000
assert kept == [True]
"""


def test_a_worker_is_prepared_once_and_after_imports() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_worker_that_plans_a_query_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = []
    monkeypatch.setattr(source, "prepare_worker", lambda: prepared.append(True))
    source.ZepsDataSource({})
    assert prepared == [True]


def test_a_worker_that_publishes_or_commits_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = []
    monkeypatch.setattr(sink, "prepare_worker", lambda: prepared.append(True))
    options = Options({"endpoint": "tcp://127.0.0.1:1", "stream": "s"}, SINK)
    made = sink.StreamWriter(schema_of("body binary"), options, overwrite=False)
    assert prepared == [True]  # a worker that commits makes the writer
    received = pickle.loads(pickle.dumps(made))  # one that publishes receives it
    assert prepared == [True, True]
    assert received.options["stream"] == "s"
