"""Temporary directories for Spark's checkpoints, on the machine of the driver.

The table knows how far the streams are read, so a checkpoint is worth nothing after its query. A query that is killed,
or that ends on a server of Spark Connect, cannot remove its directory. So the process that runs the query holds a lock
on a file in it, and the next query on the machine removes the directories whose locks are free.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "zambezi-checkpoint-"
_LOCK: Final = "in-use"


def new_checkpoint() -> Path:
    """Return the path of a directory that does not exist yet."""
    return Path(tempfile.gettempdir()) / f"{_PREFIX}{secrets.token_hex(8)}"


def claim(checkpoint: Path) -> int:
    """Make the directory if it does not exist, lock it for this process, and return the open lock."""
    checkpoint.mkdir(mode=0o700, exist_ok=True)
    fresh = checkpoint / f"{_LOCK}-{os.getpid()}"
    lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fresh.replace(checkpoint / _LOCK)  # another process sees only a lock that is held
    return lock


def remove_unused(checkpoint: Path) -> None:
    """Remove the directories beside a checkpoint whose processes have ended."""
    for lock in checkpoint.parent.glob(f"{_PREFIX}*/{_LOCK}"):
        if lock.parent != checkpoint and not _is_held(lock):
            shutil.rmtree(lock.parent, ignore_errors=True)


def _is_held(lock: Path) -> bool:
    """Return whether a process holds a lock. A directory of another user counts as held."""
    with suppress(OSError):
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        finally:
            os.close(descriptor)
    return True
