"""The process that tasks run in, one after another."""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_imports() -> None:
    """Spark has a worker collect its garbage after each task. What was imported by now is none, and is left out.

    Once in a process: what a later task has in its hands may become garbage.
    """
    gc.freeze()
