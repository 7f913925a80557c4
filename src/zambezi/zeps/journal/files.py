"""Access to the files of the data directory: regular files only, small ones by size, and private to one user.

The data directory may have been copied, restored or crafted. A FIFO in the place of a file would make the server wait
for ever, and a huge file would fill its memory. So every file is opened here, and its kind is checked before a byte is
read. The files belong to the user that runs the server: other users cannot read them, whatever the umask is.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

PRIVATE_FILE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE})  # no descriptor is left
FRESH: Final = ".new"  # the end of the names of files that are being written
SMALL: Final = 64 * 1024  # bytes of a file that is read as a whole

# O_NONBLOCK: to open a FIFO must not wait for its other end. O_NOFOLLOW: a link could lead out of the directory.
_SAFE: Final = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_FILES: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})


class NotRegular(OSError):
    """A name that stands for a link, a directory, a FIFO, a socket or a device, where a file must be."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file; move it away", str(path))


def open_file(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor. A file that may be created is made private."""
    try:
        descriptor = os.open(path, flags | _SAFE, PRIVATE_FILE)
    except OSError as error:
        if error.errno in _NOT_FILES:
            raise NotRegular(path) from None
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise NotRegular(path)
        if flags & os.O_CREAT and stat.S_IMODE(mode) != PRIVATE_FILE:
            with suppress(PermissionError):  # it belongs to another user
                os.fchmod(descriptor, PRIVATE_FILE)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def fresh_path(path: str | Path) -> Path:
    """Return the name that a file has until the disk has all of it, and it gets its own name."""
    return Path(path).with_name(f".{Path(path).name}{FRESH}")


def unnamed(directory: Path) -> list[Path]:
    """Return the files in a directory that have not got their own name yet."""
    return list(directory.glob(f".*{FRESH}"))


def read_small(path: Path) -> bytes:
    """Return the content of a small file. Raise `ValueError` if it is larger than such a file can be."""
    descriptor = open_file(path)
    try:
        content = os.read(descriptor, SMALL + 1)
    finally:
        os.close(descriptor)
    if len(content) > SMALL:
        raise ValueError(f"it has more than {SMALL} bytes")
    return content


def write_small(path: Path, content: bytes, *, sync: bool) -> None:
    """Write a small file, and sync its content to the disk if asked."""
    descriptor = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        if os.write(descriptor, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Create a directory that only this user can read, whatever the umask is."""
    path.mkdir(PRIVATE_DIRECTORY)
    path.chmod(PRIVATE_DIRECTORY)


def make_private(directory: Path) -> int:
    """Make a data directory and everything in it private; return how many files and directories were not.

    Names that this user may not change are left as they are.
    """
    changed = 0
    for place in (directory, *_directories(directory)):
        changed += _restrict(place, PRIVATE_DIRECTORY)
        with suppress(OSError), os.scandir(place) as entries:
            changed += sum(_restrict(entry, PRIVATE_FILE) for entry in entries if _is_file(entry))
    return changed


def _directories(directory: Path) -> list[Path]:
    with suppress(OSError), os.scandir(directory) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


def _is_file(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False)


def _restrict(path: Path | os.DirEntry[str], mode: int) -> bool:
    """Remove the permissions of other users; return whether they had any."""
    try:
        if not stat.S_IMODE(path.stat().st_mode) & 0o077:
            return False
        os.chmod(path, mode)  # noqa: PTH101 - a path or an entry of a directory
    except OSError:
        return False
    return True
