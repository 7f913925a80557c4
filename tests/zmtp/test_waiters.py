"""zambezi.zmtp.async_waiter and zambezi.zmtp.thread_waiter: both keep the same promises.

A test awaits every call that waits; `Awaited` runs those of the waiter for threads in threads.
"""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.faces import Awaited
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zmtp import async_waiter, thread_waiter
from zambezi.zmtp.errors import TimedOut, ZmtpError


class Late(TimedOut):
    """A timeout of its own type."""


@dataclass
class Sign:
    """A socket that is open, or closes."""

    closing: bool


OPEN, CLOSING = Sign(closing=False), Sign(closing=True)


class Shelf:
    """Things to wait for: `take` returns one, or None."""

    def __init__(self) -> None:
        self.things: list[str] = []

    def take(self) -> str | None:
        return self.things.pop(0) if self.things else None

    def put(self, waiter: async_waiter.Waiter, *things: str) -> None:
        """Add things, and wake one caller."""
        self.things += things
        waiter.wake_one()


Make = Callable[..., async_waiter.Waiter]


def awaited(**options: object) -> object:
    return Awaited(thread_waiter.Waiter(**options), async_waiter.Waiter)  # type: ignore[arg-type]


@pytest.fixture(params=[async_waiter.Waiter, awaited], ids=["async", "thread"])
def make(request: pytest.FixtureRequest) -> Make:
    found: Make = request.param
    return found


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


async def put(waiter: async_waiter.Waiter, shelf: Shelf, *things: str) -> None:
    waiter.call(shelf.put, waiter, *things)


# Waiting


@in_loop
async def test_an_attempt_that_succeeds_does_not_wait(make: Make, shelf: Shelf) -> None:
    shelf.things.append("thing")
    assert await make().until(shelf.take, 0, "nothing arrived") == "thing"


@in_loop
async def test_a_call_waits_until_its_attempt_succeeds(make: Make, shelf: Shelf) -> None:
    waiter = make()
    waiting = asyncio.create_task(waiter.until(shelf.take, PATIENCE, "nothing arrived"))
    await eventually(lambda: waiter.waiting == 1)
    waiter.call(waiter.wake)  # in vain: the call waits on
    await put(waiter, shelf, "thing")
    assert await waiting == "thing"
    assert waiter.waiting == 0


@in_loop
async def test_one_wake_up_is_for_one_call(make: Make, shelf: Shelf) -> None:
    waiter = make()
    waiting = [asyncio.create_task(waiter.until(shelf.take, PATIENCE, "nothing arrived")) for _ in range(3)]
    await eventually(lambda: waiter.waiting == 3)
    for left in (2, 1, 0):
        await put(waiter, shelf, "thing")
        await eventually(lambda left=left: waiter.waiting == left)  # type: ignore[misc]
    assert await asyncio.gather(*waiting) == ["thing"] * 3


@in_loop
async def test_a_call_that_leaves_something_wakes_the_next(make: Make, shelf: Shelf) -> None:
    waiter = make(more=lambda: shelf.things)
    waiting = [asyncio.create_task(waiter.until(shelf.take, PATIENCE, "nothing arrived")) for _ in range(3)]
    await eventually(lambda: waiter.waiting == 3)
    await put(waiter, shelf, "a", "b", "c")
    assert sorted(await asyncio.gather(*waiting)) == ["a", "b", "c"]


@in_loop
async def test_wake_wakes_all_calls(make: Make, shelf: Shelf) -> None:
    waiter = make()
    waiting = [asyncio.create_task(waiter.until(shelf.take, PATIENCE, "nothing arrived")) for _ in range(3)]
    await eventually(lambda: waiter.waiting == 3)
    shelf.things += "abc"
    waiter.call(waiter.wake)
    assert sorted(await asyncio.gather(*waiting)) == ["a", "b", "c"]


@in_loop
async def test_a_timeout_says_what_did_not_happen_and_how_things_stand(make: Make, shelf: Shelf) -> None:
    waiter = make(state=lambda: "the shelf is empty", timed_out=Late)
    for each in (waiter, waiter.sibling()):
        with pytest.raises(Late, match=r"^nothing arrived within 0\.01 s; the shelf is empty$"):
            await each.until(shelf.take, 0.01, "nothing arrived")
        assert waiter.waiting == 0
    with pytest.raises(TimedOut, match=r"^nothing arrived at once$"):
        await make().until(shelf.take, 0, "nothing arrived")


@in_loop
async def test_an_attempt_that_raises_ends_the_call(make: Make) -> None:
    waiter = make()
    broken: list[str] = []

    def attempt() -> str | None:
        if broken:
            raise KeyError(broken[0])
        return None

    waiting = asyncio.create_task(waiter.until(attempt, PATIENCE, "nothing arrived"))
    await eventually(lambda: waiter.waiting == 1)
    broken.append("closed")
    waiter.call(waiter.wake)
    with pytest.raises(KeyError, match="closed"):
        await waiting
    assert waiter.waiting == 0


@in_loop
async def test_siblings_share_a_reactor_and_are_woken_apart(make: Make, shelf: Shelf) -> None:
    readers = make()
    writers = readers.sibling()
    assert writers.reactor is readers.reactor
    waiting = asyncio.create_task(readers.until(shelf.take, PATIENCE, "nothing arrived"))
    await eventually(lambda: readers.waiting == 1)
    assert writers.waiting == 0
    await put(readers, shelf, "thing")
    assert await waiting == "thing"


# Calling


@in_loop
async def test_call_passes_arguments_and_results_on(make: Make) -> None:
    waiter = make()
    assert waiter.call(max, 1, 2) == 2
    with pytest.raises(ZeroDivisionError):
        waiter.call(lambda: 1 / 0)
    await waiter.breathe()


@in_loop
async def test_a_fast_attempt_succeeds_or_returns_nothing(make: Make, shelf: Shelf) -> None:
    take = make().fast(shelf.take, OPEN)
    assert take() is None
    shelf.things.append("thing")
    assert take() == "thing"


# One of them only


@in_loop
async def test_a_cancelled_call_passes_its_wake_up_on(shelf: Shelf) -> None:
    waiter = async_waiter.Waiter()
    first, second = (asyncio.create_task(waiter.until(shelf.take, PATIENCE, "nothing arrived")) for _ in range(2))
    await eventually(lambda: waiter.waiting == 2)
    shelf.put(waiter, "thing")
    first.cancel()  # it has been woken, but has not run yet
    assert await second == "thing"
    assert first.cancelled()


@in_loop
async def test_awaitable_arguments_are_awaited() -> None:
    async def address() -> str:
        return "tcp://127.0.0.1:5555"

    waiter = async_waiter.Waiter()
    assert not waiter.is_question("tcp://127.0.0.1:5555")
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    future.set_result("tcp://127.0.0.1:5556")
    for question, answer in ((address, "tcp://127.0.0.1:5555"), (future, "tcp://127.0.0.1:5556")):
        assert waiter.is_question(question)
        assert await waiter.answer(question) == answer


def test_the_waiter_for_threads_takes_plain_arguments() -> None:
    waiter = thread_waiter.Waiter()
    assert not waiter.is_question(asyncio.sleep)
    assert waiter.answer("tcp://127.0.0.1:5555") == "tcp://127.0.0.1:5555"


def test_calls_from_threads_hold_the_lock() -> None:
    waiter = thread_waiter.Waiter()
    locked = waiter.reactor.lock.locked
    assert waiter.call(locked)
    assert waiter.until(locked, 0, "the lock was not held")
    assert waiter.fast(locked, OPEN)()
    assert not locked()


def test_a_fast_attempt_posts_without_the_lock_if_it_can() -> None:
    waiter = thread_waiter.Waiter()
    log: list[str] = []

    def note(what: str, result: bool) -> bool:
        log.append(f"{what} {'with' if waiter.reactor.lock.locked() else 'without'} the lock")
        return result

    send = functools.partial(note, "send", True)
    assert waiter.fast(send, OPEN, functools.partial(note, "post", True))()
    assert waiter.fast(send, OPEN, functools.partial(note, "post", False))()
    assert log == ["post without the lock", "post without the lock", "send with the lock"]
    assert waiter.fast(send, CLOSING)() is None  # over


def test_a_disowned_waiter_refuses_every_call() -> None:
    waiter = thread_waiter.Waiter()
    take = waiter.fast(lambda: "thing", OPEN)
    post = waiter.fast(lambda: True, OPEN, lambda: True)
    with waiter.reactor.lock:  # as if the parent had held it when it forked
        waiter.disown()
        calls: list[Callable[[], object]] = [
            lambda: waiter.call(max, 1, 2),
            lambda: waiter.until(lambda: "thing", 0, "nothing arrived"),
            take,
            post,
        ]
        for call in calls:
            with pytest.raises(ZmtpError, match="belongs to the process that forked this one"):
                call()
