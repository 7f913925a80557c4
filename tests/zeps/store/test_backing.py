"""zambezi.zeps.store.backing: a simulation of a disk that is a cache.

A broker publishes, merges and sweeps; segments are evicted at random; readers read on, by sequence and by time, from
the disk and from a store that fails now and then; the process is killed and started again, also in the middle of an
eviction; another broker takes the stream. Each reader must see every message once, in order, and byte for byte.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from tests.zeps.journal.streams import directory, pieces
from tests.zeps.store.shelf import PLACE, Shelf
from zambezi.zeps.block import Block, deliver
from zambezi.zeps.errors import Absent, JournalError, OutOfRange, StoreDamaged, StoreError
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.journal.disk_cache import DiskCache
from zambezi.zeps.journal.lookup import last_message
from zambezi.zeps.journal.reader import Reader
from zambezi.zeps.journal.segment import LOG
from zambezi.zeps.journal.sizes import size_points
from zambezi.zeps.messages import Publish
from zambezi.zeps.store.backing import AHEAD, LoadCounters, ReaderPool, StoreBacking
from zambezi.zeps.store.chunk import Footer, Kind, piece_of
from zambezi.zeps.store.commands import Procedure
from zambezi.zeps.store.stream_log import LogSettings, StreamLog

T = TypeVar("T")
SETTINGS = LogSettings(commit=0.0, chunk=200, segment=600, chunks=6)
POLICY = Policy(sync="never", segment=300, batch=100)
LIMIT = 1200
_MICRO = 1_000_000


class FailingStore:
    """A store that fails if it is told to."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.is_down = False

    def run(self, procedure: Procedure[T], patience: float) -> T:
        if self.is_down:
            raise StoreError("the store is down")
        return self.shelf.run(procedure)


class World:
    """One stream, its broker and its readers."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path = path
        self.chance = chance
        self.shelf = Shelf()
        self.store = FailingStore(self.shelf)
        self.truth: dict[int, bytes] = {}
        self.times: dict[int, int] = {}
        self.owners = 0
        self.loads = LoadCounters()
        self.evictions = 0
        self.ahead: list[list[int]] = []  # what was to be loaded ahead
        self.start()
        self.readers = [self.journal.reader(0) for _ in range(3)]
        self.seen = [reader.position for reader in self.readers]

    def start(self) -> None:
        """Start the broker, as a depot does."""
        self.owners += 1
        self.log = self.shelf.log(self.owners, SETTINGS)
        self.data = Store(self.path, policy=POLICY)
        self.journal = self.data.open("prices")
        self.cache = DiskCache(LIMIT, self.data.journals)
        assert self.journal.last <= self.log.last
        self.journal.become_cache(
            StoreBacking(
                self.store,
                self.log,
                ReaderPool(),
                self.loads,
                cache=self.cache,
                read_ahead=lambda _journal, sequences: self.ahead.append(list(sequences)),
                piece=150,
            )
        )

    def restart(self) -> None:
        positions = [reader.position for reader in self.readers]
        if self.chance.random() < 0.5:
            self.data.close()
        else:
            self.kill()
        self.start()
        self.readers = [self.journal.reader(position) for position in positions]

    def kill(self) -> None:
        """Let the process end without a word; perhaps in the middle of an eviction."""
        closed = self.journal.segments[:-1]
        if closed and self.chance.random() < 0.5:
            Path(self.chance.choice(closed).path + LOG).unlink()
        self.journal._is_open = False  # nothing is synced or removed
        self.data._journals.clear()
        self.data.close()

    def publish(self) -> None:
        self.shelf.clock.now += self.chance.choice([0.0, 0.001, 1.0])
        now = int(self.shelf.clock.now * _MICRO) + 1
        count = self.chance.randint(1, 4)
        bodies = [bytes([self.chance.randrange(256)]) * self.chance.randint(1, 40) for _ in range(count)]
        block = deliver([Publish("key", body).encode()[0] for body in bodies], self.log.last + 1)
        self.log.append(piece_of(block, max(now, self.log.last_time), POLICY.batch, ()))
        self.shelf.settle(self.log)
        self.journal.append(block, (max(now, self.journal.last_time) + 0.5) / _MICRO)
        for sequence, octets in zip(range(block.first, block.last + 1), pieces(block), strict=True):
            self.truth[sequence] = octets
            self.times[sequence] = self.journal.last_time

    def evict(self) -> None:
        journal = self.journal
        if self.chance.random() < 0.3:
            journal.close_active()
        closed = journal.segments[:-1]
        if closed:
            self.evictions += journal.evict(self.chance.choice(closed))

    def limit(self) -> None:
        self.cache.step()
        assert self.journal.local_octets <= LIMIT

    def sweep(self) -> None:
        self.log.sweep(2000, None)
        self.shelf.settle(self.log)
        self.journal.retain(0.0)

    def fail(self) -> None:
        self.store.is_down = not self.store.is_down

    def read(self) -> None:
        number = self.chance.randrange(len(self.readers))
        reader = self.readers[number]
        try:
            span = reader.peek(self.chance.choice([1, 50, 200, 1000]))
        except OutOfRange as error:
            self.fall_behind(reader, error.oldest)
            return
        except Absent as absent:
            self.load(absent)
            return
        if span is None:
            assert reader.position == self.journal.last
            reader.seek(self.chance.choice([0, self.chance.randint(0, self.journal.last)]))
            return
        self.check(span.read(), reader)
        reader.skip(span)

    def fall_behind(self, reader: Reader, oldest: int) -> None:
        assert oldest == self.journal.first == self.log.extents.first
        reader.seek(oldest - 1)

    def check(self, block: Block, reader: Reader) -> None:
        assert block.first == reader.position + 1
        found = dict(zip(range(block.first, block.last + 1), pieces(block), strict=True))
        assert found == {sequence: self.truth[sequence] for sequence in found}

    def load(self, absent: Absent) -> None:
        try:
            absent.load()
        except StoreDamaged:
            raise
        except StoreError:
            assert self.store.is_down

    def find_time(self) -> None:
        if not self.truth:
            return
        time = self.times[self.chance.randint(1, self.journal.last)] + self.chance.randint(-1, 1)
        try:
            found = self.journal.before(time)
        except Absent as absent:
            self.load(absent)
            return
        wanted = [sequence for sequence, one in self.times.items() if one >= time and sequence >= self.journal.first]
        assert found == (min(wanted) - 1 if wanted else self.journal.last)

    def step(self) -> None:
        actions = (self.publish, self.read, self.evict, self.limit, self.find_time, self.sweep, self.restart, self.fail)
        weights = (10, 30, 5, 2, 5, 1, 0.5, 1)
        self.chance.choices(actions, weights)[0]()
        journal = self.journal
        assert (journal.last, journal.octets >= 0) == (self.log.last, True)
        spans = [(segment.first, segment.last) for segment in journal.segments]
        assert spans == sorted(spans)
        assert all(one[1] < other[0] for one, other in pairwise(spans))


@contextmanager
def world(seed: int) -> Iterator[World]:
    with directory() as path:
        made = World(Path(path) / "data", random.Random(seed))
        yield made
        made.data.close()


def test_readers_see_every_message_whatever_is_evicted(pytestconfig: pytest.Config) -> None:
    evictions = loads = 0
    for seed in range(max(4, int(pytestconfig.getoption("--seeds")) // 100)):
        with world(seed) as made:
            try:
                for _ in range(400):
                    made.step()
            except (AssertionError, JournalError) as problem:
                raise AssertionError(f"seed {seed}: {problem!r}") from problem
            evictions += made.evictions
            loads += made.loads.pieces
    assert evictions > 10
    assert loads > 10


def filled(made: World, count: int = 60) -> None:
    for _ in range(count):
        made.publish()
    made.cache.free(1 << 30)
    assert made.journal.segments[0].entries == 0


def test_a_search_and_a_plan_read_what_is_evicted() -> None:
    with world(1) as made:
        filled(made)
        found = last_message(made.journal, b"key")
        assert found is not None
        assert (found.sequence, found.octets) == (made.journal.last, made.truth[made.journal.last])
        assert last_message(made.journal, b"other") is None
        points = list(size_points(made.journal, 0, made.journal.last, 300))
        assert points[0] == (1, 0)
        assert points[-1] == (made.journal.last + 1, sum(map(len, made.truth.values())))
        assert points == sorted(points)
        assert made.loads.pieces == 0


def test_a_damaged_object_is_never_served() -> None:
    with world(2) as made:
        filled(made)
        segment = PLACE.segment(made.shelf.view().readable[0].name)
        content, time = made.shelf.store.objects[segment]
        made.shelf.store.objects[segment] = bytes([content[0] ^ 1]) + content[1:], time
        with pytest.raises(Absent) as absent:
            made.journal.reader(0).peek(100)
        with pytest.raises(StoreDamaged, match="does not match its CRC"):
            absent.value.load()


def test_the_log_of_another_owner_is_read(tmp_path: Path) -> None:
    with world(3) as made:
        filled(made)
        made.restart()
        assert isinstance(made.log, StreamLog)
        assert made.log.place == PLACE
        reader = made.journal.reader(0)
        read: dict[int, bytes] = {}
        while reader.position < made.journal.last:
            try:
                span = reader.peek(1000)
            except Absent as absent:
                absent.load()
                continue
            assert span is not None
            read |= dict(zip(range(span.first, span.last + 1), pieces(span.read()), strict=True))
            reader.skip(span)
        assert read == made.truth


def test_the_next_pieces_are_known_without_a_request() -> None:
    with world(4) as made:
        filled(made)
        backing = made.journal.backing
        assert backing is not None
        before = len(made.shelf.requests)
        backing.read_ahead(made.journal, 10)
        assert len(made.shelf.requests) == before
        (sequences,) = made.ahead
        assert (sequences[0], len(sequences)) == (10, AHEAD)
        for sequence in sequences:
            backing.load(made.journal, sequence)
        assert made.loads.pieces >= AHEAD - 1  # the sizes tell it nearly
        assert made.journal.gap_at(10) is None
        backing.read_ahead(made.journal, made.journal.last + 1)
        assert len(made.ahead) == 1


def test_pieces_that_are_loaded_ahead_are_those_that_a_reader_will_want() -> None:
    sizes = [(100, 110), (100, 145), (10, 10), (10, 10), (800, 1200)]  # messages and bytes of objects
    with world(5) as made:
        backing = made.journal.backing
        assert isinstance(backing, StoreBacking)
        extents = made.log.extents
        first = 1
        for count, octets in sizes:
            footer = Footer(Kind.DATA, 1, b"o" * 16, b"i" * 16, first, first=first, count=count, log=octets)
            extents.add(footer)
            first += count
        made.log.last = first - 1

        backing.read_ahead(Empty(), 1)  # type: ignore[arg-type]
        backing.read_ahead(Empty(), 221)  # type: ignore[arg-type]
        small, large = made.ahead
        assert small == [1, 101, 201, 221]
        assert large[0] == 221
        wanted = [221 + 100 * number for number in range(4)]  # the beginnings of pieces of 150 bytes
        assert [backing.piece_of(sequence) for sequence in large] == [backing.piece_of(one) for one in wanted]
        assert len({backing.piece_of(sequence) for sequence in (*small, *large)}) == 7


class Empty:
    """A journal without messages."""

    def gap_at(self, sequence: int) -> tuple[int, int]:
        return sequence, sequence
