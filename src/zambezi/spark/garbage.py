"""Garbage collection in the Python workers of Spark."""

from __future__ import annotations

import gc
from functools import cache


@cache
def freeze_imported_objects() -> None:
    """Exclude all objects that exist now, mostly imported modules, from garbage collection.

    Spark collects the garbage of a Python worker after each task, and this makes it faster. It is done once in a
    process: objects of a later task can become garbage.
    """
    gc.freeze()
