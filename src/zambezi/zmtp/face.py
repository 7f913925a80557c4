"""What the two faces of the sockets, asyncio and blocking, have in common: how messages and options are given."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypedDict

from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Heartbeat, Limits
from zambezi.zmtp.core import Core, Policy
from zambezi.zmtp.errors import MessageError
from zambezi.zmtp.frames import Message
from zambezi.zmtp.pipe import Bound
from zambezi.zmtp.security import Security

Frame: TypeAlias = bytes | bytearray | memoryview
Sendable: TypeAlias = Frame | Sequence[Frame]

EVENTS_KEPT: Final = 1000
DEFAULT_LINGER: Final = 5.0


class SocketArguments(TypedDict, total=False):
    """The options of every socket, by keyword. What they mean is told by the classes of their values."""

    identity: bytes
    security: Security
    authenticator: Authenticator | None
    send_bound: Bound
    receive_bound: Bound
    on_full: Policy
    limits: Limits
    heartbeat: Heartbeat | None
    backoff: Backoff


class Face:
    """What a socket shows of itself, and says when it is forgotten without being closed."""

    _core: Core

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        core = getattr(self, "_core", None)
        if core is not None and not core.closing and (core.listeners or core.connectors):
            _warn(f"unclosed {self!r}", ResourceWarning, source=self)

    def __repr__(self) -> str:
        core = self._core
        where = [*core.listeners, *(connector.endpoint for connector in core.connectors.values())]
        state = "closed" if core.closing else ", ".join(where) or "nowhere yet"
        return f"<{type(self).__name__} {state}>"


def as_message(message: Sendable) -> Message:
    """A message as the queues hold it: one `bytes`, or a tuple of several. Mutable buffers are copied."""
    if isinstance(message, bytes):
        return message
    if isinstance(message, bytearray | memoryview):
        return bytes(message)
    frames = tuple(map(as_frame, _sequence(message)))
    if not frames:
        raise MessageError("a message has at least one frame; an empty frame is b''")
    return frames[0] if len(frames) == 1 else frames


def as_messages(messages: Iterable[Sendable]) -> list[Message]:
    """Many messages, checked once. A list of `bytes` is taken as it is."""
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
    """A frame as the queues hold it."""
    if isinstance(frame, bytes):
        return frame
    if not isinstance(frame, bytearray | memoryview):
        raise MessageError(f"a frame is bytes, not {type(frame).__name__}; encode text first")
    return bytes(frame)
