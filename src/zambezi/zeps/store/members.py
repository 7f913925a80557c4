"""The brokers of a prefix: each puts a heartbeat every few seconds, and lists those of the others.

Times are the store's own: the broker compares the times of the other heartbeats with that of the heartbeat that it has
just put. So no clock of any broker matters. A heartbeat that is too old is why another broker takes a stream; it is
never why that is safe (see `takeover`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from zambezi.zeps.store.commands import MISSING, Get, Procedure, ask_all, delete, listing, put
from zambezi.zeps.store.names import BROKERS, last_part

PERIOD: Final = 3.0  # seconds between two heartbeats
LIMIT: Final = 10.0  # seconds after which a broker counts as dead
_FORGOTTEN: Final = 3600.0  # seconds after which its heartbeat is removed
_LARGEST: Final = 65536  # bytes of a heartbeat


@dataclass(frozen=True, slots=True)
class Member:
    """A live broker."""

    id: bytes  # 16 bytes
    endpoints: Sequence[str]
    time: float  # of its last heartbeat


@dataclass(frozen=True, slots=True)
class Roll:
    """The live brokers, as a broker found them."""

    time: float  # of the broker's own heartbeat
    members: Sequence[Member]

    def member(self, broker: bytes) -> Member | None:
        """Return a broker if it is alive."""
        return next((member for member in self.members if member.id == broker), None)

    def home(self, stream: str) -> Member | None:
        """Return the broker at which a stream should be, by rendezvous hashing: few streams move if one comes or goes.

        All brokers come to the same result.
        """
        return max(self.members, key=lambda member: _weight(member.id, stream), default=None)


def _weight(broker: bytes, stream: str) -> bytes:
    return blake2b(stream.encode("utf-8", "surrogateescape"), key=broker, digest_size=8).digest()


def beat(broker: bytes, endpoints: Sequence[str], known: Iterable[Member] = ()) -> Procedure[Roll | None]:
    """Put a heartbeat, and return the live brokers; None if the own heartbeat is not listed.

    `known` are the brokers of the last roll: their heartbeats are not read again.
    """
    key = _key(broker)
    content = json.dumps({"id": broker.hex(), "endpoints": list(endpoints)}).encode() + b"\n"
    yield from put(key, content, create=False)
    found = yield from listing(BROKERS)
    own = next((one for one in found if one.key == key), None)
    if own is None:
        return None
    yield from delete(one.key for one in found if one.time < own.time - _FORGOTTEN)
    live = [one for one in found if one.time >= own.time - LIMIT and one.size <= _LARGEST]
    endpoints_of = {member.id: member.endpoints for member in known}
    unknown = [one.key for one in live if _id_of(one.key) not in endpoints_of]
    contents = yield from ask_all([Get(one) for one in unknown])
    for one, octets in zip(unknown, contents, strict=True):
        if octets is not MISSING:
            endpoints_of[_id_of(one)] = _endpoints(octets)
    members = [Member(_id_of(one.key), endpoints_of.get(_id_of(one.key), ()), one.time) for one in live]
    return Roll(own.time, [member for member in members if len(member.id) == 16])


def leave(broker: bytes) -> Procedure[None]:
    """Remove the heartbeat of a broker that ends."""
    yield from delete([_key(broker)])


def _key(broker: bytes) -> str:
    return f"{BROKERS}/{broker.hex()}.json"


def _id_of(key: str) -> bytes:
    """Return the id in the key of a heartbeat; nothing if it has none."""
    try:
        return bytes.fromhex(last_part(key).removesuffix(".json"))
    except ValueError:
        return b""


def _endpoints(octets: bytes) -> tuple[str, ...]:
    """Return the endpoints in a heartbeat; none if it is damaged."""
    try:
        content = json.loads(octets)
        return tuple(one for one in content["endpoints"] if isinstance(one, str))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
