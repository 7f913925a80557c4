"""Topics that are remembered: what the middleware asks of whoever keeps them.

The middleware does not know what a journal is. It is given an `Archive`, which says which topics are kept, takes what
is PUT to them, and plays it again to clients that were away. In a server that is a ZEPS stream (the routing key is the
topic); `MemoryArchive` is a small one for tests and examples.

All calls come from the middleware's own thread of control and must not block: what takes long is done in steps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from zambezi.mcollective.errors import ArchiveError, Malformed
from zambezi.mcollective.messages import Frames
from zambezi.wire.text import quoted

Since: TypeAlias = int | datetime
"""After this sequence (0: from the first), or at this time and later."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A message as it was kept: MESSAGE's frames, without the first empty one."""

    sequence: int
    topic: bytes
    sender: bytes
    frames: Frames


class Archive(Protocol):
    """Keeps what is PUT to some topics."""

    def keeps(self, topic: bytes) -> bool:
        """Whether what is PUT to a topic is kept. Asked for every PUT: it must be quick."""

    def append(
        self, topic: bytes, sender: bytes, messages: Sequence[Frames], stored: Callable[[str], object] | None
    ) -> int:
        """Keep messages, all or none (the frames of their MESSAGEs, without the first empty one); the sequence of the
        first. Those after it follow without a gap.

        `stored` is called once, now or later: with an empty text when they are as safe as they are going to be, or with
        what went wrong. Raises `ArchiveError` if they are not taken: then they are delivered to nobody.
        """

    def replay(self, topics: Collection[bytes], since: Since) -> Iterator[Kept | None]:
        """What was PUT to these topics, in order, up to the moment at which the iterator ends.

        None is a breath: there was nothing for these topics in a stretch that was long enough to look at in one go.
        Raises `ArchiveError` if there is no such place to begin.
        """


def read_since(value: bytes) -> Since:
    """What the header X-SINCE says: a sequence, or a time in ISO 8601 with its zone."""
    if value.isdigit() and len(value) < 20:
        return int(value)
    try:
        time = datetime.fromisoformat(value.decode("ascii"))
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise Malformed(
            f"X-SINCE is the last sequence that you have, or a time with its zone such as 2026-11-15T08:00:00Z, "
            f"not {quoted(value)}"
        )
    return time


class MemoryArchive:
    """Keeps the last `most` messages of the topics that `wanted` says, in memory.

    >>> archive = MemoryArchive(lambda topic: topic.startswith(b"jobs"))
    >>> archive.append(b"jobs", b"ann", [(b"MESSAGE", b"TOPIC", b"jobs", b"", b"paint")], None)
    1
    >>> [kept.frames[-1] for kept in archive.replay({b"jobs"}, 0)]
    [b'paint']
    """

    def __init__(
        self,
        wanted: Callable[[bytes], bool] = lambda _: True,
        clock: Callable[[], datetime] | None = None,
        most: int = 100_000,
    ) -> None:
        self._wanted = wanted
        self._clock = clock
        self._most = most
        self._kept: list[Kept] = []
        self._times: list[datetime] = []
        self._next = 1

    def keeps(self, topic: bytes) -> bool:
        return self._wanted(topic)

    def append(
        self, topic: bytes, sender: bytes, messages: Sequence[Frames], stored: Callable[[str], object] | None
    ) -> int:
        first = self._next
        self._next += len(messages)
        self._kept += [Kept(first + at, topic, sender, frames) for at, frames in enumerate(messages)]
        if self._clock is not None:
            self._times += [self._clock()] * len(messages)
        over = max(0, len(self._kept) - self._most)
        del self._kept[:over]
        del self._times[:over]
        if stored is not None:
            stored("")
        return first

    def replay(self, topics: Collection[bytes], since: Since) -> Iterator[Kept | None]:
        first = self._kept[0].sequence if self._kept else self._next
        if isinstance(since, int):
            if since >= self._next:
                raise ArchiveError(f"there is no sequence {since} yet: the last one is {self._next - 1}")
            start = max(0, since + 1 - first)
        else:
            if self._clock is None:
                raise ArchiveError("times are not kept here; ask by sequence")
            start = bisect_left(self._times, since)
        return self._play(topics, first + start)

    def _play(self, topics: Collection[bytes], sequence: int) -> Iterator[Kept | None]:
        while sequence < self._next:
            first = self._kept[0].sequence
            sequence = max(sequence, first)
            kept = self._kept[sequence - first]
            sequence += 1
            yield kept if kept.topic in topics else None
