"""Logs of refused peers that an attack cannot fill.

The first refusals are logged at once, each with its reason, and the same one only once. While more of them come, the
log has one line per interval, with their number and the last reason. After an interval without a refusal, the next ones
are logged at once again. The fields of a line are for programs: the address, the reason, and the number.

Peers whose key is refused come back again and again, until their key is allowed. So each key has a line of its own the
first time; after that, one line per long interval says how many attempts there were, and with how many keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.reactor import Reactor

FIRST: Final = 10  # lines that are written at once
INTERVAL: Final = 10.0  # seconds
KEY_INTERVAL: Final = 300.0  # seconds
KEYS: Final = 1000  # that a log remembers

Write: TypeAlias = Callable[[str, Mapping[str, object]], object]


def writer(log: Callable[..., object]) -> Write:
    """Return a function that logs a line and its fields by a method of a logger, such as `logger.info`."""
    return lambda text, fields: log("%s", text, extra=dict(fields))


class RefusalLog:
    """The lines about the refusals of one socket. `write` logs one line with its fields."""

    __slots__ = ("_alarm", "_count", "_fields", "_last", "_left", "_reactor", "_told", "_write")

    def __init__(self, reactor: Reactor, write: Write) -> None:
        self._reactor = reactor
        self._write = write
        self._alarm = Alarm(reactor, self._interval_over)
        self._left = FIRST  # lines that can be written at once
        self._told: set[str] = set()  # the lines that were written at once
        self._count = 0  # refusals in this interval that were not logged,
        self._last = ""  # and the reason of the last one
        self._fields: Mapping[str, object] = {}

    def add(self, text: str, **fields: object) -> None:
        """Log a refusal, now or in the next sum."""
        self._alarm.set(self._reactor.time() + INTERVAL)
        if self._left and text not in self._told:
            self._left -= 1
            self._told.add(text)
            self._write(text, fields)
        else:
            self._count += 1
            self._last, self._fields = text, fields

    def _interval_over(self) -> None:
        if self._count:
            self._write_sum()
            self._alarm.set(self._reactor.time() + INTERVAL)
        else:
            self._left = FIRST
            self._told.clear()

    def _write_sum(self) -> None:
        count, self._count = self._count, 0
        self._write(f"{count} more like these; the last: {self._last}", {**self._fields, "count": count})

    def close(self) -> None:
        """Log the refusals that no line has told yet, and stop the timer."""
        self._alarm.end()
        if self._count:
            self._write_sum()


class KeyLog:
    """The lines about the refused keys of one socket. `write` logs one line with its fields."""

    __slots__ = ("_alarm", "_counts", "_fields", "_known", "_last", "_new", "_reactor")

    def __init__(self, reactor: Reactor, write: Write) -> None:
        self._reactor = reactor
        self._new = RefusalLog(reactor, write)
        self._alarm = Alarm(reactor, self._interval_over)
        self._known: dict[str, None] = {}  # keys that have had their line, the last ones only
        self._counts: dict[str, int] = {}  # attempts in this interval, by key
        self._last = ""
        self._fields: Mapping[str, object] = {}

    def add(self, key: str, text: str, **fields: object) -> None:
        """Log the first refusal of a key, and count the others."""
        if key not in self._known:
            self._known[key] = None
            if len(self._known) > KEYS:
                del self._known[next(iter(self._known))]
            self._new.add(text, key=key, **fields)
            return
        self._counts[key] = self._counts.get(key, 0) + 1
        self._last, self._fields = text, {"key": key, **fields}
        self._alarm.set(self._reactor.time() + KEY_INTERVAL)

    def _interval_over(self) -> None:
        counts, self._counts = self._counts, {}
        attempts, keys = sum(counts.values()), len(counts)
        if attempts:
            told = f"{attempts} more attempts with {keys} refused keys; the last: {self._last}"
            self._new.add(told, **{**self._fields, "count": attempts})

    def close(self) -> None:
        """Log the attempts that no line has told yet, and stop the timers."""
        self._alarm.end()
        self._interval_over()
        self._new.close()
