"""The two dialects of ZRE behind one interface: the engine says what to send, a dialect how it is encoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from zambezi.wire import Message, TooMany, WireError
from zambezi.zre import bounds, messages
from zambezi.zre.contact import host_of, port_of

Frames: TypeAlias = tuple[bytes, ...]

# The header by which a HELLO of ours says that we know ELECT, LEADER and GOODBYE.
ELECTIONS: Final = "X-ZAMBEZI-ELECTIONS"
_SIGNATURE: Final = b"\xaa\xa1"
_HELLO: Final = 1
_SHARED: Final = 512  # bytes of a HELLO whose contents the nodes of a process share


@dataclass(frozen=True, slots=True)
class Greeting:
    """The contents of a HELLO, in either dialect."""

    endpoint: str
    groups: Sequence[str]
    status: int
    name: str
    headers: Mapping[str, str]  # without our own one
    elects: bool = True  # whether it has that one
    cost: int = field(init=False)  # the bytes that the groups and headers take, about: what a node keeps of this peer

    def __post_init__(self) -> None:
        text = sum(map(len, self.groups)) + sum(len(key) + len(value) for key, value in self.headers.items())
        object.__setattr__(self, "cost", text + bounds.ITEM * (len(self.groups) + len(self.headers)))


@dataclass(frozen=True, slots=True)
class Dialect:
    """The messages of a dialect by their purpose, and the offset of the sequence in them."""

    name: str
    family: type[messages.Stable | messages.Draft]
    whisper: Callable[..., Message]
    shout: Callable[..., Message]
    join: Callable[..., Message]
    leave: Callable[..., Message]
    ping: Callable[..., Message]
    ping_ok: Callable[..., Message]
    elect: Callable[..., Message]
    leader: Callable[..., Message]
    goodbye: Callable[..., Message]
    greet: Callable[[Greeting], Message]
    sequence_at: int

    def sequence_of(self, octets: bytes) -> int:
        """Return the sequence of a message, also of a command that ZRE does not define."""
        return int.from_bytes(octets[self.sequence_at : self.sequence_at + 2], "big")

    def numbered(self, frames: Frames, sequence: int) -> Frames:
        """Return the same message with another sequence: a message to many peers is encoded once."""
        head, at = frames[0], self.sequence_at
        return (head[:at] + sequence.to_bytes(2, "big") + head[at + 2 :], *frames[1:])


def _greet_stable(greeting: Greeting) -> Message:
    headers = _marked(greeting)
    return messages.Hello(1, greeting.endpoint, greeting.groups, greeting.status, greeting.name, headers)


def _greet_draft(greeting: Greeting) -> Message:
    host, port = host_of(greeting.endpoint), port_of(greeting.endpoint) or 0
    return messages.DraftHello(1, host, port, greeting.groups, greeting.status, _marked(greeting))


def _marked(greeting: Greeting) -> Mapping[str, str]:
    return {**greeting.headers, ELECTIONS: ""} if greeting.elects else greeting.headers


STABLE: Final = Dialect(
    "stable",
    messages.Stable,
    messages.Whisper,
    messages.Shout,
    messages.Join,
    messages.Leave,
    messages.Ping,
    messages.PingOk,
    messages.Elect,
    messages.Leader,
    messages.Goodbye,
    _greet_stable,
    4,
)
DRAFT: Final = Dialect(
    "draft",
    messages.Draft,
    messages.DraftWhisper,
    messages.DraftShout,
    messages.DraftJoin,
    messages.DraftLeave,
    messages.DraftPing,
    messages.DraftPingOk,
    messages.DraftElect,
    messages.DraftLeader,
    messages.DraftGoodbye,
    _greet_draft,
    3,
)
DIALECTS: Final = {dialect.name: dialect for dialect in (STABLE, DRAFT)}


def is_signed(octets: bytes) -> bool:
    """Return whether a message begins with the signature of ZRE. (SIG-01)"""
    return octets[:2] == _SIGNATURE and len(octets) >= 5


def is_hello(octets: bytes) -> bool:
    """Return whether a signed message is a HELLO."""
    return octets[2] == _HELLO


def dialect_of_hello(octets: bytes) -> Dialect | None:
    """Return the dialect by the fourth byte of a HELLO: the version, or the high byte of sequence 1. (DIA-01)"""
    return {2: STABLE, 0: DRAFT}.get(octets[3])


def greeting_of(message: Message, uuid: bytes) -> Greeting:
    """Return the contents of a HELLO. A draft peer has no name; the first digits of its UUID stand for it."""
    assert isinstance(message, messages.Hello | messages.DraftHello)
    headers, elects = message.headers, ELECTIONS in message.headers
    if elects:
        headers = {key: value for key, value in headers.items() if key != ELECTIONS}
    if isinstance(message, messages.Hello):
        name = message.name or uuid.hex()[:6]
        return Greeting(message.endpoint, message.groups, message.status, name, headers, elects)
    endpoint = f"tcp://{message.ipaddress}:{message.mailbox}"
    return Greeting(endpoint, message.groups, message.status, uuid.hex()[:6], headers, elects)


def read_hello(frames: Sequence[bytes], uuid: bytes) -> tuple[Dialect, Greeting]:
    """Return the dialect and the contents of a HELLO.

    Raises `WireError` if it is malformed or not the first of a sequence, and `TooMany` if it is above a bound.
    """
    if len(frames) == 1 and len(frames[0]) <= _SHARED:
        return _read_shared(frames[0], uuid)
    return _read_hello(frames, uuid)


@lru_cache(maxsize=4096)  # a node sends the same HELLO to all others, and a process can have a thousand of these
def _read_shared(octets: bytes, uuid: bytes) -> tuple[Dialect, Greeting]:
    return _read_hello([octets], uuid)


def _read_hello(frames: Sequence[bytes], uuid: bytes) -> tuple[Dialect, Greeting]:
    dialect = dialect_of_hello(frames[0])
    if dialect is None:
        raise WireError("a HELLO has version 2, or sequence 1 of the draft", 3)
    if len(frames[0]) > bounds.HELLO:
        raise TooMany(f"a HELLO has at most {bounds.HELLO} bytes, not {len(frames[0])}")
    message = dialect.family.decode(frames)
    if dialect.sequence_of(frames[0]) != 1:
        raise WireError("a HELLO has the sequence 1", dialect.sequence_at)
    return dialect, greeting_of(message, uuid)
