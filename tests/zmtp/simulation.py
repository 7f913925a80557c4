"""A reactor for tests: its clock moves only when it is told to, and everything happens in one thread, in order.

What is in memory is wholly deterministic. Real sockets can be watched, too: `until` waits for them, with a deadline in
real time, while the clock that the sockets see stands still.
"""

import heapq
import itertools
import select
import socket
import time
from collections import deque
from collections.abc import Callable

from zambezi.zmtp.core import Core
from zambezi.zmtp.events import SocketEvent
from zambezi.zmtp.reactor import Addresses

PATIENCE = 20.0


class Alarm:
    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Simulation:
    def __init__(self, start: float = 1000.0) -> None:
        self.now = start
        self.names: dict[str, Addresses | OSError] = {}  # what `resolve` finds
        self._soon: deque[Callable[[], object]] = deque()
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._order = itertools.count()
        self._readers: dict[socket.socket, Callable[[], object]] = {}
        self._writers: dict[socket.socket, Callable[[], object]] = {}

    # What a reactor does

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self._soon.append(lambda: callback(*args))

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Alarm:
        alarm = Alarm(when, lambda: callback(*args))
        heapq.heappush(self._alarms, (when, next(self._order), alarm))
        return alarm

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

    # What a test does

    @property
    def watched(self) -> set[socket.socket]:
        return {*self._readers, *self._writers}

    @property
    def alarms(self) -> list[float]:
        """When something is due, the soonest first."""
        return sorted(when for when, _, alarm in self._alarms if not alarm.cancelled)

    def run(self, wait: float = 0.0) -> None:
        """Do all that can be done at this moment."""
        while True:
            while self._soon:
                self._soon.popleft()()
            if not self._poll(wait) and not self._soon:
                return
            wait = 0.0

    def _poll(self, wait: float) -> bool:
        if not self.watched:
            return False
        readable, writable, _ = select.select(list(self._readers), list(self._writers), [], wait)
        for sock in readable:
            if sock in self._readers:
                self._readers[sock]()
        for sock in writable:
            if sock in self._writers:
                self._writers[sock]()
        return bool(readable or writable)

    def advance(self, seconds: float) -> None:
        """Let time pass, alarm by alarm."""
        end = self.now + seconds
        self.run()
        while self._alarms and self._alarms[0][0] <= end:
            when, _, alarm = heapq.heappop(self._alarms)
            if not alarm.cancelled:
                self.now = max(self.now, when)
                alarm.callback()
                self.run()
        self.now = end

    def close(self) -> None:
        """Close what is watched: what a test that failed has left behind."""
        for sock in self.watched:
            self.release(sock)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for real sockets; the simulated clock stands still."""
        deadline = time.monotonic() + PATIENCE
        self.run()
        while not condition():
            assert time.monotonic() < deadline, "what was waited for did not happen"
            self.run(0.002)


def closed(core: Core) -> bool:
    """Whether it is closed by now. (Of an attribute, a type checker believes that nobody changes it.)"""
    return core.closed


def history(core: Core) -> list[SocketEvent]:
    """The events of a core, from now on."""
    events: list[SocketEvent] = []
    core.on_event = events.append
    return events


def received(core: Core) -> list[list[bytes]]:
    """All messages that are there."""
    messages = []
    while (message := core.try_recv()) is not None:
        messages.append(message)
    return messages
