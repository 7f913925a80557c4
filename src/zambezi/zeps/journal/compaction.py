"""Compaction: of old messages the last one of each key stays, and the others are removed.

A stream with the policy `compact` keeps its last message of each key for ever. What retention would remove from another
stream (`keep_bytes`, `keep_seconds`; without them, everything but the segment that is being written) is compacted
here. Sequences never change, so a compacted part has gaps: an entry of the index covers all its sequences, and `gap`
says how many of them have no message any more.

Compaction reads the old part of a stream, and writes it again, a group of neighbouring segments at a time:

- First it finds the messages that stay. It reads backwards, and remembers the keys that it has seen. If they need more
  than `MEMORY` bytes, it takes a part of the keys, by their hash, and reads again for each other part. Each
  message that stays takes eight bytes of memory.
- Then it writes each group with messages to remove as one new segment, which has the revision after those that it
  replaces. The new files are on the disk before the log, which makes them count, gets its name. A crash leaves the old
  segments or the new one, and maybe files that the next start removes (see `segment`).
- A batch keeps its time. A batch without messages becomes a part of the next one.

A last message without a body is a tombstone: its key is removed, too, `keep_tombstones` seconds after it was published.
Until then readers can see that the key is gone. The last message of the compacted part always stays, so that for every
sequence up to the end of a stream there is a message at or after it.

All of this runs on a thread of its own, a step at a time (`Compactor.step`). Readers and `append` do not wait for it:
only the replacement in the list of segments takes the journal's lock.
"""

from __future__ import annotations

import logging
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from zambezi.zeps.about import about
from zambezi.zeps.block import Block
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.counts import COUNTS
from zambezi.zeps.journal.entry import IndexEntry
from zambezi.zeps.journal.extract import batches_in, read_pieces
from zambezi.zeps.journal.files import fresh_path, open_file
from zambezi.zeps.journal.journal import Journal
from zambezi.zeps.journal.keytable import KEYS, KeyTable
from zambezi.zeps.journal.segment import INDEX, LOG, Files, Segment, write_pieces
from zambezi.zeps.layout import BODY_LENGTH, DELIVER_KEY, LONG, SHORT

_log: Final = logging.getLogger("zambezi.zeps")

RATE: Final = 32 << 20  # bytes per second that are read and written
MEMORY: Final = 128 << 20  # bytes for keys, in about
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_KEY: Final = 110  # bytes of memory that a key takes, beside its own
_PIECE: Final = 1 << 17  # bytes that are read at once
_ENTRIES: Final = 256  # batches that are read at once
_LEAST: Final = 1 << 16  # the bytes that a part of the work counts for, at least
_MICRO: Final = 1_000_000
_DISK_PAUSE: Final = 60.0  # seconds until the next attempt, if the disk is full or fails


@dataclass(slots=True)
class CompactionCounters:
    """Counters of the compaction of all streams."""

    runs: int = 0  # over a stream
    removed: int = 0  # messages
    octets: int = 0  # bytes of logs that were removed
    failures: int = 0  # runs that ended with an error


class Compactor:
    """The compaction of some journals, in steps. One thread at a time calls `step`."""

    def __init__(self, journals: Callable[[], Sequence[Journal]]) -> None:
        self.counters = CompactionCounters()
        self.problems: dict[str, str] = {}  # why a stream cannot be compacted, by its name
        self._journals = journals
        self._work: Iterator[int] | None = None
        self._pauses: dict[str, float] = {}  # when a stream that failed is tried again
        self._stopped = False

    def stop(self) -> None:
        """End the current step soon, and remove its files. Any thread may call this."""
        self._stopped = True

    def step(self, octets: int, now: float, rest: Callable[[], object] = lambda: None) -> bool:
        """Read or write about so many bytes; return whether there is more to do. Blocks.

        `now` is the time in seconds since 1970. `rest` is called after every few milliseconds of work: a thread that
        computes keeps the other threads of its process waiting.
        """
        if self._work is None and not self._stopped:
            self._work = self._compact_all(now)
        while octets > 0 and not self._stopped:
            assert self._work is not None
            done = next(self._work, None)
            if done is None:
                self._work = None
                return False
            octets -= done
            rest()
        if self._stopped:
            self._work = None  # this removes the files that are being written
        return not self._stopped

    def _compact_all(self, now: float) -> Iterator[int]:
        for journal in list(self._journals()):
            if not journal.policy.compact or now < self._pauses.get(journal.name, 0.0):
                continue
            try:
                if segments := journal.to_compact(now):
                    yield from self._compact(journal, segments, now)
                yield from _add_tables(journal)
            except FileNotFoundError:
                continue  # retention, or an operator, has removed a segment meanwhile
            except (OSError, JournalError) as error:
                if not journal.is_open:
                    continue  # it was deleted
                self.counters.failures += 1
                self._pauses[journal.name] = now + _DISK_PAUSE
                self.problems[journal.name] = f"it cannot be compacted: {error}"
                _log.warning(
                    "stream %a cannot be compacted now: %s", journal.name, error, extra=about(journal.name, error)
                )
            else:
                self.problems.pop(journal.name, None)
                self._pauses.pop(journal.name, None)

    def _compact(self, journal: Journal, segments: list[Segment], now: float) -> Iterator[int]:
        survey = Survey(segments, int((now - journal.policy.keep_tombstones) * _MICRO))
        yield from survey.find_last()
        for group in _groups(segments, survey, journal.policy.segment):
            if len(group) == 1 and survey.count(group[0]) == group[0].messages:
                continue
            rewriting = Rewriting(group, survey)
            messages, octets = sum(one.messages for one in group), sum(one.size for one in group)
            try:
                yield from rewriting.write()
                if not journal.replace_segments(group, rewriting.new, rewriting.give_names):
                    return  # an operator has trimmed, cut or deleted the stream meanwhile
            finally:
                rewriting.discard()
            self.counters.removed += messages - rewriting.new.messages
            self.counters.octets += octets - rewriting.new.size
        journal.note_compacted(segments[-1].last)
        self.counters.runs += 1


class Survey:
    """The messages of some segments that stay: the last one of each key, except old tombstones."""

    def __init__(self, segments: list[Segment], horizon: int) -> None:
        self._segments = segments
        self._horizon = horizon  # tombstones before this time go
        self._last: list[array[int]] = []  # sequences in order, for each part of the keys
        self.end = segments[-1].last

    def find_last(self) -> Iterator[int]:
        """Find the messages that stay; yield the bytes that were read."""
        parts = [(0, 1)]  # keys whose hash has this remainder by this modulus
        while parts:
            remainder, modulus = parts.pop()
            found = array("Q")
            seen: set[bytes] = set()
            room = MEMORY
            for entries, octets in self._pieces_backwards():
                before = len(seen)
                found.extend(self._last_in(entries, octets, seen, remainder, modulus))
                room -= (len(seen) - before) * (_KEY + entries[0].length // max(1, entries[0].count) // 4)
                if room < 0:
                    parts += [(remainder + modulus, 2 * modulus), (remainder, 2 * modulus)]
                    break
                yield max(_LEAST, len(octets))
            else:
                found.reverse()
                self._last.append(found)

    def _pieces_backwards(self) -> Iterator[tuple[list[IndexEntry], bytes]]:
        for segment in reversed(self._segments):
            yield from _read(segment, backwards=True)

    def _last_in(
        self, entries: list[IndexEntry], octets: bytes, seen: set[bytes], remainder: int, modulus: int
    ) -> list[int]:
        """Return the sequences of a piece that stay, the last one first. `seen` has the keys of later pieces."""
        count = sum([entry.count for entry in entries])
        block = Block(entries[0].first, entries[-1].last, count, octets, 0)
        keys = dict(zip(block.keys, range(count), strict=True))  # with the last message of each
        if modulus > 1:
            keys = {key: index for key, index in keys.items() if hash(key) % modulus == remainder}
        indices = [index for key, index in keys.items() if key not in seen]
        seen.update(keys)
        indices.sort(reverse=True)
        sequences = block.sequences
        old = sum([entry.count for entry in entries if entry.time < self._horizon])
        if old:
            starts = block.starts
            indices = [
                index
                for index in indices
                if index >= old
                or not _is_empty(octets, starts[index], starts[index + 1])
                or sequences[index] == self.end
            ]
        return [sequences[index] for index in indices]

    def count(self, segment: Segment) -> int:
        """Return how many messages of a segment stay."""
        return sum(bisect_right(one, segment.last) - bisect_left(one, segment.first) for one in self._last)

    def staying(self, first: int, last: int) -> set[int]:
        """Return the sequences in a range whose messages stay."""
        found: set[int] = set()
        for one in self._last:
            found.update(one[bisect_left(one, first) : bisect_right(one, last)])
        return found


def _read(segment: Segment, *, backwards: bool = False) -> Iterator[tuple[list[IndexEntry], bytes]]:
    """Yield small pieces of a segment: the work on each takes a few milliseconds."""
    return read_pieces(segment, Files(segment.path), backwards=backwards, octets=_PIECE, most=_ENTRIES)


def _is_empty(octets: bytes, start: int, stop: int) -> bool:
    """Return whether a message in a block has no body."""
    key = start + DELIVER_KEY + (LONG if octets[start] else SHORT)
    return key + octets[key - 1] + BODY_LENGTH.size == stop


def _groups(segments: list[Segment], survey: Survey, size: int) -> Iterator[list[Segment]]:
    """Yield groups of neighbours, each of which becomes one segment of about `size` bytes at most, with a message."""
    group: list[Segment] = []
    expected = count = 0
    for segment in segments:
        staying = survey.count(segment)
        octets = segment.size * staying // max(1, segment.messages)
        if group and count and expected + octets > size:
            yield group
            group, expected, count = [], 0, 0
        group.append(segment)
        expected += octets
        count += staying
    yield group


class Rewriting:
    """The replacement of some neighbouring segments by one."""

    def __init__(self, group: list[Segment], survey: Survey) -> None:
        self._group = group
        self._survey = survey
        revision = max(segment.revision for segment in group) + 1
        self.new = Segment(str(Path(group[0].path).parent), group[0].first, revision)
        self._held: IndexEntry | None = None  # the last entry: it is written when the next one is known
        self._table = KeyTable()

    def write(self) -> Iterator[int]:
        """Write the new files under temporary names, and sync them; yield the bytes that were read and written."""
        log = open_file(fresh_path(self.new.path + LOG), _CREATE)
        try:
            index = open_file(fresh_path(self.new.path + INDEX), _CREATE)
            try:
                for segment in self._group:
                    for entries, octets in _read(segment):
                        for entry, batch in batches_in(entries, octets):
                            self._add(entry, batch, log, index)
                        yield max(_LEAST, 2 * len(octets))
                self._finish_index(index)
                os.fsync(log)
                os.fsync(index)
            finally:
                os.close(index)
        finally:
            os.close(log)
        write_pieces(fresh_path(self.new.path + KEYS), self._table.pieces())
        self._copy_counts()

    def _add(self, entry: IndexEntry, octets: bytes, log: int, index: int) -> None:
        staying = self._survey.staying(entry.first, entry.last)
        if not staying:
            return  # its sequences become a part of the next entry
        block = Block(entry.first, entry.last, entry.count, octets, entry.credit)
        if len(staying) < block.count:
            block = block.select([number for number, at in enumerate(block.sequences) if at in staying])
        self._write_held(index)
        _write(log, block.octets)
        new = self.new
        self._table.add(new.entries, block.keys)
        self._held = IndexEntry(
            new.last + 1,
            new.size,
            entry.time,
            block.count,
            len(block.octets),
            block.credit,
            crc32(block.octets),
            gap=entry.last - new.last - block.count,
            removed=new.removed,
        )
        new.note_append(entry.last, len(block.octets), entry.time)
        new.removed += self._held.gap

    def _write_held(self, index: int) -> None:
        if self._held is not None:
            _write(index, self._held.pack())

    def _finish_index(self, index: int) -> None:
        """Write the last entry, which covers all sequences up to the end of the group."""
        assert self._held is not None  # a group has a message
        more = self._group[-1].last - self.new.last
        self._held = self._held._replace(gap=self._held.gap + more)
        self._write_held(index)
        self.new.last += more
        self.new.removed += more

    def _copy_counts(self) -> None:
        """Keep the counts of the last segment, if it still has them."""
        try:
            source = open_file(self._group[-1].path + COUNTS)
        except FileNotFoundError:
            return
        try:
            write_pieces(fresh_path(self.new.path + COUNTS), iter(lambda: os.read(source, 1 << 20), b""))
        finally:
            os.close(source)

    def give_names(self) -> None:
        """Give the files their names, the log last: from then on the new segment counts."""
        for suffix in (COUNTS, KEYS, INDEX, LOG):
            fresh = fresh_path(self.new.path + suffix)
            if suffix != COUNTS or fresh.exists():
                fresh.rename(self.new.path + suffix)

    def discard(self) -> None:
        """Remove the temporary files."""
        for suffix in (LOG, INDEX, KEYS, COUNTS):
            with suppress(OSError):
                fresh_path(self.new.path + suffix).unlink()


def _add_tables(journal: Journal) -> Iterator[int]:
    """Write the tables of keys that closed segments do not have yet; yield the bytes that were read."""
    for segment in journal.segments[:-1]:
        if segment.has_table or Path(segment.path + KEYS).exists():
            segment.has_table = True
            continue
        table = KeyTable()
        number = 0
        for entries, octets in _read(segment):
            offset = entries[0].offset
            for entry in entries:
                batch = octets[entry.offset - offset : entry.end - offset]
                table.add(number, Block(entry.first, entry.last, entry.count, batch, 0).keys)
                number += 1
            yield max(_LEAST, len(octets))
        fresh = fresh_path(segment.path + KEYS)
        try:
            write_pieces(fresh, table.pieces())
            journal.give_name(segment, fresh, KEYS)
        finally:
            fresh.unlink(missing_ok=True)
        segment.has_table = True


def _write(descriptor: int, octets: bytes) -> None:
    view = memoryview(octets)
    while view:
        view = view[os.write(descriptor, view) :]
