"""Journal octets to Arrow columns, and Arrow columns to PUBLISH octets: by the thousand, never one at a time.

A log is nothing but messages, one after another, and each says how long it is:

    00 size (1)  |  AA A5 07  sequence (8)  key-length (1) key  body-length (4) body
    02 size (8)  |  the same, for more than 255 octets

To walk from message to message in Python takes longer than everything else that Spark does with them. So where they
begin is found for a whole window of the log at once, in the first of these ways that proves itself:

1. All have the size of the first. If each place that is a multiple of this size has the header of the first, then
   each message ends where the next begins: two columns of a table are compared.
2. The signature is looked for everywhere. It can stand inside a body as well, so what was found counts only if each
   message found ends exactly where the next one found begins.
3. The messages are walked.

The columns are then cut out by Arrow: the window itself is the buffer of a binary array whose elements are, in turn,
what is wanted and what stands between; half of them are kept. Nothing is ever read through a length that was not
checked against the window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from struct import Struct
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from zambezi.spark.errors import DamagedLog, SparkError
from zambezi.zeps.block import message_at
from zambezi.zeps.layout import DELIVER, DELIVER_KEY, LONG, PUBLISH, PUBLISH_LEAST, SHORT

Numbers: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]
Array: TypeAlias = Any  # pyarrow has no types
RecordBatch: TypeAlias = Any
Schema: TypeAlias = Any

_LENGTH: Final = 4  # the length of the body
_MOST: Final = (1 << 31) - 1  # octets in an Arrow array of this kind
_SIZE: Final = Struct(">Q")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the messages of a window stand, and their parts. `stride` is theirs if all are alike, otherwise 0."""

    octets: Octets
    starts: Numbers  # of the messages, and in the end where the last one ends
    keys: Numbers  # where the keys begin,
    bodies: Numbers  # and the bodies
    stride: int = 0

    def __len__(self) -> int:
        return len(self.keys)

    def cut(self, start: int, stop: int) -> Layout:
        """Some of the messages that follow each other."""
        if start <= 0 and stop >= len(self):
            return self
        return Layout(
            self.octets, self.starts[start : stop + 1], self.keys[start:stop], self.bodies[start:stop], self.stride
        )

    def sequences(self) -> Numbers:
        """The sequence of each message, as it is written in it."""
        if not len(self):
            return np.empty(0, np.int64)
        places = self.keys - (DELIVER_KEY - len(DELIVER))
        if self.stride:
            raw = np.ndarray((len(self),), ">u8", self.octets, int(places[0]), (self.stride,))
        else:
            raw = np.ndarray((len(self.octets) - 7,), ">u8", self.octets, 0, (1,))[places]
        return raw.astype(np.int64)


def layout(octets: bytes | Octets) -> Layout:
    """Find the messages of a window that begins and ends with whole ones."""
    window = octets if isinstance(octets, np.ndarray) else np.frombuffer(octets, np.uint8)
    if len(window) > _MOST:
        raise SparkError(
            f"{len(window)} octets at once are more than an Arrow column holds: a message is too large for Spark"
        )
    if not len(window):
        nothing = np.empty(0, np.int64)
        return Layout(window, np.zeros(1, np.int64), nothing, nothing)
    stride = _stride(window)
    if stride:
        return _table(window, stride)
    starts = _scanned(window)
    return _parts(window, _walked(window) if starts is None else starts)


def _stride(window: Octets) -> int:
    """The size of all messages, if they have one."""
    if window[0] == 0 and len(window) > 1:
        stride = SHORT + int(window[1])
    elif window[0] == 2 and len(window) > LONG:
        stride = LONG + _SIZE.unpack(window[1:LONG].tobytes())[0]
    else:
        return 0
    count, odd = divmod(len(window), stride)
    if odd or not count:
        return 0
    return stride if _alike(window, count, stride).all() else 0


def _alike(window: Octets, count: int, stride: int) -> npt.NDArray[np.bool_]:
    """Which of the places that are so far apart have the frame header that the first has."""
    kind, at = (">u2", 0) if window[0] == 0 else (">u8", 1)
    sizes = _field(window, count, stride, at, kind)
    alike: npt.NDArray[np.bool_] = sizes == sizes[0]
    return alike if window[0] == 0 else alike & (_field(window, count, stride, 0, "u1") == 2)


def _field(window: Octets, count: int, stride: int, at: int, kind: str) -> npt.NDArray[Any]:
    """The number that stands at the same place of each message."""
    return np.ndarray((count,), kind, window, at, (stride,))


def _table(window: Octets, stride: int) -> Layout:
    count = len(window) // stride
    starts = np.arange(0, len(window) + 1, stride, dtype=np.int64)
    key = (LONG if window[0] else SHORT) + DELIVER_KEY
    if stride < key + _LENGTH:
        raise _damaged(0)
    signs = _field(window, count, stride, key - DELIVER_KEY - 1, ">u4")  # with the octet before: the end of the size
    sizes = window[key - 1 :: stride]
    if not (sizes == sizes[0]).all():
        return _parts(window, starts)
    body = key + int(sizes[0]) + _LENGTH
    if body > stride:
        raise _damaged(0)
    sign = window[key - DELIVER_KEY - 1].tobytes() + DELIVER
    _check(signs == int.from_bytes(sign, "big"), starts)
    _check(_field(window, count, stride, body - _LENGTH, ">u4") == stride - body, starts)
    return Layout(window, starts, starts[:-1] + key, starts[:-1] + body, stride)


def _scanned(window: Octets) -> Numbers | None:
    """Where messages begin, found by their signature; None if that does not prove itself."""
    found = _candidates(window)
    if found is None:
        return None
    starts, sizes = found
    bounds = np.append(starts, len(window))
    return bounds if (starts + sizes == bounds[1:]).all() else None


def _candidates(window: Octets) -> tuple[Numbers, Numbers] | None:
    """Where the signature says that messages begin, and how long they say they are. The first is at the beginning."""
    signs = np.flatnonzero(window[:-2] == DELIVER[0])
    signs = signs[(window[signs + 1] == DELIVER[1]) & (window[signs + 2] == DELIVER[2])]
    if not len(signs) or signs[0] not in (SHORT, LONG):
        return None
    # A short header and the end of a long one look alike where the size has zeros: the chain decides.
    starts = np.where(window[signs - SHORT] == 0, signs - SHORT, signs - LONG)
    if starts[0] or starts.min() < 0:
        return None
    sizes = window[starts + 1] + np.int64(SHORT)
    is_long = window[starts] != 0
    if is_long.any():
        places = starts[is_long]
        if (window[places] != 2).any():
            return None
        quads = np.ndarray((len(window) - 7,), ">u8", window, 0, (1,))
        # A size that is none becomes one that fits nowhere.
        sizes[is_long] = np.minimum(quads[places + 1], _MOST).astype(np.int64) + LONG
    return starts, sizes


def _walked(window: Octets) -> Numbers:
    octets = window.tobytes()
    end = len(octets)
    found = []
    position = 0
    while position < end:
        found.append(position)
        flags = octets[position]
        if flags == 0 and position + SHORT <= end:
            position += SHORT + octets[position + 1]
        elif flags == 2 and position + LONG <= end:
            position += LONG + _SIZE.unpack_from(octets, position + 1)[0]
        else:
            raise _damaged(position)
    if position != end:
        raise _damaged(found[-1])
    found.append(end)
    return np.array(found, np.int64)


def _parts(window: Octets, starts: Numbers) -> Layout:
    """Key and body of each message, and whether what they say of themselves is so."""
    firsts, ends = starts[:-1], starts[1:]
    keys = firsts + np.where(window[firsts] == 0, SHORT + DELIVER_KEY, LONG + DELIVER_KEY)
    _check(ends - keys >= _LENGTH, starts)
    bodies = keys + window[keys - 1] + _LENGTH
    _check(ends - bodies >= 0, starts)
    quads = np.ndarray((len(window) - 3,), ">u4", window, 0, (1,))
    _check(quads[bodies - _LENGTH] == ends - bodies, starts)
    _check(quads[keys - DELIVER_KEY] >> 8 == int.from_bytes(DELIVER, "big"), starts)
    return Layout(window, starts, keys, bodies)


def whole(window: Octets) -> int:
    """How many octets at the beginning of a window are whole DELIVER messages; what follows is something else, or not
    all there yet."""
    position = _equals(window)
    if len(window) - position > SHORT:
        position += _signed(window[position:])
    octets = window[position:].tobytes()
    while (place := message_at(octets, 0, len(octets))) is not None:
        position += place.stop
        octets = octets[place.stop :]
    return position


def _equals(window: Octets) -> int:
    """The octets of the messages at the beginning that have the size of the first."""
    if len(window) < LONG + 3:
        return 0
    size = SHORT if window[0] == 0 else LONG
    head = window[: size + 3]
    stride = SHORT + int(window[1]) if size == SHORT else LONG + _SIZE.unpack(window[1:LONG].tobytes())[0]
    count = len(window) // stride
    if window[0] not in (0, 2) or head[size:].tobytes() != DELIVER or stride < len(head) or not count:
        return 0
    # With the octet before the signature: the end of the size.
    same = _alike(window, count, stride) & (
        _field(window, count, stride, size - 1, ">u4") == int.from_bytes(head[size - 1 :].tobytes(), "big")
    )
    return stride * (count if same.all() else int(same.argmin()))


def _signed(window: Octets) -> int:
    """The octets of the messages at the beginning, found by their signature."""
    found = _candidates(window)
    if found is None:
        return 0
    starts, sizes = found
    ends = starts + sizes
    # A message counts if the next one found begins where it ends; the last one, if it is there as a whole.
    is_next = np.append(ends[:-1] == starts[1:], ends[-1] <= len(window))
    good = len(is_next) if is_next.all() else int(is_next.argmin())
    return int(ends[good - 1]) if good else 0


def _check(is_so: npt.NDArray[np.bool_], starts: Numbers) -> None:
    if not is_so.all():
        raise _damaged(int(starts[int(is_so.argmin())]))


def _damaged(position: int) -> DamagedLog:
    return DamagedLog(
        f"octet {position} of the window is not the beginning of a message that ends where the next begins"
    )


# Cutting columns out


def slices(octets: Octets, begins: Numbers, ends: Numbers, kind: Any) -> Array:
    """An Arrow array of `kind` (binary or string) of the octets between places. The places must be in order."""
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


def _column_of_table(found: Layout, begin: int, size: int, kind: Any) -> Array:
    """The same for messages that are all alike: a column of a table, copied row by row."""
    count = len(found)
    if size:
        values = np.ndarray((count,), f"V{size}", found.octets, begin, (found.stride,)).copy()
    else:
        values = np.empty(0, np.uint8)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(_even_offsets(count, size)), pa.py_buffer(values)])


@lru_cache(maxsize=32)
def _even_offsets(count: int, size: int) -> npt.NDArray[np.int32]:
    return np.arange(0, (count + 1) * size, size, dtype=np.int32) if size else np.zeros(count + 1, np.int32)


def keys_of(found: Layout, kind: Any = None) -> Array:
    """The routing keys, as text unless told otherwise; octets that are no UTF-8 stay as they are."""
    kind = kind or pa.string()
    if found.stride and len(found):
        return _column_of_table(found, int(found.keys[0]), int(found.bodies[0] - found.keys[0]) - _LENGTH, kind)
    return slices(found.octets, found.keys, found.bodies - _LENGTH, kind)


def bodies_of(found: Layout) -> Array:
    """The bodies."""
    if found.stride and len(found):
        return _column_of_table(found, int(found.bodies[0]), int(found.starts[1] - found.bodies[0]), pa.binary())
    return slices(found.octets, found.bodies, found.starts[1:], pa.binary())


# A window as a record batch


KeyTest: TypeAlias = Callable[[Array], Array]  # keys to booleans


@dataclass(frozen=True, slots=True)
class Window:
    """Messages of one stream that stand one after another, with what the index knows of them.

    `firsts` and `times` are of the batches that they are from: the sequence that each begins with, and its time in
    microseconds since 1970. Without gaps the sequences follow from the first; with gaps they are read.
    """

    octets: bytes | Octets
    first: int
    firsts: Numbers
    times: Numbers
    gaps: bool = False
    found: Layout | None = None  # if somebody has looked already

    @property
    def messages(self) -> Layout:
        """Where its messages stand."""
        return layout(self.octets) if self.found is None else self.found

    def times_of(self, sequences: Numbers) -> Numbers:
        """The time of each sequence; they are in order."""
        first, last = int(sequences[0]), int(sequences[-1])
        if last - first >= len(sequences):  # with gaps
            return self.times[np.searchsorted(self.firsts, sequences, "right") - 1]
        low = int(np.searchsorted(self.firsts, first, "right")) - 1
        high = int(np.searchsorted(self.firsts, last, "right"))
        bounds = np.append(self.firsts[low:high], last + 1)
        bounds[0] = first
        return np.repeat(self.times[low:high], np.diff(bounds))


class Shaper:
    """Makes record batches of the columns that are wanted, of one stream, and of the messages in a range."""

    def __init__(self, schema: Schema, stream: str, incarnation: str, test: KeyTest | None = None) -> None:
        self._schema = schema
        self._constants = {"stream": stream, "incarnation": incarnation}
        self._test = test
        self._repeated: dict[tuple[str, int], Array] = {}

    def shape(self, window: Window, after: int, last: int) -> RecordBatch | None:
        """The messages of the window in (after, last], or None if none of them is wanted."""
        found = window.messages
        sequences = found.sequences() if window.gaps else self._consecutive(window, found)
        start = int(np.searchsorted(sequences, after, "right"))
        stop = int(np.searchsorted(sequences, last, "right"))
        if start >= stop:
            return None
        found = found.cut(start, stop)
        sequences = sequences[start:stop]
        kept: Numbers | None = None
        if self._test is not None:
            mask = self._test(keys_of(found, pa.binary()))
            kept = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            if not len(kept):
                return None
            if len(kept) == len(found):
                kept = None
            else:
                sequences = sequences[kept]
        columns = [self._column(field, window, found, sequences, kept) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _consecutive(self, window: Window, found: Layout) -> Numbers:
        count = len(found)
        ends = found.cut(count - 1, count).sequences()
        if not count or ends[0] != window.first + count - 1:
            raise DamagedLog(
                f"stream {self._constants['stream']!a}: {count} messages should begin with sequence {window.first}, "
                f"and the last is {ends[0] if count else 'missing'}: `zambezi journal verify` says more"
            )
        return np.arange(window.first, window.first + count, dtype=np.int64)

    def _column(self, field: Any, window: Window, found: Layout, sequences: Numbers, kept: Numbers | None) -> Array:
        name = field.name
        count = len(sequences)
        if name == "sequence":
            return pa.Array.from_buffers(field.type, count, [None, pa.py_buffer(sequences)])
        if name == "timestamp":
            times = np.ascontiguousarray(window.times_of(sequences))
            return pa.Array.from_buffers(field.type, count, [None, pa.py_buffer(times)])
        if name in self._constants:
            return self._constant(name, count)
        if kept is None:
            return keys_of(found, field.type) if name == "key" else bodies_of(found)
        if name == "key":
            return slices(found.octets, found.keys[kept], found.bodies[kept] - _LENGTH, field.type)
        return slices(found.octets, found.bodies[kept], found.starts[1:][kept], pa.binary())

    def _constant(self, name: str, count: int) -> Array:
        if (name, count) not in self._repeated:
            if len(self._repeated) > 8:
                self._repeated.clear()
            self._repeated[name, count] = pa.repeat(pa.scalar(self._constants[name]), count)
        return self._repeated[name, count]


# Columns to PUBLISH


def publish(keys: Array, bodies: Array) -> tuple[bytes, Numbers]:
    """The octets of PUBLISH messages with their frame headers, and where each begins (in the end, where the last ends).

    `keys` is text or binary, `bodies` binary or text; where either is null, there is none: it is sent empty.
    """
    keys = _filled(keys)
    bodies = _filled(bodies)
    count = len(keys)
    if not count:
        return b"", np.zeros(1, np.int64)
    key_sizes = _sizes(keys)
    body_sizes = _sizes(bodies)
    if int(key_sizes.max()) > 255:
        raise SparkError(
            f"row {int(key_sizes.argmax())}: a key of {int(key_sizes.max())} octets is too long: 255 at most"
        )
    sizes = key_sizes + body_sizes + PUBLISH_LEAST
    heads = _heads(key_sizes, sizes)
    lengths = body_sizes.astype(">u4").tobytes()
    lengths_array = _fixed(lengths, count, _LENGTH)
    joined = pc.binary_join_element_wise(heads, keys, lengths_array, bodies, pa.scalar(b"", pa.binary()))
    joined = joined if isinstance(joined, pa.Array) else joined.combine_chunks()
    _, offsets, values = joined.buffers()
    starts = np.frombuffer(offsets, np.int32)[joined.offset : joined.offset + count + 1]
    return values[int(starts[0]) : int(starts[-1])].to_pybytes(), starts.astype(np.int64) - starts[0]


def _heads(key_sizes: Numbers, sizes: Numbers) -> Array:
    """Frame header, signature and the length of the key."""
    count = len(sizes)
    short = np.empty((count, SHORT + 4), np.uint8)
    short[:, 0] = 0
    short[:, 1] = sizes & 0xFF
    short[:, 2:5] = np.frombuffer(PUBLISH, np.uint8)
    short[:, 5] = key_sizes
    is_long = sizes > 255
    if not is_long.any():
        return _fixed(short.tobytes(), count, SHORT + 4)
    wide = np.empty((count, LONG + 4), np.uint8)
    wide[:, 0] = 2
    wide[:, 1:9] = sizes.astype(">u8").view(np.uint8).reshape(count, 8)
    wide[:, 9:12] = np.frombuffer(PUBLISH, np.uint8)
    wide[:, 12] = key_sizes
    return pc.if_else(
        pa.array(is_long), _fixed(wide.tobytes(), count, LONG + 4), _fixed(short.tobytes(), count, SHORT + 4)
    )


def _fixed(octets: bytes, count: int, size: int) -> Array:
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(_even_offsets(count, size)), pa.py_buffer(octets)]
    )


def _filled(column: Array) -> Array:
    if column.null_count:
        column = pc.fill_null(column, pa.scalar("" if pa.types.is_string(column.type) else b"", column.type))
    return column.cast(pa.binary())


def _sizes(column: Array) -> Numbers:
    sizes: Numbers = pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def frames(octets: bytes, starts: Numbers) -> list[bytes]:
    """The messages without frame headers."""
    return [octets[start + (LONG if octets[start] else SHORT) : stop] for start, stop in pairwise(starts.tolist())]
