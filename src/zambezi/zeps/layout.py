"""The offsets of the fields: in PUBLISH and DELIVER, in a frame header, and in an entry of a journal's index.

    PUBLISH  AA A5 06               key-length (1) key  body-length (4) body
    DELIVER  AA A5 07  sequence (8) key-length (1) key  body-length (4) body

The grammar is in `zambezi.zeps.messages`. Modules that read and write many messages at once, or whole columns of them,
use these offsets.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

PUBLISH: Final = b"\xaa\xa5\x06"
DELIVER: Final = b"\xaa\xa5\x07"

SEQUENCE: Final = Struct(">Q")
BODY_LENGTH: Final = Struct(">I")

SEQUENCE_AT: Final = 3  # in a DELIVER
PUBLISH_KEY: Final = 4  # the offset of the key; the byte before it is the length of the key
DELIVER_KEY: Final = 12
PUBLISH_LEAST: Final = 8  # the bytes of a message with no key and no body
DELIVER_LEAST: Final = 16
GROWTH: Final = DELIVER_LEAST - PUBLISH_LEAST  # a DELIVER is longer than its PUBLISH by the sequence

# ZMTP's frame headers, of a message that is one frame.
SHORT: Final = 2  # the size of the header of a frame below 256 bytes
LONG: Final = 9  # the size of any other header
LONG_FLAG: Final = 2  # the first byte of a long header; that of a short one is zero

# An entry of an index: name and size of each field, in order. All are big-endian numbers.
ENTRY_FIELDS: Final = {
    "first": 8,  # the sequence of the batch's first message
    "offset": 8,  # where the batch begins in the log
    "time": 8,  # when it was appended, in microseconds since 1970; never less than in the entry before
    "count": 4,  # the number of its messages
    "length": 4,  # its bytes in the log
    "credit": 4,  # the cost of delivering it: its bytes without the frame headers (ZEP-03)
    "crc": 4,  # CRC-32 of its bytes in the log
    "publishers": 4,  # the number of publishers that have a count in the batch: see `zambezi.zeps.journal.counts`
    "gap": 8,  # the number of sequences of the batch whose messages were removed: see `zambezi.zeps.journal.compaction`
    "removed": 8,  # the sum of the gaps of all entries before this one
    "check": 4,  # CRC-32 of the fields before this one
}
ENTRY: Final = Struct(">" + "".join("Q" if size == 8 else "I" for size in ENTRY_FIELDS.values()))


def frame_header(size: int) -> bytes:
    """Return the header of a message that is one frame of `size` bytes."""
    return bytes((0, size)) if size < 256 else bytes((LONG_FLAG,)) + SEQUENCE.pack(size)


def sequence_of(deliver: bytes) -> int:
    """Return the sequence of a DELIVER message."""
    return SEQUENCE.unpack_from(deliver, SEQUENCE_AT)[0]  # type: ignore[no-any-return]


def key_of(deliver: bytes) -> bytes:
    """Return the routing key of a DELIVER message."""
    return deliver[DELIVER_KEY : DELIVER_KEY + deliver[DELIVER_KEY - 1]]


def delivered_key_and_body(deliver: bytes) -> tuple[bytes, bytes]:
    """Return the routing key and the body of a valid DELIVER message."""
    stop = DELIVER_KEY + deliver[DELIVER_KEY - 1]
    return deliver[DELIVER_KEY:stop], deliver[stop + BODY_LENGTH.size :]


def key_and_body(publish: bytes) -> tuple[bytes, bytes]:
    """Return the routing key and the body of a valid PUBLISH message."""
    stop = PUBLISH_KEY + publish[PUBLISH_KEY - 1]
    return publish[PUBLISH_KEY:stop], publish[stop + BODY_LENGTH.size :]
