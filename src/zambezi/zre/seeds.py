"""Seeds: mailboxes to begin with, where no beacon tells which nodes exist.

A seed is an endpoint. Its HELLO says which node has its mailbox there, and like every HELLO it comes to our mailbox, on
a connection of the node's own. So which HELLO is the answer of which seed? The port in it says little, because in many
networks every node has the same one. These decide, in this order:

- the identity that the ROUTER at the other end of our DEALER gave in the handshake of ZMTP. Nodes of ours give it, and
  then nothing else counts;
- the endpoint in HELLO, if it is the seed's endpoint as it was configured, or the same with the address of its host
  name;
- the port in HELLO, if HELLO came from the address of the seed: a node with several addresses can give us one that we
  did not use.

A HELLO to which none of these applies comes from another node.
"""

from __future__ import annotations

from collections.abc import Iterator

from zambezi.zre.contact import host_of, port_of
from zambezi.zre.dialect import Dialect
from zambezi.zre.peer import Peer


class Seed:
    """One seed. It has a `greeting`, a peer without a UUID, for as long as we do not know which node answers there."""

    __slots__ = ("_port", "address", "answers", "endpoint", "greeting", "key")

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.key: bytes | None = None  # of the node whose mailbox it is, once that is known
        self.greeting: Peer | None = None
        self.answers = b""  # the key of the node at the other end of our DEALER, if the node gave it,
        self.address = ""  # and the address of that end
        self._port = port_of(endpoint)

    @property
    def dealer(self) -> bytes:
        """The key of our DEALER to the seed, until the key of the node is known."""
        return b"seed " + self.endpoint.encode()

    def greet(self, dialect: Dialect, now: float) -> Peer:
        """Begin to greet the seed, on a fresh connection; return the peer to greet."""
        self.key = None
        self.greeting = Peer(self.dealer, self.endpoint, dialect, now)
        self.answers = b""
        self.address = ""
        return self.greeting

    def reached(self, identity: bytes, address: str) -> None:
        """Note the address to which our DEALER has connected, and the identity that it was given, if any."""
        self.address = address
        self.answers = identity[1:] if len(identity) == 17 and identity[0] == 1 else b""

    def settle(self, key: bytes) -> None:
        """Note the node whose mailbox the seed is."""
        self.key = key
        self.greeting = None

    def is_at(self, endpoint: str, source: str) -> bool:
        """Return whether a HELLO that names an endpoint, and came from an address, can be the seed's answer."""
        if endpoint == self.endpoint:
            return True
        return bool(self.address) and port_of(endpoint) == self._port and self.address in (host_of(endpoint), source)


class Seeds:
    """All seeds of a node."""

    def __init__(self) -> None:
        self._seeds: dict[str, Seed] = {}

    def __len__(self) -> int:
        return len(self._seeds)

    def __iter__(self) -> Iterator[Seed]:
        return iter(self._seeds.values())

    def add(self, endpoint: str) -> Seed | None:
        """Add a seed and return it; return None if it is known already."""
        if endpoint in self._seeds:
            return None
        seed = self._seeds[endpoint] = Seed(endpoint)
        return seed

    def get(self, endpoint: str) -> Seed | None:
        return self._seeds.get(endpoint)

    def clear(self) -> None:
        self._seeds.clear()

    @property
    def unmet(self) -> list[Seed]:
        """The seeds of which we do not know yet which node answers there."""
        return [seed for seed in self._seeds.values() if seed.greeting is not None]

    @property
    def greetings(self) -> list[Peer]:
        """The peers without a UUID that stand for the unmet seeds."""
        return [seed.greeting for seed in self._seeds.values() if seed.greeting is not None]

    def awaits(self, key: bytes, endpoint: str, since: float = 0.0) -> bool:
        """Return whether a node that we found otherwise is a seed which we greeted, not before `since`."""
        if not self._seeds:  # most nodes have none
            return False
        greeted = (seed for seed in self.unmet if seed.greeting is not None and seed.greeting.greeted >= since)
        return any(seed.answers == key or seed.endpoint == endpoint for seed in greeted)

    def answered(self, key: bytes, endpoint: str, source: str) -> Seed | None:
        """Return the seed whose answer a HELLO is."""
        if not self._seeds:
            return None
        unmet = self.unmet
        known = next((seed for seed in unmet if seed.answers == key), None)
        return known or next((seed for seed in unmet if not seed.answers and seed.is_at(endpoint, source)), None)
