"""The arguments of both faces of a client, checked."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from time import time as wall_clock
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypedDict, TypeVar
from uuid import UUID

from zambezi.wire import Unencodable, string
from zambezi.zeps.client.connection import ClientOptions
from zambezi.zeps.client.finder import Locate
from zambezi.zeps.client.named_reader import NamedReader
from zambezi.zeps.client.publisher import Key, OnFull
from zambezi.zeps.directory import microseconds_of
from zambezi.zeps.errors import ZepsError
from zambezi.zeps.messages import EARLIEST, LATEST, PUBLISHER, TIME
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Heartbeat
from zambezi.zmtp.endpoint import parse
from zambezi.zmtp.security import Security

if TYPE_CHECKING:
    from zambezi.zeps.tracing import Tracing

SERVICE: Final = "X-ZEPS"
QUICK_HEARTBEAT: Final = Heartbeat(interval=2.0, timeout=6.0)
_COMMA: Final = re.compile(r", *(?=[a-z]+://)")  # between two endpoints

Body: TypeAlias = bytes | bytearray | memoryview
Since: TypeAlias = Literal["earliest", "latest"] | int | datetime | timedelta
AckMode: TypeAlias = Literal["auto", "manual"]
IfHeld: TypeAlias = Literal["take", "refuse"]
Until: TypeAlias = Literal["now"] | int | datetime | None

T = TypeVar("T")


class Services(Protocol):
    """An object that knows the endpoints of services: a node of a mesh."""

    def services(self, service: str) -> Mapping[UUID, str]: ...


Endpoint: TypeAlias = str | Sequence[str] | Services | Callable[[], str | tuple[str, ...] | None]
AwaitableEndpoint: TypeAlias = Endpoint | Awaitable[str] | Callable[[], Awaitable[str]]


class ClientArguments(TypedDict, total=False):
    """The options of a client, by keyword."""

    security: Security  # by default NULL
    heartbeat: Heartbeat | None  # ZMTP's: it notices a broker that is gone without closing the connection
    backoff: Backoff  # between attempts to connect
    bound: int  # bytes that are published and not confirmed, for each stream
    on_full: OnFull  # at that bound: "wait", "raise" or "drop-oldest"
    largest: int  # bytes of a message
    window: int  # bytes that are received and not read, for each subscription
    linger: float | None  # seconds that close() waits for confirmations
    group_key: bytes  # the key of sealed multicast groups
    tracing: Tracing | None  # spans of messages, by OpenTelemetry; see `zambezi.zeps.tracing`


class StreamArguments(TypedDict, total=False):
    """The options of one stream, by keyword."""

    bound: int
    on_full: OnFull
    publisher: str  # the name of a publisher that goes on where it stopped, after its own death too


class StreamSettings(TypedDict, total=False):
    """The settings of a stream that a client can give. None stands for the broker's default."""

    sync: Literal["always", "interval", "never"] | None
    segment: int | None  # bytes of a journal file
    keep_bytes: int | None  # bytes that are kept
    keep_seconds: float | None  # the age at which messages are removed
    compact: bool | None  # whether of old messages the last one of each key stays
    keep_tombstones: float | None  # seconds that a last message without a body stays, if the stream is compacted
    publishers: int | None  # whose messages are counted, at most
    keep_publishers: float | None  # seconds of silence, after which a publisher is forgotten
    readers: int | None  # named readers, at most


def publisher_id(name: object) -> bytes:
    """Return the id of the publisher with that name; a random one without a name."""
    if name is None:
        return os.urandom(PUBLISHER)
    if not isinstance(name, str) or not name:
        raise ZepsError(f"the name of a publisher must be text, and not empty; not {name!r}")
    return blake2b(name.encode("utf-8", "surrogateescape"), digest_size=PUBLISHER, person=b"zeps publisher").digest()


def endpoints_of(endpoint: object) -> tuple[str, ...]:
    """Return the endpoints in a text, where commas separate them, or in a list; none if it is something else.

    >>> endpoints_of("tcp://a:5671,tcp://b:5671"), endpoints_of(["tcp://a:5671"])
    (('tcp://a:5671', 'tcp://b:5671'), ('tcp://a:5671',))
    """
    if isinstance(endpoint, str):
        return tuple(_COMMA.split(endpoint))
    if isinstance(endpoint, list | tuple) and all(isinstance(one, str) for one in endpoint):
        return tuple(endpoint)
    return ()


def client_options(endpoint: object, arguments: ClientArguments) -> ClientOptions:
    """Return the options of a client. One that can know several brokers notices sooner that a broker is gone."""
    if len(endpoints_of(endpoint)) > 1 or hasattr(endpoint, "services"):
        arguments = {"heartbeat": QUICK_HEARTBEAT, **arguments}
    return ClientOptions(**arguments)


def locator(endpoint: object) -> Locate:
    """Return a function that returns the broker's endpoint, or None while it is not known."""
    several = endpoints_of(endpoint)
    if several:
        for one in several:
            parse(one)  # raises now, not when the client tries to connect
        return lambda: _one_or_all(several)
    if hasattr(endpoint, "services"):
        find: Callable[[str], Mapping[UUID, str]] = endpoint.services
        return lambda: _one_or_all(tuple(find(SERVICE).values()))
    if callable(endpoint):
        return endpoint
    raise ZepsError(
        f"a broker is given by an endpoint (tcp://HOST:PORT) or a list of them, by a node that finds it, or by a "
        f"function that returns its endpoint; not by {type(endpoint).__name__}"
    )


def _one_or_all(endpoints: tuple[str, ...]) -> str | tuple[str, ...] | None:
    return endpoints if len(endpoints) > 1 else next(iter(endpoints), None)


def start_of(since: Since) -> int:
    """Return where to begin, in the notation of SUBSCRIBE's `latest`."""
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
    """Return where to end, in the same notation; None if nowhere."""
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
        raise ZepsError(f"{name} must be {allowed}, not {value!r}")
    return value


def check_stream_name(name: object) -> str:
    """Return the name of a stream, or raise `ZepsError` if it is not valid."""
    return _check_name(name, "stream")


def _check_name(name: object, kind: str) -> str:
    if not isinstance(name, str):
        raise ZepsError(f"the name of a {kind} must be text, not {name!r}")
    if not name:
        raise ZepsError(f"a {kind} needs a name, and this one is empty")
    try:
        string.encode(name)
    except Unencodable as error:
        raise ZepsError(f"this name of a {kind} cannot be sent: {error}") from None
    return name


def check_times(times: object, stream: str, multicast: bool | str) -> bool:
    """Return whether the broker must tell the times of messages, or raise `ZepsError` if it cannot."""
    if times and multicast:
        raise ZepsError("multicast groups do not carry the times of messages: choose times or multicast, not both")
    return bool(times) and not stream.startswith("$")


def named_reader(
    name: object, since: int, ack: str, if_held: str, stream: str, multicast: bool | str
) -> NamedReader | None:
    """Return the reader of a subscription with a name, or None without one; raise `ZepsError` if it is not valid."""
    if ack not in ("auto", "manual"):
        raise ZepsError(f"ack must be 'auto' or 'manual', not {ack!r}")
    if if_held not in ("take", "refuse"):
        raise ZepsError(f"if_held must be 'take' or 'refuse', not {if_held!r}")
    if name is None:
        return None
    check_reader_name(name)
    if multicast:
        raise ZepsError("a multicast group keeps no positions: choose a name or multicast, not both")
    if stream.startswith("$"):
        raise ZepsError(f"{stream!r} is a reserved stream, which has no named readers")
    return NamedReader(str(name), since, takes=if_held == "take", is_automatic=ack == "auto")


def check_reader_name(name: object) -> str:
    """Return the name of a reader, or raise `ZepsError` if it is not valid."""
    return _check_name(name, "reader")


def check_pattern(pattern: object) -> str:
    """Return a pattern, or raise `ZepsError` if it cannot be sent."""
    if not isinstance(pattern, str):
        raise ZepsError(f"a pattern must be text, not {type(pattern).__name__}")
    try:
        string.encode(pattern)
    except Unencodable as error:
        raise ZepsError(f"this pattern cannot be sent: {error}") from None
    return pattern


def as_body(body: object) -> bytes:
    """Return a body as `bytes`; a mutable one is copied."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise ZepsError(f"a body must be bytes, not {type(body).__name__}; encode text first")


def as_items(items: Iterable[tuple[Key, Body]]) -> list[tuple[Key, bytes]]:
    """Return the messages for `publish_many` as a list of keys and bodies."""
    given = items if isinstance(items, list) else list(items)
    try:
        if {type(body) for _, body in given} <= {bytes}:
            return given  # type: ignore[return-value]
        return [(key, as_body(body)) for key, body in given]
    except (TypeError, ValueError):
        raise ZepsError("publish_many takes pairs of a key and a body") from None


def check_not_reserved(name: str) -> None:
    """Raise `ZepsError` for a reserved stream: only the broker publishes to it."""
    if name.startswith("$"):
        raise ZepsError(
            f"{name!r} is a reserved stream, and clients cannot publish to it; choose a name without '$' in front"
        )


def unconfirmed_text(stream: str, count: int, state: str, held: str) -> str:
    """Return the text of the error for messages that were not confirmed before the publisher was closed.

    `held` says why the broker keeps them waiting, if that is known.
    """
    are = "1 message of {!r} is" if count == 1 else f"{count} messages of {{!r}} are"
    why = f". The broker keeps messages waiting: {held}" if held else ""
    return f"{are.format(stream)} not confirmed: the broker may or may not have them. The client was {state}{why}"
