"""The grammar of zgossip, the gossip protocol of CZMQ, by which Zyre nodes find each other where there are no beacons.

A client says HELLO to a hub, and gets a PUBLISH for each tuple that the hub knows. After that, both send a PUBLISH for
each tuple that is new to them. A hub forgets a client that is silent for a second, unless it sends PINGs, and answers
INVALID to a client that it does not know. Each tuple of Zyre is a node: the key is its UUID in hexadecimal, and the
value its contact (see `contact`).
"""

from __future__ import annotations

from uuid import UUID

from zambezi.wire import Message, constant, field, longstr, number_1, number_4, string


class Zgossip(Message, signature=0xAAA0):
    """The family of zgossip: every message begins AA A0, its id, and the version, which is 1."""

    version: int = constant(number_1, 1)


class Hello(Zgossip, id=1):
    """Greet a hub."""


class Publish(Zgossip, id=2):
    """Tell of a tuple. `ttl` is its time to live in milliseconds; 0 is for ever, and all that Zyre uses."""

    key: str = field(string)
    value: str = field(longstr)
    ttl: int = field(number_4, default=0)


class Ping(Zgossip, id=3):
    """Tell a hub that the client is alive."""


class Pong(Zgossip, id=4):
    """Answer a PING."""


class Invalid(Zgossip, id=5):
    """Refuse a command: the client must say HELLO first."""


def key_of(uuid: UUID) -> str:
    """Return the key of the tuple of a node.

    >>> key_of(UUID(int=10))
    '0000000000000000000000000000000A'
    """
    return uuid.hex.upper()


def uuid_of(key: str) -> UUID | None:
    """Return the node whose tuple has a key; None if the key is not a UUID in hexadecimal."""
    if len(key) != 32 or not key.isalnum():
        return None
    try:
        return UUID(hex=key)
    except ValueError:
        return None
