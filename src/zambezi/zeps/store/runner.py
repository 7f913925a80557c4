"""Procedures in progress: an engine starts them, a shell executes their requests and returns the answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple, TypeVar

from zambezi.zeps.errors import ZepsError
from zambezi.zeps.store.commands import DONE, Answer, Command, Procedure, Request, Together, Wait

T = TypeVar("T")


class Ticket(NamedTuple):
    """A request for the shell, with the number under which it returns the answer."""

    number: int
    request: Request


@dataclass(slots=True, eq=False)
class _Running:
    procedure: Procedure[Any]
    done: Callable[[Any], object]
    failed: Callable[[ZepsError], object]
    answers: dict[int, Answer | None] = field(default_factory=dict)
    is_together: bool = False


class Runner:
    """Runs procedures. It does no I/O, and takes the time as an argument."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._asked: dict[int, _Running] = {}
        self._outgoing: list[Ticket] = []
        self._timers: list[tuple[float, int, _Running]] = []

    def start(
        self,
        procedure: Procedure[T],
        now: float,
        done: Callable[[T], object],
        failed: Callable[[ZepsError], object],
    ) -> None:
        """Start a procedure, and call `done` with its result, or `failed` with the `ZepsError` that ends it."""
        self._step(_Running(procedure, done, failed), None, now)

    def requests(self, now: float) -> list[Ticket]:
        """Return the requests that the shell must execute now."""
        while self._timers and self._timers[0][0] <= now:
            self._step(heappop(self._timers)[2], DONE, now)
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def answer(self, number: int, answer: Answer, now: float) -> None:
        """Continue the procedure that waits for this answer. An answer that no procedure waits for is ignored."""
        running = self._asked.pop(number, None)
        if running is None:
            return
        running.answers[number] = answer
        if None in running.answers.values():
            return
        answers = list(running.answers.values())
        running.answers = {}
        self._step(running, answers if running.is_together else answers[0], now)

    @property
    def next_time(self) -> float | None:
        """The time at which `requests` must be called again; None if no procedure waits for a time."""
        return self._timers[0][0] if self._timers else None

    @property
    def is_idle(self) -> bool:
        """Whether no procedure is in progress."""
        return not (self._asked or self._timers)

    def clear(self) -> None:
        """Forget all procedures."""
        self._asked.clear()
        self._outgoing.clear()
        self._timers.clear()

    def _step(self, running: _Running, answer: Any, now: float) -> None:
        try:
            command = running.procedure.send(answer)
        except StopIteration as end:
            running.done(end.value)
        except ZepsError as error:
            running.failed(error)
        else:
            self._execute(running, command, now)

    def _execute(self, running: _Running, command: Command, now: float) -> None:
        if isinstance(command, Wait):
            heappush(self._timers, (now + command.seconds, next(self._numbers), running))
            return
        running.is_together = isinstance(command, Together)
        for request in command.commands if isinstance(command, Together) else (command,):
            number = next(self._numbers)
            self._asked[number] = running
            running.answers[number] = None
            self._outgoing.append(Ticket(number, request))
