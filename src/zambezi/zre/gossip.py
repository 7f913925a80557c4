"""Gossip: how nodes find each other where no beacon reaches them. It is an extension of ours, carried by ZRE.

A node that wants to be told of others has a header in its HELLO. It is told, by WHISPERs that begin with a frame of
their own, of all peers when it comes, of each that comes later, and of all again in rounds: in each round a node tells
one of those who asked. So two that lost each other hear of each other from any third before long.

An entry is a UUID and an endpoint. A UUID alone, and the sender's own, says that it is leaving: what a beacon with port
zero is elsewhere. It goes only to those who have shown that they know gossip, by the header or by telling some; to
others such a message would be one of the program's.

Where there is no third, `Lost` remembers where the peers were that fell silent. They are greeted again in the rounds
1, 2, 4, 8 ... after that, and forgotten in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from zambezi.zre.dialect import Frames

HEADER: Final = "X-ZAMBEZI-GOSSIP"  # its value is the mailbox of the node
MARK: Final = b"\x00zambezi-gossip"
_UUID: Final = 16
_AT_ONCE: Final = 500
# How many lost peers are remembered, and for how many rounds.
_REMEMBERED: Final = 1000
_ROUNDS: Final = 64


class Entry(NamedTuple):
    """Of whom is told, and where it is; with no endpoint: it leaves."""

    key: bytes
    endpoint: str

    def encode(self) -> bytes:
        return self.key + self.endpoint.encode("utf-8", "replace")


def contents(entries: Iterable[Entry]) -> Iterator[Frames]:
    """What the WHISPERs hold that tell of peers: one at least, for it shows that gossip is known here."""
    encoded = [entry.encode() for entry in entries]
    for start in range(0, max(1, len(encoded)), _AT_ONCE):
        yield (MARK, *encoded[start : start + _AT_ONCE])


def read(frames: Iterable[bytes]) -> Iterator[Entry]:
    """The entries in the frames after the mark. What is malformed is passed over."""
    for frame in frames:
        endpoint = frame[_UUID:].decode("utf-8", "replace")
        if len(frame) >= _UUID and (not endpoint or endpoint.startswith(("tcp://", "inproc://"))):
            yield Entry(frame[:_UUID], endpoint)


class Lost:
    """Where the peers were that fell silent.

    >>> lost = Lost()
    >>> lost.add(b"a", "tcp://10.0.0.1:1")
    >>> [len(lost.next_round()) for _ in range(8)]
    [1, 1, 0, 1, 0, 0, 0, 1]
    """

    def __init__(self) -> None:
        self._lost: dict[bytes, tuple[str, int]] = {}  # the endpoint, and for how many rounds it has been lost

    def __len__(self) -> int:
        return len(self._lost)

    def add(self, key: bytes, endpoint: str) -> None:
        self.forget(key)
        if len(self._lost) >= _REMEMBERED:
            del self._lost[next(iter(self._lost))]  # the one that has been lost for longest
        self._lost[key] = endpoint, 0

    def forget(self, key: bytes) -> None:
        self._lost.pop(key, None)

    def next_round(self) -> list[Entry]:
        """Those who are to be greeted in this round."""
        self._lost = {key: (where, rounds + 1) for key, (where, rounds) in self._lost.items() if rounds < _ROUNDS}
        return [Entry(key, where) for key, (where, rounds) in self._lost.items() if rounds & (rounds - 1) == 0]
