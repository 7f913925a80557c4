"""Threads that sync the files of a journal at once: the file system then commits them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait


class SyncPool:
    """A function like `map` that makes all calls at once: the last one in the thread of the caller."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "zambezi-sync")
        self.shutdown = self._pool.shutdown

    def __call__(self, function: Callable[[int], None], items: Iterable[int]) -> list[None]:
        """Call a function for each item. Raises the exception of a call when all calls have ended."""
        *others, last = items
        begun = [self._pool.submit(function, item) for item in others]
        try:
            function(last)
        finally:
            wait(begun)
        return [future.result() for future in begun]
