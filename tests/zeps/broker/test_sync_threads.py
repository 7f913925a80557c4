"""zambezi.zeps.broker.sync_threads: threads for journals, each with a queue of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.zmtp.waiting import PATIENCE, in_loop
from zambezi.zeps.broker.sync_threads import SyncThreads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def sync_threads(most: int) -> AsyncIterator[SyncThreads]:
    made = SyncThreads(asyncio.get_running_loop(), most)
    try:
        yield made
    finally:
        await asyncio.to_thread(made.shutdown)
        made.close()


@in_loop
async def test_work_is_done_in_a_thread_and_its_result_is_called_in_the_loop() -> None:
    places: list[int] = []
    done = asyncio.Event()

    def finish() -> None:
        places.append(threading.get_ident())
        done.set()

    def work() -> Callable[[], None]:
        places.append(threading.get_ident())
        return finish

    async with sync_threads(2) as threads:
        for _ in range(3):  # the first starts a thread; the others wake it
            done.clear()
            threads.submit(work)
            await asyncio.wait_for(done.wait(), PATIENCE)
    here = threading.get_ident()
    assert places[1::2] == [here] * 3
    assert here not in places[0::2]
    assert len(set(places[0::2])) == 1


@in_loop
async def test_no_more_threads_than_allowed_and_no_work_is_left_out() -> None:
    gate = threading.Event()
    together = threading.Barrier(3, timeout=PATIENCE)
    seen: list[int] = []

    def work() -> Callable[[], None]:
        if not gate.is_set():
            together.wait()
            gate.wait(PATIENCE)
        return lambda: seen.append(1)

    async with sync_threads(2) as threads:
        for _ in range(10):
            threads.submit(work)
        await asyncio.to_thread(together.wait)  # both threads work at the same time
        gate.set()
    assert len(seen) == 10  # `shutdown` has waited for the work, and the loop has called everything


@in_loop
async def test_a_call_that_raises_leaves_the_others_to_the_next_turn() -> None:
    loop = asyncio.get_running_loop()
    raised: list[object] = []
    loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
    called = asyncio.Event()

    def fail() -> None:
        raise ValueError("amiss")

    async with sync_threads(1) as threads:
        gate = threading.Event()
        threads.submit(lambda: (gate.wait(PATIENCE), fail)[1])
        threads.submit(lambda: called.set)
        gate.set()
        await asyncio.wait_for(called.wait(), PATIENCE)
    assert [str(error) for error in raised] == ["amiss"]
