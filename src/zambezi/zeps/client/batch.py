"""What a subscriber gets: a message, and a batch of messages that came in one read.

A batch is made from the frames of a read as they are: nothing is done per message until somebody asks for the messages,
the keys or the bodies, and then for all of them at once. Most batches have messages of one size with keys of one
length, where all bodies are the same slice of their frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Final, NamedTuple, overload

from zambezi.wire.text import as_text
from zambezi.zeps.layout import BODY_LENGTH, DELIVER, DELIVER_LEAST, SEQUENCE, SEQUENCE_AT, key_of, sequence_of
from zambezi.zeps.layout import DELIVER_KEY as KEY

_KEYS_KNOWN: Final = 4096


class Message(NamedTuple):
    """A message of a stream.

    >>> message = Message(7, "sensor.1", b"21.5", "readings")
    >>> message.key, message.body
    ('sensor.1', b'21.5')
    """

    sequence: int
    key: str
    body: bytes
    stream: str


_message: Final = partial(tuple.__new__, Message)


class _Texts(dict[bytes, str]):
    """Keys as text: a key that was seen before is a look-up."""

    def __missing__(self, octets: bytes) -> str:
        if len(self) >= _KEYS_KNOWN:
            self.clear()
        text = self[octets] = as_text(octets)
        return text


_texts: Final = _Texts()


class MessageBatch(Sequence[Message]):
    """Messages that came together, in order.

    >>> batch = MessageBatch("readings", [DELIVER + bytes(7) + b"\\x05" + b"\\x01k" + b"\\0\\0\\0\\x02hi"])
    >>> batch.first, batch.keys(), batch.bodies()
    (5, ['k'], [b'hi'])
    >>> list(batch)
    [Message(sequence=5, key='k', body=b'hi', stream='readings')]
    """

    __slots__ = ("_after", "frames", "stream")

    def __init__(self, stream: str, frames: list[bytes], after: int = 0) -> None:
        """`frames` are DELIVER messages without fault, and `after` is what `examine` said of them."""
        self.stream = stream
        self.frames = frames
        self._after = after

    @property
    def first(self) -> int:
        """The sequence of the first message."""
        return sequence_of(self.frames[0])

    @property
    def last(self) -> int:
        """The sequence of the last message."""
        return sequence_of(self.frames[-1])

    @property
    def octets(self) -> int:
        """What the messages took of the credit."""
        return sum(map(len, self.frames))

    def bodies(self) -> list[bytes]:
        """The body of every message."""
        if self._after:
            return list(map(itemgetter(slice(self._after, None)), self.frames))
        return [frame[DELIVER_LEAST + frame[KEY - 1] :] for frame in self.frames]

    def keys(self) -> list[str]:
        """The key of every message."""
        return list(map(_texts.__getitem__, self.raw_keys()))

    def raw_keys(self) -> list[bytes]:
        """The key of every message, as the octets that came."""
        if self._after:
            return list(map(itemgetter(slice(KEY, self._after - 4)), self.frames))
        return list(map(key_of, self.frames))

    def sequences(self) -> list[int]:
        """The sequence of every message. Where there is a pattern, they have gaps."""
        return list(self._sequences())

    def _sequences(self) -> Sequence[int]:
        first, last = self.first, self.last
        if last - first == len(self.frames) - 1:
            return range(first, last + 1)
        unpack = SEQUENCE.unpack_from
        return [unpack(frame, SEQUENCE_AT)[0] for frame in self.frames]

    def __len__(self) -> int:
        return len(self.frames)

    def __iter__(self) -> Iterator[Message]:
        keys = map(_texts.__getitem__, self.raw_keys())
        return map(_message, zip(self._sequences(), keys, self.bodies(), repeat(self.stream)))

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> MessageBatch: ...
    def __getitem__(self, index: int | slice) -> Message | MessageBatch:
        if isinstance(index, slice):
            return MessageBatch(self.stream, self.frames[index], self._after)
        return next(iter(MessageBatch(self.stream, [self.frames[index]])))

    def __repr__(self) -> str:
        span = f", {self.first} to {self.last}" if self.frames else ""
        return f"<MessageBatch of {len(self)} messages of {self.stream!r}{span}>"


def below(sequence: int) -> bytes:
    """What sorts behind every DELIVER message of a lower sequence, and not behind one of this sequence."""
    return DELIVER + SEQUENCE.pack(sequence)


def examine(frames: list[bytes]) -> int | None:
    """Where the bodies of DELIVER messages begin: 0 if not all at one place. None if they are not all DELIVER messages,
    whole, in the order of their sequences.

    Octets sort by their beginning: so if frames are sorted, and the first and the last are DELIVER messages, all are,
    and their sequences are in order. Frames of one size are a table, whose columns are looked at as a whole.
    """
    first = frames[0]
    if first[:3] != DELIVER or frames[-1][:3] != DELIVER or frames != sorted(frames):
        return None
    sizes = set(map(len, frames))
    if min(sizes) < DELIVER_LEAST:
        return None
    if len(sizes) == 1 and (after := _table(frames, len(first))):
        return after
    pack = BODY_LENGTH.pack
    whole = [
        # A length below zero becomes four octets that cannot be there: for such a message they are fewer.
        frame[(place := KEY + frame[KEY - 1]) : place + 4] == pack((len(frame) - place - 4) & 0xFFFFFFFF)
        for frame in frames
    ]
    return 0 if all(whole) else None


def _table(frames: list[bytes], size: int) -> int:
    """Where the bodies begin, if all frames have keys of one length and are whole; else 0."""
    first = frames[0]
    after = KEY + first[KEY - 1]
    if first[after : after + 4] != BODY_LENGTH.pack((size - after - 4) & 0xFFFFFFFF):
        return 0
    octets = b"".join(frames)
    count = len(frames)
    for column in (KEY - 1, after, after + 1, after + 2, after + 3):
        if octets[column::size].count(first[column]) != count:
            return 0
    return after + 4
