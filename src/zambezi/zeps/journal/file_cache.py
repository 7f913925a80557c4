"""The open files of a store: those of the segments that were used last, up to a limit.

A store can have ten thousand streams, and a process has a limited number of descriptors, which it needs for connections
too. So journals keep no file open themselves: they ask the cache for the files of a segment each time, to write as well
as to read. The limit is a share of the descriptors of the process, so that streams never use up all of them.

A file can be closed before the disk has its messages. The kernel then reports a failed write to the next `fsync` of the
file, through whichever descriptor (Linux 4.17 and later).
"""

from __future__ import annotations

import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from zambezi.zeps.journal.files import EXHAUSTED
from zambezi.zeps.journal.segment import Files, Segment

SHARE: Final = 4  # the cache uses a quarter of the descriptors of the process; the others are for connections
LEAST: Final = 8
MOST: Final = 1024  # segments that stay open
DESCRIPTORS: Final = 3  # of an open segment, at most

T = TypeVar("T")


def open_segments() -> int:
    """Return how many segments can stay open in this process, by its limit of descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else max(LEAST, min(MOST, soft // SHARE // DESCRIPTORS))


class FileCache:
    """The open files of a store, by the path of their segment. Any thread may use it."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = open_segments() if limit is None else limit
        self._open: OrderedDict[str, Files] = OrderedDict()
        self._lock = threading.Lock()

    def files(self, segment: Segment, flags: int = os.O_RDONLY) -> Files:
        """Return the files of a segment; open them if necessary. They stay open as long as the caller keeps them."""
        path = segment.path
        with self._lock:
            files = self._open.get(path)
            if files is not None:
                self._open.move_to_end(path)
                return files
        # Without the lock: the disk may be slow, and other threads need files that are open.
        return self._add(path, self.with_descriptors(partial(Files, path, flags)))

    def create(self, segment: Segment, snapshot: bytes) -> Files:
        """Create the files of a new segment, whose counts begin with a snapshot; return them."""
        files = self.with_descriptors(partial(segment.create, snapshot))
        self.drop(segment)
        return self._add(segment.path, files)

    def with_descriptors(self, action: Callable[[], T]) -> T:
        """Return the result of an action that opens files.

        If the process has no descriptor left, close the files that were used least recently, and try again.
        """
        while True:
            try:
                return action()
            except OSError as error:
                if error.errno not in EXHAUSTED or not self._close_oldest():
                    raise

    def _add(self, path: str, files: Files) -> Files:
        closed = []  # closed without the lock
        with self._lock:
            files = self._open.setdefault(path, files)  # another thread may have opened them at the same time
            self._open.move_to_end(path)
            while len(self._open) > self.limit:
                closed.append(self._open.popitem(last=False))
        return files

    def _close_oldest(self) -> bool:
        with self._lock:
            return bool(self._open) and bool(self._open.popitem(last=False))

    def drop(self, segment: Segment) -> None:
        """Remove a segment: its files were removed or replaced."""
        with self._lock:
            files = self._open.pop(segment.path, None)
        del files

    def clear(self) -> None:
        """Close all files."""
        with self._lock:
            files, self._open = self._open, OrderedDict()
        del files

    def __len__(self) -> int:
        return len(self._open)
