"""The identity of a stream, its name and incarnation; and the mark that says that the disk may not have all of it.

`stream.json` is the identity: the version of the format, the true name, and the incarnation, a UUID that is created
with the stream. It is replaced if a sequence that subscribers may have seen could be used again for another message.

The file `unsynced` is the mark. It exists from before the first append until the disk has everything. It contains the
boot id of the operating system, and the last sequence that the disk had when the mark was written. It is written again
when a new segment was synced for the first time. A killed process leaves the mark behind and has lost nothing: the
operating system still has its writes. A mark with another boot id means that the system went down with messages that
subscribers may have seen.

The empty file `counted` exists from before the first message of a publisher that counts its messages. After a crash of
the system, messages of such a stream must not be kept without their counts.

The file `cached` says that the journal is a cache of a stream in an object store: the store has every message of it.
So no client waits until the disk has a cache: its mark is not synced, and `cached` contains the boot id, too.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.files import fresh_path, read_small, write_small

FORMAT: Final = 3
STREAM: Final = "stream.json"
MARK: Final = "unsynced"
COUNTED: Final = "counted"
COMPACTED: Final = "compacted"
CACHED: Final = "cached"  # the journal is a cache of a stream in an object store; it contains the boot id
FAILED: Final = "failed"  # instead of the boot id: the disk refused a write, so the page cache proves nothing
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class DamagedIdentity(JournalError):
    """`stream.json` is missing, or cannot be parsed."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The content of `stream.json`."""

    name: str
    incarnation: UUID

    def renewed(self) -> Identity:
        """Return the same identity with a new incarnation."""
        return replace(self, incarnation=uuid4())


def read_identity(directory: Path) -> Identity:
    """Return the identity of the stream in a directory, or raise `JournalError`."""
    path = directory / STREAM
    try:
        content = json.loads(read_small(path))
        version = content["format"]
        if version != FORMAT:
            raise JournalError(
                f"{path}: unknown format {version!r:.40}; this release reads {FORMAT}: use the release that wrote it, "
                "or a newer one"
            )
        name = content["name"]
        if not isinstance(name, str):
            raise TypeError("the name is not text")
        return Identity(name, UUID(content["incarnation"]))
    except FileNotFoundError:
        raise DamagedIdentity(f"{path} is missing") from None
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror or error}") from error
    except RecursionError:
        raise DamagedIdentity(f"{path} is damaged (its values are nested too deep)") from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise DamagedIdentity(f"{path} is damaged ({problem})") from None


def write_identity(directory: Path, identity: Identity) -> None:
    """Replace the identity, and sync it to the disk."""
    replace_file(directory / STREAM, _pack_identity(identity))


def write_cache_identity(directory: Path, identity: Identity) -> None:
    """Write the identity of a new cache. It is not synced to the disk: a store has the stream."""
    write_cached(directory, sync=False)
    write_small(directory / STREAM, _pack_identity(identity), sync=False)


def _pack_identity(identity: Identity) -> bytes:
    content = {"format": FORMAT, "name": identity.name, "incarnation": str(identity.incarnation)}
    return json.dumps(content, indent=2).encode() + b"\n"


def replace_file(path: Path, octets: bytes) -> None:
    """Replace the content of a file: after a crash it has the old content or the new one."""
    fresh = fresh_path(path)
    write_small(fresh, octets, sync=True)
    fresh.rename(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Sync the names in a directory to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """Return the id of this start of the operating system."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return str(uuid4())  # unknown: every restart of the process counts as one of the system, which is safe


class Mark(NamedTuple):
    """The content of the mark: a boot id or FAILED, and a sequence up to which the disk has everything."""

    boot: str
    synced: int | None = None  # None: not known


def read_mark(directory: Path) -> Mark | None:
    """Return the content of the mark; None if the mark does not exist."""
    try:
        boot, _, synced = read_small(directory / MARK).decode(errors="replace").strip().partition(" ")
    except FileNotFoundError:
        return None
    except ValueError:
        return Mark("")  # no boot id is so long: the mark is of another start of the system
    return Mark(boot, int(synced) if synced.isascii() and synced.isdigit() and len(synced) < 20 else None)


def write_mark(directory: Path, synced: int, *, sync: bool = True) -> None:
    """Create the mark, and sync it to the disk. A process that is killed meanwhile leaves the whole mark, or none."""
    fresh = fresh_path(directory / MARK)
    try:
        write_small(fresh, _pack_mark(boot_id(), synced), sync=sync)
        fresh.rename(directory / MARK)
        if sync:
            sync_directory(directory)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
            remove_mark(directory)  # or the next attempt would find the name, and have nothing to sync
        raise


def advance_mark(directory: Path, synced: int) -> None:
    """Replace the mark by one with a later sequence, and sync it to the disk."""
    replace_file(directory / MARK, _pack_mark(boot_id(), synced))


def mark_failed(directory: Path, synced: int) -> None:
    """Write into the mark that the disk failed, and up to which sequence it had everything."""
    write_small(directory / MARK, _pack_mark(FAILED, synced), sync=False)


def _pack_mark(boot: str, synced: int) -> bytes:
    return f"{boot} {max(0, synced)}\n".encode()


def is_counted(directory: Path) -> bool:
    """Return whether publishers of the stream count their messages."""
    return (directory / COUNTED).exists()


def write_counted(directory: Path, *, sync: bool = True) -> None:
    """Create the file that says that publishers of the stream count their messages, and sync its name to the disk."""
    write_small(directory / COUNTED, b"", sync=False)
    if sync:
        sync_directory(directory)


def is_cached(directory: Path) -> bool:
    """Return whether a journal is a cache of a stream in an object store."""
    return (directory / CACHED).exists()


def is_cached_since_boot(directory: Path) -> bool:
    """Return whether a broker has used a cache since the start of the system: then it has all that was written."""
    try:
        return read_small(directory / CACHED).decode("ascii", "replace").strip() == boot_id()
    except (OSError, ValueError):
        return False


def write_cached(directory: Path, *, sync: bool = True) -> None:
    """Note that a journal is a cache, and sync that to the disk."""
    write_small(directory / CACHED, f"{boot_id()}\n".encode(), sync=False)
    if sync:
        sync_directory(directory)


def read_compacted(directory: Path) -> int:
    """Return the last sequence that was compacted, as far as it is known."""
    try:
        text = read_small(directory / COMPACTED).decode("ascii", "replace").strip()
    except (OSError, ValueError):
        return 0
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def write_compacted(directory: Path, last: int) -> None:
    """Write the last sequence that was compacted. A crash that loses it only costs time."""
    write_small(directory / COMPACTED, f"{last}\n".encode(), sync=False)


def remove_compacted(directory: Path) -> None:
    """Forget what was compacted."""
    with contextlib.suppress(FileNotFoundError):
        (directory / COMPACTED).unlink()


def remove_mark(directory: Path) -> None:
    """Remove the mark. The caller syncs the directory if the disk must know."""
    with contextlib.suppress(FileNotFoundError):
        (directory / MARK).unlink()
