"""The memory of Spark's Python workers, which plan queries and run tasks."""

from __future__ import annotations

import gc
from functools import cache

from zambezi.memory import keep_memory


@cache
def prepare_worker() -> None:
    """Make this process faster: keep freed memory, and leave imported modules out of garbage collection.

    Spark collects the garbage of a Python worker after each task and each step of planning. That takes 27 ms, or
    nothing if all objects that exist now, mostly imported modules, are excluded. It is done once in a process: objects
    of a later task can become garbage.
    """
    gc.freeze()
    keep_memory()
