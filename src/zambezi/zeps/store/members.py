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
_BEAT: Final = ".json"
_LARGEST: Final = 65536  # bytes of a heartbeat


@dataclass(frozen=True, slots=True)
class Member:
    """A live broker."""

    id: bytes  # 16 bytes
    endpoints: Sequence[str]
    time: float  # of its last heartbeat

    @property
    def endpoint(self) -> str:
        """The endpoint for clients; empty if it is not known yet."""
        return next(iter(self.endpoints), "")


@dataclass(frozen=True, slots=True)
class Roll:
    """The live brokers, as a broker found them."""

    time: float  # of the broker's own heartbeat
    members: Sequence[Member]
    notified: float = 0.0  # when another broker took streams of this one, the last time; 0: never

    def member(self, broker: bytes) -> Member | None:
        """Return a broker if it is alive."""
        return next((member for member in self.members if member.id == broker), None)

    def home(self, stream: str, own: bytes = b"") -> Member | None:
        """Return the broker at which a stream should be, by rendezvous hashing: few streams move if one comes or goes.

        All brokers come to the same result. A broker without endpoints has just been started, and counts for itself
        only: `own` is the broker that asks.
        """
        able = [member for member in self.members if member.endpoints or member.id == own]
        return max(able, key=lambda member: _weight(member.id, stream), default=None)


def _weight(broker: bytes, stream: str) -> bytes:
    return blake2b(stream.encode("utf-8", "surrogateescape"), key=broker, digest_size=8).digest()


def beat(
    broker: bytes, endpoints: Sequence[str], known: Iterable[Member] = (), limit: float = LIMIT
) -> Procedure[Roll | None]:
    """Put a heartbeat, and return the live brokers; None if the own heartbeat is not listed.

    `known` are the brokers of the last roll: their heartbeats are not read again, once they have endpoints.
    """
    key = _key(broker)
    content = json.dumps({"id": broker.hex(), "endpoints": list(endpoints)}).encode() + b"\n"
    yield from put(key, content, create=False)
    found = yield from listing(BROKERS)
    own = next((one for one in found if one.key == key), None)
    if own is None:
        return None
    yield from delete(one.key for one in found if one.time < own.time - _FORGOTTEN)
    notified = next((one.time for one in found if one.key == _notice(broker)), 0.0)
    beats = [one for one in found if one.key.endswith(_BEAT) and one.size <= _LARGEST]
    live = [one for one in beats if one.time >= own.time - limit]
    endpoints_of = {member.id: member.endpoints for member in known if member.endpoints}
    unknown = [one.key for one in live if _id_of(one.key) not in endpoints_of]
    contents = yield from ask_all([Get(one) for one in unknown])
    for one, octets in zip(unknown, contents, strict=True):
        if octets is not MISSING:
            endpoints_of[_id_of(one)] = _endpoints(octets)
    members = [Member(_id_of(one.key), endpoints_of.get(_id_of(one.key), ()), one.time) for one in live]
    return Roll(own.time, [member for member in members if len(member.id) == 16], notified)


def notify(broker: bytes) -> Procedure[None]:
    """Tell a broker that streams of it were taken. It sees that when it lists the brokers, and checks its streams.

    A broker that publishes to a stream finds out by itself. An idle one would serve an old end of the stream.
    """
    yield from put(_notice(broker), b"", create=False)


def leave(broker: bytes) -> Procedure[None]:
    """Remove the heartbeat of a broker that ends."""
    yield from delete([_key(broker)])


def _key(broker: bytes) -> str:
    return f"{BROKERS}/{broker.hex()}{_BEAT}"


def _notice(broker: bytes) -> str:
    return f"{BROKERS}/{broker.hex()}.taken"


def _id_of(key: str) -> bytes:
    """Return the id in the key of a heartbeat; nothing if it has none."""
    try:
        return bytes.fromhex(last_part(key).removesuffix(_BEAT))
    except ValueError:
        return b""


def _endpoints(octets: bytes) -> tuple[str, ...]:
    """Return the endpoints in a heartbeat; none if it is damaged."""
    try:
        content = json.loads(octets)
        return tuple(one for one in content["endpoints"] if isinstance(one, str))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
