"""zambezi.zeps.journal.disk_cache: what leaves the disk first, and what never leaves it."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.zeps.journal.streams import append, held
from zambezi.zeps.errors import Absent
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.backing import Backing
from zambezi.zeps.journal.disk_cache import DiskCache


class Stored:
    """A store that has a stream up to a sequence."""

    first, first_time, last_time, octets = 1, 1, 1, 1

    def __init__(self, last: int) -> None:
        self.last = last

    def piece_of(self, sequence: int) -> int:
        return sequence

    def load(self, _journal: object, _sequence: int) -> None: ...


def cached(store: Store, name: str, count: int, stored: int) -> Journal:
    """Return a journal with one message of 100 bytes in each segment, of which the store has some."""
    journal = store.open(name, Policy(segment=1, sync="never"))
    for number in range(count):
        append(journal, b"%d" % number * 100)
    journal.become_cache(cast("Backing", Stored(stored)))
    return journal


def firsts(journal: Journal) -> list[int]:
    return [segment.first for segment in journal.segments]


def test_the_segment_that_was_not_read_for_longest_goes_first(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal = cached(store, "a", 5, 5)
        size = journal.local_octets // 5
        held(journal, octets=1)
        journal.reader(1).peek(1)  # the second one was read last
        DiskCache(3 * size + size // 2, store.journals).step()
        assert firsts(journal) == [2, 4, 5]
        with pytest.raises(Absent, match="sequence 3 is in the object store"):
            journal.reader(2).peek(1)


def test_what_is_not_stored_stays_whatever_the_limit_is(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal = cached(store, "a", 5, 3)
        plain = store.open("plain")
        append(plain, b"x" * 1000)
        cache = DiskCache(1, store.journals)
        cache.step()
        assert firsts(journal) == [4, 5]
        assert cache.used == journal.local_octets > cache.limit  # type: ignore[operator]
        assert plain.segments[0].entries == 1


def test_the_active_segment_goes_last(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        one, other = cached(store, "a", 2, 2), cached(store, "b", 1, 1)
        cache = DiskCache(one.local_octets // 2, store.journals)
        cache.step()
        assert one.segments[0].entries == 0
        assert one.last == 2
        cache.free(1 << 30)
        assert [segment.entries for journal in (one, other) for segment in journal.segments] == [0, 0]
        append(other, b"new")
        assert list(held(other, 1)) == [2]


def test_room_is_made_before_a_piece_is_written(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal = cached(store, "a", 4, 4)
        size = journal.local_octets // 4
        cache = DiskCache(4 * size, store.journals)
        cache.step()
        assert len(firsts(journal)) == 4
        cache.make_room(size)
        assert len(firsts(journal)) < 4
        assert cache.used <= 4 * size
        assert cache.counters.segments == 4 - len(firsts(journal))


def test_without_a_limit_nothing_goes(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal = cached(store, "a", 4, 4)
        cache = DiskCache(None, store.journals)
        cache.make_room(1 << 40)
        cache.step()
        assert len(firsts(journal)) == 4
