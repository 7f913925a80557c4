"""A log of the messages that slow clients missed: one line per interval, with their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.reactor import Reactor

INTERVAL: Final = 10.0  # seconds
CLIENTS: Final = 1000  # that are counted one by one


class MissedLog:
    """The missed messages of the current interval. `write` logs one line."""

    __slots__ = ("_alarm", "_clients", "_reactor", "_write")

    def __init__(self, reactor: Reactor, write: Callable[[str], object]) -> None:
        self._reactor = reactor
        self._write = write
        self._clients: Counter[str] = Counter()
        self._alarm = Alarm(reactor, self._sum_up)

    def add(self, client: str, count: int) -> None:
        """Count messages that a client missed."""
        self._alarm.set(self._reactor.time() + INTERVAL)
        if len(self._clients) >= CLIENTS and client not in self._clients:
            client = "others"
        self._clients[client] += count

    def _sum_up(self) -> None:
        clients, self._clients = self._clients, Counter()
        if clients:
            ((name, most),) = clients.most_common(1)
            count = len(clients)
            self._write(
                f"{clients.total()} messages were not delivered to {count} {'client' if count == 1 else 'clients'} "
                f"that did not read in time; most of them, {most}, to {name}"
            )

    def close(self) -> None:
        """Log the messages that no line has told yet, and stop the timer."""
        self._alarm.end()
        self._sum_up()
