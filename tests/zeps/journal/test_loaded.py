"""zambezi.zeps.journal.loaded: parts of batches, and segments that are written from them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from uuid import uuid4
from zlib import crc32

import pytest

from tests.zeps.journal.streams import append, block, held, pieces
from zambezi.zeps.errors import JournalFull
from zambezi.zeps.journal import Store, segment
from zambezi.zeps.journal.entry import IndexEntry, unpack
from zambezi.zeps.journal.identity import Identity
from zambezi.zeps.journal.loaded import clip, reset_cache, write_segment
from zambezi.zeps.journal.segment import Files


def batches() -> tuple[list[IndexEntry], bytes, dict[int, bytes]]:
    """Return three batches of the sequences 11 to 19, and their messages."""
    entries, octets = [], b""
    messages: dict[int, bytes] = {}
    for first in (11, 14, 17):
        made = block(first, [b"%d" % (first + number) * (number + 1) for number in range(3)])
        entry = IndexEntry(first, len(octets), first * 10, 3, len(made.octets), made.credit, 0)
        entries.append(entry._replace(crc=crc32(made.octets)))
        octets += made.octets
        messages |= dict(zip(range(first, first + 3), pieces(made), strict=True))
    return entries, octets, messages


@pytest.mark.parametrize(("low", "high"), [(1, 100), (11, 19), (12, 18), (14, 16), (15, 15), (13, 14), (11, 11)])
def test_a_clipped_piece_has_the_messages_of_the_gap_only(low: int, high: int, tmp_path: Path) -> None:
    entries, octets, messages = batches()
    kept, part = clip(entries, octets, low, high)
    wanted = [message for sequence, message in messages.items() if low <= sequence <= high]
    assert part == b"".join(wanted)
    made = write_segment(str(tmp_path), kept, part, 3)
    assert (made.first, made.last, made.size) == (max(low, 11), min(high, 19), len(part))
    files = Files(made.path)
    again = segment.Segment(str(tmp_path), made.first, 3)
    again.read_extent(files)
    assert (again.first, again.last, again.size, again.entries) == (made.first, made.last, made.size, made.entries)
    assert (again.first_time, again.last_time) == (made.first_time, made.last_time)
    for number in range(made.entries):
        entry = unpack(files.read_entries(number, 1))
        assert entry is not None
        assert made.read_cuts(files, entry).starts[-1] == entry.length


def test_nothing_remains_of_a_piece_outside_the_gap() -> None:
    entries, octets, _ = batches()
    assert clip(entries, octets, 20, 30) == ([], b"")


def test_a_full_disk_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries, octets, _ = batches()

    def full(_descriptor: int, _octets: object, _offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(JournalFull, match="No space left"):
        write_segment(str(tmp_path), entries, octets, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_is_reset_begins_at_a_sequence(tmp_path: Path) -> None:
    incarnation = uuid4()
    with Store(tmp_path) as store:
        journal = store.open("prices")
        append(journal, b"1", b"2")
        journal.abandon()
        reset_cache(journal.directory, Identity("prices", incarnation), 8)
        journal = store.open("prices")
        assert (journal.first, journal.last, journal.incarnation, journal.problems) == (8, 7, incarnation, [])
        append(journal, b"8")
        assert list(held(journal)) == [8]
