"""zambezi.zeps.journal.changing: a journal that is a cache gets segments, loses them, and starts again after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.zeps.journal.streams import append, held
from zambezi.zeps.errors import Absent, OutOfRange
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.backing import Backing
from zambezi.zeps.journal.entry import IndexEntry
from zambezi.zeps.journal.extract import batches
from zambezi.zeps.journal.loaded import clip, write_segment
from zambezi.zeps.journal.scrub import Scrub
from zambezi.zeps.journal.segment import INDEX, LOG


class Memory:
    """A store in memory."""

    first_time, octets = 1_000_000, 1000

    def __init__(self, journal: Journal) -> None:
        self.pieces = list(batches(journal, 0, journal.last))
        self.first, self.last, self.last_time = journal.first, journal.last, journal.last_time
        self.loads = 0

    def piece_of(self, sequence: int) -> int:
        return sequence

    def load(self, journal: Journal, sequence: int) -> None:
        self.loads += 1
        entry, octets = next(one for one in self.pieces if one[0].first <= sequence <= one[0].last)
        gap = journal.gap_at(sequence)
        assert gap is not None
        kept, part = clip([IndexEntry(entry.first, 0, *entry[2:])], octets, *gap)
        assert journal.insert(write_segment(str(journal.directory), kept, part, journal.next_revision()))

    def read_ahead(self, journal: object, sequence: int) -> None: ...


POLICY = Policy(segment=1, sync="never")  # a batch in each segment


def cached(store: Store) -> tuple[Journal, Memory]:
    journal = store.open("prices", POLICY)
    for number in range(1, 7):
        append(journal, b"%d" % number, b"%d" % number, now=float(number))
    memory = Memory(journal)
    journal.become_cache(cast("Backing", memory))
    return journal, memory


def load_all(journal: Journal) -> dict[int, bytes]:
    while True:
        try:
            return held(journal)
        except Absent as absent:
            absent.load()


def test_an_evicted_segment_is_loaded_again(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal, memory = cached(store)
        before = held(journal)
        reader = journal.reader(2)
        span = reader.peek(1000)
        assert span is not None
        for segment in journal.segments[1:4]:
            assert journal.evict(segment)
        assert not journal.evict(journal.segments[-1])
        assert span.read().first == 3  # its file stays open
        assert (journal.first, journal.last, journal.gap_at(5)) == (1, 12, (3, 8))
        assert load_all(journal) == before
        assert memory.loads == 3
        assert journal.gap_at(5) is None


def test_a_reader_in_an_evicted_segment_goes_on_in_the_loaded_one(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal, _ = cached(store)
        reader = journal.reader(2)
        assert reader.peek(1) is not None
        journal.evict(journal.segments[1])
        with pytest.raises(Absent) as absent:
            reader.peek(1)
        absent.value.load()
        span = reader.peek(1000)
        assert span is not None
        assert (span.first, span.last) == (3, 4)


@pytest.mark.parametrize("suffix", [LOG, INDEX])
def test_a_process_that_is_killed_while_it_evicts(tmp_path: Path, suffix: str) -> None:
    with Store(tmp_path) as store:
        journal, memory = cached(store)
        before = held(journal)
        journal.evict(journal.segments[2])
        load_all(journal)
    for path in sorted((tmp_path / "prices").glob(f"*5-1{suffix}")) + sorted((tmp_path / "prices").glob(f"*3{suffix}")):
        path.unlink()
    with Store(tmp_path) as store:
        journal = store.open("prices", POLICY)
        assert (journal.is_cache, journal.problems, journal.last) == (True, [], 12)
        journal.become_cache(cast("Backing", memory))
        assert load_all(journal) == before
        assert len(list((tmp_path / "prices").glob("*.log"))) == len(journal.segments)


def test_the_disk_can_lack_the_end_of_the_stream(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal, memory = cached(store)
        memory.last = 20
        journal.become_cache(cast("Backing", memory))
        assert (journal.last, journal.gap_at(15)) == (20, (13, 20))
        append(journal, b"21")
        assert list(held(journal, 20)) == [21]
        with pytest.raises(Absent):
            journal.reader(12).peek(1)
    with Store(tmp_path) as store:
        assert store.open("prices", POLICY).last == 21


def test_retention_of_the_store_removes_segments_here(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal, memory = cached(store)
        memory.first = 6
        assert journal.retain(0.0) == 5
        assert (journal.first, journal.segments[0].first) == (6, 5)
        with pytest.raises(OutOfRange, match="the oldest is 6"):
            journal.reader(4).peek(1)
        assert list(load_all(journal)) == list(range(6, 13))
        assert journal.retain(1e10) == 0


def test_the_scrub_expects_gaps(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal, _ = cached(store)
        journal.evict(journal.segments[2])
        scrub = Scrub(store.journals)
        scrub.step(1 << 30, 0.0)
        assert (scrub.problems, scrub.counters.segments) == ([], 4)
