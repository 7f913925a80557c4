"""The requests and answers of the reserved stream `$ranges`. docs/protocol.md has them as a table.

A request is a PUBLISH: the key is its name, the body is a JSON object. An answer is a DELIVER: its key says what the
body is. The answers come in the order of the requests, and an `end` follows the last answer to each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from zambezi.zeps.errors import BrokerError
from zambezi.zeps.layout import BODY_LENGTH, DELIVER, SEQUENCE, frame_header
from zambezi.zeps.messages import Publish

# Requests
LIST: Final = "list"  # the states of streams
CUT: Final = "cut"  # the sizes of parts of a stream
READ: Final = "read"  # messages
NOTE: Final = "note"  # how far a program has read a stream

# Answers
STATES: Final = b"states"
POINTS: Final = b"points"
BLOCK: Final = b"block"
SPARSE: Final = b"sparse"  # a block of a compacted stream, without the messages that were removed
END: Final = b"end"

# The results in an `end`
ALL: Final = "all"  # everything was answered
TRIMMED: Final = "trimmed"  # messages of the range are not kept any more
REPLACED: Final = "replaced"  # the stream has another incarnation
VANISHED: Final = "vanished"  # there is no such stream
MOVED: Final = "moved"  # another broker has the stream, at `endpoint`; empty if none has it at this moment
FORBIDDEN: Final = "forbidden"
REFUSED: Final = "refused"  # the position cannot be noted
UNREADABLE: Final = "unreadable"  # the journal is damaged, or the disk fails

_BLOCK: Final = Struct(">QQI")
BLOCK_HEAD: Final = _BLOCK.size
PAIR: Final = 16  # bytes of a sequence and a time


class State(NamedTuple):
    """The state of a stream at one moment. Times are in microseconds since 1970; 0 if the stream has no messages."""

    stream: str
    incarnation: str
    first: int  # the oldest sequence that is kept; last + 1 if the stream is empty
    last: int
    octets: int
    first_time: int
    last_time: int


class Answer:
    """A DELIVER with an answer. `sequence` counts the answers of a connection."""

    __slots__ = ("_parts", "_size", "key", "sequence")

    def __init__(self, key: bytes, *parts: bytes) -> None:
        self.key = key
        self.sequence = 0
        self._parts = parts
        self._size = sum(map(len, parts))

    def __len__(self) -> int:
        """Return its bytes without a frame header: the credit that it costs. (ZEP-03)"""
        return len(DELIVER) + SEQUENCE.size + 1 + len(self.key) + BODY_LENGTH.size + self._size

    def pieces(self, *, framed: bool) -> list[bytes]:
        """Return the bytes of the message, in pieces."""
        head = [frame_header(len(self))] if framed else []
        head += [DELIVER, SEQUENCE.pack(self.sequence), bytes((len(self.key),)), self.key, BODY_LENGTH.pack(self._size)]
        return [*head, *self._parts]


def request(key: str, **fields: object) -> bytes:
    """Return a request."""
    return Publish(key, json.dumps(fields, separators=(",", ":")).encode("ascii")).encode()[0]


def json_answer(key: bytes, content: object) -> Answer:
    """Return an answer whose body is JSON. Bytes of a name that are not UTF-8 are escaped."""
    return Answer(key, json.dumps(content, separators=(",", ":")).encode("ascii"))


def block_answer(first: int, last: int, pairs: bytes, messages: bytes = b"", key: bytes = BLOCK) -> Answer:
    """Return an answer with messages, as the journal has them, and the times of their batches."""
    return Answer(key, _BLOCK.pack(first, last, len(pairs) // PAIR), pairs, messages)


class BlockHead(NamedTuple):
    """The beginning of the body of a `block`. The messages have sequences from `first` to `last`."""

    first: int
    last: int
    pairs: int  # of a sequence and a time, which follow
    messages: int  # the offset of the messages in the body


def read_block_head(body: bytes | memoryview) -> BlockHead:
    """Return the beginning of a block; raise `BrokerError` if it is not one."""
    if len(body) >= BLOCK_HEAD:
        first, last, pairs = _BLOCK.unpack_from(body)
        if len(body) >= BLOCK_HEAD + PAIR * pairs and pairs and first <= last:
            return BlockHead(first, last, pairs, BLOCK_HEAD + PAIR * pairs)
    raise BrokerError("the broker sent a block that cannot be parsed")


def read_states(body: bytes) -> list[State]:
    """Return the states in an answer."""
    return [State(*_typed(row, (str, str, int, int, int, int, int))) for row in _list(body)]


def read_points(body: bytes) -> list[tuple[int, int]]:
    """Return the points in an answer: sequences, and the bytes before them."""
    return [(row[0], row[1]) for row in (_typed(row, (int, int)) for row in _list(body))]


def read_end(body: bytes) -> Mapping[str, Any]:
    """Return the end of an answer."""
    content = _parsed(body)
    if not isinstance(content, dict) or not isinstance(content.get("result"), str):
        raise _unparsable()
    return content


def _list(body: bytes) -> list[Any]:
    content = _parsed(body)
    if not isinstance(content, list):
        raise _unparsable()
    return content


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise _unparsable() from None


def _typed(row: Any, kinds: tuple[type, ...]) -> list[Any]:
    if not isinstance(row, list) or len(row) != len(kinds) or any(map(_differs, row, kinds)):
        raise _unparsable()
    return row


def _differs(value: Any, kind: type) -> bool:
    return type(value) is not kind


def _unparsable() -> BrokerError:
    return BrokerError("the broker sent an answer about ranges that cannot be parsed")
