"""What only a local disk is asked for: that one run at a time writes to it, and that what was written stays.

The lock is the system's (`flock`), on a file that stays where it is. So it is gone when its process is gone, and a run
that is killed leaves nothing that somebody would have to clear away. What stands in the file is for people: who holds
it.
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
_UNABLE: Final = (errno.EINVAL, errno.ENOTSUP)  # what network disks say that cannot do so


class InUse(SparkError):
    """Another run writes to the directory; the text says which, and what to do."""


class DiskError(SparkError):
    """The disk does not confirm what was written; the text says why."""


class Lock:
    """The right to write to a directory."""

    def __init__(self, root: Path, own: str) -> None:
        """`root` is what is locked; the file is in its directory `own`."""
        self._root = root
        self._path = root / own / LOCK
        self._file: IO[bytes] | None = None

    def take(self) -> None:
        """Take it, or raise InUse."""
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
            _log.warning("%s cannot be locked (%s): see to it that one run at a time writes there", self._root, error)
        file.truncate(0)
        now = datetime.now(UTC)
        file.write(f"process {os.getpid()} on {socket.gethostname()}, since {now:%Y-%m-%d %H:%M:%S} UTC\n".encode())
        self._file = file

    def release(self) -> None:
        """Let others have it. Nothing, if it is not held."""
        file, self._file = self._file, None
        if file is not None:
            # A process that is being started has the file, too, until it has become what it is to be.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)
            file.close()


def sync(path: Path) -> None:
    """Wait until the disk has what is in a file, or what a directory lists."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise DiskError(f"{path}: the disk does not confirm what was written: {error.strerror}") from error
    finally:
        os.close(descriptor)


def make(path: Path) -> None:
    """Make a directory, and those that it is in, so that they are still there after a power failure."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in missing:
        sync(one.parent)
