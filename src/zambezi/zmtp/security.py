"""The security of a socket: NULL, PLAIN or CURVE, as client or as server, for all its connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from zambezi.wire.text import as_bytes
from zambezi.zmtp import curve, mechanism, plain
from zambezi.zmtp.errors import ZmtpError
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.mechanism import Terms


class Security(Protocol):
    """A choice of security, which makes a new mechanism for each connection."""

    def mechanism(self, terms: Terms) -> mechanism.Mechanism: ...


@dataclass(frozen=True, slots=True)
class Null:
    """No security: every peer that can reach the socket, and whose address the authenticator allows, may connect."""

    def mechanism(self, terms: Terms) -> mechanism.Mechanism:
        return mechanism.Null(terms)


@dataclass(frozen=True, slots=True)
class PlainClient:
    """PLAIN, the client: it sends a user name and a password."""

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        for name, text in (("user name", self.username), ("password", self.password)):
            if len(as_bytes(text)) > 255:
                raise ZmtpError(f"a PLAIN {name} has at most 255 bytes; use a shorter one")

    def mechanism(self, terms: Terms) -> mechanism.Mechanism:
        return plain.PlainClient(
            terms,
            as_bytes(self.username),
            as_bytes(self.password),
        )


@dataclass(frozen=True, slots=True)
class PlainServer:
    """PLAIN, the server: it asks the authenticator about users. Without an authenticator it refuses every client."""

    def mechanism(self, terms: Terms) -> mechanism.Mechanism:
        return plain.PlainServer(terms)


@dataclass(frozen=True, slots=True)
class CurveClient:
    """CURVE, the client: it must know the server's public key. Without `keys` it uses a new random key pair."""

    server_key: bytes
    keys: KeyPair = field(default_factory=KeyPair.generate)

    def __post_init__(self) -> None:
        if len(self.server_key) != 32:
            raise ZmtpError(
                f"a CURVE server key has 32 bytes, not {len(self.server_key)}; decode the 40 characters of a Z85 key"
            )

    def mechanism(self, terms: Terms) -> mechanism.Mechanism:
        return curve.CurveClient(terms, self.keys, self.server_key)


@dataclass(frozen=True, slots=True)
class CurveServer:
    """CURVE, the server: clients know its public key. The authenticator decides which client keys are allowed."""

    keys: KeyPair
    cookie_key: curve.CookieKey = field(default_factory=curve.CookieKey, repr=False, compare=False)

    def mechanism(self, terms: Terms) -> mechanism.Mechanism:
        return curve.CurveServer(terms, self.keys, self.cookie_key)
