"""The memory of Spark's Python workers, which plan queries and run tasks."""

from __future__ import annotations

import gc
import sys
from functools import cache

from zambezi.memory import keep_memory

_frozen = 0  # the modules that were imported when objects were excluded last


def prepare_worker() -> None:
    """Make this process faster: keep freed memory, and leave imported modules out of garbage collection.

    Spark collects the garbage of a Python worker after each task and each step of planning. That takes 27 ms, or
    nothing if all objects that exist now, mostly imported modules, are excluded. They are excluded again only if
    modules were imported since: objects of a later task can become garbage.
    """
    global _frozen
    _keep_memory_once()
    if len(sys.modules) > _frozen:
        _frozen = len(sys.modules)
        gc.freeze()


@cache
def _keep_memory_once() -> None:
    keep_memory()
