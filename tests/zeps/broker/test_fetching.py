"""zambezi.zeps.broker.fetching: readers wait for pieces, share them, and get an error if a piece cannot be loaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from tests.zeps.journal.streams import append
from zambezi.zeps.broker.fetching import THREADS, Fetcher
from zambezi.zeps.errors import Absent, JournalError, JournalFull, StoreDamaged, StoreError, ZepsError
from zambezi.zeps.journal import Store
from zambezi.zeps.journal.backing import Backing


class Threads:
    """Loads when the test says so."""

    def __init__(self) -> None:
        self.actions: list[tuple[Callable[[], object], Callable[[ZepsError | None], object]]] = []
        self.timers: list[Callable[[], object]] = []

    def load(self, action: Callable[[], object], done: Callable[[ZepsError | None], object]) -> None:
        self.actions.append((action, done))

    def call_later(self, _seconds: float, callback: Callable[[], object]) -> None:
        self.timers.append(callback)

    def run(self) -> None:
        """Do the oldest action."""
        action, done = self.actions.pop(0)
        try:
            action()
        except ZepsError as error:
            done(error)
        else:
            done(None)


class Place:
    """Something that is absent, as often as it fails."""

    def __init__(self, *problems: ZepsError) -> None:
        self.problems = list(problems)
        self.loads = 0

    def load(self) -> None:
        self.loads += 1
        if self.problems:
            raise self.problems.pop(0)

    @property
    def absent(self) -> Absent:
        return Absent("absent", self, self.load)


def test_readers_of_the_same_piece_share_it() -> None:
    threads = Threads()
    fetcher = Fetcher(threads)
    place = Place()
    told: list[ZepsError | None] = []
    for _ in range(3):
        fetcher.fetch(place.absent, told.append)
    assert (fetcher.waiting, told) == (3, [])
    threads.run()
    assert (fetcher.waiting, told, place.loads) == (0, [None] * 3, 1)
    assert (fetcher.counters.fetched, threads.actions) == (1, [])


def test_a_few_pieces_are_loaded_at_once_in_the_order_of_the_readers() -> None:
    threads = Threads()
    fetcher = Fetcher(threads)
    told: list[int] = []
    for number in range(3 * THREADS):
        fetcher.fetch(Place().absent, partial(lambda number, _: told.append(number), number))
    assert len(threads.actions) == THREADS
    while threads.actions:
        threads.run()
        assert len(threads.actions) <= THREADS
    assert told == list(range(3 * THREADS))


def test_a_store_that_fails_and_a_full_disk_keep_the_reader_waiting() -> None:
    threads = Threads()
    fetcher = Fetcher(threads)
    place = Place(StoreError("no answer"), JournalFull("no room"))
    told: list[ZepsError | None] = []
    fetcher.fetch(place.absent, told.append)
    for number, reason in enumerate(("no answer", "no room"), 1):
        threads.run()
        assert (fetcher.waiting, fetcher.problem, told) == (number, reason, [])
        fetcher.fetch(place.absent, told.append)
        assert not threads.actions  # it is asked for again after a pause, however many readers come
        threads.timers.pop()()
    threads.run()
    assert (told, fetcher.waiting, fetcher.problem, fetcher.counters.failed) == ([None] * 3, 0, "", 2)


def test_damage_is_an_error_for_the_reader() -> None:
    threads = Threads()
    fetcher = Fetcher(threads)
    told: list[ZepsError | None] = []
    fetcher.fetch(Place(StoreDamaged("object 7 is damaged")).absent, told.append)
    threads.run()
    assert isinstance(told[0], JournalError)
    assert "object 7" in str(told[0])
    assert (fetcher.counters.damaged, fetcher.waiting) == (1, 0)


class _Everything:
    """A store that has a stream of a million messages."""

    first, last, first_time, last_time, octets = 1, 1_000_000, 1, 1, 1

    def __init__(self) -> None:
        self.loaded: list[int] = []

    def piece_of(self, sequence: int) -> int:
        return sequence

    def load(self, _journal: object, sequence: int) -> None:
        self.loaded.append(sequence)


def test_pieces_are_loaded_ahead_if_no_reader_waits(tmp_path: Path) -> None:
    threads = Threads()
    fetcher = Fetcher(threads)
    with Store(tmp_path) as store:
        journal = store.open("prices")
        append(journal, b"1")
        backing = _Everything()
        journal.become_cache(cast("Backing", backing))
        fetcher.read_ahead(journal, [500])
        fetcher.read_ahead(journal, [500])
        assert len(threads.actions) == 1
        told: list[object] = []
        absent = journal.absent(500)
        assert isinstance(absent, Absent)
        fetcher.fetch(absent, told.append)  # a reader comes meanwhile
        threads.run()
        assert (backing.loaded, told) == ([500], [None])
        for number in range(2 * THREADS):
            fetcher.fetch(Place().absent, told.append)
            fetcher.read_ahead(journal, [1000 + number])
        while threads.actions:
            threads.run()
        assert told == [None] * (1 + 2 * THREADS)
        assert set(backing.loaded) == {500, *range(1000, 1000 + 2 * THREADS)}
        assert fetcher.counters.ahead == 2 * THREADS


def test_a_closed_fetcher_begins_nothing() -> None:
    threads = Threads()
    fetcher = Fetcher(threads)
    fetcher.close()
    fetcher.fetch(Place().absent, lambda _: None)
    assert not threads.actions
