"""The parts that the asyncio sockets and the blocking sockets share: the forms of messages and options."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias, TypedDict, TypeVar

from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Heartbeat, Limits
from zambezi.zmtp.errors import MessageError, SocketClosed
from zambezi.zmtp.events import SocketEvent
from zambezi.zmtp.frames import Frames
from zambezi.zmtp.options import Bound, Policy
from zambezi.zmtp.security import Security
from zambezi.zmtp.transport import Transport

Frame: TypeAlias = bytes | bytearray | memoryview
Sendable: TypeAlias = Frame | Sequence[Frame]

T = TypeVar("T")

EVENTS_KEPT: Final = 1000
DEFAULT_LINGER: Final = 5.0
# The texts of a `TimedOut`.
NO_MESSAGE: Final = "no message arrived"
NO_EVENT: Final = "no event happened"
NO_ROOM: Final = "no peer had room in its queue"
YIELD_AFTER: Final = 500  # messages that a program can send in a row before the event loop runs


class SocketArguments(TypedDict, total=False):
    """The keyword arguments that every socket takes. The classes of their values explain them."""

    identity: bytes
    security: Security
    authenticator: Authenticator | None
    send_bound: Bound
    receive_bound: Bound
    on_full: Policy
    limits: Limits
    heartbeat: Heartbeat | None
    backoff: Backoff
    properties: Mapping[str, bytes]


class Shell(Protocol):
    """A protocol on a transport, as a face sees it. It never waits: it calls the face when a caller can try again."""

    transport: Transport
    on_readable: Callable[[], object]
    on_writable: Callable[[], object]
    on_event: Callable[[SocketEvent], object]

    @property
    def readable(self) -> bool:
        """Whether a message can be received."""

    def bind(self, endpoint: str) -> str:
        """Accept connections; return the endpoint as bound."""

    def close(self, linger: float | None) -> None:
        """Begin to close the transport."""


class Face:
    """The base of both faces of a socket: its representation, and a warning if a program forgets to close it."""

    _transport: Transport

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        transport = getattr(self, "_transport", None)
        if transport is not None and not transport.closing and transport.endpoints:
            _warn(f"unclosed {self!r}", ResourceWarning, source=self)

    def __repr__(self) -> str:
        where = ", ".join(self._transport.endpoints) or "nowhere yet"
        return f"<{type(self).__name__} {'closed' if self._transport.closing else where}>"


def as_message(message: Sendable) -> Frames:
    """Return a message in the form of the queues: one `bytes`, or a tuple of several. Mutable buffers are copied."""
    if isinstance(message, bytes):
        return message
    if isinstance(message, bytearray | memoryview):
        return bytes(message)
    frames = tuple(map(as_frame, _sequence(message)))
    if not frames:
        raise MessageError("a message has at least one frame; an empty frame is b''")
    return frames[0] if len(frames) == 1 else frames


def as_messages(messages: Iterable[Sendable]) -> list[Frames]:
    """Return many messages in the form of the queues. A list of `bytes` is returned as it is."""
    if isinstance(messages, bytes | bytearray | memoryview | str):
        raise MessageError("a batch is a list of messages; to send one message, use send()")
    given = messages if type(messages) is list else list(messages)
    if set(map(type, given)) <= {bytes}:
        return given  # type: ignore[return-value]
    return [message if type(message) is bytes else as_message(message) for message in given]


def _sequence(message: object) -> Sequence[object]:
    if isinstance(message, str) or not isinstance(message, Sequence):
        raise MessageError(
            f"a message is bytes or a sequence of bytes, not {type(message).__name__}; encode text first"
        )
    return message


def as_frame(frame: object) -> bytes:
    """Return a frame in the form of the queues."""
    if isinstance(frame, bytes):
        return frame
    if not isinstance(frame, bytearray | memoryview):
        raise MessageError(f"a frame is bytes, not {type(frame).__name__}; encode text first")
    return bytes(frame)


def while_open(transport: Transport, attempt: Callable[[], T]) -> T:
    """Return what `attempt` returns, or raise `SocketClosed` if the socket is closed."""
    if transport.closing:
        raise SocketClosed("the socket is closed")
    return attempt()


def go_on(attempt: Callable[[list[T], int], int], items: list[T], start: int) -> int | None:
    """Try to send items from index `start` on; return the index where that stopped, or None if none was sent."""
    stop = attempt(items, start)
    return stop if stop > start else None
