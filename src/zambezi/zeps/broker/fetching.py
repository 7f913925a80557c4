"""Loading messages from the object store for readers that want what the disk does not have.

A reader that finds `Absent` gives it to `fetch`, and is called back when another thread has loaded the messages. Only
that reader waits. A few pieces are loaded at once, which bounds the memory, and readers that want the same piece share
it. If the store fails or the disk is full, the reader waits, and the piece is asked for again about once a second; if
an object is damaged, the reader gets the error.

A reader that goes on from piece to piece finds the next ones on the disk: they are loaded ahead, if no reader waits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Final, Protocol, TypeAlias

from zambezi.zeps.errors import Absent, JournalError, JournalFull, OutOfRange, StoreDamaged, StoreError, ZepsError
from zambezi.zeps.journal.reading import JournalReading

THREADS: Final = 4  # pieces that are loaded at once
PAUSE: Final = 1.0  # seconds before a piece is asked for again
_MOST_AHEAD: Final = 64  # pieces that wait to be loaded ahead, of all readers

Fetched: TypeAlias = Callable[[ZepsError | None], object]


class Loader(Protocol):
    """The threads and timers that the broker has for a fetcher."""

    def load(self, action: Callable[[], object], done: Callable[[ZepsError | None], object]) -> None:
        """Do something on another thread, then call back with None or with the error."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> object:
        """Call back after a time."""


@dataclass(slots=True)
class FetchCounters:
    """Counters of a fetcher."""

    fetched: int = 0  # pieces that readers have waited for
    ahead: int = 0  # pieces that were loaded ahead
    failed: int = 0  # attempts that failed: each was made again
    damaged: int = 0  # readers that got an error: the store cannot give the messages


@dataclass(slots=True)
class _Job:
    absent: Absent
    done: list[Fetched] = field(default_factory=list)  # empty if no reader waits for it


class Fetcher:
    """The pieces that are being loaded. All methods are called in the event loop."""

    def __init__(self, loader: Loader) -> None:
        self.counters = FetchCounters()
        self.problem = ""  # why a reader waits longer than usual
        self._loader = loader
        self._wanted: OrderedDict[object, _Job] = OrderedDict()  # not begun yet, in order
        self._extra: OrderedDict[object, _Job] = OrderedDict()  # ahead of readers
        self._running: dict[object, _Job] = {}
        self._pausing: dict[object, _Job] = {}
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """The number of readers that wait."""
        jobs = (*self._wanted.values(), *self._running.values(), *self._pausing.values())
        return sum(len(job.done) for job in jobs)

    @property
    def state(self) -> dict[str, int]:
        """The counters, and the readers that wait."""
        return {"waiting": self.waiting, **asdict(self.counters)}

    def fetch(self, absent: Absent, done: Fetched) -> None:
        """Load messages, then call back with None or with the error; never before this returns."""
        place = absent.place
        job = self._running.get(place) or self._pausing.get(place) or self._wanted.get(place)
        if job is None:
            job = self._extra.pop(place) if place in self._extra else _Job(absent)
            self._wanted[place] = job
        job.done.append(done)
        self._start_some()

    def read_ahead(self, journal: JournalReading, sequences: Iterable[int]) -> None:
        """Load the pieces that have some sequences, if no reader waits for others."""
        for sequence in sequences:
            absent = journal.absent(sequence)
            if not isinstance(absent, Absent) or len(self._extra) >= _MOST_AHEAD:
                return
            if not any(absent.place in jobs for jobs in (self._running, self._pausing, self._wanted, self._extra)):
                self._extra[absent.place] = _Job(absent)
        self._start_some()

    def close(self) -> None:
        """Begin nothing any more."""
        self._is_closed = True
        self._wanted.clear()
        self._extra.clear()

    def _start_some(self) -> None:
        while len(self._running) < THREADS and (self._wanted or self._extra) and not self._is_closed:
            place, job = (self._wanted or self._extra).popitem(last=False)
            self._running[place] = job
            self._loader.load(job.absent.load, partial(self._on_loaded, place, job))

    def _on_loaded(self, place: object, job: _Job, problem: ZepsError | None) -> None:
        del self._running[place]
        if _is_passing(problem):
            self.counters.failed += 1
            self.problem = self.problem or str(problem)  # the first one stays: the later ones name other objects
            if job.done and not self._is_closed:
                self._pausing[place] = job
                self._loader.call_later(PAUSE, partial(self._try_again, place))
        else:
            self._finish(job, problem)
        self._start_some()

    def _try_again(self, place: object) -> None:
        self._wanted[place] = self._pausing.pop(place)
        self._start_some()

    def _finish(self, job: _Job, problem: ZepsError | None) -> None:
        if problem is None:
            self.problem = ""
            if job.done:
                self.counters.fetched += 1
            else:
                self.counters.ahead += 1
        elif not isinstance(problem, JournalError):
            self.counters.damaged += len(job.done)
            problem = JournalError(str(problem))
        for done in job.done:
            done(problem)


def _is_passing(problem: ZepsError | None) -> bool:
    """Return whether an attempt may succeed later: the store does not answer, or the disk is full."""
    if isinstance(problem, (StoreDamaged, OutOfRange)):
        return False
    return isinstance(problem, (StoreError, JournalFull))
