"""The shell of engines: it executes their requests on threads, in an asyncio event loop, and tells their time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol

from zambezi.zeps.store.commands import Answer, Request
from zambezi.zeps.store.runner import Ticket

THREADS: Final = 32  # requests of all engines that run at the same time


class StoreEngine(Protocol):
    """An engine that gives requests and gets answers: a `StreamLog` or a `Runner`."""

    def requests(self, now: float) -> list[Ticket]: ...

    def answer(self, number: int, answer: Answer, now: float) -> None: ...

    @property
    def next_time(self) -> float | None: ...


class Driver:
    """Runs engines against a store. All methods are called in the event loop."""

    def __init__(self, execute: Callable[[Request], Answer], threads: int = THREADS) -> None:
        self._execute = execute
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(threads, "zambezi-store")
        self._timers: dict[StoreEngine, asyncio.TimerHandle] = {}
        self._notify: dict[StoreEngine, Callable[[], object]] = {}
        self._under_way: set[asyncio.Future[Answer]] = set()

    def add(self, engine: StoreEngine, notify: Callable[[], object] = lambda: None) -> None:
        """Run an engine; call `notify` after each answer, so that the caller can look at its events."""
        self._notify[engine] = notify
        self.advance(engine)

    def advance(self, engine: StoreEngine) -> None:
        """Execute the requests that an engine has now. Call it after each call of the engine."""
        if engine not in self._notify:
            return
        for number, request in engine.requests(self._loop.time()):
            done = self._loop.run_in_executor(self._pool, self._execute, request)
            self._under_way.add(done)
            done.add_done_callback(partial(self._on_answer, engine, number))
        timer = self._timers.pop(engine, None)
        if timer is not None:
            timer.cancel()
        next_time = engine.next_time
        if next_time is not None:
            self._timers[engine] = self._loop.call_at(next_time, self._on_time, engine)

    def advance_soon(self, engine: StoreEngine) -> None:
        """Execute the requests that an engine has, in the next turn of the loop."""
        self._loop.call_soon(self.advance, engine)

    def _on_time(self, engine: StoreEngine) -> None:
        self.advance(engine)
        self._tell(engine)

    def _on_answer(self, engine: StoreEngine, number: int, done: asyncio.Future[Answer]) -> None:
        self._under_way.discard(done)
        if done.cancelled() or engine not in self._notify:
            return
        engine.answer(number, done.result(), self._loop.time())
        self.advance(engine)
        self._tell(engine)

    def _tell(self, engine: StoreEngine) -> None:
        notify = self._notify.get(engine)
        if notify is not None:
            notify()

    def time(self) -> float:
        """Return the time of the engines."""
        return self._loop.time()

    def remove(self, engine: StoreEngine) -> None:
        """Run an engine no more."""
        self._notify.pop(engine, None)
        timer = self._timers.pop(engine, None)
        if timer is not None:
            timer.cancel()

    async def close(self) -> None:
        """End all engines, and wait for the requests that are under way."""
        for engine in list(self._notify):
            self.remove(engine)
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
