"""zambezi.zmtp.reactor: both reactors behave the same, called from the thread of the loop and from others."""

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.zmtp.waiting import in_loop, wait_until
from zambezi.zmtp.io_thread import IoThread
from zambezi.zmtp.reactor import Addresses, AsyncioReactor, ThreadReactor


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.setblocking(False)
    yield left, right
    left.close()
    right.close()


class Watched:
    """A callback that records whether the lock was held, and in which thread it ran."""

    def __init__(self, lock: threading.Lock) -> None:
        self.lock = lock
        self.calls: list[tuple[bool, str]] = []

    def __call__(self, *args: object) -> None:
        self.calls.append((self.lock.locked(), threading.current_thread().name))


def test_callbacks_run_in_the_io_thread_with_the_lock_held(
    io: IoThread, pair: tuple[socket.socket, socket.socket]
) -> None:
    lock = threading.Lock()
    reactor = ThreadReactor(io.loop, lock)
    left, right = pair
    soon, later, readable, writable = (Watched(lock) for _ in range(4))
    reactor.call_soon(soon)
    reactor.call_at(reactor.time() + 0.001, later)

    def read() -> None:
        readable()
        left.recv(9)

    def write() -> None:
        writable()
        reactor.remove_writer(left)

    with lock:
        reactor.add_reader(left, read)
        reactor.add_writer(left, write)
    right.send(b"x")
    every = (soon, later, readable, writable)
    wait_until(lambda: all(watched.calls for watched in every))
    for watched in every:
        assert watched.calls[0] == (True, "zambezi-io")
    with lock:
        reactor.release(left)
    assert left.fileno() < 0


def test_a_timer_cancelled_with_the_lock_held_does_not_fire(io: IoThread) -> None:
    lock = threading.Lock()
    reactor = ThreadReactor(io.loop, lock)
    fired, marks = Watched(lock), Watched(lock)
    with lock:
        timers = [reactor.call_at(reactor.time() + delay, fired) for delay in (-1.0, 0.0, 0.01)]
        reactor.call_at(reactor.time() + 0.02, marks)
        io.loop.call_soon_threadsafe(lambda: None)
        for timer in timers:
            timer.cancel()
    wait_until(lambda: marks.calls)
    assert fired.calls == []


def test_a_socket_can_be_released_in_any_order(io: IoThread, pair: tuple[socket.socket, socket.socket]) -> None:
    reactor = ThreadReactor(io.loop, threading.Lock())
    left, right = pair
    called = Watched(threading.Lock())
    reactor.add_reader(left, called)
    reactor.release(left)
    reactor.add_reader(left, called)
    reactor.remove_reader(left)
    reactor.remove_writer(left)
    reactor.release(left)
    assert left.fileno() < 0
    right.close()
    assert called.calls == []


def test_the_thread_ends_when_it_is_stopped() -> None:
    thread = IoThread()
    assert any(one.name == "zambezi-io" for one in threading.enumerate())
    thread.stop()
    assert thread.loop.is_closed()
    # A closed loop runs no callbacks, and raises no error.
    ThreadReactor(thread.loop, threading.Lock()).call_soon(pytest.fail, "called")
    AsyncioReactor(thread.loop).call_soon(pytest.fail, "called")


@in_loop
async def test_an_asyncio_reactor_can_be_called_from_another_thread() -> None:
    reactor = AsyncioReactor(asyncio.get_running_loop())
    called: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def call() -> None:
        called.set_result(threading.current_thread().name)

    thread = threading.Thread(target=lambda: reactor.call_soon(call))
    thread.start()
    assert await called == threading.current_thread().name
    thread.join()


@in_loop
async def test_an_asyncio_reactor_watches_and_releases() -> None:
    reactor = AsyncioReactor(asyncio.get_running_loop())
    left, right = socket.socketpair()
    left.setblocking(False)
    readable = asyncio.Event()
    reactor.add_reader(left, readable.set)
    right.send(b"x")
    await readable.wait()
    reactor.release(left)
    assert left.fileno() < 0
    right.close()


@in_loop
async def test_names_are_resolved_without_blocking() -> None:
    loop = asyncio.get_running_loop()
    reactor = AsyncioReactor(loop)
    for host, good in (("localhost", True), ("127.0.0.1", True), ("a..b", False)):
        found: asyncio.Future[Addresses | OSError] = loop.create_future()
        reactor.resolve(host, 5555, found.set_result)
        result = await found
        assert isinstance(result, list) is good
        if isinstance(result, list):
            assert all(entry[4][1] == 5555 for entry in result)


def test_names_are_resolved_with_the_lock_held(io: IoThread) -> None:
    lock = threading.Lock()
    reactor = ThreadReactor(io.loop, lock)
    called = Watched(lock)
    reactor.resolve("localhost", 5555, called)
    wait_until(lambda: called.calls)
    assert called.calls == [(True, "zambezi-io")]
