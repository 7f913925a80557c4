"""The interface of an archive, which keeps the messages of topics.

The middleware does not know what a journal is. It has an `Archive`, which decides which topics are kept, stores their
messages, and replays them to clients that were away. In a server this is a ZEPS stream, with the topic as routing key;
`MemoryArchive` is a small one for tests and examples.

The middleware makes all calls from its own thread or event loop. They must not block: long work is done in steps.
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
"""A sequence after which to begin (0: from the first message), or a time at which to begin."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A stored message: the frames of its MESSAGE, without the first empty one."""

    sequence: int
    topic: bytes
    sender: bytes
    frames: Frames


class Archive(Protocol):
    """Keeps the messages of some topics."""

    def keeps(self, topic: bytes) -> bool:
        """Return whether a topic is kept. This must be quick: the middleware asks for every PUT."""

    def append(
        self, topic: bytes, sender: bytes, messages: Sequence[Frames], stored: Callable[[str], object] | None
    ) -> int:
        """Store messages, all or none; return the sequence of the first. The others follow without a gap.

        A message is the frames of its MESSAGE, without the first empty one. `stored` must be called once, now or later:
        with an empty text when the messages are stored as safely as the archive can, or with the problem. Raises
        `ArchiveError` if the archive does not accept them: then no subscriber gets them.
        """

    @property
    def last(self) -> int:
        """The sequence of the last stored message; 0 if there was none."""

    @property
    def first(self) -> int:
        """The sequence of the first message that is still stored, or of the next one."""

    def replay(self, topics: Collection[bytes], since: Since) -> Iterator[Kept | None]:
        """Return an iterator of the messages of topics, in order, up to the last one that exists when it ends.

        It yields None after a long stretch without messages of these topics, so that the caller can do other work.
        Raises `ArchiveError` if it cannot begin at `since`.
        """


def read_since(value: bytes) -> Since:
    """Return the value of the header X-SINCE: a sequence, or a time in ISO 8601 with its zone."""
    if value.isdigit() and len(value) < 20:
        return int(value)
    try:
        time = datetime.fromisoformat(value.decode("ascii"))
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise Malformed(
            f"X-SINCE must be the last sequence that you have, or a time with its zone such as 2026-11-15T08:00:00Z, "
            f"not {quoted(value)}"
        )
    return time


class MemoryArchive:
    """Keeps the last `most` messages in memory, of the topics for which `wanted` returns True.

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

    @property
    def last(self) -> int:
        return self._next - 1

    @property
    def first(self) -> int:
        return self._kept[0].sequence if self._kept else self._next

    def replay(self, topics: Collection[bytes], since: Since) -> Iterator[Kept | None]:
        first = self._kept[0].sequence if self._kept else self._next
        if isinstance(since, int):
            if since >= self._next:
                raise ArchiveError(f"there is no sequence {since} yet: the last one is {self._next - 1}")
            start = max(0, since + 1 - first)
        else:
            if self._clock is None:
                raise ArchiveError("times are not kept here; use a sequence")
            start = bisect_left(self._times, since)
        return self._play(topics, first + start)

    def _play(self, topics: Collection[bytes], sequence: int) -> Iterator[Kept | None]:
        while sequence < self._next:
            first = self._kept[0].sequence
            sequence = max(sequence, first)
            kept = self._kept[sequence - first]
            sequence += 1
            yield kept if kept.topic in topics else None
