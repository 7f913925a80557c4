"""The memory of Spark's Python workers, which run the tasks."""

from __future__ import annotations

import gc
from functools import cache

from zambezi.memory import keep_memory


@cache
def prepare_worker() -> None:
    """Make tasks in this process faster: keep freed memory, and leave imported modules out of garbage collection.

    Spark collects the garbage of a Python worker after each task. So all objects that exist now, mostly imported
    modules, are excluded. It is done once in a process: objects of a later task can become garbage.
    """
    gc.freeze()
    keep_memory()
