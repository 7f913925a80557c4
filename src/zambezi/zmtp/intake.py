"""The unfinished input of a process: the bytes of all messages that have begun to arrive and are not whole yet.

Each connection has a limit for its messages, but many connections can come close to it at the same time, and stay
there. So the process has a bound for all of them together. When it is exceeded, those connections are closed whose
unfinished messages take the most memory for the longest time (bytes times seconds): an honest peer finishes its
message, however large, and begins anew; an attacker's messages stay and grow old.

Reads of a busy connection nearly always end in the middle of a message. So messages of less than `SMALL` bytes are not
counted: the number of connections bounds those.

The sockets of a process can be in several threads. So a lock guards the sums, and each connection is closed by its own
event loop.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol

BOUND: Final = 1 << 29
SMALL: Final = 16 * 1024
_RELIEF: Final = 8  # one of so many parts is freed at once, so that the search for the worst does not run at every read


class Unfinished(Protocol):
    """A connection with an unfinished message."""

    def cut_off_soon(self, reason: str) -> None:
        """Close the connection, in its own event loop, after this call."""


class Intake:
    """The connections with unfinished messages, and the sum of their bytes."""

    __slots__ = ("_lock", "_noted", "bound", "total")

    def __init__(self, bound: int = BOUND) -> None:
        self.bound = bound
        self.total = 0
        self._lock = threading.Lock()
        self._noted: dict[Unfinished, tuple[int, float]] = {}  # its bytes, and when the message began

    def note(self, link: Unfinished, octets: int, now: float, began: bool) -> None:
        """Note the bytes of a link's unfinished message. `began` says that the message has just begun."""
        with self._lock:
            before, since = self._noted.get(link, (0, now))
            self.total += octets - before
            if not octets:
                self._noted.pop(link, None)
                return
            self._noted[link] = octets, now if began else since
            worst = self._take_worst(now) if self.total > self.bound else []
        for one, held in worst:
            one.cut_off_soon(
                f"the unfinished messages of all connections exceeded {self.bound} bytes, and this one's {held} bytes "
                "were among those that took the most memory for the longest time"
            )

    def _take_worst(self, now: float) -> list[tuple[Unfinished, int]]:
        """Remove the worst connections, until there is room again; return them with their bytes."""

        def cost(link: Unfinished) -> float:
            octets, since = self._noted[link]
            return octets * (now - since + 1.0)  # of messages that have just begun, the largest costs the most

        target = self.bound - self.bound // _RELIEF
        worst = []
        for link in sorted(self._noted, key=cost, reverse=True):
            if self.total <= target:
                break
            held, _ = self._noted.pop(link)
            self.total -= held
            worst.append((link, held))
        return worst


# Of the whole process. A program can set its bound.
PROCESS: Final = Intake()
