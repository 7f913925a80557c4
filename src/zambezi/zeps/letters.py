"""Dead letters: messages that no member of a group could handle, in a stream of their own.

A letter has the key of the original message. Its body is a line of JSON that says where the original is, and after it
the body of the original:

>>> letter = Letter("orders", 41, "ann", "workers", 5)
>>> octets = letter.pack(b"two teas")
>>> Letter.parse(octets)
(Letter(stream='orders', sequence=41, key='ann', group='workers', deliveries=5), b'two teas')
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Self

from zambezi.zeps.errors import ZepsError


@dataclass(frozen=True, slots=True)
class Letter:
    """Where the original of a dead letter is, and what happened to it."""

    stream: str
    sequence: int
    key: str
    group: str
    deliveries: int

    def pack(self, body: bytes) -> bytes:
        """Return the body of the letter."""
        return json.dumps(asdict(self)).encode("ascii") + b"\n" + body

    @classmethod
    def parse(cls, octets: bytes) -> tuple[Self, bytes]:
        """Return the letter, and the body of the original; raise `ZepsError` if the bytes are no letter."""
        head, _, body = octets.partition(b"\n")
        try:
            found = json.loads(head)
            stream, sequence, key = str(found["stream"]), int(found["sequence"]), str(found["key"])
            return cls(stream, sequence, key, str(found["group"]), int(found["deliveries"])), body
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ZepsError("this message is no dead letter: its first line does not say where it is from") from None
