"""Stalls: the peers whose queue is full, and when each of them last read something.

A program that sends to a full queue waits for room, however slowly the peer reads. A peer that reads nothing for its
time (`expired`) does not respond any more. (MBX-05)
"""

from __future__ import annotations

from zambezi.zmtp.peer import Peer
from zambezi.zre.agenda import NEVER
from zambezi.zre.timing import Timing


class Stall:
    """A full queue: since when the peer has read nothing, and how many bytes of it the connection holds."""

    __slots__ = ("since", "unsent")

    def __init__(self, since: float, unsent: int) -> None:
        self.since = since
        self.unsent = unsent


class Stalls:
    """The full queues of a node. It looks every `evasive` seconds whether the peers read, and gives them `expired`."""

    def __init__(self, timing: Timing) -> None:
        self.deadline = NEVER  # of the next look
        self._timing = timing
        self._stalls: dict[Peer, Stall] = {}

    def __len__(self) -> int:
        return len(self._stalls)

    def begin(self, peer: Peer, now: float) -> None:
        """Note that a peer's queue is full."""
        if peer not in self._stalls:
            self._stalls[peer] = Stall(now, peer.unsent)
            self.deadline = min(self.deadline, now + self._timing.evasive)

    def moved(self, peer: Peer, now: float) -> bool:
        """Note that messages of a queue have gone out; return whether that queue was full."""
        stall = self._stalls.get(peer)
        if stall is None:
            return False
        if peer.full:
            stall.since, stall.unsent = now, peer.unsent
        else:
            self.end(peer)
        return True

    def end(self, peer: Peer) -> None:
        """Forget a peer: its queue has room, or it is gone."""
        if self._stalls.pop(peer, None) is not None and not self._stalls:
            self.deadline = NEVER

    def due(self, now: float) -> list[Peer]:
        """Return the peers that have read nothing for their time."""
        if now < self.deadline:
            return []
        for peer, stall in self._stalls.items():
            if peer.unsent != stall.unsent:  # part of a large message has gone out
                stall.since, stall.unsent = now, peer.unsent
        given_up = [peer for peer, stall in self._stalls.items() if now - stall.since >= self._timing.expired]
        for peer in given_up:
            del self._stalls[peer]
        ends = (stall.since + self._timing.expired for stall in self._stalls.values())
        self.deadline = min(min(ends, default=NEVER), now + self._timing.evasive) if self._stalls else NEVER
        return given_up
