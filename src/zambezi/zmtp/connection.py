"""The engine: one ZMTP connection, without I/O (37/ZMTP).

The caller passes received bytes to `receive`, which returns events. Bytes for the peer come from `take_output` (the
handshake, PING, PONG, SUBSCRIBE) and from `encode` (messages). Time is an argument. `deadline` says when the caller
must call `tick`.

A connection passes through these states, and each has one method that parses its bytes:

    GREETING   64 bytes in each direction: version, mechanism, role
    HANDSHAKE  the mechanism's commands, one at a time, within the limits of the handshake
    TRAFFIC    batches of messages, and commands between them
    CLOSED     everything is ignored

No bytes from a peer make the engine raise. A violation ends the connection with the event `Failed` (during the
handshake) or `Closed` (after it), which carry the reason; if ZMTP allows it, the peer is told, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final, TypeAlias

from zambezi.wire.text import printable
from zambezi.zmtp import commands, greeting, z85
from zambezi.zmtp.authenticator import Authenticator, Claim
from zambezi.zmtp.errors import ProtocolError, ZmtpError
from zambezi.zmtp.frames import (
    COMMAND,
    Batch,
    CommandFrame,
    Decoder,
    Item,
    Message,
    Oversize,
    encode_command,
    wire_size,
)
from zambezi.zmtp.greeting import Greeting
from zambezi.zmtp.mechanism import NOT_ALLOWED, Incompatible, Refused, Terms, no_check
from zambezi.zmtp.runs import LONG
from zambezi.zmtp.security import Null, Security

# The types that each socket type can talk to (37/ZMTP, "The Socket-Type Property").
COMPATIBLE: Final[Mapping[str, frozenset[str]]] = {
    "DEALER": frozenset({"REP", "DEALER", "ROUTER"}),
    "ROUTER": frozenset({"REQ", "DEALER", "ROUTER"}),
    "PUB": frozenset({"SUB", "XSUB"}),
    "XPUB": frozenset({"SUB", "XSUB"}),
    "SUB": frozenset({"PUB", "XPUB"}),
    "XSUB": frozenset({"PUB", "XPUB"}),
    "PEER": frozenset({"PEER"}),
}
_WITH_IDENTITY: Final = frozenset({"DEALER", "ROUTER"})
_PUBLISHERS: Final = frozenset({"PUB", "XPUB"})
# The most commands that wait for a peer that does not read. One more PONG would tell it nothing new, and take memory.
_UNREAD: Final = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on what a peer can send, or make this side do. Sizes are in bytes, times in seconds.

    A handshake takes `handshake_time` at most, that of an accepted connection `accept_time`. A socket has at most
    `half_open` accepted connections whose handshake is not complete, and `half_open_of_address` of one address; clients
    on the same machine are bounded by `half_open` alone. A peer that sends nothing for `message_pause` seconds in the
    middle of a message is disconnected.

    A peer of a PUB or XPUB socket can subscribe to `prefixes` prefixes of `prefix` bytes each; all peers together can
    subscribe to `all_prefixes`.
    """

    frame: int = 1 << 28
    message: int = 1 << 28
    skip: bool = False  # whether a message over the limit is skipped, and told by `Oversize`, instead of closing
    handshake: int = 1 << 16
    handshake_time: float = 30.0
    accept_time: float = 10.0
    message_pause: float = 30.0
    half_open: int = 4096
    half_open_of_address: int = 256
    connections: int = 10_000
    prefix: int = 255
    prefixes: int = 10_000
    all_prefixes: int = 100_000

    def __post_init__(self) -> None:
        for name in ("frame", "message", "handshake"):
            if getattr(self, name) < 255:
                raise ZmtpError(
                    f"the limit `{name}` must be at least 255 bytes, a short frame, not {getattr(self, name)}"
                )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A PING every `interval` seconds. A peer that sends nothing for `timeout` seconds after a PING is disconnected.

    With `ttl`, each PING also asks the peer to disconnect us if it receives nothing from us for `ttl` seconds.
    """

    interval: float
    timeout: float = 0.0
    ttl: float = 0.0

    def __post_init__(self) -> None:
        if self.interval <= 0:
            raise ZmtpError(f"a heartbeat interval must be above zero seconds, not {self.interval}")
        for name in ("timeout", "ttl"):
            if getattr(self, name) < 0:
                raise ZmtpError(f"a heartbeat {name} cannot be below zero seconds: {getattr(self, name)}")
        if not self.timeout:
            object.__setattr__(self, "timeout", self.interval)


@dataclass(slots=True)
class Ready:
    """The handshake is complete: messages can flow."""

    socket_type: str
    identity: bytes
    user: str
    version: tuple[int, int]
    properties: Mapping[str, bytes] = field(repr=False)
    key: bytes = b""  # the public key whose secret the peer has, with CURVE


@dataclass(frozen=True, slots=True)
class Subscription:
    """The peer subscribes to the messages that begin with `prefix`, or cancels that."""

    prefix: bytes
    cancel: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The handshake failed.

    `key` is the CURVE key of the peer (Z85), if that is refused. With `silent`, the peer gets no answer for a while.
    """

    reason: str
    key: str = ""
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection ended after the handshake: the peer violated the protocol, or sent nothing for too long."""

    reason: str


Event: TypeAlias = Batch | Ready | Subscription | Failed | Closed


class State(Enum):
    """The states of a connection; the head of the module explains them."""

    GREETING = "greeting"
    HANDSHAKE = "handshake"
    TRAFFIC = "traffic"
    CLOSED = "closed"


@lru_cache(maxsize=1024)  # all connections of a socket send the same
def _metadata(socket_type: str, identity: bytes) -> Mapping[str, bytes]:
    """Return the metadata of a socket without properties of its application."""
    metadata = {commands.SOCKET_TYPE: socket_type.encode("ascii")}
    return {**metadata, commands.IDENTITY: identity} if socket_type in _WITH_IDENTITY else metadata


class Connection:
    """One side of a connection. `now` is the time at which the connection was made."""

    __slots__ = (
        "_admit",
        "_asked",
        "_assembler",
        "_buffer",
        "_deadline",
        "_decoder",
        "_handshake_bytes",
        "_heard",
        "_heartbeat",
        "_limits",
        "_next_ping",
        "_patience",
        "_peer_ttl",
        "_publishes",
        "_takes_batches",
        "mechanism",
        "output",
        "peer_version",
        "sealed",
        "socket_type",
        "state",
    )

    def __init__(
        self,
        socket_type: str,
        now: float,
        *,
        identity: bytes = b"",
        security: Security | None = None,
        authenticator: Authenticator | None = None,
        address: str = "",
        limits: Limits | None = None,
        heartbeat: Heartbeat | None = None,
        admit: Callable[[Mapping[str, bytes]], None] | None = None,
        multipart: bool = True,
        accepted: bool = False,
        properties: Mapping[str, bytes] | None = None,
    ) -> None:
        self.socket_type = socket_type
        self.state = State.GREETING
        self.peer_version = greeting.VERSION
        self._limits = limits or Limits()
        self._heartbeat = heartbeat
        self._admit = admit
        metadata = _metadata(socket_type, identity)
        if properties:
            metadata = {**metadata, **properties}
        self.mechanism = (security or Null()).mechanism(Terms(metadata, address, authenticator, self._limits.message))
        self.mechanism.check = self._check_metadata
        self._publishes = socket_type in _PUBLISHERS
        self._decoder = Decoder(self._limits.frame, self._limits.message, multipart, self._limits.skip)
        self._assembler = self.mechanism.assembler or self._decoder
        if not multipart:
            self.mechanism.refuse_multipart()
        self._buffer = b""
        self._handshake_bytes = 0
        self._patience = self._limits.handshake_time
        if accepted:
            self._patience = min(self._patience, self._limits.accept_time)
        self._deadline = now + self._patience
        self._heard = now
        self._next_ping = 0.0
        self._asked = 0.0  # when the oldest PING was sent since the peer sent something; 0 if none was
        self._peer_ttl = 0.0
        # The bytes that must go to the peer before any further message: see `take_output`.
        self.output = [greeting.greeting_of(self.mechanism.name, self.mechanism.as_server)]
        self.sealed = self.mechanism.sealed  # whether messages are encrypted: then peers cannot share their bytes
        self._takes_batches = not (self.sealed or self._publishes)  # whether a batch is an event as it is

    # Bytes in

    def read_size(self, most: int) -> int:
        """Return how many bytes to read at once, at most `most`: whole frames, if frames of one size arrive."""
        return self._decoder.read_size(most)

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take bytes that were read from the peer; return the events that follow from them."""
        self._heard = now
        self._asked = 0.0
        if self.state is State.TRAFFIC:
            items = self._decoder.feed(data)
            if len(items) == 1 and type(items[0]) is Batch and self._takes_batches and self._decoder.failure is None:
                return items  # type: ignore[return-value]  # most reads
            return self._traffic(items)
        if self.state is State.CLOSED:
            return []
        self._buffer += data
        events: list[Event] = []
        try:
            if self.state is State.GREETING:
                self._greet()
            while self.state is State.HANDSHAKE and (body := self._handshake_command()) is not None:
                answer = self.mechanism.receive(body, now)
                if answer is not None:
                    self.output.append(encode_command(answer))
                if self.mechanism.complete:
                    events.append(self._begin_traffic(now))
        except ProtocolError as error:
            return [self._fail(error)]
        if self.mechanism.complete and self._buffer:
            data, self._buffer = self._buffer, b""
            events += self._traffic(self._decoder.feed(data))
        return events

    def _greet(self) -> None:
        if len(self._buffer) < greeting.SIZE:
            greeting.refuse_early(self._buffer)
            return
        theirs = Greeting.decode(self._buffer[: greeting.SIZE])
        self._buffer = self._buffer[greeting.SIZE :]
        if theirs.mechanism != self.mechanism.name:
            raise ProtocolError(
                f"the peer wants {theirs.mechanism} security, but this socket uses {self.mechanism.name}"
            )
        # libzmq leaves the byte zero on both sides, so a zero means nothing. Two clients find out by their HELLOs.
        if theirs.as_server and self.mechanism.as_server:
            raise ProtocolError(f"both sides are set up as {theirs.mechanism} server")
        self.peer_version = min(theirs.version, greeting.VERSION)
        self.state = State.HANDSHAKE
        first = self.mechanism.begin()
        if first is not None:
            self.output.append(encode_command(first))

    def _handshake_command(self) -> bytes | None:
        """Return the body of the next handshake command, or None if it is not whole yet."""
        data = self._buffer
        if len(data) < 2:
            return None
        flags = data[0]
        if flags & ~LONG != COMMAND:
            raise ProtocolError(f"the handshake needs a command, but the flags byte is {flags:#04x}")
        if flags & LONG:
            start, size = 9, int.from_bytes(data[1:9], "big") if len(data) >= 9 else 0
        else:
            start, size = 2, data[1]
        if self._handshake_bytes + size > self._limits.handshake:
            raise ProtocolError(f"the handshake is over the limit of {self._limits.handshake} bytes")
        if len(data) < start + size:
            return None
        self._handshake_bytes += start + size
        self._buffer = data[start + size :]
        return data[start : start + size]

    def _check_metadata(self, properties: Mapping[str, bytes]) -> None:
        theirs = properties.get("socket-type")
        # libzmq accepts a peer that does not state its socket type, so we do, too.
        if theirs is not None and theirs.decode("ascii", "replace") not in COMPATIBLE[self.socket_type]:
            raise Incompatible(f"a {printable(theirs)} cannot talk to a {self.socket_type}")
        identity = properties.get("identity", b"")
        if len(identity) > 255 or identity[:1] == b"\0":
            raise ProtocolError("the identity is longer than 255 bytes, or begins with a zero byte")
        if self._admit is not None:
            self._admit(properties)

    def _begin_traffic(self, now: float) -> Ready:
        self.state = State.TRAFFIC
        # Without this cycle, the memory of an unfinished message is free as soon as the connection ends.
        self.mechanism.check = no_check
        if self._heartbeat is not None:
            self._next_ping = now + self._heartbeat.interval
        properties = self.mechanism.peer
        return Ready(
            properties.get("socket-type", b"").decode("ascii", "replace"),
            properties.get("identity", b""),
            self.mechanism.user,
            self.peer_version,
            properties,
            self.mechanism.peer_key,
        )

    def _traffic(self, items: list[Item]) -> list[Event]:
        """Return the events that follow from batches and commands."""
        if self.sealed:
            items = self.mechanism.decode(items)
        failure = self.mechanism.failure or self._decoder.failure
        events: list[Event] = []
        try:
            for item in items:
                if isinstance(item, CommandFrame):
                    self._command(item, events)
                elif isinstance(item, Oversize):
                    events.append(Batch([item]))
                elif self._publishes:
                    self._subscriptions(item, events)
                else:
                    events.append(item)
        except ProtocolError as error:
            failure = error
        if failure is not None:
            self.state = State.CLOSED
            events.append(Closed(str(failure)))
        return events

    def _command(self, body: bytes, events: list[Event]) -> None:
        name, data = commands.split(body)
        if name == commands.PING:
            self._peer_ttl, context = commands.read_ping(data)
            if len(self.output) < _UNREAD:
                self.output.append(self.mechanism.encode_command(commands.command(commands.PONG, context)))
        elif name in (commands.SUBSCRIBE, commands.CANCEL):
            if self._publishes:
                events.append(Subscription(data, name == commands.CANCEL))
        elif name == commands.ERROR:
            raise ProtocolError(f"the peer says: {commands.error_reason(data) or 'ERROR with no reason'}")
        # A PONG needs no action: that it arrived is enough. Unknown commands are ignored, as in libzmq.

    def _subscriptions(self, batch: Batch, events: list[Event]) -> None:
        """Split the messages of a ZMTP 3.0 peer to a publisher into subscriptions and upstream messages.

        A subscription is a message of one frame that begins with the byte 1 or 0.
        """
        rest: list[bytes] = []
        ends: list[int] = []
        for message in batch:
            head = message[0][:1]
            if len(message) == 1 and head in (b"\x00", b"\x01"):
                if rest:
                    events.append(Batch(rest, ends, sum(map(wire_size, rest))))
                    rest, ends = [], []
                events.append(Subscription(message[0][1:], head == b"\x00"))
            else:
                rest += message
                ends.append(len(rest))
        if rest:
            events.append(Batch(rest, ends, sum(map(wire_size, rest))))

    def _fail(self, error: ProtocolError) -> Failed:
        # In PLAIN and CURVE, only the server sends ERROR (24/ZMTP-PLAIN, 26/CURVEZMQ). A peer that receives ERROR must
        # not come back with the same credentials (37/ZMTP, "Error Handling"), and libzmq's clients never do. So we send
        # it for permanent failures only. For others, such as an identity in use or a timeout, we just close. A key
        # that is refused can be allowed later (`doorstep`).
        refused = isinstance(error, Refused)
        silent = isinstance(error, Refused) and error.silent
        may_tell = (self.mechanism.as_server or self.mechanism.name == "NULL") and not silent
        if self.state is State.HANDSHAKE and may_tell and isinstance(error, Refused | Incompatible):
            self.output.append(encode_command(commands.error(NOT_ALLOWED if refused else str(error))))
        self.state = State.CLOSED
        claim = self.mechanism.claim
        key = z85.encode(claim.key) if refused and claim is not None and claim.key else ""
        return Failed(str(error), key, silent)

    @property
    def partial(self) -> bool:
        """Whether a message is not whole yet. (A frame header that is not whole does not count.)"""
        decoder = self._decoder
        return decoder.carried > 0 or decoder.missing > 0 or self._assembler.carried > 0

    @property
    def unfinished(self) -> int:
        """The memory that a message takes which is not whole yet, in bytes."""
        decoder, assembler = self._decoder, self._assembler
        return decoder.unfinished + (assembler.unfinished if assembler is not decoder else 0)

    # Bytes out

    def encode(self, messages: Sequence[Message], singles: bool = False) -> bytes:
        """Return the bytes of messages. `singles` promises that each message is one `bytes`, which is faster."""
        return self.mechanism.encode(messages, singles)

    def subscribe(self, prefix: bytes) -> None:
        """Ask for the messages that begin with `prefix`."""
        self._subscription(commands.SUBSCRIBE, b"\x01", prefix)

    def cancel(self, prefix: bytes) -> None:
        """Cancel one `subscribe` of this prefix."""
        self._subscription(commands.CANCEL, b"\x00", prefix)

    def _subscription(self, name: bytes, first: bytes, prefix: bytes) -> None:
        if self.peer_version >= (3, 1):
            self.output.append(self.mechanism.encode_command(commands.command(name, prefix)))
        else:
            self.output.append(self.mechanism.encode([first + prefix], True))

    def take_output(self) -> bytes:
        """Return the bytes that must go to the peer before any further message, and forget them."""
        output = b"".join(self.output)
        self.output.clear()
        return output

    def explain_loss(self, reason: str) -> str:
        """Return `reason`, with a hint for the operator: a peer that just closes the connection gives no reason."""
        if self.state is State.GREETING:
            return f"{reason} before it sent a greeting: does it speak ZMTP, and the mechanism {self.mechanism.name}?"
        if self.state is State.HANDSHAKE:
            return f"{reason} during the handshake: {self.mechanism.suspicion}"
        return reason

    @property
    def claim(self) -> Claim | None:
        """The claim by which the authenticator admitted the peer; it is judged again when the rules change."""
        return self.mechanism.claim

    # Time

    @property
    def deadline(self) -> float | None:
        """The time at which the caller must call `tick`, or None."""
        if self.state is State.CLOSED:
            return None
        if self.state is not State.TRAFFIC:
            return self._deadline
        if self._heartbeat is None and not (self._peer_ttl or self.partial):
            return None  # most connections
        times = []
        if self.partial:
            times.append(self._heard + self._limits.message_pause)
        if self._peer_ttl:
            times.append(self._heard + self._peer_ttl)
        if self._heartbeat is not None and self.peer_version >= (3, 1):
            times.append(self._next_ping)
            if self._asked:
                times.append(self._asked + self._heartbeat.timeout)
        return min(times, default=None)

    def tick(self, now: float, listening: bool = True) -> list[Event]:
        """Do what is due at `now`; return the events that follow.

        `listening` is False while this side does not read from the peer: then the peer's silence means nothing.
        """
        if self.state is State.CLOSED:
            return []
        if self.state is not State.TRAFFIC:
            if now < self._deadline:
                return []
            return [self._fail(ProtocolError(f"the handshake took longer than {self._patience:g} s"))]
        if not listening:
            self._heard = now
            self._asked = 0.0
        # These sums must be the same as in `deadline`: another order would round differently, and be early or late.
        pause = self._limits.message_pause
        if self.partial and now >= self._heard + pause:
            return [self._fall_silent(f"the peer sent nothing for {pause:g} s in the middle of a message")]
        if self._peer_ttl and now >= self._heard + self._peer_ttl:
            return [self._fall_silent(f"the peer sent nothing for {self._peer_ttl:g} s, the time to live of its PING")]
        beat = self._heartbeat
        if beat is None or self.peer_version < (3, 1):
            return []
        if self._asked and now >= self._asked + beat.timeout:
            return [self._fall_silent(f"the peer sent nothing for {beat.timeout:g} s after a PING")]
        if now >= self._next_ping:
            if len(self.output) < _UNREAD:
                self.output.append(self.mechanism.encode_command(commands.ping(beat.ttl)))
            self._next_ping = now + beat.interval
            if not self._asked:
                self._asked = now
        return []

    def _fall_silent(self, reason: str) -> Closed:
        self.state = State.CLOSED
        return Closed(reason)
