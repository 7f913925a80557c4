"""The restoration of damaged segments from a copy of the data directory, such as a backup.

An index has the CRC of every batch. So bytes of a copy prove that they are the right ones: they go into the log only if
they have the CRC of the batch that is damaged. If the index itself is damaged, that of the copy replaces it, or it is
created again from the log. Only closed segments are restored: the last one is repaired whenever a broker opens it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.counts import COUNTS, Counts
from zambezi.zeps.journal.entry import SIZE, IndexEntry, unpack
from zambezi.zeps.journal.files import fresh_path, open_file
from zambezi.zeps.journal.identity import sync_directory
from zambezi.zeps.journal.journal import Journal
from zambezi.zeps.journal.repair import apply_repair, examine_segment
from zambezi.zeps.journal.segment import INDEX, LOG, Files, Segment, write_all, write_pieces
from zambezi.zeps.journal.verify import SegmentCheck, crc_of

_CHUNK = 4096  # entries that are read at once
_PIECE = 1 << 20


def restore_missing(journal: Journal, copy: Journal) -> Iterator[str]:
    """Copy the segments that are missing between the others, and yield what was done. Open the journal again then."""
    _check_same(journal, copy)
    for segment, following in pairwise(copy.segments):
        is_known = any(one.first <= segment.first <= max(one.first, one.last) for one in journal.segments)
        if is_known or not journal.first < segment.first < journal.segments[-1].first:
            continue
        if _has_good_index(segment, Files(segment.path), following.first):
            for suffix in (COUNTS, INDEX, LOG):  # the log last: the others do not count without it
                _copy_file(Path(segment.path + suffix), journal.directory / Path(segment.path + suffix).name)
            sync_directory(journal.directory)
            yield f"{Path(segment.path).name}{LOG}: copied, it was missing"


def restore(journal: Journal, copy: Journal | None) -> Iterator[str]:
    """Restore the damaged parts of the closed segments, and yield what was done and what could not be done."""
    # A segment that was written again has other bytes than before.
    copies = {(one.first, one.revision): one for one in copy.segments[:-1]} if copy is not None else {}
    if copy is not None:
        _check_same(journal, copy)
    for segment, following in pairwise(journal.segments):
        source = copies.get((segment.first, segment.revision))
        yield from _restore_segment(journal, segment, following, Files(source.path) if source is not None else None)


def _check_same(journal: Journal, copy: Journal) -> None:
    if journal.incarnation != copy.incarnation:
        raise JournalError(
            f"{copy.directory} is incarnation {copy.incarnation} of the stream, and {journal.directory} is "
            f"{journal.incarnation}: their sequences may stand for other messages; use another copy"
        )


def _restore_segment(journal: Journal, segment: Segment, following: Segment, source: Files | None) -> Iterator[str]:
    name = Path(segment.path).name
    files = Files(segment.path, os.O_RDWR)
    is_changed = False
    if not _has_good_index(segment, files, following.first):
        is_changed = True
        if source is not None and _has_good_index(segment, source, following.first):
            _replace_index(files, source)
            yield f"{name}{INDEX}: replaced by that of the copy"
        else:
            found = examine_segment(
                segment, files, journal.policy.batch, thorough=True, check_log=False, following=following.first
            )
            apply_repair(files, found, cut_log=False)
            yield f"{name}{INDEX}: created again from the log, up to sequence {found.last_kept}"
            if found.last_kept + 1 < following.first:
                lost = f"{found.last_kept + 1} to {following.first - 1}"
                yield f"{name}{LOG}: not repaired: the log has no sequences {lost}, and no copy has them"
    if any(SegmentCheck(segment, 0, is_parsed=False).check_counts(files)):
        is_changed = True
        segment.replace_counts(files, Counts(0).snapshot(segment.first))
        yield f"{name}{COUNTS}: created again, without the counts of this segment; later segments have their own"
    end = 0
    for entry in _entries(files):
        if entry is None:
            break
        end = entry.end
        if crc_of(files, entry) == entry.crc:
            continue
        batch = f"{name}{LOG}: the batch of {entry.first} to {entry.last}"
        if source is not None and crc_of(source, entry) == entry.crc:
            _copy_batch(files, source, entry)
            is_changed = True
            yield f"{batch} is restored"
        else:
            yield f"{batch} is not repaired: no copy has its bytes"
    if end == segment_end(files, following.first) and os.fstat(files.log).st_size > end:
        os.ftruncate(files.log, end)
        is_changed = True
        yield f"{name}{LOG}: the bytes after sequence {following.first - 1} are cut off"
    if is_changed:
        files.sync()


def segment_end(files: Files, following: int) -> int:
    """Return where the log of a closed segment ends if its index leads up to the next segment; -1 if it does not."""
    size = os.fstat(files.index).st_size
    last = unpack(files.read_entries(size // SIZE - 1, 1)) if size >= SIZE else None
    return last.end if last is not None and last.last + 1 == following else -1


def _entries(files: Files) -> Iterator[IndexEntry | None]:
    number = 0
    while octets := files.read_entries(number, _CHUNK):
        yield from map(partial(unpack, octets), range(0, len(octets), SIZE))
        number += len(octets) // SIZE


def _has_good_index(segment: Segment, files: Files, following: int) -> bool:
    """Return whether the entries of an index follow from each other, and lead up to the next segment."""
    check = SegmentCheck(segment, 0)
    is_good = os.fstat(files.index).st_size % SIZE == 0
    return is_good and all(check.passes(entry) for entry in _entries(files)) and check.first == following


def _replace_index(files: Files, source: Files) -> None:
    """Replace the content of an index. After a crash in between, a broker creates it again from the log."""
    os.ftruncate(files.index, 0)
    offset = 0
    while octets := os.pread(source.index, _PIECE, offset):
        write_all(files.index, octets, offset)
        offset += len(octets)


def _copy_batch(files: Files, source: Files, entry: IndexEntry) -> None:
    offset = entry.offset
    while offset < entry.end:
        octets = source.read_log(offset, min(_PIECE, entry.end - offset))
        write_all(files.log, octets, offset)
        offset += len(octets)


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file, which gets its name when the disk has all of it."""
    fresh = fresh_path(target)
    reading = open_file(source)
    try:
        write_pieces(fresh, iter(partial(os.read, reading, _PIECE), b""))
    finally:
        os.close(reading)
    fresh.rename(target)
