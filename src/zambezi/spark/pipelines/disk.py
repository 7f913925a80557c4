"""Guarantees for directories on a local disk: only one run at a time writes there, and written files survive a crash.

The lock is a `flock` of the kernel, on a file that is never removed. The kernel releases it when its process ends, so a
run that is killed leaves nothing for the operator to clean up. The content of the file tells people who holds the lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from zambezi.spark.errors import SparkError

_log: Final = logging.getLogger("zambezi.spark")

LOCK: Final = "lock"
_NOT_SUPPORTED: Final = (errno.EINVAL, errno.ENOTSUP)  # errors of network disks without fsync


class InUse(SparkError):
    """A directory that another run is writing to. The text says which run, and what to do."""


class DiskError(SparkError):
    """A failed fsync. The text says why."""


class Lock:
    """The right to write to a directory."""

    def __init__(self, root: Path, own: str) -> None:
        """Prepare a lock for the directory `root`. The lock file is in its subdirectory `own`."""
        self._root = root
        self._path = root / own / LOCK
        self._file: IO[bytes] | None = None

    def take(self) -> None:
        """Take the lock, or raise InUse."""
        make(self._path.parent)
        file = open(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b", buffering=0)  # noqa: SIM115, PTH123
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read().decode(errors="replace").strip() or "another process"
            file.close()
            if holder.startswith(f"process {os.getpid()} on {socket.gethostname()},"):
                holder += ", which is this one"
            raise InUse(
                f"{self._root} is being written to by {holder}: wait until that run ends, stop it, or choose another "
                "directory (--out)"
            ) from None
        except OSError as error:  # some network disks have no locks
            _log.warning(
                "%s cannot be locked (%s): make sure that only one run at a time writes there", self._root, error
            )
        file.truncate(0)
        now = datetime.now(UTC)
        file.write(f"process {os.getpid()} on {socket.gethostname()}, since {now:%Y-%m-%d %H:%M:%S} UTC\n".encode())
        self._file = file

    def release(self) -> None:
        """Release the lock, if it is held."""
        file, self._file = self._file, None
        if file is not None:
            # A child process between fork and exec also has the file, so closing it would not be enough.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)
            file.close()


def sync(path: Path) -> None:
    """Wait until a file, or the list of files in a directory, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise DiskError(f"{path}: fsync failed, so its content may not be on disk: {error.strerror}") from error
    finally:
        os.close(descriptor)


def make(path: Path) -> None:
    """Make a directory and its parents, so that they survive a power failure."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in missing:
        sync(one.parent)
