"""Arrow columns of the stream `mcollective`, without Spark: its messages, and the envelopes of Ruby programs in them.

A body of the stream is a list of strings with 4-byte lengths: the sender's identity, then the frames of a message.
These are the verb (MESSAGE), pairs of a header and its value, an empty frame, and the content. All bodies are decoded
at once, string by string: step 0 is the first string of every body, and so on. A body with too many strings is invalid,
because each step takes time, even if only one body has so many strings.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from zambezi.mcollective.messages import MESSAGE
from zambezi.mcollective.ruby import envelope
from zambezi.mcollective.ruby.values import Unreadable
from zambezi.spark.columns import Array, Numbers, Octets, spans_to_array

MESSAGES: Final = "struct<sender:binary,headers:map<string,string>,content:array<binary>>"
ENVELOPES: Final = (
    "struct<format:string,kind:string,id:string,agent:string,sender:string,time:timestamp,is_encrypted:boolean,"
    "caller:string,collective:string,ttl:long,filter:string,action:string,wants_reply:boolean,status:string,"
    "error:string>"
)
MAX_STRINGS: Final = 256  # in a body
_LENGTH: Final = 4  # bytes of the length of a string
_TYPES: Final = {
    "time": pa.timestamp("us", tz="UTC"),
    "ttl": pa.int64(),
    "is_encrypted": pa.bool_(),
    "wants_reply": pa.bool_(),
}
_FIELDS: Final = {name: _TYPES.get(name, pa.string()) for name in envelope.Envelope.__slots__}


def message_column(bodies: Array) -> Array:
    """Decode bodies of the stream into structs of sender, headers and content; null if invalid.

    A header that is not UTF-8 gets a replacement character for each wrong byte.
    """
    octets, bounds = _buffers(bodies)
    count = len(bodies)
    row, step, begin, end, is_whole = _strings(octets, bounds)
    # The first empty frame in the position of a header name ends the headers.
    delimiter = np.full(count, MAX_STRINGS, np.int64)
    is_delimiter = (begin == end) & (step >= 2) & (step % 2 == 0)
    np.minimum.at(delimiter, row[is_delimiter], step[is_delimiter])
    is_message = is_whole & (delimiter < MAX_STRINGS)
    is_message &= _begins_with(MESSAGE, octets, row, step, begin, end, count)

    def strings(is_wanted: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
        wanted = np.flatnonzero(is_wanted & is_message[row])
        found = spans_to_array(octets, begin[wanted], end[wanted], pa.binary())
        return found, pa.array(np.searchsorted(row[wanted], np.arange(count + 1)).astype(np.int32))

    is_header = (step >= 2) & (step < delimiter[row])
    names, header_bounds = strings(is_header & (step % 2 == 0))
    values, _ = strings(is_header & (step % 2 == 1))
    contents, content_bounds = strings(step > delimiter[row])
    is_sender = (step == 0) & is_message[row]
    starts, stops = bounds[:-1].copy(), bounds[:-1].copy()  # an empty string for each invalid body
    starts[row[is_sender]], stops[row[is_sender]] = begin[is_sender], end[is_sender]
    return pa.StructArray.from_arrays(
        [
            spans_to_array(octets, starts, stops, pa.binary()),
            pa.MapArray.from_arrays(header_bounds, _as_text(names), _as_text(values)),
            pa.ListArray.from_arrays(content_bounds, contents),
        ],
        names=["sender", "headers", "content"],
        mask=pa.array(~is_message),
    )


def envelope_column(contents: Array) -> Array:
    """Read the envelopes of Ruby programs into structs; null if the content is no envelope."""
    read = [_read(content) for content in contents.to_pylist()]
    columns = [pa.array(values, kind) for values, kind in zip(_fields_of(read), _FIELDS.values(), strict=True)]
    return pa.StructArray.from_arrays(
        columns, names=list(_FIELDS), mask=pa.array([each is None for each in read], pa.bool_())
    )


def _read(content: bytes | None) -> envelope.Envelope | None:
    if content is None:
        return None
    try:
        return envelope.read(content)
    except Unreadable:
        return None


def _fields_of(read: list[envelope.Envelope | None]) -> Iterator[list[Any]]:
    """Return the values of each field, column by column."""
    for name in _FIELDS:
        field = attrgetter(name)
        values = [None if each is None else field(each) for each in read]
        if name == "time":  # Arrow wants microseconds
            values = [None if each is None else each * 1_000_000 for each in values]
        yield values


def _buffers(column: Array) -> tuple[Octets, Numbers]:
    """Return the bytes of a binary column, and where each element begins, and finally where the last one ends."""
    _, offsets, values = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    octets = np.frombuffer(values, np.uint8) if values is not None else np.empty(0, np.uint8)
    return octets, bounds


def _strings(octets: Octets, bounds: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers, npt.NDArray[np.bool_]]:
    """Return the row, the step, the beginning and the end of each string, by row and step, and which rows consist of
    complete strings."""
    stops = bounds[1:]
    is_whole = stops > bounds[:-1]
    rows = np.flatnonzero(is_whole)
    position = bounds[:-1][rows]
    found: list[tuple[Numbers, Numbers, Numbers, Numbers]] = []
    numbers = np.ndarray((max(0, len(octets) - _LENGTH + 1),), ">u4", octets, 0, (1,))  # at any position
    for step in range(MAX_STRINGS):
        fits = position + _LENGTH <= stops[rows]
        is_whole[rows[~fits]] = False
        rows, position = rows[fits], position[fits]
        if not len(rows):
            break
        begin = position + _LENGTH
        position = begin + numbers[position]
        fits = position <= stops[rows]
        is_whole[rows[~fits]] = False
        rows, begin, position = rows[fits], begin[fits], position[fits]
        found.append((rows, np.full(len(rows), step, np.int64), begin, position))
        is_left = position < stops[rows]
        rows, position = rows[is_left], position[is_left]
    is_whole[rows] = False  # rows with more strings
    if not found:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing, nothing, is_whole
    row, steps, begins, ends = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.argsort(begins, kind="stable")
    return row[order], steps[order], begins[order], ends[order], is_whole


def _begins_with(
    verb: bytes, octets: Octets, row: Numbers, step: Numbers, begin: Numbers, end: Numbers, count: int
) -> npt.NDArray[np.bool_]:
    """Return which rows have a verb as their first frame."""
    second = np.flatnonzero(step == 1)
    verbs = spans_to_array(octets, begin[second], end[second], pa.binary())
    found = np.zeros(count, np.bool_)
    found[row[second]] = pc.equal(verbs, verb).to_numpy(zero_copy_only=False)
    return found


def _as_text(strings: Array) -> Array:
    """Return binary strings as text. Spark does not check text that comes from Arrow."""
    try:
        return strings.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([each.decode("utf-8", "replace") for each in strings.to_pylist()], pa.string())
