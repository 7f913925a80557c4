"""The name of a subscription, without I/O: what its program has acknowledged, and what the broker has confirmed.

    acknowledged by the program  >=  sent on this connection  >=  confirmed by the broker

Acknowledgements are cumulative: only the last one counts. So however many messages a program acknowledges one by one,
the client sends the first ACK at once, and then one every few milliseconds. After a lost connection the client claims
the name again, and sends the last ACK again if the broker has not got it.

A program thread calls `acknowledge` without a lock, and the thread of the connection calls the other methods. The
program writes `acknowledged` before it reads `is_scheduled`; the other thread clears `is_scheduled` before it reads
`acknowledged`. So no acknowledgement is left behind.
"""

from __future__ import annotations

import os
from collections import deque

from zambezi.zeps.messages import AGAIN, OWNER, REFUSE, TAKE, Ack, Claim, ClaimOk


class NamedReader:
    """The name of a subscription, and how far its program has come."""

    __slots__ = (
        "_owner",
        "_pings",
        "_sent",
        "_since",
        "_takes",
        "acknowledged",
        "confirmed",
        "is_automatic",
        "is_claimed",
        "is_lost",
        "is_scheduled",
        "name",
    )

    def __init__(self, name: str, since: int, *, takes: bool, is_automatic: bool) -> None:
        self.name = name
        self.is_automatic = is_automatic  # whether the next `recv` acknowledges
        self.acknowledged = -1  # by the program; -1 before the first CLAIM-OK
        self.confirmed = -1  # by the broker
        self.is_claimed = False  # whether the broker has ever granted the name
        self.is_lost = False  # whether another client has the name now
        self.is_scheduled = False  # whether the connection will look soon for an ACK to send
        self._since = since
        self._takes = takes
        self._owner = os.urandom(OWNER)
        self._sent = -1  # on this connection
        self._pings: deque[int] = deque()  # what was sent before each PING of this connection

    def claim(self) -> bytes:
        """Return the CLAIM for a new connection."""
        mode = AGAIN if self.is_claimed else TAKE if self._takes else REFUSE
        return Claim(self.name, self._owner, self._since, mode).encode()[0]

    def note_claimed(self, answer: ClaimOk) -> None:
        """Note that the broker has granted the name."""
        self.is_claimed = True
        self.confirmed = answer.position
        self._sent = answer.position
        self.acknowledged = max(self.acknowledged, answer.position)

    def note_disconnected(self) -> None:
        """Note that the connection is lost: what was sent on it may not have arrived."""
        self._sent = -1
        self._pings.clear()

    def acknowledge(self, sequence: int) -> bool:
        """Acknowledge all messages up to a sequence; return whether `take_ack` must be scheduled."""
        if sequence <= self.acknowledged:
            return False
        self.acknowledged = sequence
        if self.is_scheduled:
            return False
        self.is_scheduled = True
        return True

    def take_ack(self) -> bytes | None:
        """Return the ACK to send now, and count it as sent; None if there is none."""
        acknowledged = self.acknowledged
        if acknowledged <= self._sent:
            return None
        self._sent = acknowledged
        return Ack(acknowledged).encode()[0]

    @property
    def is_confirmed(self) -> bool:
        """Whether the broker has confirmed all acknowledgements."""
        return self.confirmed >= self.acknowledged

    def note_ping(self) -> None:
        """Note that a PING was sent."""
        self._pings.append(self._sent)

    def note_ping_answered(self) -> None:
        """Note that the broker has confirmed the ACKs before the oldest PING."""
        if self._pings:
            self.confirmed = max(self.confirmed, self._pings.popleft())
