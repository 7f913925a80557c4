"""What the two faces of a client have in common: how a broker, a place in a stream and messages are given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from time import time as wall_clock
from typing import Any, Final, Literal, Protocol, TypeAlias, TypedDict, TypeVar
from uuid import UUID

from zambezi.wire import Unencodable, string
from zambezi.zeps.client.batch import Message, MessageBatch
from zambezi.zeps.client.connection import Locate
from zambezi.zeps.client.publisher import Key, OnFull
from zambezi.zeps.client.subscriber import SubscriberCounters
from zambezi.zeps.client.subscriber_connection import SubscriberConnection
from zambezi.zeps.directory import microseconds_of
from zambezi.zeps.errors import ClientClosed, ZepsError
from zambezi.zeps.messages import EARLIEST, LATEST, TIME
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Heartbeat
from zambezi.zmtp.endpoint import parse
from zambezi.zmtp.security import Security

SERVICE: Final = "X-ZEPS"

Body: TypeAlias = bytes | bytearray | memoryview
Since: TypeAlias = Literal["earliest", "latest"] | int | datetime | timedelta
Until: TypeAlias = Literal["now"] | int | datetime | None

T = TypeVar("T")


class Services(Protocol):
    """Somebody who knows where services are: a node of a mesh."""

    def services(self, service: str) -> Mapping[UUID, str]: ...


Endpoint: TypeAlias = str | Services | Callable[[], str | None]
AwaitableEndpoint: TypeAlias = Endpoint | Awaitable[str] | Callable[[], Awaitable[str]]


class ClientArguments(TypedDict, total=False):
    """The options of a client, by keyword."""

    security: Security  # NULL, unless it is told
    heartbeat: Heartbeat | None  # of ZMTP: how a broker is missed that is gone without a word
    backoff: Backoff  # between attempts to connect
    bound: int  # of what is published and not confirmed, in octets, for each stream
    on_full: OnFull  # at that bound: "wait", "raise" or "drop-oldest"
    largest: int  # octets of a message
    window: int  # of what is sent and not read, in octets, for each subscription
    linger: float | None  # how long close() waits for confirmations
    group_key: bytes  # what multicast groups are sealed with, where they are


class StreamArguments(TypedDict, total=False):
    """What can be different for one stream."""

    bound: int
    on_full: OnFull


def locator(endpoint: object) -> Locate:
    """How to find the broker, whenever there is none."""
    if isinstance(endpoint, str):
        parse(endpoint)  # a mistake is told now, and not when nothing is found
        return lambda: endpoint
    if hasattr(endpoint, "services"):
        find: Callable[[str], Mapping[UUID, str]] = endpoint.services
        return lambda: next(iter(find(SERVICE).values()), None)
    if callable(endpoint):
        return endpoint
    raise ZepsError(
        f"a broker is given by an endpoint (tcp://HOST:PORT), by a node that finds it, or by a function that says "
        f"where it is; not by {type(endpoint).__name__}"
    )


def place_of(since: Since) -> int:
    """Where to begin, as SUBSCRIBE says it."""
    if since == "earliest":
        return EARLIEST
    if since == "latest":
        return LATEST
    if isinstance(since, timedelta):
        return TIME | max(0, int((wall_clock() - since.total_seconds()) * 1000))
    if isinstance(since, datetime):
        return _time(since)
    return _sequence("since", since, "'earliest', 'latest', a sequence, a datetime or a timedelta")


def end_of(until: Until) -> int | None:
    """Where to end, in the same way."""
    if until is None:
        return None
    if until == "now":
        return LATEST
    if isinstance(until, datetime):
        return _time(until)
    return _sequence("until", until, "a sequence, a datetime, 'now' or None")


def _time(when: datetime) -> int:
    return TIME | max(0, microseconds_of(when) // 1000)


def _sequence(name: str, value: Any, allowed: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < LATEST:
        raise ZepsError(f"{name} is {allowed}, not {value!r}")
    return value


def stream_name(name: object) -> str:
    """A name that a stream can have."""
    if not isinstance(name, str) or not name:
        raise ZepsError(f"a stream has a name, a text that is not empty, not {name!r}")
    try:
        string.encode(name)
    except Unencodable as error:
        raise ZepsError(f"this name of a stream cannot be sent: {error}") from None
    return name


def pattern_text(pattern: object) -> str:
    """A pattern that can be sent."""
    if not isinstance(pattern, str):
        raise ZepsError(f"a pattern is text, not {type(pattern).__name__}")
    try:
        string.encode(pattern)
    except Unencodable as error:
        raise ZepsError(f"this pattern cannot be sent: {error}") from None
    return pattern


def as_body(body: object) -> bytes:
    """A body as it is kept: what can still change is copied."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise ZepsError(f"a body is bytes, not {type(body).__name__}; encode text first")


def as_items(items: Iterable[tuple[Key, Body]]) -> list[tuple[Key, bytes]]:
    """Many messages, checked once."""
    given = items if isinstance(items, list) else list(items)
    try:
        if {type(body) for _, body in given} <= {bytes}:
            return given  # type: ignore[return-value]
        return [(key, as_body(body)) for key, body in given]
    except (TypeError, ValueError):
        raise ZepsError("publish_many takes pairs of a key and a body") from None


def not_reserved(name: str) -> None:
    """Reserved streams are told by the broker alone."""
    if name.startswith("$"):
        raise ZepsError(
            f"{name!r} is a reserved stream, and nobody publishes to it; choose a name without '$' in front"
        )


def left_behind(stream: str, count: int, state: str) -> str:
    """What to say when a publisher was closed too early."""
    return (
        f"{count} messages of {stream!r} are not confirmed: the broker may or may not have them. The client was {state}"
    )


class Reading:
    """What is left to read of a subscription, whoever reads: attempts that succeed, or say None and are made again."""

    _connection: SubscriberConnection

    def __init__(self, connection: SubscriberConnection) -> None:
        self._connection = connection
        self._batch: MessageBatch | None = None  # what is iterated over,
        self._current: Iterator[Message] = iter(())  # and what is left of it

    def _refill(self, finished: Iterator[Message]) -> bool | None:
        """Have something to iterate over, when what was there is finished: False at the end."""
        if self._current is not finished:
            return True  # another task or thread was here
        found = self._next_batch()
        if found is None:
            return None
        if not found:
            return False
        self._batch = found
        self._current = iter(found)
        return True

    def _rest(self) -> MessageBatch | None:
        """What is left of what was iterated over, as a batch."""
        batch, self._batch = self._batch, None
        left = sum(1 for _ in self._current) if batch is not None else 0
        return batch[-left:] if batch is not None and left else None

    def _rest_or_next(self) -> MessageBatch | None:
        """Return the rest of what was iterated over, or else the next batch; an empty one at the end."""
        return self._rest() or self._next_batch()

    def _next_batch(self) -> MessageBatch | None:
        """The next batch; an empty one at the end."""
        batch = self._connection.next_batch()
        if batch is None and self._connection.closing:
            failure = self._connection.engine.failure
            if failure is not None:
                raise failure
            return MessageBatch(self._connection.stream, [])
        return batch

    def _is_ready(self) -> bool | None:
        connection = self._connection
        if connection.engine.failure is not None:
            raise connection.engine.failure
        if connection.confirmed_once or connection.engine.ended:
            return True
        if connection.closing:
            raise self._over()
        return None

    def _over(self) -> ClientClosed:
        ended = self._connection.engine.ended
        return ClientClosed("the subscription has come to its end" if ended else "the subscription is closed")

    @property
    def position(self) -> int | None:
        """The last sequence that has come from the broker; None if that is not known yet."""
        return self._connection.engine.position

    @property
    def counters(self) -> SubscriberCounters:
        """What came, and what did not."""
        return self._connection.engine.counters

    def __repr__(self) -> str:
        return f"<Subscription {self._connection.state}, at {self.position}>"
