"""zambezi.spark.worker_process: a Python worker keeps freed memory, and does not collect imported modules."""

from __future__ import annotations

import subprocess
import sys

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
assert kept == [True]
"""


def test_a_worker_is_prepared_once() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
