"""A small file that keeps room on the disk, so that an operator can make more room when the disk is full.

To trim a stream, to change its settings, or to start, the broker must write a little: the first bytes of a new segment,
a file of settings. On a full disk that would fail, and nothing but deleting whole streams would help. So the data
directory has the file `reserve`, whose only purpose is its blocks. The first such write that does not fit removes the
file, and is tried again. The broker makes the file again when the disk has room.

Appends of messages never use it: publishers wait instead.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from zambezi.zeps.journal.files import fresh_path, open_file

RESERVE: Final = ".reserve"
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_MOST: Final = 1024 * 1024  # bytes
_SHARE: Final = 64  # a small disk reserves this part of itself

T = TypeVar("T")


def keep_reserve(directory: Path) -> bool:
    """Make the reserve of a data directory, unless it exists or the disk has too little room; return whether it exists.

    A disk without room is no error here: other parts of the broker report it.
    """
    path = directory / RESERVE
    if path.exists():
        return True
    with suppress(OSError):
        disk = os.statvfs(directory)
        size = min(_MOST, disk.f_blocks * disk.f_frsize // _SHARE)
        if size and disk.f_bavail * disk.f_frsize >= 2 * size:
            _allocate(path, size)
    return path.exists()


def _allocate(path: Path, size: int) -> None:
    fresh = fresh_path(path)
    try:
        descriptor = open_file(fresh, os.O_WRONLY | os.O_CREAT)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)
        fresh.rename(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def give_up_reserve(directory: Path) -> bool:
    """Remove the reserve of a data directory; return whether that made room."""
    try:
        (directory / RESERVE).unlink()
    except OSError:
        return False
    return True


def with_reserve(directory: Path, action: Callable[[], T]) -> T:
    """Return the result of an action that writes a little; if the disk is full, give up the reserve and try again."""
    try:
        return action()
    except OSError as error:
        if error.errno not in NO_ROOM or not give_up_reserve(directory):
            raise
        return action()
