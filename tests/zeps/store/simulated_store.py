"""An object store in virtual time, and a network to it that fails, delays, repeats, answers late and loses answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush, nsmallest
from itertools import count as count_from
from typing import Final

from zambezi.zeps.store.commands import (
    DONE,
    EXISTS,
    MISSING,
    Answer,
    Compute,
    Delete,
    Failed,
    Get,
    List,
    Names,
    Put,
    Request,
    StoredObject,
)

PAGE: Final = 3  # objects in a page of a LIST
TIMEOUT: Final = 1.0  # seconds after which a broker gives a request up; the request may arrive later
LATEST: Final = 10.0  # seconds that a request can be under way


@dataclass(frozen=True, slots=True)
class Faults:
    """How often the world misbehaves: probabilities, for each request or each step of a broker."""

    lost: float = 0.06  # a request that never arrives
    unanswered: float = 0.06  # a request that is executed, and whose answer is lost
    late: float = 0.12  # a request or an answer that takes very long
    repeated: float = 0.05  # a put that arrives a second time, much later


CALM: Final = Faults(0, 0, 0, 0)


class Clock:
    """Virtual time: what is scheduled runs in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count_from()

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        heappush(self._queue, (self.now + seconds, next(self._order), action))

    def run_until(self, time: float) -> None:
        while self._queue and self._queue[0][0] <= time:
            self.now, _, action = heappop(self._queue)
            action()
        self.now = max(self.now, time)


class Stalling:
    """A simulated program. A stalled one keeps what reaches it for later."""

    def __init__(self, clock: Clock) -> None:
        self.is_alive = True
        self.is_stalled = False
        self._clock = clock
        self._waiting: list[Callable[[], object]] = []

    def call(self, action: Callable[[], object]) -> None:
        """Let something happen to the program: now, when it goes on, or never if it is dead."""
        if not self.is_alive:
            return
        if self.is_stalled:
            self._waiting.append(action)
            return
        action()
        self._turn()

    def _turn(self) -> None:
        """Do what follows from the action."""
        raise NotImplementedError

    def stall(self, seconds: float) -> None:
        self.is_stalled = True
        self._clock.after(seconds, self._go_on)

    def _go_on(self) -> None:
        self.is_stalled = False
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            self.call(action)

    def kill(self) -> None:
        self.is_alive = False
        self._waiting.clear()


class Store:
    """The object store itself: it executes requests at once and in order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.accepted: list[tuple[str, bytes]] = []  # every object that was ever put

    def execute(self, request: Put | Get | Names | Delete | Compute) -> Answer:
        if isinstance(request, Compute):
            return request.run()
        if isinstance(request, Put):
            if request.create and request.key in self.objects:
                return EXISTS
            self.objects[request.key] = (request.octets, self._clock.now)
            self.accepted.append((request.key, request.octets))
            return DONE
        if isinstance(request, Get):
            found = self.objects.get(request.key)
            if found is None:
                return MISSING
            stop = None if request.length is None else request.start + request.length
            return found[0][request.start : stop]
        if isinstance(request, Names):
            inside = [
                key.removeprefix(request.prefix + "/") for key in self.objects if key.startswith(request.prefix + "/")
            ]
            return sorted({key.partition("/")[0] for key in inside if "/" in key})
        for key in request.keys:
            self.objects.pop(key, None)
        return DONE

    def page(self, prefix: str, after: str) -> list[StoredObject]:
        keys = nsmallest(PAGE, [key for key in self.objects if after < key and key.startswith(prefix)])
        return [StoredObject(key, len(self.objects[key][0]), self.objects[key][1]) for key in keys]


class Network:
    """The way of one broker to the store."""

    def __init__(self, clock: Clock, store: Store, chance: random.Random) -> None:
        self._clock = clock
        self._store = store
        self._chance = chance
        self.faults = Faults()

    def send(self, request: Request, answer: Callable[[Answer], object]) -> None:
        """Execute a request some time later, or never, and call `answer` once."""
        if isinstance(request, Compute):
            self._clock.after(0.0, lambda: answer(request.run()))
            return
        limit = self._clock.now + TIMEOUT
        if isinstance(request, List):
            self._page(self._delay(), request, [], answer, limit)
            return
        if self._happens(self.faults.lost):
            self._fail(answer, limit)
        elif (delay := self._delay()) < TIMEOUT:
            self._clock.after(delay, lambda: self._execute(request, answer, limit))
        else:
            self._fail(answer, limit)
            self._clock.after(delay, lambda: self._store.execute(request))
        if isinstance(request, Put) and self._happens(self.faults.repeated):
            self._clock.after(self._late(), lambda: self._store.execute(request))

    def _execute(self, request: Put | Get | Names | Delete, answer: Callable[[Answer], object], limit: float) -> None:
        found = self._store.execute(request)
        self._give(LATEST if self._happens(self.faults.unanswered) else self._delay(), found, answer, limit)

    def _page(
        self, delay: float, request: List, found: list[StoredObject], answer: Callable[[Answer], object], limit: float
    ) -> None:
        """List some objects after a delay, and then the others."""
        if self._clock.now + delay < limit:
            self._clock.after(delay, lambda: self._list(request, found, answer, limit))
        else:
            self._fail(answer, limit)

    def _list(self, request: List, found: list[StoredObject], answer: Callable[[Answer], object], limit: float) -> None:
        page = self._store.page(request.prefix + "/", found[-1].key if found else "")
        found += page
        if len(page) < PAGE:
            self._give(self._delay(), found, answer, limit)
        else:
            self._page(LATEST if self._happens(self.faults.lost) else self._delay(), request, found, answer, limit)

    def _give(self, delay: float, found: Answer, answer: Callable[[Answer], object], limit: float) -> None:
        if self._clock.now + delay < limit:
            self._clock.after(delay, lambda: answer(found))
        else:
            self._fail(answer, limit)

    def _fail(self, answer: Callable[[Answer], object], limit: float) -> None:
        self._clock.after(limit - self._clock.now, lambda: answer(Failed("timeout")))

    def _delay(self) -> float:
        return self._late() if self._happens(self.faults.late) else self._chance.uniform(0.001, 0.05)

    def _late(self) -> float:
        return self._chance.uniform(0.05, 1.0) if self._chance.random() < 0.7 else self._chance.uniform(1, LATEST)

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._chance.random() < probability
