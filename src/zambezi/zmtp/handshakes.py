"""The unfinished handshakes of a socket: how long they can take, and how many of them there can be.

A stranger that connects and says nothing holds a descriptor, and has proved nothing. So accepted connections have less
time for the handshake than those that this side made, and their number is bounded: in total, for each address, and by
the descriptors of the process. Beyond a bound the oldest one is closed, not the new one: an honest peer needs
milliseconds, so it succeeds even while a stranger opens connections all the time.

All handshakes of one kind have the same time limit, so they are due in the order in which they began, and one timer
serves all. A timer for each would have to be created and cancelled for every connection, and a mesh makes thousands of
connections at once.

If the timer comes late, this process has too little processor time, and the bytes of its peers can wait in its sockets.
To close their connections would be more work, for connections that they make again. So the handshakes that are due get
as much longer as the timer was late. Their number stays bounded.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from zambezi.zmtp import descriptors
from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.connection import Limits
from zambezi.zmtp.reactor import Reactor

if TYPE_CHECKING:
    from zambezi.zmtp.stream import StreamLink

_LATE: Final = 1.0  # seconds by which the timer of a process with too little time is late
_SHARE: Final = 4  # half-open connections of a socket take one of so many parts of the descriptors, at most


class Handshakes:
    """The links whose handshake is not complete, with the time at which each is due."""

    __slots__ = ("_accepted", "_alarm", "_limits", "_made", "_most", "_of_address", "_wanted")

    def __init__(self, reactor: Reactor, limits: Limits) -> None:
        self._limits = limits
        self._most = limits.half_open  # accepted connections
        self._alarm = Alarm(reactor, lambda: self._tick(reactor.time()))
        self._wanted = math.inf  # when the alarm should ring
        self._made: dict[StreamLink, float] = {}
        self._accepted: dict[StreamLink, float] = {}
        self._of_address: dict[str, dict[StreamLink, None]] = {}  # those accepted, by the peer's address

    def measure(self) -> int:
        """Return how many descriptors connections can use; they bound the half-open connections, too.

        A listener calls it before it accepts connections, once for all that wait.
        """
        usable = descriptors.usable()
        self._most = min(self._limits.half_open, max(1, usable // _SHARE))
        return usable

    def begin(self, link: StreamLink, accepted: bool) -> None:
        """Limit the time of a link's handshake; if this side accepted the connection, the number of links, too."""
        due = link.connection.deadline
        if due is None:
            return
        if accepted:
            self._make_room(link.address)
            self._accepted[link] = due
            self._of_address.setdefault(link.address, {})[link] = None
        else:
            self._made[link] = due
        self._wake_at(due)

    def _wake_at(self, when: float) -> None:
        self._wanted = min(self._wanted, when)
        self._alarm.set(when)

    def end(self, link: StreamLink) -> None:
        """Forget a link: its handshake is complete, or its connection is gone."""
        self._made.pop(link, None)
        if self._accepted.pop(link, None) is not None:
            theirs = self._of_address[link.address]
            del theirs[link]
            if not theirs:
                del self._of_address[link.address]

    def _make_room(self, address: str) -> None:
        """Close the oldest half-open connection if there are too many, of this address or of all."""
        limits = self._limits
        theirs = self._of_address.get(address, {})
        if len(theirs) >= limits.half_open_of_address and not _local(address):
            next(iter(theirs)).abort(
                f"its address has {len(theirs)} unfinished handshakes, which is the limit, and this is the oldest"
            )
            return
        if len(self._accepted) >= self._most:
            self.sacrifice(
                f"the socket has {self._most} unfinished handshakes, which is its limit, and this is the oldest"
            )

    def sacrifice(self, reason: str) -> bool:
        """Close the oldest half-open connection; return False if there is none."""
        oldest = next(iter(self._accepted), None)
        if oldest is None:
            return False
        oldest.abort(reason)
        return True

    def _tick(self, now: float) -> None:
        late, self._wanted = now - self._wanted, math.inf
        if late > _LATE:
            self._wake_at(now + late)
            return
        kinds = (self._made, self._accepted)
        try:
            for link in [link for kind in kinds for link, due in kind.items() if due <= now]:
                link.tick()
        finally:
            for kind in kinds:
                for due in kind.values():
                    self._wake_at(due)
                    break

    def close(self) -> None:
        """Cancel the timer."""
        self._alarm.end()


def _local(address: str) -> bool:
    """Return whether a peer is on this machine, where all clients have the same address, or none."""
    return address in ("", "::1") or address.startswith(("127.", "::ffff:127."))
