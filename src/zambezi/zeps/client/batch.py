"""The messages that a subscriber gets: a message, and a batch of messages that came in one read.

A batch keeps the frames of a read as they are. There is no work per message until the program asks for the messages,
the keys or the bodies, and then all of them are made at once. Most batches have messages of one size with keys of one
length: then all bodies are the same slice of their frames. If such a read is a run, the batch keeps the run, and cuts
keys and bodies out of it directly: so a body is copied once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Final, NamedTuple, overload

from zambezi.wire.text import as_text
from zambezi.zeps.block import low_columns
from zambezi.zeps.directory import datetime_of
from zambezi.zeps.layout import (
    BODY_LENGTH,
    DELIVER,
    DELIVER_LEAST,
    SEQUENCE,
    SEQUENCE_AT,
    delivered_key_and_body,
    key_of,
    sequence_of,
)
from zambezi.zeps.layout import DELIVER_KEY as KEY
from zambezi.zmtp.runs import Run

_KEYS_KNOWN: Final = 4096
_TIMES_KNOWN: Final = 4096
_LAST_SEQUENCE: Final = (1 << 64) - 1
_AFTER_ALL: Final = DELIVER[:-1] + bytes((DELIVER[-1] + 1,))  # sorts after every DELIVER message


class Message(NamedTuple):
    """A message of a stream.

    >>> message = Message(7, "sensor.1", b"21.5", "readings")
    >>> message.key, message.body
    ('sensor.1', b'21.5')

    `time` is the time when the broker appended the message to the journal, in UTC; None unless the subscription has
    asked for times.
    """

    sequence: int
    key: str
    body: bytes
    stream: str
    time: datetime | None = None

    @property
    def deliveries(self) -> int:
        """How often the message was delivered to a member of a group, with this time; 1 without a group."""
        return 1


_message: Final = partial(tuple.__new__, Message)


class _Texts(dict[bytes, str]):
    """A cache of keys as text."""

    def __missing__(self, octets: bytes) -> str:
        if len(self) >= _KEYS_KNOWN:
            self.clear()
        text = self[octets] = as_text(octets)
        return text


_texts: Final = _Texts()


class _Moments(dict[int, datetime | None]):
    """A cache of times as `datetime`: the messages of a batch in the journal share one. Time 0 is not known."""

    def __missing__(self, microseconds: int) -> datetime | None:
        if len(self) >= _TIMES_KNOWN:
            self.clear()
        moment = self[microseconds] = datetime_of(microseconds) if microseconds else None
        return moment


_moments: Final = _Moments()


class MessageBatch(Sequence[Message]):
    """Messages that came together, in order.

    >>> batch = MessageBatch("readings", [DELIVER + bytes(7) + b"\\x05" + b"\\x01k" + b"\\0\\0\\0\\x02hi"])
    >>> batch.first, batch.keys(), batch.bodies()
    (5, ['k'], [b'hi'])
    >>> list(batch)
    [Message(sequence=5, key='k', body=b'hi', stream='readings', time=None)]
    """

    __slots__ = ("_body_at", "_frames", "_run", "_times", "stream")

    def __init__(
        self,
        stream: str,
        frames: list[bytes],
        body_at: int = 0,
        times: array[int] | None = None,
        run: Run | None = None,
    ) -> None:
        """Make a batch of valid DELIVER messages; `body_at` is the result of `check_deliveries` for them.

        `times` are the times of the messages in microseconds since 1970, if they are known. Instead of frames, a run
        can be given that `check_delivery_run` has checked.
        """
        self.stream = stream
        self._frames = frames
        self._body_at = body_at
        self._times = times
        self._run = run

    @property
    def frames(self) -> list[bytes]:
        """The DELIVER messages."""
        run = self._run  # another thread may cut it meanwhile
        if run is not None:
            self._frames = run.cut()
            self._run = None
        return self._frames

    @property
    def first(self) -> int:
        """The sequence of the first message."""
        run = self._run
        return sequence_of(run.first(0, KEY) if run is not None else self._frames[0])

    @property
    def last(self) -> int:
        """The sequence of the last message."""
        run = self._run
        return self.first + run.count - 1 if run is not None else sequence_of(self._frames[-1])

    @property
    def octets(self) -> int:
        """The credit that the messages used, in bytes."""
        run = self._run
        return run.count * run.size if run is not None else sum(map(len, self._frames))

    def bodies(self) -> list[bytes]:
        """Return the body of every message."""
        run = self._run
        if run is not None:
            return run.cut(self._body_at)
        if self._body_at:
            return list(map(itemgetter(slice(self._body_at, None)), self.frames))
        return [frame[DELIVER_LEAST + frame[KEY - 1] :] for frame in self.frames]

    def keys(self) -> list[str]:
        """Return the key of every message."""
        return list(map(_texts.__getitem__, self.raw_keys()))

    def raw_keys(self) -> list[bytes]:
        """Return the key of every message as bytes."""
        run = self._run
        if run is not None:
            return run.cut(KEY, self._body_at - 4)
        if self._body_at:
            return list(map(itemgetter(slice(KEY, self._body_at - 4)), self.frames))
        return list(map(key_of, self.frames))

    def sequences(self) -> list[int]:
        """Return the sequence of every message. With a pattern, they have gaps."""
        return list(self._sequences())

    def _sequences(self) -> Sequence[int]:
        run = self._run
        return range(self.first, self.first + run.count) if run is not None else sequences_of(self._frames)

    def times(self) -> list[datetime | None]:
        """Return the time of every message, in UTC; None for each if the subscription has not asked for times."""
        return list(self._moments()) if self._times is not None else [None] * len(self)

    def _moments(self) -> Iterable[datetime | None]:
        return map(_moments.__getitem__, self._times) if self._times is not None else repeat(None)

    def __len__(self) -> int:
        run = self._run
        return run.count if run is not None else len(self._frames)

    def __iter__(self) -> Iterator[Message]:
        frames = self._frames
        if len(frames) == 1 and self._times is None:  # most batches, if there is little to do
            key, body = delivered_key_and_body(frames[0])
            return iter((_message((sequence_of(frames[0]), _texts[key], body, self.stream, None)),))
        keys = map(_texts.__getitem__, self.raw_keys())
        return map(_message, zip(self._sequences(), keys, self.bodies(), repeat(self.stream), self._moments()))

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> MessageBatch: ...
    def __getitem__(self, index: int | slice) -> Message | MessageBatch:
        if isinstance(index, slice):
            times = self._times[index] if self._times is not None else None
            return MessageBatch(self.stream, self.frames[index], self._body_at, times)
        time = array("Q", (self._times[index],)) if self._times is not None else None
        return next(iter(MessageBatch(self.stream, [self.frames[index]], times=time)))

    def __repr__(self) -> str:
        span = f", {self.first} to {self.last}" if len(self) else ""
        return f"<MessageBatch of {len(self)} messages of {self.stream!r}{span}>"


def lower_bound(sequence: int) -> bytes:
    """Return bytes that sort after every DELIVER message of a lower sequence, and before one of this sequence."""
    return DELIVER + SEQUENCE.pack(sequence) if sequence <= _LAST_SEQUENCE else _AFTER_ALL


def sequences_of(frames: list[bytes]) -> Sequence[int]:
    """Return the sequences of DELIVER messages that are in order. Without gaps, they are a range."""
    first, last = sequence_of(frames[0]), sequence_of(frames[-1])
    if last - first == len(frames) - 1:
        return range(first, last + 1)
    unpack = SEQUENCE.unpack_from
    return [unpack(frame, SEQUENCE_AT)[0] for frame in frames]


def check_deliveries(frames: list[bytes]) -> int | None:
    """Return the offset of the bodies in DELIVER messages, or 0 if it is not the same for all messages.

    Returns None unless all frames are valid DELIVER messages in the order of their sequences.

    Bytes sort by their beginning: if the frames are sorted, and the first and the last are DELIVER messages, then all
    are, and their sequences are in order. Frames of one size are a table, whose columns are checked as a whole.
    """
    first = frames[0]
    if len(frames) == 1:
        return _single_body_at(first)
    if first[:3] != DELIVER or frames[-1][:3] != DELIVER or frames != sorted(frames):
        return None
    sizes = set(map(len, frames))
    if min(sizes) < DELIVER_LEAST:
        return None
    if len(sizes) == 1 and (body_at := _table_body_at(frames, len(first))):
        return body_at
    pack = BODY_LENGTH.pack
    whole = [
        # A negative length becomes four bytes that never match: the slice of such a message is shorter.
        frame[(place := KEY + frame[KEY - 1]) : place + 4] == pack((len(frame) - place - 4) & 0xFFFFFFFF)
        for frame in frames
    ]
    return 0 if all(whole) else None


def valid_beginning(frames: list[bytes]) -> tuple[list[bytes], int]:
    """Return the frames before the first one that is not a valid DELIVER message, or not in order.

    The second result is that of `check_deliveries` for them.
    """
    body_at = check_deliveries(frames)
    if body_at is not None:
        return frames, body_at
    valid, wrong = 0, len(frames)  # so many are valid; so many are not
    while wrong - valid > 1:
        middle = (valid + wrong) // 2
        if check_deliveries(frames[:middle]) is not None:
            valid = middle
        else:
            wrong = middle
    return frames[:valid], (check_deliveries(frames[:valid]) or 0) if valid else 0


def check_delivery_run(run: Run) -> int:
    """Return the offset of the bodies in a run of valid DELIVER messages with keys of one length.

    Returns 0 for any other run, and if sequences are missing: `check_deliveries` then tells what it is.
    """
    head = run.first(0, KEY)
    if run.size < DELIVER_LEAST or head[:3] != DELIVER:
        return 0
    sequence, length_at = sequence_of(head), KEY + head[KEY - 1]
    if length_at + 4 > run.size or (sequence & 0xFFFFFF) + run.count > 0x1000000:
        return 0
    low = SEQUENCE_AT + SEQUENCE.size - 3
    whole = (
        run.has(0, head[:low])
        and run.has(KEY - 1, head[KEY - 1 :])
        and run.has(length_at, BODY_LENGTH.pack(run.size - length_at - 4))
        and all(run.column(place) == column for place, column in enumerate(low_columns(sequence, run.count), low))
    )
    return length_at + 4 if whole else 0


def _single_body_at(frame: bytes) -> int | None:
    """Return the offset of the body in a DELIVER message, or None if it is not valid."""
    if frame[:3] != DELIVER or len(frame) < DELIVER_LEAST:
        return None
    place = KEY + frame[KEY - 1]
    whole = frame[place : place + 4] == BODY_LENGTH.pack((len(frame) - place - 4) & 0xFFFFFFFF)
    return place + 4 if whole else None


def _table_body_at(frames: list[bytes], size: int) -> int:
    """Return the offset of the bodies, if all frames are valid and have keys of one length; else 0."""
    first = frames[0]
    length_at = KEY + first[KEY - 1]
    if first[length_at : length_at + 4] != BODY_LENGTH.pack((size - length_at - 4) & 0xFFFFFFFF):
        return 0
    octets = b"".join(frames)
    count = len(frames)
    for column in (KEY - 1, length_at, length_at + 1, length_at + 2, length_at + 3):
        if octets[column::size].count(first[column]) != count:
            return 0
    return length_at + 4
