"""The event loop as the sockets see it: readiness, timers, and a way to be called.

The rules of the sockets are in classes that never wait and never block. A reactor calls them when a kernel socket can
be read or written, or when a timer fires; the program calls them to send and receive. There are two reactors, one for
the asyncio sockets and one for the blocking sockets:

- `AsyncioReactor` runs everything in the program's own event loop. One thread does everything, so no lock is needed.
- `ThreadReactor` runs callbacks in the loop of another thread, each with the lock of its socket held. The threads of
  the program take the same lock to send and receive. So a sender can write to the network itself, and a thread that
  waits for a message can read it itself (see `watch`); a switch to the other thread and back would cost most of a
  message's time.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeAlias

from zambezi.zmtp.poller import poller_of
from zambezi.zmtp.watch import IoLoop, Watch

Addresses: TypeAlias = list[tuple[Any, ...]]


class Timer(Protocol):
    """A callback at a later time, which can be cancelled."""

    def cancel(self) -> None: ...


class Reactor(Protocol):
    """An event loop as a socket sees it.

    Callbacks run with `lock` held, and other threads take it to use the socket and to watch kernel sockets. A watched
    kernel socket must be closed with `release`. A transport calls `join` when it is made, and `leave` when it has
    closed.
    """

    @property
    def lock(self) -> AbstractContextManager[object]: ...

    @property
    def threaded(self) -> bool:
        """Whether threads of the program use the sockets, beside the thread that runs callbacks."""

    def shares_loop(self, other: Reactor) -> bool:
        """Return whether callbacks of both reactors run in one thread, without locks: then one can call the other."""

    def time(self) -> float: ...
    def join(self) -> None: ...
    def leave(self) -> None: ...
    def call_soon(self, callback: Callable[..., object], *args: object) -> None: ...

    def defer(self, callback: Callable[[], object]) -> None:
        """Call a function when this turn is over, perhaps before earlier `call_soon` calls, and perhaps twice."""

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer: ...
    def add_reader(self, sock: socket.socket, callback: Callable[[], object]) -> None: ...
    def remove_reader(self, sock: socket.socket) -> None: ...
    def add_writer(self, sock: socket.socket, callback: Callable[[], object]) -> None: ...
    def remove_writer(self, sock: socket.socket) -> None: ...
    def release(self, sock: socket.socket) -> None: ...
    def resolve(self, host: str, port: int, callback: Callable[[Addresses | OSError], object]) -> None: ...


class AsyncioReactor:
    """A reactor that runs everything in one event loop.

    It passes descriptors to the poller, not sockets: for an unknown socket, the loop would build a long error text,
    which it then discards.
    """

    __slots__ = ("_loop", "_poller", "time")

    lock = nullcontext()  # one thread needs no lock
    threaded = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._poller = poller_of(loop)
        # asyncio's own loops only pass on this clock; without that call, each message costs a little less.
        self.time = time.monotonic if type(loop).time is asyncio.BaseEventLoop.time else loop.time

    def shares_loop(self, other: Reactor) -> bool:
        return isinstance(other, AsyncioReactor) and other._loop is self._loop

    def join(self) -> None:
        """Do nothing: the loop belongs to the program."""

    leave = join

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        # The caller can be in another thread: the other end of an inproc connection.
        loop = self._loop
        if asyncio._get_running_loop() is loop:
            loop.call_soon(callback, *args)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(callback, *args)

    defer = call_soon

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        return self._loop.call_at(when, callback, *args)

    def add_reader(self, sock: socket.socket, callback: Callable[[], object]) -> None:
        self._poller.add_reader(sock.fileno(), callback)

    def remove_reader(self, sock: socket.socket) -> None:
        self._poller.remove_reader(sock.fileno())

    def add_writer(self, sock: socket.socket, callback: Callable[[], object]) -> None:
        self._poller.add_writer(sock.fileno(), callback)

    def remove_writer(self, sock: socket.socket) -> None:
        self._poller.remove_writer(sock.fileno())

    def release(self, sock: socket.socket) -> None:
        self._poller.remove_reader(sock.fileno())
        self._poller.remove_writer(sock.fileno())
        sock.close()

    def resolve(self, host: str, port: int, callback: Callable[[Addresses | OSError], object]) -> None:
        _resolve(self._loop, host, port, callback)


class ThreadReactor:
    """A reactor that runs callbacks with `lock` held: in the thread of `loop`, or in a thread that waits.

    The callbacks of timers and of `call_soon` always run in the thread of the loop. Callers of the methods that watch
    kernel sockets hold the lock; any thread can call the others.
    """

    __slots__ = (
        "_loop",
        "add_reader",
        "add_writer",
        "join",
        "leave",
        "lock",
        "release",
        "remove_reader",
        "remove_writer",
        "time",
        "watch",
    )

    threaded = True

    def __init__(self, loop: IoLoop, lock: threading.Lock) -> None:
        self._loop = loop
        self.lock = lock
        self.time = time.monotonic  # the clock of asyncio's loops
        self.watch = watch = Watch(loop, lock)
        self.join = watch.join
        self.leave = watch.leave
        self.add_reader = watch.add_reader
        self.remove_reader = watch.remove_reader
        self.add_writer = watch.add_writer
        self.remove_writer = watch.remove_writer
        self.release = watch.release

    def shares_loop(self, other: Reactor) -> bool:
        return False  # each socket has its own lock

    def _locked(self, callback: Callable[..., object], *args: object) -> None:
        with self.lock:
            callback(*args)

    def _in_loop(self, callback: Callable[..., object], *args: object) -> None:
        if running_in(self._loop):
            callback(*args)
        else:
            self._loop.call_soon_threadsafe(callback, *args)

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        if running_in(self._loop):
            self._loop.call_soon(self._locked, callback, *args)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._locked, callback, *args)

    def defer(self, callback: Callable[[], object]) -> None:
        if not self.watch.defer(callback):
            self.call_soon(callback)

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        timer = _RemoteTimer(self, callback, args)
        self._in_loop(timer.arm, self._loop, when)
        return timer

    def resolve(self, host: str, port: int, callback: Callable[[Addresses | OSError], object]) -> None:
        self._in_loop(_resolve, self._loop, host, port, lambda found: self._locked(callback, found))


class _RemoteTimer:
    """A timer that any thread can create and cancel."""

    __slots__ = ("_args", "_callback", "_cancelled", "_handle", "_reactor")

    def __init__(self, reactor: ThreadReactor, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self._reactor = reactor
        self._callback = callback
        self._args = args
        self._handle: asyncio.TimerHandle | None = None
        self._cancelled = False

    def arm(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if not self._cancelled:
            self._handle = loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._reactor._locked(self._run)

    def _run(self) -> None:
        # The lock is held here: after a thread has cancelled the timer with the lock held, the callback never runs.
        if not self._cancelled:
            self._callback(*self._args)

    def cancel(self) -> None:
        self._cancelled = True
        if self._handle is not None:
            self._reactor._in_loop(self._handle.cancel)


def running_in(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the loop runs in the current thread."""
    return asyncio._get_running_loop() is loop


def _resolve(
    loop: asyncio.AbstractEventLoop, host: str, port: int, callback: Callable[[Addresses | OSError], object]
) -> None:
    def done(future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            callback(list(future.result()))
        else:
            callback(error if isinstance(error, OSError) else OSError(str(error)))

    looked_up = loop.run_in_executor(None, socket.getaddrinfo, host, port, 0, socket.SOCK_STREAM)
    looked_up.add_done_callback(done)
