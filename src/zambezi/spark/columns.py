"""Conversion of the bytes of messages into Arrow columns, for thousands of messages at a time.

A log consists of messages, one after another, and each message gives its own size:

    00 size (1)  |  AA A5 07  sequence (8)  key-length (1) key  body-length (4) body
    02 size (8)  |  the same, for more than 255 bytes

Walking from message to message in Python takes longer than everything else that Spark does with them. So the positions
of all messages in a buffer are found at once, by the first of these methods that succeeds:

1. All messages have the size of the first. If each multiple of this size has the frame header of the first message,
   each message ends where the next one begins. This compares two columns of a table.
2. Search the buffer for the signature. A body can also contain the signature, so the result counts only if each message
   found ends exactly where the next one found begins.
3. Walk from message to message.

Arrow then extracts the columns: the buffer itself becomes the values of a binary array whose elements are alternately a
wanted part and the bytes between two wanted parts; every other element is kept. No length is used before it was checked
against the size of the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from zambezi.spark.errors import DamagedLog, SparkError
from zambezi.zeps.layout import DELIVER, DELIVER_KEY, LONG, SHORT

Numbers: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]
Array: TypeAlias = Any  # pyarrow has no types
RecordBatch: TypeAlias = Any
Schema: TypeAlias = Any

_BODY_LENGTH: Final = 4  # bytes of the field that has the length of the body
MAX_MESSAGE_SIZE: Final = (1 << 31) - 1  # bytes in an Arrow array with 32-bit offsets
_LONG_SIZE: Final = Struct(">Q")
_BARE_ROWS: Final = 1 << 16  # rows of a record batch that has no keys and bodies
_FEW_ROWS: Final = 4096  # a record batch with fewer rows and bytes is joined with others
_SMALL_SIZE: Final = 1 << 19  # bytes


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of messages and of their parts in a buffer.

    `stride` is the size of each message if all have the same size and key length, otherwise 0.
    """

    octets: Octets
    starts: Numbers  # where each message begins, and finally where the last one ends
    keys: Numbers  # where each key begins
    bodies: Numbers  # where each body begins
    stride: int = 0

    def __len__(self) -> int:
        return len(self.keys)

    def subset(self, start: int, stop: int) -> Layout:
        """Return the layout of consecutive messages."""
        if start <= 0 and stop >= len(self):
            return self
        return Layout(
            self.octets, self.starts[start : stop + 1], self.keys[start:stop], self.bodies[start:stop], self.stride
        )

    def sequences(self) -> Numbers:
        """Return the sequence that each message contains."""
        if not len(self):
            return np.empty(0, np.int64)
        positions = self.keys - (DELIVER_KEY - len(DELIVER))
        if self.stride:
            raw = np.ndarray((len(self),), ">u8", self.octets, int(positions[0]), (self.stride,))
        else:
            raw = np.ndarray((len(self.octets) - 7,), ">u8", self.octets, 0, (1,))[positions]
        return raw.astype(np.int64)


def too_large(size: int) -> str:
    """Return the reason why a message cannot be read."""
    return f"a message of {size} bytes is too large for Spark: the limit is {MAX_MESSAGE_SIZE} bytes"


def find_messages(octets: bytes | Octets) -> Layout:
    """Find the messages in a buffer that begins and ends with whole messages."""
    buffer = octets if isinstance(octets, np.ndarray) else np.frombuffer(octets, np.uint8)
    if len(buffer) > MAX_MESSAGE_SIZE:
        raise SparkError(too_large(len(buffer)))
    if not len(buffer):
        nothing = np.empty(0, np.int64)
        return Layout(buffer, np.zeros(1, np.int64), nothing, nothing)
    size = _common_size(buffer)
    if size:
        return _layout_of_equal_messages(buffer, size)
    starts = _starts_by_signature(buffer)
    return _layout_from_starts(buffer, _starts_by_walking(buffer) if starts is None else starts)


def _common_size(buffer: Octets) -> int:
    """Return the size of all messages if they have the same size, otherwise 0."""
    if buffer[0] == 0 and len(buffer) > 1:
        size = SHORT + int(buffer[1])
    elif buffer[0] == 2 and len(buffer) > LONG:
        size = LONG + _LONG_SIZE.unpack(buffer[1:LONG].tobytes())[0]
    else:
        return 0
    count, remainder = divmod(len(buffer), size)
    if remainder or not count:
        return 0
    return size if _has_first_header(buffer, count, size).all() else 0


def _has_first_header(buffer: Octets, count: int, size: int) -> npt.NDArray[np.bool_]:
    """Return, for each multiple of a size, whether the frame header of the first message is there."""
    kind, position = (">u2", 0) if buffer[0] == 0 else (">u8", 1)
    sizes = _field(buffer, count, size, position, kind)
    is_same: npt.NDArray[np.bool_] = sizes == sizes[0]
    return is_same if buffer[0] == 0 else is_same & (_field(buffer, count, size, 0, "u1") == 2)


def _field(buffer: Octets, count: int, size: int, position: int, kind: str) -> npt.NDArray[Any]:
    """Return the number at the same position of each message, for messages of one size."""
    return np.ndarray((count,), kind, buffer, position, (size,))


def _layout_of_equal_messages(buffer: Octets, size: int) -> Layout:
    count = len(buffer) // size
    starts = np.arange(0, len(buffer) + 1, size, dtype=np.int64)
    key = (LONG if buffer[0] else SHORT) + DELIVER_KEY
    if size < key + _BODY_LENGTH:
        raise _damaged(0)
    # Four bytes: the last byte of the frame size, and the signature.
    signatures = _field(buffer, count, size, key - DELIVER_KEY - 1, ">u4")
    key_lengths = buffer[key - 1 :: size]
    if not (key_lengths == key_lengths[0]).all():
        return _layout_from_starts(buffer, starts)
    body = key + int(key_lengths[0]) + _BODY_LENGTH
    if body > size:
        raise _damaged(0)
    signature = buffer[key - DELIVER_KEY - 1].tobytes() + DELIVER
    _check(signatures == int.from_bytes(signature, "big"), starts)
    _check(_field(buffer, count, size, body - _BODY_LENGTH, ">u4") == size - body, starts)
    return Layout(buffer, starts, starts[:-1] + key, starts[:-1] + body, size)


def _starts_by_signature(buffer: Octets) -> Numbers | None:
    """Return where messages begin, found by their signature; None if they do not follow each other without gaps."""
    found = _candidates(buffer)
    if found is None:
        return None
    starts, sizes = found
    bounds = np.append(starts, len(buffer))
    return bounds if (starts + sizes == bounds[1:]).all() else None


def _candidates(buffer: Octets) -> tuple[Numbers, Numbers] | None:
    """Return where messages begin according to the signature, and their sizes according to their headers.

    The first candidate is at the beginning of the buffer; None if it is not.
    """
    signatures = np.flatnonzero(buffer[:-2] == DELIVER[0])
    signatures = signatures[(buffer[signatures + 1] == DELIVER[1]) & (buffer[signatures + 2] == DELIVER[2])]
    if not len(signatures) or signatures[0] not in (SHORT, LONG):
        return None
    # A short header and the end of a long one look alike if the size contains zeros: the caller's check decides.
    starts = np.where(buffer[signatures - SHORT] == 0, signatures - SHORT, signatures - LONG)
    if starts[0] or starts.min() < 0:
        return None
    sizes = buffer[starts + 1] + np.int64(SHORT)
    is_long = buffer[starts] != 0
    if is_long.any():
        long_starts = starts[is_long]
        if (buffer[long_starts] != 2).any():
            return None
        all_numbers = np.ndarray((len(buffer) - 7,), ">u8", buffer, 0, (1,))
        # An impossible size becomes a size that fits nowhere.
        sizes[is_long] = np.minimum(all_numbers[long_starts + 1], MAX_MESSAGE_SIZE).astype(np.int64) + LONG
    return starts, sizes


def _starts_by_walking(buffer: Octets) -> Numbers:
    octets = buffer.tobytes()
    end = len(octets)
    starts = []
    position = 0
    while position < end:
        starts.append(position)
        flags = octets[position]
        if flags == 0 and position + SHORT <= end:
            position += SHORT + octets[position + 1]
        elif flags == 2 and position + LONG <= end:
            position += LONG + _LONG_SIZE.unpack_from(octets, position + 1)[0]
        else:
            raise _damaged(position)
    if position != end:
        raise _damaged(starts[-1])
    starts.append(end)
    return np.array(starts, np.int64)


def _layout_from_starts(buffer: Octets, starts: Numbers) -> Layout:
    """Find key and body of each message, and check the signature and all lengths."""
    firsts, ends = starts[:-1], starts[1:]
    keys = firsts + np.where(buffer[firsts] == 0, SHORT + DELIVER_KEY, LONG + DELIVER_KEY)
    _check(ends - keys >= _BODY_LENGTH, starts)
    bodies = keys + buffer[keys - 1] + _BODY_LENGTH
    _check(ends - bodies >= 0, starts)
    all_numbers = np.ndarray((len(buffer) - 3,), ">u4", buffer, 0, (1,))
    _check(all_numbers[bodies - _BODY_LENGTH] == ends - bodies, starts)
    _check(all_numbers[keys - DELIVER_KEY] >> 8 == int.from_bytes(DELIVER, "big"), starts)
    return Layout(buffer, starts, keys, bodies)


def _check(is_good: npt.NDArray[np.bool_], starts: Numbers) -> None:
    if not is_good.all():
        raise _damaged(int(starts[int(is_good.argmin())]))


def _damaged(position: int) -> DamagedLog:
    return DamagedLog(
        f"at byte {position} of the buffer there is no message that ends where the next one begins: "
        "`zambezi journal verify` checks a journal"
    )


# Extracting columns


def spans_to_array(octets: Octets, begins: Numbers, ends: Numbers, kind: Any) -> Array:
    """Return an Arrow array of type `kind` (binary or string) with the bytes of each span. Spans must be in order."""
    count = len(begins)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = begins
    offsets[1::2] = ends
    offsets[-1] = offsets[-2] if count else 0
    interleaved = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(octets)])
    return interleaved.filter(_every_other(count))


@lru_cache(maxsize=8)
def _every_other(count: int) -> Array:
    return pa.Array.from_buffers(pa.bool_(), 2 * count, [None, pa.py_buffer(b"\x55" * ((2 * count + 7) // 8))])


def _fixed_size_column(layout: Layout, begin: int, size: int, kind: Any) -> Array:
    """Return the same part of each message, for messages of one size: a column of a table, copied row by row."""
    count = len(layout)
    if size:
        values = np.ndarray((count,), f"V{size}", layout.octets, begin, (layout.stride,)).copy()
    else:
        values = np.empty(0, np.uint8)
    return fixed_size_array(values, count, size, kind)


def fixed_size_array(octets: Any, count: int, size: int, kind: Any = None) -> Array:
    """Return an array of elements of one size, binary unless `kind` is given. `octets` are the elements, joined."""
    buffers = [None, pa.py_buffer(_even_offsets(count, size)), pa.py_buffer(octets)]
    return pa.Array.from_buffers(kind or pa.binary(), count, buffers)


@lru_cache(maxsize=32)
def _even_offsets(count: int, size: int) -> npt.NDArray[np.int32]:
    return np.arange(0, (count + 1) * size, size, dtype=np.int32) if size else np.zeros(count + 1, np.int32)


def keys_of(layout: Layout, kind: Any = None) -> Array:
    """Return the routing keys, as strings unless `kind` is binary. Bytes that are not UTF-8 are left unchanged."""
    kind = kind or pa.string()
    if layout.stride and len(layout):
        size = int(layout.bodies[0] - layout.keys[0]) - _BODY_LENGTH
        return _fixed_size_column(layout, int(layout.keys[0]), size, kind)
    return spans_to_array(layout.octets, layout.keys, layout.bodies - _BODY_LENGTH, kind)


def bodies_of(layout: Layout) -> Array:
    """Return the bodies."""
    if layout.stride and len(layout):
        size = int(layout.starts[1] - layout.bodies[0])
        return _fixed_size_column(layout, int(layout.bodies[0]), size, pa.binary())
    return spans_to_array(layout.octets, layout.bodies, layout.starts[1:], pa.binary())


# Messages to record batches


KeyTest: TypeAlias = Callable[[Array], Array]  # keys to booleans


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The times of batches of the journal: the first sequence of each, and its time in microseconds since 1970."""

    firsts: Numbers
    times: Numbers

    def times_of(self, sequences: Numbers) -> Numbers:
        """Return the time of each sequence. The sequences must be in order."""
        first, last = int(sequences[0]), int(sequences[-1])
        if last - first >= len(sequences):  # with gaps
            return self.times[np.searchsorted(self.firsts, sequences, "right") - 1]
        low = int(np.searchsorted(self.firsts, first, "right")) - 1
        high = int(np.searchsorted(self.firsts, last, "right"))
        bounds = np.append(self.firsts[low:high], last + 1)
        bounds[0] = first
        return np.repeat(self.times[low:high], np.diff(bounds))


@dataclass(frozen=True, slots=True)
class EncodedMessages:
    """Consecutive messages of one stream as bytes, with the times of the batches that contain them.

    Without gaps the sequences are counted from `first`; with gaps they are read from the messages.
    """

    octets: bytes | Octets
    first: int
    batches: BatchTimes
    has_gaps: bool = False


@dataclass(frozen=True, slots=True)
class BareMessages:
    """Consecutive messages of one stream without keys and bodies: the index of the journal alone describes them."""

    first: int
    last: int
    batches: BatchTimes


Messages: TypeAlias = EncodedMessages | BareMessages


class RecordBatchBuilder:
    """A converter from the messages of one stream to record batches with the columns of a schema."""

    def __init__(self, schema: Schema, stream: str, incarnation: str, key_test: KeyTest | None = None) -> None:
        self._schema = schema
        self._constants = {"stream": stream, "incarnation": incarnation}
        self._key_test = key_test
        self._constant_columns: dict[tuple[str, int], Array] = {}

    def build(self, messages: Messages, after: int, last: int) -> Iterator[RecordBatch]:
        """Yield the messages with sequences in (after, last] that pass the key test."""
        if isinstance(messages, BareMessages):
            first, stop = max(after + 1, messages.first), min(last, messages.last) + 1
            for start in range(first, stop, _BARE_ROWS):
                sequences = np.arange(start, min(stop, start + _BARE_ROWS), dtype=np.int64)
                yield self._record_batch(messages, None, sequences, None)
            return
        layout = find_messages(messages.octets)
        sequences = layout.sequences() if messages.has_gaps else self._consecutive(messages, layout)
        start = int(np.searchsorted(sequences, after, "right"))
        stop = int(np.searchsorted(sequences, last, "right"))
        if start >= stop:
            return
        layout = layout.subset(start, stop)
        sequences = sequences[start:stop]
        kept: Numbers | None = None
        if self._key_test is not None:
            mask = self._key_test(keys_of(layout, pa.binary()))
            kept = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            if not len(kept):
                return
            if len(kept) == len(layout):
                kept = None
            else:
                sequences = sequences[kept]
        yield self._record_batch(messages, layout, sequences, kept)

    def _record_batch(
        self, messages: Messages, layout: Layout | None, sequences: Numbers, kept: Numbers | None
    ) -> RecordBatch:
        columns = [self._column(field, messages, layout, sequences, kept) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _consecutive(self, messages: EncodedMessages, layout: Layout) -> Numbers:
        count = len(layout)
        last = layout.subset(count - 1, count).sequences()
        if not count or last[0] != messages.first + count - 1:
            raise DamagedLog(
                f"stream {self._constants['stream']!a}: {count} messages should begin with sequence {messages.first}, "
                f"but the last one is {last[0] if count else 'missing'}: `zambezi journal verify` says more"
            )
        return np.arange(messages.first, messages.first + count, dtype=np.int64)

    def _column(
        self, field: Any, messages: Messages, layout: Layout | None, sequences: Numbers, kept: Numbers | None
    ) -> Array:
        name = field.name
        count = len(sequences)
        if name == "sequence":
            return pa.Array.from_buffers(field.type, count, [None, pa.py_buffer(sequences)])
        if name == "timestamp":
            times = np.ascontiguousarray(messages.batches.times_of(sequences))
            return pa.Array.from_buffers(field.type, count, [None, pa.py_buffer(times)])
        if name in self._constants:
            return self._constant_column(name, count)
        assert layout is not None  # bare messages have none of the other columns
        if kept is None:
            return keys_of(layout, field.type) if name == "key" else bodies_of(layout)
        if name == "key":
            return spans_to_array(layout.octets, layout.keys[kept], layout.bodies[kept] - _BODY_LENGTH, field.type)
        return spans_to_array(layout.octets, layout.bodies[kept], layout.starts[1:][kept], pa.binary())

    def _constant_column(self, name: str, count: int) -> Array:
        if (name, count) not in self._constant_columns:
            if len(self._constant_columns) > 8:
                self._constant_columns.clear()
            self._constant_columns[name, count] = pa.repeat(pa.scalar(self._constants[name]), count)
        return self._constant_columns[name, count]


def join_small(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield record batches; join small ones, because each costs more than its rows do."""
    small: list[RecordBatch] = []
    rows = size = 0
    for batch in batches:
        small.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _FEW_ROWS or size >= _SMALL_SIZE:
            yield _joined(small)
            small, rows, size = [], 0, 0
    if small:
        yield _joined(small)


def _joined(batches: list[RecordBatch]) -> RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
