"""The file of the register: sessions on disk, so that they survive a restart of the middleware, even a SIGKILL.

A directory has two files, whose names begin with the same number:

    N.log        one line of JSON for each change: a session, topics that it gained or lost, its end
    N.positions  the position of each session, 8 bytes at its slot, in a mapping of memory

Changes are few, and go to the log with one `write` for all changes of a turn. Positions change with every message of a
kept topic, so they are stored into mapped memory, which the kernel writes to the file. Nothing is synced: a killed
process loses nothing, and after a crash of the machine the clients have lost their connections for longer than their
TTL.

When the log has grown to several times the size of its records, both files are written again under the next number.
The log gets its name last, by a rename, so that a reader finds either both old files or both new ones. The modification
time of the log, which `touch` sets, says when the process was last alive.

If a file cannot be read or written, the sessions are lost, and the service is not: the middleware logs it, and goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import mmap
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from struct import Struct
from typing import Any, Final

from zambezi.mcollective.register import RETURN_TIME, SLOTS, Record
from zambezi.mcollective.vigil import EXPIRY
from zambezi.wire.text import as_bytes, as_text

_log: Final = logging.getLogger("zambezi.mcollective")
_POSITION: Final = Struct("=Q")
_SMALL: Final = 1 << 20  # bytes: a log below this size is not written again
_LARGEST: Final = 1 << 28  # bytes: a larger log is not read


class RegisterFile:
    """The records of a register in a directory. `Store` says what the methods mean."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self.directory = directory
        self.problem = ""  # why sessions are not kept any more
        self._clock = clock
        self._lines: list[str] = []
        self._number = 0
        self._log = -1
        self._lock = -1
        self._size = 0
        self._base = 0  # the size of the log after the last rewrite
        self._positions: mmap.mmap | None = None

    def open(self, now: float) -> list[Record]:
        """Open the directory; return the records of clients whose TTL is not over.

        `now` is the time of the event loop: the rest of each TTL begins then.
        """
        records: list[Record] = []
        try:
            self.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.directory.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._number, records = self._read(now)
        except BlockingIOError:
            self._fail("another process uses it")
        except OSError as error:
            self._fail(error.strerror or str(error))
        return records

    # Reading

    def _read(self, now: float) -> tuple[int, list[Record]]:
        numbers = sorted(
            int(path.stem) for path in self.directory.glob("*.log") if path.stem.isascii() and path.stem.isdigit()
        )
        if not numbers:
            return 0, []
        number = numbers[-1]
        content, changed = _read(self._path(number, "log"), _LARGEST)
        down = max(0.0, self._clock() - changed)
        records = _parse(content)
        positions, _ = _read(self._path(number, "positions"), SLOTS * _POSITION.size)
        found = []
        for slot, record in records.items():
            record.until = now + (EXPIRY * record.ttl if record.resumable else RETURN_TIME) - down
            if record.topics and record.until > now:
                if (slot + 1) * _POSITION.size <= len(positions):
                    record.position = min(_POSITION.unpack_from(positions, slot * _POSITION.size)[0], (1 << 63) - 1)
                found.append(record)
        return number, found

    # Writing

    def add(self, record: Record) -> None:
        self.advance(record)
        form = (record.delimited, record.resumable)
        self._note("session", record.slot, record.user, as_text(record.identity), record.ttl, *form)
        if record.topics:
            self.subscribe(record, record.topics)

    def subscribe(self, record: Record, topics: Mapping[bytes, int]) -> None:
        self._note("sub", record.slot, [[as_text(name), since] for name, since in topics.items()])

    def unsubscribe(self, record: Record, topics: Iterable[bytes]) -> None:
        self._note("unsub", record.slot, [as_text(name) for name in topics])

    def remove(self, record: Record) -> None:
        self._note("end", record.slot)

    def advance(self, record: Record) -> None:
        if self._positions is not None:
            _POSITION.pack_into(self._positions, record.slot * _POSITION.size, record.position)

    def _note(self, *change: object) -> None:
        if not self.problem:
            self._lines.append(json.dumps(change, separators=(",", ":")))

    @property
    def bloated(self) -> bool:
        """Whether `rewrite` should be called."""
        return self._size > _SMALL + 3 * self._base

    def flush(self) -> None:
        """Write the changes since the last call."""
        if self._lines and self._log >= 0:
            content = _joined(self._lines)
            self._lines = []
            try:
                self._size += os.write(self._log, content)
            except OSError as error:
                self._fail(error.strerror or str(error))

    def rewrite(self, records: Iterable[Record]) -> None:
        """Write all records into new files, and remove the old ones."""
        if self.problem:
            return
        self._lines = []
        number = self._number + 1
        try:
            positions = self._open(self._path(number, "positions"))
            try:
                os.ftruncate(positions, SLOTS * _POSITION.size)
                self._release_positions()
                self._positions = mmap.mmap(positions, SLOTS * _POSITION.size)
            finally:
                os.close(positions)
            for record in records:
                self.add(record)
            content = _joined(self._lines)
            unfinished = self._path(number, "new")
            log = self._open(unfinished)
            if self._log >= 0:
                os.close(self._log)
            self._log = log
            if os.write(log, content) != len(content):
                raise OSError("the disk is full")
            unfinished.rename(self._path(number, "log"))
        except OSError as error:
            self._fail(error.strerror or str(error))
            return
        self._lines = []
        self._number = number
        self._size = self._base = len(content)
        self._remove_others(number)

    def _open(self, path: Path) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(path, flags, 0o600)

    def _remove_others(self, number: int) -> None:
        keep = {self._path(number, "log"), self._path(number, "positions"), self.directory / "lock"}
        with contextlib.suppress(OSError):
            for path in list(self.directory.iterdir()):
                if path not in keep:
                    path.unlink()

    def _path(self, number: int, suffix: str) -> Path:
        return self.directory / f"{number}.{suffix}"

    def touch(self) -> None:
        """Note on the disk that this process is alive."""
        if self._log >= 0:
            with contextlib.suppress(OSError):
                os.utime(self._log)

    def _fail(self, problem: str) -> None:
        self.problem = f"{self.directory}: sessions will not survive a restart: {problem}"
        _log.warning("%s", self.problem)
        self._lines = []

    def close(self) -> None:
        """Write the last changes, and close the files."""
        self.flush()
        self.touch()
        for descriptor in (self._log, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._log = self._lock = -1
        self._release_positions()

    def _release_positions(self) -> None:
        if self._positions is not None:
            self._positions.close()
            self._positions = None


def _read(path: Path, most: int) -> tuple[bytes, float]:
    """Return the content of a file and its modification time; no content if it is too large or no regular file.

    Opening never blocks, not even for a FIFO.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        _log.warning("%s cannot be read: %s; the sessions in it are lost", path, error.strerror)
        return b"", 0.0
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        os.close(descriptor)
        _log.warning("%s is no register of sessions: it is too large, or no regular file", path)
        return b"", 0.0
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most), status.st_mtime


def _joined(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _parse(content: bytes) -> dict[int, Record]:
    """Return the records in a log, by slot. Ignore a damaged line, all lines after it, and an unfinished last line."""
    records: dict[int, Record] = {}
    for line in content.split(b"\n")[:-1]:
        try:
            _apply(json.loads(line), records)
        except (ValueError, TypeError, KeyError, RecursionError):
            _log.warning("a register of sessions is damaged; a part of the sessions is lost")
            break
    return records


def _apply(change: Any, records: dict[int, Record]) -> None:
    kind, slot, *rest = change
    if not isinstance(slot, int):
        raise TypeError(slot)
    if kind == "session":
        user, identity, ttl, delimited, resumable = rest
        before = records.get(slot)
        record = records[slot] = Record(slot, str(user), as_bytes(identity), bool(delimited), float(ttl))
        record.resumable = bool(resumable)
        if before is not None and before.key == record.key:
            record.join(before.topics)  # the client said CONNECT again
    elif kind == "sub":
        records[slot].join({as_bytes(name): int(since) for name, since in rest[0]})
    elif kind == "unsub":
        records[slot].leave([as_bytes(name) for name in rest[0]])
    elif kind == "end":
        records.pop(slot, None)
    else:
        raise ValueError(kind)
