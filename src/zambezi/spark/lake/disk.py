"""Files and directories on a local or network disk that survive a power failure."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from zambezi.spark.errors import SparkError

_NOT_SUPPORTED: Final = (errno.EINVAL, errno.ENOTSUP)  # errors of network disks without fsync


class DiskError(SparkError):
    """A failed fsync. The text says why."""


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
