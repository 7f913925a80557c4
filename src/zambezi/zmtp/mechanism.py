"""Security mechanisms: the handshake between the greeting and the first message, and the encryption of messages.

A mechanism is a small state machine without I/O. `receive` takes a command of the peer and returns the answer; when
`complete` is true, the handshake is over and `peer` holds the metadata of the other side. The rules of a mechanism are
a table, `{(state, command): method}`: a command that the table does not have for the current state ends the handshake.

After the handshake, `encode` and `decode` convert between messages and bytes. NULL and PLAIN do not change the frames;
CURVE puts each frame into a box of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from zambezi.zmtp import commands, frames
from zambezi.zmtp.authenticator import Authenticator, Claim
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.frames import Assembler, Item, Message

# The status of a refused peer. libzmq's ZAP handlers send it, and its monitors understand it.
NOT_ALLOWED = "400"


class Refused(ProtocolError):
    """The authenticator refused the peer. The peer learns the status only; the reason stays on this side.

    With `silent`, the peer does not even learn the status: it would never come back, and may be allowed later.
    """

    def __init__(self, reason: str, silent: bool = False) -> None:
        super().__init__(reason)
        self.silent = silent


class Incompatible(ProtocolError):
    """The type of the peer's socket cannot talk to ours."""


class Rejected(ProtocolError):
    """The peer sent ERROR. It reads nothing more, so this side does not answer."""


@dataclass(slots=True)
class Terms:
    """The facts about a connection that its mechanism needs."""

    metadata: Mapping[str, bytes]  # ours, for the peer
    address: str = ""  # the peer's
    authenticator: Authenticator | None = None
    message_limit: int = 1 << 28


def no_check(_: Mapping[str, bytes]) -> None:
    """Accept any metadata of a peer."""


class Mechanism:
    """The base of the mechanisms, and the part of the handshake that they share: metadata and ERROR."""

    __slots__ = (
        "__weakref__",
        "address",
        "assembler",
        "authenticator",
        "check",
        "claim",
        "failure",
        "metadata",
        "peer",
        "state",
        "user",
    )

    name: ClassVar[str]
    as_server: ClassVar[bool] = False
    # Whether messages are encrypted for this one peer.
    sealed: ClassVar[bool] = False
    first_state: ClassVar[str]
    # A hint for the operator: the likely reason if the peer closes the connection during the handshake.
    suspicion: ClassVar[str] = "does it accept sockets of this type, and is the identity free?"
    # The method of a command sets the next `state`.
    table: ClassVar[Mapping[tuple[str, bytes], str]]

    def __init__(self, terms: Terms) -> None:
        self.metadata = terms.metadata
        self.address = terms.address
        self.authenticator = terms.authenticator
        self.state = self.first_state
        self.peer = commands.NO_PROPERTIES
        self.claim: Claim | None = None
        self.user = ""
        self.failure: ProtocolError | None = None
        self.assembler: Assembler | None = None  # of the messages, if the decoder does not see their frames
        self.check: Callable[[Mapping[str, bytes]], None] = no_check

    @property
    def complete(self) -> bool:
        """Whether the handshake is over."""
        return self.state == "complete"

    @property
    def peer_key(self) -> bytes:
        """The public key whose secret the peer has proved to have; empty if this mechanism proves none."""
        return self.claim.key if self.claim is not None else b""

    def begin(self) -> bytes | None:
        """Return the first command of this side, or None if the peer begins."""
        return None

    def receive(self, body: bytes, now: float) -> bytes | None:
        """Take the next handshake command of the peer; return the answer, or None if it needs none."""
        name, data = commands.split(body)
        if name == commands.ERROR:
            raise Rejected(_explain(commands.error_reason(data)))
        method = self.table.get((self.state, name))
        if method is None:
            raise ProtocolError(f"{self.name}: {name.decode('ascii', 'backslashreplace')} is not allowed now")
        answer: Callable[[bytes, float], bytes | None] = getattr(self, method)
        return answer(data, now)

    def refuse_multipart(self) -> None:
        """Treat a frame that says "more follow" as a violation, if this mechanism hides frames from the decoder."""

    def encode(self, messages: Sequence[Message], singles: bool) -> bytes:
        """Return the bytes of many messages. `singles` promises that each message is one `bytes`."""
        return frames.encode_singles(messages) if singles else frames.encode(messages)  # type: ignore[arg-type]

    def encode_command(self, body: bytes) -> bytes:
        """Return the bytes of a command after the handshake."""
        return frames.encode_command(body)

    def decode(self, items: list[Item]) -> list[Item]:
        """Return the messages and commands in the frames of one read.

        At a violation, set `failure` and return what came before it.
        """
        return items

    def _take_metadata(self, data: bytes) -> None:
        self._take_properties(commands.decode_metadata(data))

    def _take_properties(self, peer: Mapping[str, bytes]) -> None:
        self.check(peer)
        self.peer = peer

    def _judge(self, claim: Claim, silent: bool = False) -> None:
        self.claim = claim
        if self.authenticator is not None:
            verdict = self.authenticator.judge(claim)
            if not verdict.allowed:
                raise Refused(verdict.reason, silent)
            self.user = verdict.user


class Null(Mechanism):
    """NULL: READY both ways (37/ZMTP, "The NULL Security Mechanism")."""

    __slots__ = ()

    name = "NULL"
    first_state = "wait for READY"
    table = {("wait for READY", commands.READY): "_ready"}

    def begin(self) -> bytes:
        if self.authenticator is not None:
            self._judge(Claim("NULL", self.address))
        return commands.command(commands.READY, commands.encode_metadata(self.metadata))

    def _ready(self, data: bytes, now: float) -> None:
        self._take_metadata(data)
        self.state = "complete"


def _explain(status: str) -> str:
    meanings = {
        "300": "the peer cannot authenticate us now (300): try again later",
        "400": "the peer does not let us in (400): is our key, user or address allowed there?",
        "500": "the peer failed while it authenticated us (500)",
    }
    return meanings.get(status, f"the peer refused the handshake: {status or 'no reason given'}")
