"""The content of a broker's reserved streams: streams, clients, brokers, named readers, and the index of a journal."""

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
BROKERS: Final = "$brokers"
ELSEWHERE: Final = "$elsewhere"
ORDERS: Final = "$admin"
INDEX: Final = "$index/"
RANGES: Final = "$ranges"
LAST: Final = "$last"
REQUESTS: Final = "$requests/"
REPLIES: Final = "$replies/"
READERS: Final = "$readers/"
ABOUT: Final = (INDEX, READERS, REQUESTS, REPLIES)  # before the name of the stream that a reserved one is about
SHARED: Final = "shared:"  # before the name of a group, in the keys of `$readers/<stream>`
GROUP_NAME: Final = 255 - len(SHARED)  # bytes of the name of a group, so that both fit into a key

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LAST: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND

# The JSON types of a field, by its annotation.
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "int | None": (int, type(None)),
    "float | None": (int, float, type(None)),
    "tuple[str, ...]": list,
    "tuple[dict[str, Any], ...]": list,
    "Mapping[str, int]": dict,
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """A stream, as its broker describes it. Times are microseconds since 1970; 0 if the stream has no messages."""

    stream: str
    incarnation: str = ""
    first: int = 1
    last: int = 0
    removed: int = 0  # messages from `first` to `last` that compaction has removed
    octets: int = 0
    first_time: int = 0
    last_time: int = 0
    sync: str = ""
    copied: int | None = None  # the last sequence of its copy in an object store; None: it has no copy
    segment: int = 0  # bytes of a journal file
    keep_bytes: int | None = None  # bytes that are kept; None: all
    keep_seconds: float | None = None  # the age at which messages are removed; None: never
    compact: bool = False  # whether of old messages the last one of each key stays
    publishers: int = 0  # whose messages the broker counts
    max_publishers: int = 0  # the most publishers that it counts
    keep_publishers: float = 0.0  # seconds of silence, after which it forgets a publisher
    groups: int = 0  # of shared readers
    readers: int = 0  # named readers
    reader_lag: int = 0  # of the named reader that is furthest behind
    subscribers: int = 0
    attached: int = 0
    rate: float = 0.0  # messages published per second, recently
    owner: str = ""  # the endpoint of its broker, if it is in an object store that brokers share; empty: none has it
    held: str = ""  # why the broker cannot append messages now, if so
    multicast: str = ""  # the multicast group of the live messages
    sealed: bool = False  # whether the datagrams of the group are encrypted
    feed: Mapping[str, int] = field(default_factory=dict, hash=False)  # the counters of the group

    @property
    def is_described(self) -> bool:
        """Whether its broker has described it. Otherwise only its name and owner are known."""
        return self.incarnation != ""

    @property
    def messages(self) -> int:
        """The number of messages in the stream."""
        return max(0, self.last - self.first + 1 - self.removed)

    @property
    def first_at(self) -> datetime | None:
        """The time when the oldest message was published; None if the stream has no messages."""
        return datetime_of(self.first_time) if self.messages else None

    @property
    def last_at(self) -> datetime | None:
        """The time when the newest message was published; None if the stream has no messages."""
        return datetime_of(self.last_time) if self.messages else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientInfo:
    """A connection, as the broker describes it. The fields from `patterns` on are those of its subscriptions."""

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
    delivered_bytes: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderInfo:
    """A named reader of a stream, as the broker describes it."""

    reader: str
    position: int = 0  # the last acknowledged sequence
    lag: int = 0  # messages after it
    behind: float = 0.0  # the age in seconds of the first of them
    time: int = 0  # of the last change, in microseconds since 1970
    user: str = ""  # the user to whom the reader belongs; empty: all
    holder: str = ""  # the client that reads under this name now; empty: none
    shared: bool = False  # whether it is a group of shared readers; the other fields are about groups
    pattern: str = ""
    wait: int = 0  # milliseconds that a member has to acknowledge a message
    limit: int = 0  # deliveries of a message; 0: no limit
    dead: str = ""  # the stream for dead letters
    in_flight: int = 0  # messages that are delivered, and not acknowledged
    returned: int = 0  # messages that were given back, and wait for their next delivery
    redelivered: int = 0
    missed: int = 0  # messages that were removed from the stream before they were done
    letters: int = 0  # messages that have reached the limit
    unknown: int = 0  # acknowledgements of messages that the member did not have
    problem: str = ""  # why dead letters wait
    members: int = 0
    shares: tuple[dict[str, Any], ...] = field(
        default=(), hash=False
    )  # of the first members: `member`, `in_flight`, `delivered`, `done`, `late`

    @property
    def changed_at(self) -> datetime:
        """The time when the position has last changed."""
        return datetime_of(self.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A broker that shares an object store with others, as one of them describes it."""

    broker: str  # its id: another one after each start
    endpoints: tuple[str, ...] = ()  # empty: it has just been started
    since: int = 0  # when it was started, by its own clock; in microseconds since 1970
    heartbeat: float = 0.0  # seconds since its last heartbeat
    streams: int = 0  # that it has
    answers: bool = False  # whether this is the broker that describes them

    @property
    def endpoint(self) -> str:
        """The endpoint for clients; empty if it is not known yet."""
        return self.endpoints[0] if self.endpoints else ""

    @property
    def since_at(self) -> datetime:
        """The time when it was started."""
        return datetime_of(self.since)


def read_brokers(bodies: Iterable[bytes]) -> list[BrokerInfo]:
    """Parse the messages of `$brokers`."""
    return [_read(BrokerInfo, body) for body in bodies if body]


def read_readers(bodies: Iterable[bytes]) -> list[ReaderInfo]:
    """Parse the messages of `$readers/<stream>`."""
    return [_read(ReaderInfo, body) for body in bodies if body]


def read_streams(bodies: Iterable[bytes]) -> list[StreamInfo]:
    """Parse the messages of `$streams`."""
    return [_read(StreamInfo, body) for body in bodies if body]


def read_clients(bodies: Iterable[bytes]) -> list[ClientInfo]:
    """Parse the messages of `$clients`."""
    return [_read(ClientInfo, body) for body in bodies if body]


def read_index(bodies: Iterable[bytes]) -> list[IndexEntry]:
    """Parse the messages of `$index/<stream>`."""
    entries = []
    for body in bodies:
        for position in range(0, len(body), SIZE):
            entry = unpack(body, position)
            if entry is None:
                raise BrokerError("the broker sent an index entry whose CRC is wrong")
            entries.append(entry)
    return entries


def _read(kind: type[T], body: bytes) -> T:
    """Parse a JSON object; ignore fields that a newer broker may send."""
    try:
        content = json.loads(body)
        if not isinstance(content, Mapping):
            raise TypeError("it is not a JSON object")
        known: dict[str, Any] = {}
        for each in fields(kind):  # type: ignore[arg-type]
            if each.name in content:
                value = content[each.name]
                if not isinstance(value, _TYPES[str(each.type)]):
                    raise TypeError(f"{each.name} has a value of the wrong type")
                known[each.name] = tuple(value) if isinstance(value, list) else value
        return kind(**known)
    except (ValueError, TypeError, RecursionError) as error:
        raise BrokerError(f"the broker sent a {kind.__name__} that cannot be parsed: {error}") from None


def subject_of(name: str) -> str:
    """Return the stream that a reserved stream is about; the name itself if it is about none."""
    return name.removeprefix(INDEX).removeprefix(READERS)


def datetime_of(microseconds: int) -> datetime:
    """Return a time that is given in microseconds since 1970.

    If a clock is wrong by millennia, it is the last one of the year 9999: Python has no later ones.
    """
    return _EPOCH + timedelta(microseconds=min(microseconds, _LAST))


def microseconds_of(when: datetime) -> int:
    """Return a time in microseconds since 1970. A time without a zone is local time."""
    return (when.astimezone(UTC) - _EPOCH) // _MICROSECOND
