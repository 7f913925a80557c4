"""One measurement: a broker, a process that publishes and one that subscribes, all ended when it is over."""

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
from typing import Any, Self

from bench.brokers.body import Case
from bench.brokers.drain import PATIENCE, drain, pace, pour
from bench.brokers.system import Server, System

_fork = multiprocessing.get_context("fork")


class Failed(Exception):
    """A measurement did not come to its end."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What was found."""

    case: Case
    seconds: float  # from the first publish to the last delivery
    processor: float  # seconds, of the broker
    ages: tuple[float, ...] = ()  # of the messages when they were delivered, sorted

    @property
    def deliveries(self) -> int:
        return self.case.count if self.case.each else self.case.count * self.case.subscribers

    @property
    def rate(self) -> float:
        """Messages that were published and delivered to all, a second."""
        return self.case.count / self.seconds

    @property
    def cost(self) -> float:
        """Microseconds of the broker's processor for each delivery."""
        return self.processor / self.deliveries * 1e6

    def age(self, share: float) -> float:
        """Microseconds."""
        return self.ages[min(len(self.ages) - 1, int(len(self.ages) * share))] * 1e6 if self.ages else float("nan")


class Worker:
    """A process of ours that says when it is ready, waits for a word, and tells what it found."""

    def __init__(self, role: Callable[[Callable[[], None]], object]) -> None:
        self._pipe, theirs = _fork.Pipe()
        self._process = _fork.Process(target=_work, args=(role, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def answer(self) -> Any:
        try:
            if not self._pipe.poll(PATIENCE):
                raise Failed(f"nothing was heard for {PATIENCE:g} s")
            error, found = self._pipe.recv()
        except EOFError:
            raise Failed("a process ended without a word") from None
        if error:
            raise Failed(error)
        return found

    def go(self) -> None:
        self._pipe.send(None)

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
        pass  # nobody waits any more
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


def measure(system: System, case: Case, raw: bool = True, during: Callable[[Server], object] | None = None) -> Figures:
    """Subscribe, then publish: how long until all have everything, and what it cost the broker."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(system.serve(directory))
        follow, publish = (raw_subscribe, raw_publish) if raw else (client_subscribe, client_publish)
        subscribers = stack.enter_context(Worker(partial(_ended, partial(follow, system, server.port, case))))
        subscribers.answer()
        publisher = stack.enter_context(Worker(partial(publish, system, server.port, case)))
        publisher.answer()
        subscribers.go()
        if during is not None:
            during(server)
        used = server.processor()
        began = time.monotonic()
        publisher.go()
        ended, ages = subscribers.answer()
        publisher.answer()
        return Figures(case, ended - began, server.processor() - used, tuple(sorted(ages)))


def measure_replay(system: System, case: Case) -> Figures:
    """Publish, then subscribe: how long until all have everything, and what it cost the broker."""
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
        ended, _ = subscribers.answer()
        return Figures(case, ended - began, server.processor() - used)


def _ended(role: Callable[[Callable[[], None]], list[float]], ready: Callable[[], None]) -> tuple[float, list[float]]:
    ages = role(ready)
    return time.monotonic(), ages


def median(found: list[Figures], figure: Callable[[Figures], float]) -> float:
    """Of a figure over the rounds; not a number if there is none."""
    return statistics.median(map(figure, found)) if found else float("nan")
