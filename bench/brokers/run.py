"""One measurement: a broker, a process that publishes and one that subscribes. All of them end with it."""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self, TypeVar

from bench.brokers.body import Case
from bench.brokers.drain import PATIENCE, drain, pace, pour
from bench.brokers.system import System, processor_time

T = TypeVar("T")

_fork = multiprocessing.get_context("fork")


class Failed(Exception):
    """A measurement that did not finish."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of one measurement."""

    case: Case
    seconds: float  # from the first publish to the last delivery
    processor: float  # processor time of the broker in seconds
    ages: tuple[float, ...] = ()  # the ages of the messages at their delivery, sorted
    clients: float = 0.0  # processor time of the clients in seconds, where it is measured
    publisher: float = 0.0  # the publisher's part of it, if that is known

    @property
    def deliveries(self) -> int:
        return self.case.count if self.case.each else self.case.count * self.case.subscribers

    @property
    def rate(self) -> float:
        """The messages per second that were published and delivered to all subscribers."""
        return self.case.count / self.seconds

    @property
    def cost(self) -> float:
        """The broker's processor time per delivery in microseconds."""
        return self.processor / self.deliveries * 1e6

    @property
    def publisher_cost(self) -> float:
        """The publisher's processor time per message in microseconds."""
        return self.publisher / self.case.count * 1e6

    @property
    def subscriber_cost(self) -> float:
        """The subscribers' processor time per delivery in microseconds."""
        return (self.clients - self.publisher) / self.deliveries * 1e6

    def age(self, share: float) -> float:
        """Return a quantile of the ages in microseconds; 0.5 is the median."""
        return self.ages[min(len(self.ages) - 1, int(len(self.ages) * share))] * 1e6 if self.ages else float("nan")


class Worker:
    """A process that reports when it is ready, waits for `go`, does its work, and reports the result."""

    def __init__(self, role: Callable[[Callable[[], None]], object]) -> None:
        self._pipe, theirs = _fork.Pipe()
        self._process = _fork.Process(target=_work, args=(role, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def answer(self) -> Any:
        """Wait for the next report of the process. Raise `Failed` with its error, or if none comes."""
        try:
            if not self._pipe.poll(PATIENCE):
                raise Failed(f"a process did not report anything for {PATIENCE:g} s")
            error, found = self._pipe.recv()
        except EOFError:
            raise Failed("a process ended without a report") from None
        if error:
            raise Failed(error)
        return found

    def go(self) -> None:
        self._pipe.send(None)

    def processor(self) -> float:
        """Return the processor time of the process in seconds."""
        assert self._process.pid is not None
        return processor_time(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join(0.2)
        self._process.kill()
        self._process.join()


def _work(role: Callable[[Callable[[], None]], object], pipe: Connection) -> None:
    def ready() -> None:
        pipe.send(("", None))
        pipe.recv()

    try:
        pipe.send(("", role(ready)))
    except (EOFError, BrokenPipeError):
        pass  # the parent process has stopped waiting
    except Exception:
        pipe.send((traceback.format_exc(limit=-3).strip(), None))


# Roles


def raw_publish(system: System, port: int, case: Case, ready: Callable[[], None]) -> None:
    with system.publisher(port) as sock:
        if case.rate:
            ready()
            pace(sock, case, system.frame, system.lines)
        else:
            prepared = system.prepare(case, sock)
            ready()
            pour(sock, case, prepared, system.lines, system.window)
        system.confirm(sock, case)


def raw_subscribe(system: System, port: int, case: Case, ready: Callable[[], None]) -> list[float]:
    feeds = system.follow(port, case)
    ready()
    return drain(feeds, bool(case.rate))


def raw_replay(system: System, port: int, case: Case, ready: Callable[[], None]) -> list[float]:
    ready()
    return drain(system.follow(port, case), False)


def client_publish(system: System, port: int, case: Case, ready: Callable[[], None]) -> None:
    system.publish(port, case, ready)


def client_subscribe(system: System, port: int, case: Case, ready: Callable[[], None]) -> list[float]:
    return system.subscribe(port, case, ready)


# Measurements


def measure(system: System, case: Case, raw: bool = True) -> Figures:
    """Subscribe, then publish, and measure until all subscribers have all messages."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(system.serve(directory))
        follow, publish = (raw_subscribe, raw_publish) if raw else (client_subscribe, client_publish)
        subscribers = stack.enter_context(Worker(partial(_ended, partial(follow, system, server.port, case))))
        subscribers.answer()
        publisher = stack.enter_context(Worker(partial(_ended, partial(publish, system, server.port, case))))
        publisher.answer()
        subscribers.go()
        used = server.processor()
        began = time.monotonic()
        publisher.go()
        ended, spent, ages = subscribers.answer()
        _, published, _ = publisher.answer()
        used = server.processor() - used
        return Figures(case, ended - began, used, tuple(sorted(ages)), spent + published, published)


def measure_replay(system: System, case: Case) -> Figures:
    """Publish, then subscribe, and measure until all subscribers have all messages."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(system.serve(directory))
        publisher = stack.enter_context(Worker(partial(raw_publish, system, server.port, case)))
        publisher.answer()
        publisher.go()
        publisher.answer()
        subscribers = stack.enter_context(Worker(partial(_ended, partial(raw_replay, system, server.port, case))))
        subscribers.answer()
        used = server.processor()
        began = time.monotonic()
        subscribers.go()
        ended, _, _ = subscribers.answer()
        return Figures(case, ended - began, server.processor() - used)


def _ended(role: Callable[[Callable[[], None]], T], ready: Callable[[], None]) -> tuple[float, float, T]:
    """Play a role; return when it ended, the processor time since it was ready, and its result."""
    used = 0.0

    def ready_and_timed() -> None:
        nonlocal used
        ready()
        used = time.process_time()

    result = role(ready_and_timed)
    return time.monotonic(), time.process_time() - used, result


def median(found: list[Figures], figure: Callable[[Figures], float]) -> float:
    """Return the median of a figure over the rounds; not a number if there are no rounds."""
    return statistics.median(map(figure, found)) if found else float("nan")
