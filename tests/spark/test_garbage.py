"""zambezi.spark.garbage: a Python worker does not collect imported modules again and again."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from zambezi.spark.garbage import freeze_imported_objects

assert gc.get_freeze_count() == 0
freeze_imported_objects()
frozen = gc.get_freeze_count()
assert frozen > 1000
later = [[number] for number in range(1000)]
freeze_imported_objects()
assert gc.get_freeze_count() <= frozen
"""


def test_objects_are_frozen_once_in_a_process() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
