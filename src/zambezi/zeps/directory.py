"""What the reserved streams of a broker tell: its streams, its clients, and the index of a journal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from zambezi.zeps.errors import BrokerError
from zambezi.zeps.journal.entry import SIZE, IndexEntry, unpack

STREAMS: Final = "$streams"
CLIENTS: Final = "$clients"
INDEX: Final = "$index/"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """A stream, as its broker tells of it. Times are in microseconds since 1970, and 0 where there is no message."""

    stream: str
    incarnation: str = ""
    first: int = 1
    last: int = 0
    octets: int = 0
    first_time: int = 0
    last_time: int = 0
    sync: str = ""
    subscribers: int = 0
    attached: int = 0
    rate: float = 0.0  # messages published in a second, of late
    held: str = ""
    multicast: str = ""  # the group that live messages go to,
    sealed: bool = False  # whether it takes a key to read them there,
    feed: Mapping[str, int] = field(default_factory=dict, hash=False)  # and what went there, counted

    @property
    def messages(self) -> int:
        """How many messages are there."""
        return max(0, self.last - self.first + 1)

    @property
    def first_at(self) -> datetime | None:
        """When the oldest message that is there was published."""
        return moment(self.first_time) if self.messages else None

    @property
    def last_at(self) -> datetime | None:
        """When the newest message was published."""
        return moment(self.last_time) if self.messages else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientInfo:
    """A connection, as the broker tells of it. From `patterns` on it is about what the connection subscribed to."""

    client: int
    address: str = ""
    user: str = ""
    stream: str = ""
    published: int = 0
    gear: str = ""
    patterns: tuple[str, ...] = ()
    position: int = 0
    lag: int = 0
    credit: int = 0
    delivered: int = 0
    delivered_octets: int = 0
    skipped: int = 0


def read_streams(bodies: Iterable[bytes]) -> list[StreamInfo]:
    """What `$streams` says."""
    return [_read(StreamInfo, body) for body in bodies if body]


def read_clients(bodies: Iterable[bytes]) -> list[ClientInfo]:
    """What `$clients` says."""
    return [_read(ClientInfo, body) for body in bodies if body]


def read_index(bodies: Iterable[bytes]) -> list[IndexEntry]:
    """What `$index/<stream>` says."""
    entries = []
    for body in bodies:
        for position in range(0, len(body), SIZE):
            entry = unpack(body, position)
            if entry is None:
                raise BrokerError("the broker sent an index entry that does not agree with its own check")
            entries.append(entry)
    return entries


def _read(kind: type[T], body: bytes) -> T:
    """A JSON object as a value; what a newer broker tells besides is left out."""
    try:
        told = json.loads(body)
        if not isinstance(told, Mapping):
            raise TypeError("it is no JSON object")
        known: dict[str, Any] = {}
        for one in fields(kind):  # type: ignore[arg-type]
            if one.name in told:
                value = told[one.name]
                known[one.name] = tuple(value) if isinstance(value, list) else value
        return kind(**known)
    except (ValueError, TypeError) as error:
        raise BrokerError(f"the broker tells of a {kind.__name__} in a way that cannot be read: {error}") from None


def moment(microseconds: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return _EPOCH + timedelta(microseconds=microseconds)


def microseconds_of(when: datetime) -> int:
    """A time as microseconds since 1970. One without a zone is local time."""
    return (when.astimezone(UTC) - _EPOCH) // _MICROSECOND
