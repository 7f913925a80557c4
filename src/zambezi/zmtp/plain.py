"""PLAIN: a user name and a password, not encrypted (24/ZMTP-PLAIN). Use it only on networks that are safe already."""

from __future__ import annotations

from zambezi.wire.text import as_text
from zambezi.zmtp import commands
from zambezi.zmtp.authenticator import Claim
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.mechanism import Mechanism, Refused, Terms

HELLO = b"HELLO"
WELCOME = b"WELCOME"
INITIATE = b"INITIATE"

# The beginning of an ERROR from libzmq's PLAIN servers (4.3.5 and before): in C, "\x05ERROR" is "\x5e" and "RROR".
_LIBZMQ_ERROR = b"^RROR"


class PlainClient(Mechanism):
    """The client: sends HELLO with the credentials, then INITIATE with the metadata."""

    name = "PLAIN"
    first_state = "wait for WELCOME"
    suspicion = "are the user and the password right, and the identity free?"
    table = {
        ("wait for WELCOME", WELCOME): "_welcome",
        ("wait for READY", commands.READY): "_ready",
    }

    def __init__(self, terms: Terms, username: bytes, password: bytes) -> None:
        super().__init__(terms)
        self._username = username
        self._password = password

    def begin(self) -> bytes:
        def string(octets: bytes) -> bytes:
            return bytes((len(octets),)) + octets

        return commands.command(HELLO, string(self._username) + string(self._password))

    def receive(self, body: bytes, now: float) -> bytes | None:
        if body.startswith(_LIBZMQ_ERROR):
            body = commands.command(commands.ERROR, body[len(_LIBZMQ_ERROR) :])
        return super().receive(body, now)

    def _welcome(self, data: bytes, now: float) -> bytes:
        if data:
            raise ProtocolError("PLAIN: WELCOME has data, and must have none")
        self.state = "wait for READY"
        return commands.command(INITIATE, commands.encode_metadata(self.metadata))

    def _ready(self, data: bytes, now: float) -> None:
        self._take_metadata(data)
        self.state = "complete"


class PlainServer(Mechanism):
    """The server: asks the authenticator about the user. Without an authenticator it refuses every client."""

    name = "PLAIN"
    as_server = True
    first_state = "wait for HELLO"
    table = {
        ("wait for HELLO", HELLO): "_hello",
        ("wait for INITIATE", INITIATE): "_initiate",
    }

    def _hello(self, data: bytes, now: float) -> bytes:
        username, rest = _string(data)
        password, rest = _string(rest)
        if rest:
            raise ProtocolError("PLAIN: HELLO has bytes after the password")
        if self.authenticator is None:
            raise Refused("PLAIN: the socket has no authenticator, so it cannot check users")
        self._judge(
            Claim(
                "PLAIN",
                self.address,
                as_text(username),
                as_text(password),
            )
        )
        self.state = "wait for INITIATE"
        return commands.command(WELCOME)

    def _initiate(self, data: bytes, now: float) -> bytes:
        self._take_metadata(data)
        self.state = "complete"
        return commands.command(commands.READY, commands.encode_metadata(self.metadata))


def _string(data: bytes) -> tuple[bytes, bytes]:
    if not data or len(data) < 1 + data[0]:
        raise ProtocolError("PLAIN: HELLO is too short")
    end = 1 + data[0]
    return data[1:end], data[end:]
