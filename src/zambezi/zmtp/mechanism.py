"""Security mechanisms: what happens between the greeting and the first message, and to each message after it.

A mechanism is a small state machine without I/O. Commands go in by `receive` and come out by return; when
`complete` is true, the handshake is over and `peer` holds the other side's metadata. Its rules are a table,
`{(state, command): method}`: a command that the table does not have in the current state ends the handshake.

From then on `encode` and `decode` stand between messages and octets. NULL and PLAIN leave them as they are;
CURVE puts each frame into a box of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from zambezi.zmtp import commands, frames
from zambezi.zmtp.authenticator import Authenticator, Claim
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.frames import Batch, CommandFrame, Message

# What libzmq's ZAP handlers answer, and its monitors understand, where somebody may not connect.
NOT_ALLOWED = "400"


class Refused(ProtocolError):
    """The authenticator said no. The peer is told the status only; the reason stays on this side."""


class Incompatible(ProtocolError):
    """The peer's socket can never talk to ours."""


class Rejected(ProtocolError):
    """The peer said ERROR. It does not listen any more, so nothing is answered."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a mechanism is told about the connection that it is for."""

    metadata: Mapping[str, bytes]  # ours, for the peer
    address: str = ""  # the peer's
    authenticator: Authenticator | None = None
    message_limit: int = 1 << 28


class Mechanism:
    """The base of the mechanisms, and the part of the handshake that they share: metadata and ERROR."""

    name: ClassVar[str]
    as_server: ClassVar[bool] = False
    # Whether messages go out in boxes, each for this one peer.
    sealed: ClassVar[bool] = False
    first_state: ClassVar[str]
    # What is likely wrong when the peer hangs up in the middle of the handshake.
    suspicion: ClassVar[str] = "does it take sockets of this type, and is the identity free?"
    # Where a state's command leads is decided by the method, which sets `state`.
    table: ClassVar[Mapping[tuple[str, bytes], str]]

    def __init__(self, terms: Terms) -> None:
        self.metadata = terms.metadata
        self.address = terms.address
        self.authenticator = terms.authenticator
        self.state = self.first_state
        self.peer: dict[str, bytes] = {}
        self.claim: Claim | None = None
        self.user = ""
        self.failure: ProtocolError | None = None
        self.check: Callable[[Mapping[str, bytes]], None] = lambda _: None

    @property
    def complete(self) -> bool:
        return self.state == "complete"

    def begin(self) -> bytes | None:
        """The command that this side says first, if it does."""
        return None

    def receive(self, body: bytes, now: float) -> bytes | None:
        """Take the peer's next handshake command; give the answer to it, if there is one."""
        name, data = commands.split(body)
        if name == commands.ERROR:
            raise Rejected(_explain(commands.error_reason(data)))
        method = self.table.get((self.state, name))
        if method is None:
            raise ProtocolError(f"{self.name}: {name.decode('ascii', 'backslashreplace')} does not belong here")
        answer: Callable[[bytes, float], bytes | None] = getattr(self, method)
        return answer(data, now)

    def refuse_multipart(self) -> None:
        """Where frames are seen only here, take a frame that says "more follow" for a violation."""

    def encode(self, messages: Sequence[Message], singles: bool) -> bytes:
        """The octets of many messages; `singles` promises that each is one `bytes`."""
        return frames.encode_singles(messages) if singles else frames.encode(messages)  # type: ignore[arg-type]

    def encode_command(self, body: bytes) -> bytes:
        return frames.encode_command(body)

    def decode(self, items: list[Batch | CommandFrame]) -> list[Batch | CommandFrame]:
        """What the frames of one read mean. At a violation, what came before it is returned and `failure` is set."""
        return items

    def _take_metadata(self, data: bytes) -> None:
        peer = commands.decode_metadata(data)
        self.check(peer)
        self.peer = peer

    def _judge(self, claim: Claim) -> None:
        self.claim = claim
        if self.authenticator is not None:
            verdict = self.authenticator.judge(claim)
            if not verdict.allowed:
                raise Refused(verdict.reason)
            self.user = verdict.user


class Null(Mechanism):
    """NULL: READY both ways (37/ZMTP, "The NULL Security Mechanism")."""

    name = "NULL"
    first_state = "wait for READY"
    table = {("wait for READY", commands.READY): "_ready"}

    def begin(self) -> bytes:
        self._judge(Claim("NULL", self.address))
        return commands.command(commands.READY, commands.encode_metadata(self.metadata))

    def _ready(self, data: bytes, now: float) -> None:
        self._take_metadata(data)
        self.state = "complete"


def _explain(status: str) -> str:
    meanings = {
        "300": "the peer cannot check us now (300): try again later",
        "400": "the peer does not let us in (400): is our key, user or address allowed there?",
        "500": "the peer failed while it checked us (500)",
    }
    return meanings.get(status, f"the peer refused the handshake: {status or 'no reason given'}")
