"""The journal of the middleware: topics bound to the stream `mcollective`.

The routing key is the topic. The body is the sender's identity and the frames of MESSAGE, each as a long string: its
length in four bytes, then its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from struct import Struct
from typing import Final

from zambezi.mcollective.archive import Kept, Since
from zambezi.mcollective.errors import ArchiveError
from zambezi.wire.text import as_text
from zambezi.zeps.block import Block
from zambezi.zeps.broker.stream import BrokerStream
from zambezi.zeps.directory import microseconds_of
from zambezi.zeps.errors import JournalError, OutOfRange
from zambezi.zeps.layout import PUBLISH

_LENGTH: Final = Struct(">I")
_LONGEST: Final = 255  # bytes of a routing key
_READ_AT_ONCE: Final = 1 << 18  # bytes
_BEFORE_KEY: Final = 11  # bytes of DELIVER: signature, id, sequence


class StreamArchive:
    """An archive that keeps topics in a stream."""

    def __init__(self, stream: BrokerStream, topics: Sequence[str]) -> None:
        self._stream = stream
        self._topics = list(topics)
        self.keeps: Callable[[bytes], bool] = lru_cache(maxsize=65_536)(self._keeps)

    def _keeps(self, topic: bytes) -> bool:
        shown = as_text(topic)
        return any(fnmatchcase(shown, pattern) for pattern in self._topics)

    def append(
        self, topic: bytes, sender: bytes, messages: Sequence[tuple[bytes, ...]], stored: Callable[[str], object] | None
    ) -> int:
        if len(topic) > _LONGEST:
            raise ArchiveError(f"a journalled topic has at most {_LONGEST} bytes; this one has {len(topic)}")
        head = PUBLISH + bytes((len(topic),)) + topic
        published = []
        for frames in messages:
            body = b"".join([_LENGTH.pack(len(part)) + part for part in (sender, *frames)])
            published.append(head + _LENGTH.pack(len(body)) + body)
        try:
            last = self._stream.append(published)
        except JournalError as error:
            raise ArchiveError(f"the message could not be journalled and was not delivered: {error}") from None
        if stored is not None:
            self._stream.confirm_when_safe(_Stored(stored))
        return last - len(published) + 1

    @property
    def last(self) -> int:
        return self._stream.journal.last

    @property
    def first(self) -> int:
        return self._stream.journal.first

    def replay(self, topics: Collection[bytes], since: Since) -> Iterator[Kept | None]:
        journal = self._stream.journal
        after = journal.before(microseconds_of(since)) if isinstance(since, datetime) else since or journal.first - 1
        if after > journal.last:
            raise ArchiveError(f"sequence {after} does not exist yet; the last one is {journal.last}")
        if after < journal.first - 1:
            raise ArchiveError(f"sequences before {journal.first} were removed; ask from {journal.first - 1}")
        return self._play(set(topics), after)

    def _play(self, topics: set[bytes], after: int) -> Iterator[Kept | None]:
        reader = self._stream.journal.reader(after)
        while True:
            try:
                span = reader.peek(_READ_AT_ONCE)
            except OutOfRange as error:
                raise ArchiveError(f"{error}; ask again") from None
            if span is None:
                return
            reader.skip(span)
            found = list(_kept(span.read(), topics))
            yield from found
            if not found:
                yield None


def _kept(block: Block, topics: set[bytes]) -> Iterator[Kept]:
    for index, key in enumerate(block.keys):
        if key in topics:
            message = block.bodies[index]
            parts = _split(message[_BEFORE_KEY + 1 + len(key) + 4 :])
            if parts:
                yield Kept(block.first + index, key, parts[0], tuple(parts[1:]))


def _split(body: bytes) -> list[bytes]:
    """Return the long strings of a body; none if the body has another form, as in a journal of another program."""
    parts = []
    position = 0
    while position < len(body):
        start = position + 4
        if start > len(body):
            return []
        position = start + _LENGTH.unpack_from(body, start - 4)[0]
        if position > len(body):
            return []
        parts.append(body[start:position])
    return parts


class _Stored:
    """A barrier that reports when the stream has stored a message."""

    def __init__(self, stored: Callable[[str], object]) -> None:
        self._stored = stored

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def confirm(self, barriers: int) -> None:
        self._stored("")

    def refuse(self, reason: str) -> None:
        self._stored(reason)

    def dismiss(self) -> None:
        self._stored("too many messages already wait for room on the disk")
