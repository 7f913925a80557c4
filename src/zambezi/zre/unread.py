"""The events that a program has not read yet, and whether they are too many for the node to read on."""

from __future__ import annotations

from collections import deque
from typing import Final

from zambezi.zre.events import Event

# When so many events wait for the program, the node reads nothing from its peers until the program has read half.
EVENTS_WAITING: Final = 10_000


class Unread(deque[Event]):
    """Events in order. With more than `most` bytes of messages, or `EVENTS_WAITING` events, they are too many.

    Bytes are counted as they are read from the network, since the program had read everything: a count for each event
    would cost more than the rest of this class.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.held_back = False  # whether the node has stopped reading from its peers
        self._most = most
        self._bytes = 0

    def note(self, octets: int) -> None:
        """Note that so many bytes were read from the network."""
        self._bytes += octets

    def hold_back(self) -> bool:
        """Return whether the node must not read from its peers now, and remember it."""
        if not self:
            self._bytes = 0
        self.held_back = len(self) >= EVENTS_WAITING or self._bytes > self._most
        return self.held_back

    def release(self) -> bool:
        """Return whether the node, which has stopped reading, must read again now.

        It must when half of the events are read, or all if they have too many bytes.
        """
        if len(self) > (EVENTS_WAITING // 2 if self._bytes <= self._most else 0):
            return False
        self.held_back = False
        return True
