"""What a stream is, apart from its messages: its name and incarnation, and whether the disk has all of it.

`stream.json` is the identity: the version of the format, the true name, and the incarnation, a UUID that is made with
the stream. It is replaced when a sequence that subscribers may have seen could be used once more for another message.

`unsynced` is a mark. It stands from before the first append until the disk has everything, and holds the boot id of
the operating system. A process that is killed leaves it behind and has lost nothing: its system still has what it
wrote. A mark with another boot id tells that the system went down with messages that subscribers may have seen.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from zambezi.zeps.errors import JournalError

FORMAT: Final = 1
STREAM: Final = "stream.json"
MARK: Final = "unsynced"
FAILED: Final = "failed"  # in place of the boot id: the disk refused something, so the system's memory proves nothing
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class Damaged(JournalError):
    """There is no telling from `stream.json` what the stream is."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The content of `stream.json`."""

    name: str
    incarnation: UUID

    def renewed(self) -> Identity:
        return replace(self, incarnation=uuid4())


def read_identity(directory: Path) -> Identity:
    """The identity of the stream in a directory, or JournalError."""
    path = directory / STREAM
    try:
        content = json.loads(path.read_bytes())
        version = content["format"]
        if version != FORMAT:
            raise JournalError(
                f"{path}: format {version!r} is not known here, only {FORMAT}: use the release that wrote it, or newer"
            )
        name = content["name"]
        if not isinstance(name, str):
            raise TypeError("the name is no text")
        return Identity(name, UUID(content["incarnation"]))
    except FileNotFoundError:
        raise Damaged(f"{path} is missing") from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise Damaged(f"{path} is damaged ({problem})") from None


def write_identity(directory: Path, identity: Identity) -> None:
    """Replace the identity, on disk."""
    content = {"format": FORMAT, "name": identity.name, "incarnation": str(identity.incarnation)}
    replace_file(directory / STREAM, json.dumps(content, indent=2).encode() + b"\n")


def replace_file(path: Path, octets: bytes) -> None:
    """Give a file new content: after a crash it has the old or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        if os.write(descriptor, octets) < len(octets):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(fresh))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fresh.rename(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """What this start of the operating system is known by."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return str(uuid4())  # not told: every restart then counts as one of the system, which is safe, if not thrifty


def read_mark(directory: Path) -> str | None:
    """The boot id in the mark, FAILED, or None where there is no mark."""
    try:
        return (directory / MARK).read_text(errors="replace").strip()
    except FileNotFoundError:
        return None


def write_mark(directory: Path) -> None:
    """Set the mark. It has its name on disk, and that is enough: after a crash any content is another boot's."""
    try:
        (directory / MARK).write_text(boot_id() + "\n")
        sync_directory(directory)
    except OSError:
        with contextlib.suppress(OSError):
            remove_mark(directory)  # or the next attempt would find the name there, and nothing to bring onto the disk
        raise


def spoil_mark(directory: Path) -> None:
    """Let the mark say that the disk failed."""
    (directory / MARK).write_text(FAILED + "\n")


def remove_mark(directory: Path) -> None:
    """Take the mark away. Whoever wants that on disk syncs the directory."""
    with contextlib.suppress(FileNotFoundError):
        (directory / MARK).unlink()
