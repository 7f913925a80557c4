"""Seeds: mailboxes to begin with, where no beacon tells who is there.

A seed is an endpoint. Who has its mailbox there is told by its HELLO, which comes like everybody's: to our mailbox, by
a connection of its own. So which HELLO is the answer of which seed? The port in it says little, for in many networks
every node has the same one. What counts is, in this order:

- the identity that the ROUTER at the other end of our DEALER gave in the handshake of ZMTP. Nodes of ours give it, and
  then nothing else is asked;
- the endpoint in HELLO, if it is the seed's as we were told it, or with the address that its name led to;
- the port in HELLO, if HELLO came from the address of the seed: a node with several addresses may call itself by one
  that we did not use.

Who fits none of these is somebody else.
"""

from __future__ import annotations

from collections.abc import Iterator

from zambezi.zre.peer import Peer, host_of, port_of


class Seed:
    """One of them. It has a `greeting`, a peer without a UUID, for as long as we do not know who answers there."""

    __slots__ = ("_port", "address", "answers", "endpoint", "greeting", "key")

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.key: bytes | None = None  # whose mailbox it is, once that is known
        self.greeting: Peer | None = None
        self.answers = b""  # who is at the other end of our DEALER, where that was told,
        self.address = ""  # and at which address that is
        self._port = port_of(endpoint)

    @property
    def dealer(self) -> bytes:
        """The key of the DEALER to it, as long as there is no other."""
        return b"seed " + self.endpoint.encode()

    def greet(self, greeting: Peer) -> None:
        self.key = None
        self.greeting = greeting
        self.answers = b""
        self.address = ""

    def settle(self, key: bytes) -> None:
        """It is known whose mailbox it is."""
        self.key = key
        self.greeting = None

    def is_at(self, endpoint: str, source: str) -> bool:
        """Whether a HELLO that names an endpoint, and came from an address, can be its answer."""
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
        """A new one, or None if it is known already."""
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
        """Those of which it is not known who answers there."""
        return [seed for seed in self._seeds.values() if seed.greeting is not None]

    def greeted(self, key: bytes, endpoint: str) -> bool:
        """Whether a peer that others tell of is a seed whose answer is under way."""
        return any(seed.answers == key or seed.endpoint == endpoint for seed in self.unmet)

    def answered(self, key: bytes, endpoint: str, source: str) -> Seed | None:
        """The seed whose answer a HELLO is."""
        unmet = self.unmet
        known = next((seed for seed in unmet if seed.answers == key), None)
        return known or next((seed for seed in unmet if not seed.answers and seed.is_at(endpoint, source)), None)
