"""The backlog: messages for absent clients, of topics that no archive keeps. Without I/O.

A client whose connection was cut, or whose middleware was restarted, is back within a second as a rule. Messages that
come meanwhile wait here until the session goes on or its TTL is over (see `register`). Each message is held once, and
all clients that come back share its bytes.

The backlog is bounded. If it is full, the oldest message goes; a client that comes back is told how many it has missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from zambezi.mcollective.messages import Frames
from zambezi.zmtp.frames import Shared

_OVERHEAD: Final = 100  # bytes of a message, beside its frames


class Absentee:
    """An absent client: for each of its topics, how many messages the topic had when the client left."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}


class HeldTopic:
    """A topic with absent subscribers, and its messages since the first of them left, each with its number and size."""

    __slots__ = ("absentees", "count", "messages")

    def __init__(self) -> None:
        self.absentees = 0
        self.count = 0  # of all messages, also of those that had to go
        self.messages: deque[tuple[int, int, Shared]] = deque()


class Backlog:
    """The messages for absent clients: at most `most` bytes for all of them, and `most_of_client` for one."""

    def __init__(self, most: int, most_of_client: int) -> None:
        self.bytes = 0
        self._most = most
        self._most_of_client = most_of_client
        self._topics: dict[bytes, HeldTopic] = {}
        self._number = 0
        self._order: deque[HeldTopic] = deque()  # the topic of each message, also of forgotten ones

    def __len__(self) -> int:
        """Return the number of topics with absent subscribers."""
        return len(self._topics)

    def join(self, names: Iterable[bytes]) -> Absentee:
        """Begin to hold the messages of a client's topics."""
        absentee = Absentee()
        for name in names:
            topic = self._topics.setdefault(name, HeldTopic())
            topic.absentees += 1
            absentee.counts[name] = topic.count
        return absentee

    def leave(self, absentee: Absentee) -> None:
        """Hold no messages for a client any more."""
        for name in absentee.counts:
            topic = self._topics[name]
            topic.absentees -= 1
            if not topic.absentees:
                del self._topics[name]
                self.bytes -= sum(size for _, size, _ in topic.messages)
                topic.messages.clear()
        absentee.counts = {}
        if not self._topics:
            self._order.clear()

    def hold(self, name: bytes, run: list[Frames]) -> bool:
        """Hold messages for the absent subscribers of a topic; return False if it has none."""
        topic = self._topics.get(name)
        if topic is None:
            return False
        for frames in run:
            size = sum(map(len, frames)) + _OVERHEAD
            topic.messages.append((self._number, size, Shared((frames,))))
            topic.count += 1
            self._number += 1
            self.bytes += size
            self._order.append(topic)
            while self.bytes > self._most or len(self._order) * _OVERHEAD > self._most:
                self._forget_oldest()
        return True

    def read(self, absentee: Absentee, names: Iterable[bytes]) -> tuple[list[Shared], int]:
        """Return the last messages of an absent client's topics, in order, and how many it has missed before them."""
        found: list[tuple[int, int, Shared]] = []
        count = 0
        for name in names:
            topic = self._topics.get(name)
            if topic is None or name not in absentee.counts:
                continue
            new = topic.count - absentee.counts[name]
            count += new
            # Read from the end: the client may have left long after the first of these messages.
            for _, message in zip(range(new), reversed(topic.messages), strict=False):
                found.append(message)
        found.sort(reverse=True)  # by number, the last message first
        taken: list[Shared] = []
        room = self._most_of_client
        for _, size, shared in found:
            room -= size
            if room < 0:
                break
            taken.append(shared)
        taken.reverse()
        return taken, count - len(taken)

    def _forget_oldest(self) -> None:
        topic = self._order.popleft()
        if topic.messages:
            _, size, _ = topic.messages.popleft()
            self.bytes -= size
