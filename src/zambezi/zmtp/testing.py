"""A reactor for tests of programs that use Zambezi, and of Zambezi itself.

>>> from zambezi.zmtp.patterns import Dealer, Router
>>> with Simulation() as simulation:
...     router, dealer = Router(simulation), Dealer(simulation)
...     dealer.connect(router.bind("inproc://example"))
...     dealer.try_send(b"hello")
...     simulation.run()
...     [message[1:] for message in received(router)]
<Peer  at inproc://example, 0 bytes queued>
True
[[b'hello']]

Only the test moves its clock, and everything happens in one thread, in order: so sockets over inproc are fully
deterministic. It can also watch kernel sockets: `until` waits for them, with a deadline in real time, while the clock
of the simulation stands still.
"""

from __future__ import annotations

import heapq
import itertools
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final, Self

from zambezi.zmtp.events import SocketEvent
from zambezi.zmtp.face import Shell
from zambezi.zmtp.patterns import Pattern
from zambezi.zmtp.reactor import Addresses, Reactor

PATIENCE: Final = 20.0  # seconds of real time


class SimulatedTimer:
    """A timer of a simulation."""

    __slots__ = ("_args", "_callback")

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args

    def cancel(self) -> None:
        """Do not call the callback."""
        self._callback = None
        self._args = ()

    @property
    def cancelled(self) -> bool:
        """Whether the timer was cancelled, or has fired."""
        return self._callback is None

    def fire(self) -> None:
        """Call the callback, unless the timer was cancelled."""
        callback, args = self._callback, self._args
        self.cancel()
        if callback is not None:
            callback(*args)


class Simulation:
    """A `Reactor` whose clock stands still until `advance` moves it."""

    lock = nullcontext()
    threaded = True

    def __init__(self, start: float = 1000.0) -> None:
        self.now = start
        self.names: dict[str, Addresses | OSError] = {}  # the host names that `resolve` finds
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._timers: list[tuple[float, int, SimulatedTimer]] = []
        self._order = itertools.count()
        self._readers: dict[socket.socket, Callable[[], object]] = {}
        self._writers: dict[socket.socket, Callable[[], object]] = {}

    # The reactor

    def shares_loop(self, other: Reactor) -> bool:
        return other is self

    def time(self) -> float:
        return self.now

    def join(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self._soon.append((callback, args))

    defer = call_soon

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> SimulatedTimer:
        timer = SimulatedTimer(callback, args)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def add_reader(self, sock: socket.socket, callback: Callable[[], object]) -> None:
        self._readers[sock] = callback

    def remove_reader(self, sock: socket.socket) -> None:
        self._readers.pop(sock, None)

    def add_writer(self, sock: socket.socket, callback: Callable[[], object]) -> None:
        self._writers[sock] = callback

    def remove_writer(self, sock: socket.socket) -> None:
        self._writers.pop(sock, None)

    def release(self, sock: socket.socket) -> None:
        self.remove_reader(sock)
        self.remove_writer(sock)
        sock.close()

    def resolve(self, host: str, port: int, callback: Callable[[Addresses | OSError], object]) -> None:
        self.call_soon(callback, self.names.get(host, OSError(f"{host} is not known")))

    # The test

    @property
    def watched(self) -> set[socket.socket]:
        """The kernel sockets that are watched."""
        return {*self._readers, *self._writers}

    @property
    def alarms(self) -> list[float]:
        """The times at which timers are due, the soonest first."""
        return sorted(when for when, _, timer in self._timers if not timer.cancelled)

    def run(self, wait: float = 0.0) -> None:
        """Run all callbacks that are due now; wait for kernel sockets for `wait` seconds of real time."""
        soon = self._soon
        while True:
            while soon:
                callback, args = soon.popleft()
                callback(*args)
            if not (self._readers or self._writers) or (not self._poll(wait) and not soon):
                return
            wait = 0.0

    def _poll(self, wait: float) -> bool:
        readable, writable, _ = select.select(list(self._readers), list(self._writers), [], wait)
        for sock in readable:
            if sock in self._readers:
                self._readers[sock]()
        for sock in writable:
            if sock in self._writers:
                self._writers[sock]()
        return bool(readable or writable)

    def advance(self, seconds: float) -> None:
        """Let time pass, timer by timer."""
        self.run_until(self.now + seconds)

    def run_until(self, when: float) -> None:
        """Let time pass, timer by timer, until it is `when`."""
        timers = self._timers
        self.run()
        while timers and timers[0][0] <= when:
            due, _, timer = heapq.heappop(timers)
            if not timer.cancelled:
                self.now = max(self.now, due)
                timer.fire()
                self.run()
        self.now = max(self.now, when)

    def close(self) -> None:
        """Close the kernel sockets that are still watched."""
        for sock in self.watched:
            self.release(sock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def until(self, condition: Callable[[], object]) -> None:
        """Run until a condition holds, waiting for kernel sockets; the simulated clock stands still."""
        deadline = time.monotonic() + PATIENCE
        self.run()
        while not condition():
            assert time.monotonic() < deadline, f"the condition did not hold within {PATIENCE:g} s"
            self.run(0.002)


def closed(shell: Shell) -> bool:
    """Return whether a socket is closed. (A type checker would assume that an attribute does not change.)"""
    return shell.transport.closed


def history(shell: Shell) -> list[SocketEvent]:
    """Return a list that receives the events of a socket from now on."""
    events: list[SocketEvent] = []
    shell.on_event = events.append
    return events


def received(pattern: Pattern) -> list[list[bytes]]:
    """Receive and return all messages that wait."""
    messages = []
    while (message := pattern.try_recv()) is not None:
        messages.append(message)
    return messages
