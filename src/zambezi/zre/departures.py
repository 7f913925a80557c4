"""Departures: peers that have said goodbye by a beacon, but whose last messages can still be on their connections.

A beacon overtakes the messages that its sender sent before it. So such a peer ends only when its connection to our
mailbox is closed and read, or when no message has come from it for a moment. GOODBYE, which comes on the connection
after all other messages, ends a peer at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zambezi.zre.agenda import NEVER
from zambezi.zre.peer import Peer
from zambezi.zre.timing import Timing

QUIET: Final = 0.1  # seconds without a message, after which no more is expected


class Departures:
    """The peers that are about to end. Each has at most `expired` seconds.

    `connects_to_us` returns whether a peer has a connection to our mailbox, and `has_unread` whether messages of a peer
    wait in the mailbox.
    """

    def __init__(
        self, timing: Timing, connects_to_us: Callable[[bytes], bool], has_unread: Callable[[bytes], bool]
    ) -> None:
        self.deadline = NEVER  # of the next look
        self._timing = timing
        self._connects_to_us = connects_to_us
        self._has_unread = has_unread
        self.leaving: dict[Peer, float] = {}  # with the time of the first goodbye

    def begin(self, peer: Peer, now: float) -> bool:
        """Note the goodbye of a peer; return False if no messages of the peer can follow, so that it ends at once."""
        if peer not in self.leaving:
            if not peer.ready or self._has_sent_all(peer):
                return False
            self.leaving[peer] = now
            self.deadline = min(self.deadline, now + QUIET)
        return True

    def due(self, now: float) -> list[Peer]:
        """Return the peers that end now, and forget them."""
        if now < self.deadline:
            return []
        ended = [peer for peer, since in self.leaving.items() if self._is_over(peer, since, now)]
        for peer in ended:
            del self.leaving[peer]
        self.deadline = now + QUIET if self.leaving else NEVER
        return ended

    def _is_over(self, peer: Peer, since: float, now: float) -> bool:
        if now - since >= self._timing.expired or self._has_sent_all(peer):
            return True
        return now - max(since, peer.heard) >= QUIET and not self._has_unread(peer.key)

    def _has_sent_all(self, peer: Peer) -> bool:
        return not self._connects_to_us(peer.key) and not self._has_unread(peer.key)

    def forget(self, peer: Peer) -> None:
        """Forget a peer that has ended, or has begun a new session."""
        if self.leaving.pop(peer, None) is not None and not self.leaving:
            self.deadline = NEVER

    def clear(self) -> None:
        """Forget all peers."""
        self.leaving.clear()
        self.deadline = NEVER
