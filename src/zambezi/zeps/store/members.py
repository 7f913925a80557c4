"""The brokers of a prefix: each puts a heartbeat every few seconds, and lists those of the others.

A broker also puts the names of the streams that it owns, whenever they have changed. They are a hint for the others:
only the end of a stream's log tells its owner.

Times are the store's own: the broker compares the times of the other heartbeats with that of the heartbeat that it has
just put. So no clock of any broker matters. A heartbeat that is too old is why another broker takes a stream; it is
never why that is safe (see `takeover`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from hashlib import blake2b
from socket import gethostname
from typing import Final, NamedTuple

from zambezi.zeps.store.commands import Get, Procedure, StoredObject, ask_all, delete, get, listing, put
from zambezi.zeps.store.names import BROKERS, last_part

PERIOD: Final = 3.0  # seconds between two heartbeats
LIMIT: Final = 10.0  # seconds after which a broker counts as dead
_ID: Final = 16  # bytes
_FORGOTTEN: Final = 3600.0  # seconds after which its heartbeat is removed
_BEAT: Final = ".json"
_OWNED: Final = ".streams"
_LATEST: Final = 1e11  # seconds since 1970 that a broker can claim
_LARGEST: Final = 65536  # bytes of a heartbeat
_ANY: Final = ("*", "0.0.0.0", "[::]", "::")  # hosts that stand for all addresses of this machine
_LONGEST: Final = 64 << 20  # bytes of the names of streams


@dataclass(frozen=True, slots=True)
class Member:
    """A live broker."""

    id: bytes  # 16 bytes
    endpoints: Sequence[str]
    time: float  # of its last heartbeat
    since: float = 0.0  # when it was started, by its own clock; in seconds since 1970
    streams: AbstractSet[str] = frozenset()  # that it owned when it put their names
    revision: int = 0  # of these names; 0: none
    listed: float = 0.0  # when it put them
    is_leaving: bool = False  # whether it gives its streams up, and ends
    size: int = 0  # bytes of the heartbeat that was read

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

    def home(self, stream: str, own: bytes = b"", without: AbstractSet[bytes] = frozenset()) -> Member | None:
        """Return the broker at which a stream should be, by rendezvous hashing: few streams move if one comes or goes.

        All brokers come to the same result. A broker is known by its endpoint: one that was restarted has its streams
        again, and no others. A broker without endpoints has just been started, and counts for itself only: `own` is the
        broker that asks. Brokers that leave do not count, and those of `without`.
        """
        able = [
            member
            for member in self.members
            if (member.endpoints or member.id == own) and not member.is_leaving and member.id not in without
        ]
        return max(able, key=lambda member: _weight(member, stream), default=None)


class Owned(NamedTuple):
    """The names of the streams that a broker owns. Each change of them has another number."""

    names: AbstractSet[str]
    revision: int
    must_put: bool


class _Revision(NamedTuple):
    broker: bytes
    number: int
    key: str
    time: float


_NO_REVISION: Final = _Revision(b"", 0, "", 0.0)


def _weight(member: Member, stream: str) -> tuple[bytes, bytes]:
    text = f"{member.endpoint or member.id.hex()}\0{stream}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=8).digest(), member.id


def beat(
    broker: bytes,
    endpoints: Sequence[str],
    known: Iterable[Member] = (),
    limit: float = LIMIT,
    *,
    since: float = 0.0,
    owned: Owned | None = None,
    is_leaving: bool = False,
) -> Procedure[Roll | None]:
    """Put a heartbeat, and return the live brokers: `put_beat` and `read_roll`."""
    yield from put_beat(broker, endpoints, since=since, is_leaving=is_leaving)
    return (yield from read_roll(broker, known, limit, owned=owned))


def put_beat(
    broker: bytes, endpoints: Sequence[str], *, since: float = 0.0, is_leaving: bool = False
) -> Procedure[None]:
    """Put a heartbeat."""
    content = {"id": broker.hex(), "endpoints": list(endpoints), "since": since}
    if is_leaving:
        content["leaving"] = True
    yield from put(_key(broker), json.dumps(content).encode() + b"\n", create=False)


def read_roll(
    broker: bytes, known: Iterable[Member] = (), limit: float = LIMIT, *, owned: Owned | None = None
) -> Procedure[Roll | None]:
    """Put the names of the own streams, if they have changed, and return the live brokers.

    Return None if the own heartbeat is not listed. `known` are the brokers of the last roll: their heartbeats are read
    again only if they have no endpoints yet, or have changed, and the names of their streams only if they were put
    again. `owned` are the names of the own streams.
    """
    if owned is not None and owned.must_put:
        yield from put(_owned(broker, owned.revision), json.dumps(sorted(owned.names)).encode() + b"\n", create=False)
    found = yield from listing(BROKERS)
    own = next((one for one in found if one.key == _key(broker)), None)
    if own is None:
        return None
    yield from delete(_forgotten(found, own.time - _FORGOTTEN))
    revisions = _revisions(found)
    yield from delete(
        one.key for one in found if one.key.startswith(_stem(broker)) and one.key != revisions[broker].key
    )
    notified = next((one.time for one in found if one.key == _notice(broker)), 0.0)
    beats = [one for one in found if one.key.endswith(_BEAT) and one.size <= _LARGEST]
    live = [one for one in beats if one.time >= own.time - limit and len(_id_of(one.key)) == _ID]
    members = yield from _read_members(live, revisions, {member.id: member for member in known})
    return Roll(own.time, members, notified)


def _forgotten(found: Sequence[StoredObject], horizon: float) -> list[str]:
    """Return the objects of brokers that have put no heartbeat since a time. The names of streams can be older."""
    present = {_id_of(one.key) for one in found if one.key.endswith(_BEAT) and one.time >= horizon}
    return [
        one.key
        for one in found
        if one.time < horizon and not (one.key.endswith(_OWNED) and _parse_owned(one.key).broker in present)
    ]


def _revisions(found: Sequence[StoredObject]) -> dict[bytes, _Revision]:
    """Return the newest names of streams of each broker."""
    newest: dict[bytes, _Revision] = {}
    for one in found:
        if one.key.endswith(_OWNED) and one.size <= _LONGEST:
            revision = _parse_owned(one.key)._replace(time=one.time)
            if revision.number > newest.get(revision.broker, _NO_REVISION).number:
                newest[revision.broker] = revision
    return newest


def _read_members(
    beats: Sequence[StoredObject], revisions: Mapping[bytes, _Revision], known: Mapping[bytes, Member]
) -> Procedure[list[Member]]:
    """Return the brokers of some heartbeats; read only what is not known yet."""
    members = []
    wanted = []
    for one in beats:
        broker = _id_of(one.key)
        before = known.get(broker, Member(broker, (), 0.0))
        members.append(replace(before, time=one.time))
        if not before.endpoints or one.size != before.size:
            wanted.append(one.key)
        if (revision := revisions.get(broker, _NO_REVISION)).number > before.revision:
            wanted.append(revision.key)
    contents = yield from ask_all([Get(key) for key in wanted])
    read = {key: octets for key, octets in zip(wanted, contents, strict=True) if isinstance(octets, bytes)}
    return [_note_read(member, read, revisions.get(member.id, _NO_REVISION)) for member in members]


def _note_read(member: Member, read: Mapping[str, bytes], revision: _Revision) -> Member:
    beat = read.get(_key(member.id))
    if beat is not None:
        endpoints, since, is_leaving = _parse_beat(beat)
        member = replace(member, endpoints=endpoints, since=since, is_leaving=is_leaving, size=len(beat))
    if revision.key in read:
        member = replace(
            member, streams=_parse_names(read[revision.key]), revision=revision.number, listed=revision.time
        )
    return member


def notify(broker: bytes) -> Procedure[None]:
    """Tell a broker that streams of it were taken. It sees that when it lists the brokers, and checks its streams.

    A broker that publishes to a stream finds out by itself. An idle one would serve an old end of the stream.
    """
    yield from put(_notice(broker), b"", create=False)


def leave(broker: bytes, revision: int = 0) -> Procedure[None]:
    """Remove the heartbeat of a broker that ends, and the names of its streams."""
    yield from delete([_key(broker)])
    if revision:
        yield from delete([_owned(broker, revision)])


def _key(broker: bytes) -> str:
    return f"{BROKERS}/{broker.hex()}{_BEAT}"


def _stem(broker: bytes) -> str:
    return f"{BROKERS}/{broker.hex()}-"


def _owned(broker: bytes, revision: int) -> str:
    return f"{_stem(broker)}{revision:010}{_OWNED}"


def _parse_owned(key: str) -> _Revision:
    """Return what the key of names of streams tells; `_NO_REVISION` if no broker writes such a key."""
    broker, _, number = last_part(key).removesuffix(_OWNED).partition("-")
    try:
        found = _Revision(bytes.fromhex(broker), int(number), key, 0.0)
    except ValueError:
        return _NO_REVISION
    return found if len(found.broker) == _ID and key == _owned(found.broker, found.number) else _NO_REVISION


def _notice(broker: bytes) -> str:
    return f"{BROKERS}/{broker.hex()}.taken"


def _id_of(key: str) -> bytes:
    """Return the id in the key of a heartbeat; nothing if it has none."""
    try:
        return bytes.fromhex(last_part(key).removesuffix(_BEAT))
    except ValueError:
        return b""


def is_leaving(broker: bytes) -> Procedure[bool]:
    """Return whether a broker leaves, or is gone."""
    octets = yield from get(_key(broker))
    return octets is None or _parse_beat(octets).is_leaving


class _Beat(NamedTuple):
    endpoints: tuple[str, ...] = ()
    since: float = 0.0
    is_leaving: bool = False


def _parse_beat(octets: bytes) -> _Beat:
    """Return the content of a heartbeat; nothing if it is damaged."""
    try:
        content = json.loads(octets)
        since = float(content.get("since", 0.0))
        endpoints = tuple(one for one in content["endpoints"] if isinstance(one, str))
        return _Beat(endpoints, since if 0.0 <= since < _LATEST else 0.0, content.get("leaving") is True)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return _Beat()


def _parse_names(octets: bytes) -> frozenset[str]:
    """Return the names of streams; none if they are damaged."""
    try:
        content = json.loads(octets)
    except (ValueError, RecursionError):
        content = []
    return frozenset(one for one in content if isinstance(one, str)) if isinstance(content, list) else frozenset()


def reachable(endpoint: str) -> str:
    """Return a bound endpoint as clients on other machines can use it; nothing if they cannot."""
    if not endpoint.startswith("tcp://"):
        return endpoint if endpoint.startswith("ipc://") else ""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return f"tcp://{gethostname() if host in _ANY else host}:{port}"
