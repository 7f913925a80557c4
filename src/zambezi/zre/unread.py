"""The events that a program has not read yet, and whether they are too many for the node to read on."""

from __future__ import annotations

from collections import deque
from typing import Final

from zambezi.zre.events import Event, Shout, Whisper

# When so many events wait for the program, the node reads nothing from its peers until the program has read half.
EVENTS_WAITING: Final = 10_000
_MESSAGES: Final = (Whisper, Shout)


class Unread(deque[Event]):
    """Events in order. With `most` bytes of messages, or `EVENTS_WAITING` events, they are too many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.held_back = False  # whether the node has stopped reading from its peers
        self._most = most
        self._bytes = 0

    def put(self, event: Event) -> None:
        """Add an event."""
        self.append(event)
        if isinstance(event, _MESSAGES):
            self._bytes += sum(map(len, event.content))

    def take(self) -> Event:
        """Remove and return the first event."""
        event = self.popleft()
        if isinstance(event, _MESSAGES):
            self._bytes -= sum(map(len, event.content))
        return event

    def hold_back(self) -> bool:
        """Return whether the node must not read from its peers now, and remember it."""
        self.held_back = len(self) >= EVENTS_WAITING or self._bytes > self._most
        return self.held_back

    def release(self) -> bool:
        """Return whether the node, which has stopped reading, must read again now: half of the events are read."""
        if self.held_back and len(self) <= EVENTS_WAITING // 2 and self._bytes <= self._most // 2:
            self.held_back = False
            return True
        return False
