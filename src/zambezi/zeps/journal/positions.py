"""The positions of a stream: how far each named reader has come, on disk with the stream.

All positions of a stream are in one file, `positions`, in the directory of the stream. The file is a list of records,
and the last record of a name counts, with the payload of all records after it that only add to its payload:

    mark         2 bytes    `AA B0`: where to look for the next record after damage
    length       4 bytes    of the content
    check        4 bytes    CRC-32 of the length and the content
    content      kind, meaning, position, highest, time, owner, name, user, payload

All changes of one turn of the event loop are one write. When most records of the file are old ones, another thread
replaces the file by one with the last records only (`compact`). `sync` writes everything to the disk.

A killed process loses nothing that `write` has written. After a crash of the system a record at the end can be torn:
recovery cuts it off, and its name has the record before it. A position never refers to messages that the stream does
not have: recovery and `cut_after` move it back, and sync that to the disk *before* the stream accepts messages, which
get the same sequences again.

A group of shared readers is a position of the kind `GROUP`, with a name of its own: a reader and a group of the same
name are different. `position` is a sequence up to which all messages are done, and `payload` is whatever else the group
must remember: a list of parts (`zambezi.zeps.broker.group_state`). A group changes often, and its payload is large: so
`extend` adds parts to the payload, and only the new parts are written. `highest` is the highest sequence that the
payload can mention. If the messages after a lower sequence are lost or cut off, the payload gets a part that says so.

`write` and `remove` raise `JournalFull` if the disk has no room: then the file is as before; try again later.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from zambezi.wire.text import as_bytes, as_text
from zambezi.zeps.errors import JournalError, JournalFull
from zambezi.zeps.journal.files import EXHAUSTED, fresh_path, open_file
from zambezi.zeps.journal.identity import sync_directory

_log: Final = logging.getLogger("zambezi.zeps")

FILE: Final = "positions"
READER: Final = 1  # the kinds of positions
GROUP: Final = 2
SETTINGS: Final = 3  # of a stream in an object store: its payload is JSON (see `zambezi.zeps.journal.stored_policy`)
KINDS: Final = {READER: "reader", GROUP: "group", SETTINGS: "settings"}
OWNER: Final = 16  # bytes of the id of a reader's holder
NO_OWNER: Final = bytes(OWNER)
LONGEST_NAME: Final = 255  # bytes
LARGEST_PAYLOAD: Final = 1 << 22  # bytes
HIGHEST: Final = (1 << 63) - 1  # the highest sequence

_RECORD_MARK: Final = b"\xaa\xb0"
_HEAD: Final = Struct(">2sII")  # mark, length, CRC of the length and the content
_LENGTH: Final = Struct(">I")
_CUT: Final = Struct(">cIQ")  # a part of a payload: its kind, the length of a sequence, and the sequence
LAST, REMOVED, MORE = 0, 1, 2  # what a record means: the state of a name, that it is gone, or more payload
_CONTENT: Final = Struct(f">BBQQQ{OWNER}s")
_LONGEST: Final = _CONTENT.size + 2 * (1 + LONGEST_NAME) + LARGEST_PAYLOAD
_LARGEST_FILE: Final = 1 << 28  # bytes that are read; only a crafted file has more
COMPACT: Final = 1 << 20  # bytes of a file, from which on old records are removed
_FULL: Final = EXHAUSTED | {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

Key: TypeAlias = tuple[int, str]  # the kind and the name
WithDescriptors: TypeAlias = Callable[[Callable[[], int]], int]


class Position(NamedTuple):
    """The state of a named reader or of a group."""

    kind: int
    name: str
    position: int  # the sequence of the last message that is acknowledged, with all messages before it
    highest: int = 0  # the highest sequence that the payload mentions; 0: `position`
    time: int = 0  # of the last change, in microseconds since 1970
    owner: bytes = NO_OWNER  # the id of the client that held the reader last
    user: str = ""  # the user to whom the reader belongs; empty: all
    payload: bytes = b""

    @property
    def key(self) -> Key:
        """The kind and the name."""
        return self.kind, self.name

    def pack(self, meaning: int = LAST) -> bytes:
        """Return the bytes of a record."""
        try:
            name, user = as_bytes(self.name), as_bytes(self.user)
        except UnicodeEncodeError:
            raise JournalError(f"the name {self.name!a} cannot be encoded: it contains a lone surrogate") from None
        if not 0 < len(name) <= LONGEST_NAME or len(user) > LONGEST_NAME:
            raise JournalError(f"the name of a reader must have 1 to {LONGEST_NAME} bytes; this one has {len(name)}")
        if len(self.payload) > LARGEST_PAYLOAD:
            raise JournalError(f"a position can keep {LARGEST_PAYLOAD} bytes, not {len(self.payload)}")
        fixed = _CONTENT.pack(self.kind, meaning, self.position, self.highest, self.time, self.owner)
        content = b"".join((fixed, bytes((len(name),)), name, bytes((len(user),)), user, self.payload))
        return _HEAD.pack(_RECORD_MARK, len(content), _check(content)) + content

    @property
    def size(self) -> int:
        """The bytes of its record."""
        text = len(as_bytes(self.name)) + len(as_bytes(self.user))
        return _HEAD.size + _CONTENT.size + 2 + text + len(self.payload)

    def cut_after(self, last: int) -> Position:
        """Return the position for a stream that has no messages after a sequence."""
        if max(self.position, self.highest) <= last:
            return self
        cut = _CUT.pack(b"C", 8, last) if self.payload else b""
        return self._replace(
            position=min(self.position, last), highest=min(self.highest, last), payload=self.payload + cut
        )

    def extend(self, more: Position) -> Position:
        """Return the position with a longer payload; everything else is that of `more`."""
        return more._replace(payload=self.payload + more.payload)


def _check(content: bytes) -> int:
    return crc32(content, crc32(_LENGTH.pack(len(content))))


class Record(NamedTuple):
    """A part of the file: a valid record, or damaged bytes if `state` is None."""

    offset: int
    length: int
    state: Position | None
    meaning: int = LAST


def unpack(octets: bytes, offset: int) -> Record | None:
    """Return the record at an offset, or None if there is no valid one."""
    if len(octets) < offset + _HEAD.size:
        return None
    mark, length, check = _HEAD.unpack_from(octets, offset)
    begin = offset + _HEAD.size
    if mark != _RECORD_MARK or not _CONTENT.size + 3 <= length <= min(_LONGEST, len(octets) - begin):
        return None
    content = octets[begin : begin + length]
    if _check(content) != check:
        return None
    kind, meaning, position, highest, time, owner = _CONTENT.unpack_from(content)
    name, after = _text(content, _CONTENT.size)
    user, after = _text(content, after)
    if not name or after > length or max(position, highest) > HIGHEST or meaning > MORE:
        return None  # valid bytes that no release writes
    state = Position(kind, name, position, highest, time, owner, user, content[after:])
    return Record(offset, _HEAD.size + length, state, meaning)


def _text(content: bytes, at: int) -> tuple[str, int]:
    """Return the text at an offset, and the offset after it, which is too high if the text is cut off."""
    if at >= len(content):
        return "", len(content) + 1
    end = at + 1 + content[at]
    return as_text(content[at + 1 : end]), end


def walk(octets: bytes) -> Iterator[Record]:
    """Yield the records of a file in order, and the damaged stretches between and after them."""
    offset = damaged = 0
    while offset < len(octets):
        record = unpack(octets, offset)
        if record is None:
            found = octets.find(_RECORD_MARK, offset + 1)
            offset = found if found >= 0 else len(octets)
            continue
        if offset > damaged:
            yield Record(damaged, offset - damaged, None)
        yield record
        offset = damaged = offset + record.length
    if offset > damaged:
        yield Record(damaged, offset - damaged, None)


class Content:
    """The content of a file: the last state of each name, and the damage."""

    def __init__(self, octets: bytes) -> None:
        self.states: dict[Key, Position] = {}
        self.end = 0  # of the last valid record
        self.size = len(octets)
        self.damaged: list[tuple[int, int]] = []  # offset and length of the stretches before `end`
        stretch: tuple[int, int] | None = None
        for offset, length, state, meaning in walk(octets):
            if state is None:
                stretch = offset, length
                continue
            if stretch is not None:
                self.damaged.append(stretch)
                stretch = None
            self.end = offset + length
            before = self.states.get(state.key)
            if meaning == REMOVED:
                self.states.pop(state.key, None)
            elif meaning == MORE:
                if before is not None:  # else the state that it belongs to is damaged
                    self.states[state.key] = before.extend(state)
            else:
                self.states[state.key] = state

    @property
    def torn(self) -> int:
        """The bytes at the end that are no record: a broker is writing them, or a crash has interrupted it."""
        return self.size - self.end


def read_positions(directory: Path) -> Content:
    """Return the content of the file of a stream. A missing file has none."""
    try:
        descriptor = open_file(directory / FILE)
    except FileNotFoundError:
        return Content(b"")
    try:
        return Content(_read(descriptor))
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> bytes:
    pieces = []
    offset = 0
    while offset < _LARGEST_FILE and (piece := os.pread(descriptor, 1 << 20, offset)):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


class Positions:
    """The positions of a stream that is open for writing. One thread calls `write` and `remove`; any others `sync`."""

    def __init__(self, directory: Path, last: int, with_descriptors: WithDescriptors) -> None:
        """Read the file, and recover it: `last` is the last sequence of the stream. Blocks."""
        self.problems: list[str] = []
        self.written = 0  # how many writes there were
        self.synced = 0  # how many of them the disk is known to have
        self.on_write: Callable[[bytes], object] = _ignore  # called with the records of each write
        self._directory = directory
        self._path = directory / FILE
        self._with_descriptors = with_descriptors
        self._lock = threading.Lock()  # held for moments: the fields below, and the end of the file
        self._disk = threading.Lock()  # held by a thread that waits for the disk
        self._states: dict[Key, Position] = {}
        self._pieces: dict[Key, list[bytes]] = {}  # of payloads that were extended: they are joined when asked for
        self._kinds: Counter[int] = Counter()
        self._names: dict[int, tuple[str, ...]] = {}  # by kind, in order, as far as they were asked for
        self._descriptor = -1
        self._is_closed = False
        self._has_file = self._name_synced = False
        self._size = 0  # bytes of the file
        self._live = 0  # bytes of the last records of all names
        self._compact_from = COMPACT
        self._recover(last)

    def _recover(self, last: int) -> None:
        content = read_positions(self._directory)
        self._has_file = content.size > 0 or self._path.exists()
        for offset, length in content.damaged:
            self.problems.append(
                f"{self._path}, byte {offset}: {length} bytes are damaged; readers that had their last position there "
                "have an earlier one, or none"
            )
        self._states = content.states
        self._measure()
        self._size = content.end
        self.written = int(content.end > 0)  # a killed process may have left bytes that the disk does not have
        if content.damaged or any(state is not state.cut_after(last) for state in self._states.values()):
            self.cut_after(last)
            self._rewrite()
        elif content.torn:
            descriptor = self._open()
            os.ftruncate(descriptor, content.end)
            self.release()

    def _measure(self) -> None:
        self._live = sum(state.size for state in self._states.values())
        self._kinds = Counter(state.kind for state in self._states.values())
        self._names.clear()

    # State

    def get(self, kind: int, name: str) -> Position | None:
        """Return the position of a name, or None if it is not known."""
        if self._pieces:
            with self._lock:
                self._join((kind, name))
        return self._states.get((kind, name))

    def _join(self, key: Key) -> None:
        """Join the pieces of a payload. The lock is held."""
        pieces = self._pieces.pop(key, None)
        if pieces is not None:
            state = self._states[key]
            self._states[key] = state._replace(payload=b"".join([state.payload, *pieces]))

    def _join_all(self) -> None:
        for key in tuple(self._pieces):
            self._join(key)

    def all(self, kind: int) -> list[Position]:
        """Return the positions of a kind, in the order of their names."""
        if self._pieces:
            with self._lock:
                self._join_all()
        states = self._states
        return [state for name in self.names(kind) if (state := states.get((kind, name))) is not None]

    def names(self, kind: int) -> tuple[str, ...]:
        """Return the names of a kind, in order. They are sorted only if there are others than before."""
        if kind not in self._names:
            self._names[kind] = tuple(sorted([name for of, name in tuple(self._states) if of == kind]))
        return self._names[kind]

    def count(self, kind: int) -> int:
        """Return how many names of a kind there are."""
        return self._kinds[kind]

    def lowest(self, kind: int) -> int | None:
        """Return the lowest position of a kind; None if there is none."""
        return min([state.position for state in tuple(self._states.values()) if state.kind == kind], default=None)

    def __len__(self) -> int:
        return len(self._states)

    # Writing

    def write(self, states: Iterable[Position]) -> None:
        """Write new positions, each instead of the one that its name had, with one system call.

        Raises `JournalFull` if there is no room, and `JournalError` if the file cannot be written: then nothing has
        changed.
        """
        given = list(states)
        octets = b"".join([state.pack() for state in given])
        with self._lock:
            self._append(octets)
            for state in given:
                if state.key not in self._states:
                    self._names.pop(state.kind, None)
                self._forget(state.key)
                self._states[state.key] = state
                self._live += state.size
                self._kinds[state.kind] += 1

    def extend(self, states: Iterable[Position]) -> None:
        """Add to the payloads of names that are known, and change everything else, with one system call.

        Only the new part of a payload is written. It raises what `write` raises.
        """
        given = list(states)
        octets = b"".join([state.pack(MORE) for state in given])
        with self._lock:
            self._append(octets)
            for state in given:
                key = state.key
                before = self._states[key]
                self._states[key] = state._replace(payload=before.payload)
                self._pieces.setdefault(key, []).append(state.payload)
                self._live += len(state.payload) + len(as_bytes(state.user)) - len(as_bytes(before.user))

    def remove(self, keys: Iterable[Key]) -> None:
        """Remove names. It raises what `write` raises."""
        known = [self._states[key] for key in keys if key in self._states]
        octets = b"".join([state.pack(REMOVED) for state in known])
        with self._lock:
            self._append(octets)
            for state in known:
                self._forget(state.key)
                self._names.pop(state.kind, None)

    def _forget(self, key: Key) -> None:
        self._join(key)
        before = self._states.pop(key, None)
        if before is not None:
            self._live -= before.size
            self._kinds[before.kind] -= 1

    def _append(self, octets: bytes) -> None:
        if not octets:
            return
        try:
            descriptor = self._open()
            # At its place: the bytes that a failed write has left behind are overwritten.
            if os.pwrite(descriptor, octets, self._size) < len(octets):
                with suppress(OSError):
                    os.ftruncate(descriptor, self._size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._write_error(error) from error
        self._size += len(octets)
        self.written += 1
        self.on_write(octets)

    def _open(self) -> int:
        if self._is_closed:
            raise OSError(errno.EBADF, "the stream is closed")
        if self._descriptor < 0:
            flags = os.O_RDWR | os.O_CREAT
            self._descriptor = self._with_descriptors(partial(open_file, self._path, flags))
            self._has_file = True
        return self._descriptor

    def _write_error(self, error: OSError) -> JournalError:
        kind = JournalFull if error.errno in _FULL else JournalError
        return kind(f"{self._path} cannot be written: {error.strerror or error}")

    # The disk

    def sync(self) -> None:
        """Write everything to the disk; raise `OSError` if that fails. Blocks."""
        with self._disk:
            with self._lock:
                written = self.written
                if written == self.synced:
                    return
                descriptor = os.dup(self._open())  # `release` may close the other one
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
            self._sync_name()
            self.synced = written

    def _sync_name(self) -> None:
        if not self._name_synced:
            sync_directory(self._directory)
            self._name_synced = True

    @property
    def is_mostly_old(self) -> bool:
        """Whether most of the file are records that do not count any more, so that `compact` should be called."""
        return self._size >= self._compact_from and self._size > 2 * self._live

    def compact(self) -> None:
        """Replace the file by one with the last records only. Blocks, but not `write`."""
        with self._disk:
            if self._is_closed or not self.is_mostly_old:
                return
            try:
                self._rewrite()
                self._compact_from = COMPACT
            except OSError as error:
                self._compact_from = 2 * self._size  # not again at once
                _log.warning("%s could not be made smaller: %s", self._path, error)

    def _rewrite(self, *, sync: bool = True) -> None:
        """Write the file anew. A `write` meanwhile goes to the old file, and its bytes follow in the new one."""
        with self._lock:
            written, begin = self.written, self._size
            self._join_all()
            states = list(self._states.values())
        octets = b"".join([state.pack() for state in states])
        fresh = fresh_path(self._path)
        descriptor = self._with_descriptors(partial(open_file, fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        try:
            _write_all(descriptor, octets, 0)
            if sync:
                os.fsync(descriptor)
            with self._lock:
                more = os.pread(self._open(), self._size - begin, begin) if self._size > begin else b""
                _write_all(descriptor, more, len(octets))
                fresh.rename(self._path)
                self._close()
                self._descriptor, self._size = descriptor, len(octets) + len(more)
        except OSError:
            os.close(descriptor)
            raise
        self._name_synced = False
        self._sync_name()
        self.synced = max(self.synced, written)

    def cut_after(self, last: int) -> None:
        """Move all positions back to a sequence, after which the stream has no messages. `save` writes that."""
        with self._lock:
            self._join_all()
            self._states = {key: state.cut_after(last) for key, state in self._states.items()}
            self._measure()

    def load(self, records: bytes) -> None:
        """Have the positions of some records, and no others; raise `OSError` if they cannot be written. Blocks.

        `on_write` is not called: the records come from where it would send them. The next `sync` syncs them.
        """
        states = Content(records).states
        with self._disk:
            with self._lock:
                self._join_all()
                if self._states == states:
                    return
                self._states = states
                self._measure()
            self._rewrite(sync=False)
            self.written += 1

    def save(self) -> None:
        """Write the file anew, and sync it to the disk; raise `OSError` if that fails. Blocks."""
        with self._disk:
            if self._has_file:
                self._rewrite()

    def release(self) -> None:
        """Close the file until it is needed again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def close(self) -> None:
        """Close the file, after threads that use it."""
        with self._disk:
            self.release()
            self._is_closed = True  # its directory can be that of another stream now


def _ignore(records: bytes) -> None:
    """Do nothing: the positions are on the disk only."""


def _write_all(descriptor: int, octets: bytes, offset: int) -> None:
    if os.pwrite(descriptor, octets, offset) < len(octets):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
