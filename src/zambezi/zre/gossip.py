"""Gossip: how nodes find each other where no beacon reaches them. It is an extension of ours, carried by ZRE.

A node that wants to be told of others has a header in its HELLO. Its peers tell it by WHISPERs that begin with a frame
of their own: of all peers when it comes, of each peer that comes later, and of all again in rounds. In each round a
node tells one of the peers that ask. So two nodes that lost each other soon hear of each other from any third node.

An entry is a UUID and an endpoint. Gossip goes only to peers that have the header: to others it would be a message for
the program.

Where there is no third node, `Lost` remembers the endpoints of peers that fell silent. The node looks for them again in
the rounds 1, 2, 4, 8 ... after that, and forgets them in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from zambezi.zre import bounds
from zambezi.zre.contact import for_others
from zambezi.zre.dialect import Frames
from zambezi.zre.peer import Peer

HEADER: Final = "X-ZAMBEZI-GOSSIP"  # its value is the mailbox of the node
MARK: Final = b"\x00zambezi-gossip"
_UUID: Final = 16
_AT_ONCE: Final = 500
# How many lost peers are remembered, and for how many rounds.
_REMEMBERED: Final = 1000
_ROUNDS: Final = 64


class Entry(NamedTuple):
    """A peer and its endpoint."""

    key: bytes
    endpoint: str

    def encode(self) -> bytes:
        return self.key + for_others(self.endpoint).encode("utf-8", "replace")


def contents(entries: Iterable[Entry]) -> Iterator[Frames]:
    """Yield the contents of the WHISPERs that carry entries."""
    encoded = [entry.encode() for entry in entries]
    for start in range(0, len(encoded), _AT_ONCE):
        yield (MARK, *encoded[start : start + _AT_ONCE])


def read(frames: Iterable[bytes]) -> Iterator[Entry]:
    """Yield the entries in the frames after the mark. Malformed ones are ignored."""
    for frame in frames:
        endpoint = frame[_UUID:].decode("utf-8", "replace")
        if len(frame) >= _UUID and endpoint.startswith(("tcp://", "inproc://")):
            yield Entry(frame[:_UUID], endpoint)


class Telling(NamedTuple):
    """Gossip to send: the peers that are told, and the content of the WHISPER."""

    peers: list[Peer]
    content: Frames


class Gossip:
    """The gossip of a node: the peers that ask for it, and the peers that were lost.

    `peers` are the node's peers, and `asks` says whether the node wants to be told of others.
    """

    def __init__(self, peers: Mapping[bytes, Peer], asks: bool) -> None:
        self.asks = asks
        self.lost = Lost()
        self._peers = peers
        self._askers: dict[bytes, None] = {}  # the peers that want to be told, the next one first

    @property
    def has_askers(self) -> bool:
        """Whether a peer wants to be told."""
        return bool(self._askers)

    def headers(self, mailbox: str) -> Mapping[str, str]:
        """Return the header by which our HELLO asks for gossip."""
        return {HEADER: mailbox} if self.asks else {}

    def recognizes(self, sender: Peer, content: Frames) -> bool:
        """Return whether the content of a WHISPER is gossip. If neither side gossips, it is the program's."""
        return bool(content) and content[0] == MARK and (self.asks or HEADER in sender.headers)

    def has_no_beacons(self, peer: Peer) -> bool:
        """Return whether a peer, by all we know, sends no beacons: then its silence is nothing unusual."""
        return HEADER in peer.headers and not peer.beacon

    def receive(self, content: Frames) -> Iterator[Entry]:
        """Yield the entries of a WHISPER, if we asked for them."""
        if self.asks:
            yield from read(content[1 : 1 + bounds.GOSSIP])

    def introduce(self, newcomer: Peer) -> list[Telling]:
        """Return the gossip about a peer that is ready now. Any node answers one that asks, so any can be its seed."""
        self.lost.forget(newcomer.key)
        tellings = []
        if HEADER in newcomer.headers:
            self._askers[newcomer.key] = None
            tellings += self._tell_all(newcomer)
        if self._askers:
            (news,) = contents([Entry(newcomer.key, newcomer.endpoint)])
            tellings.append(Telling([self._peers[key] for key in self._askers if key != newcomer.key], news))
        return tellings

    def tell_next_asker(self) -> list[Telling]:
        """Return the gossip of one round: one of the peers that ask is told of all others."""
        if not self._askers:
            return []
        asker = next(iter(self._askers))
        del self._askers[asker]
        self._askers[asker] = None  # its next turn is after all others
        return self._tell_all(self._peers[asker])

    def _tell_all(self, asker: Peer) -> list[Telling]:
        known = [Entry(peer.key, peer.endpoint) for peer in self._peers.values() if peer is not asker and peer.ready]
        return [Telling([asker], content) for content in contents(known)]

    def part(self, peer: Peer) -> None:
        """Tell a peer no more: it has ended. If we had met it, we look for it in later rounds."""
        self._askers.pop(peer.key, None)
        if peer.ready and self.asks:
            self.lost.add(peer.key, peer.endpoint)

    def left(self, peer: Peer) -> None:
        """Do not look for a peer that said goodbye."""
        self.lost.forget(peer.key)

    def clear(self) -> None:
        """Forget which peers ask."""
        self._askers.clear()


class Lost:
    """The endpoints of peers that fell silent.

    >>> lost = Lost()
    >>> lost.add(b"a", "tcp://10.0.0.1:1")
    >>> [len(lost.next_round()) for _ in range(8)]
    [1, 1, 0, 1, 0, 0, 0, 1]
    """

    def __init__(self) -> None:
        self._lost: dict[bytes, tuple[str, int]] = {}  # the endpoint, and for how many rounds the peer has been lost

    def __len__(self) -> int:
        return len(self._lost)

    def add(self, key: bytes, endpoint: str) -> None:
        """Remember a peer. If there are too many, the one that has been lost for longest is forgotten."""
        self.forget(key)
        if len(self._lost) >= _REMEMBERED:
            del self._lost[next(iter(self._lost))]
        self._lost[key] = endpoint, 0

    def forget(self, key: bytes) -> None:
        """Forget a peer: it is back, or it said goodbye."""
        self._lost.pop(key, None)

    def next_round(self) -> list[Entry]:
        """Return the peers to look for in this round."""
        self._lost = {key: (where, rounds + 1) for key, (where, rounds) in self._lost.items() if rounds < _ROUNDS}
        return [Entry(key, where) for key, (where, rounds) in self._lost.items() if rounds & (rounds - 1) == 0]
