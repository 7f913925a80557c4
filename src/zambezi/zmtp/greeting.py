"""The greeting: 64 bytes that decide the version and the security mechanism (37/ZMTP, "Version Negotiation")."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from zambezi.zmtp.errors import ProtocolError

SIZE: Final = 64
VERSION: Final = (3, 1)
_MECHANISM_CHARACTERS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+")


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first 64 bytes that each side sends.

    >>> Greeting.decode(Greeting("NULL").encode())
    Greeting(mechanism='NULL', as_server=False, version=(3, 1))
    """

    mechanism: str
    as_server: bool = False
    version: tuple[int, int] = VERSION

    def encode(self) -> bytes:
        return (
            b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f"
            + bytes(self.version)
            + self.mechanism.encode("ascii").ljust(20, b"\0")
            + bytes((self.as_server,))
            + bytes(31)
        )

    @classmethod
    @lru_cache(maxsize=64)  # nearly all peers send the same
    def decode(cls, octets: bytes) -> Greeting:
        """Decode a whole greeting. The padding is ignored; a higher version than ours is accepted."""
        refuse_early(octets)
        if len(octets) != SIZE:
            raise ProtocolError(f"a greeting has {SIZE} bytes, not {len(octets)}")
        name = octets[12:32].rstrip(b"\0")
        if not name or not _MECHANISM_CHARACTERS.issuperset(name):
            raise ProtocolError(f"the greeting names an invalid security mechanism: {name!r}")
        if octets[32] > 1:
            raise ProtocolError(f"the as-server byte of the greeting is {octets[32]}, not 0 or 1")
        return cls(name.decode("ascii"), octets[32] == 1, (octets[10], octets[11]))


@lru_cache(maxsize=16)
def greeting_of(mechanism: str, as_server: bool) -> bytes:
    """Return the greeting of this side."""
    return Greeting(mechanism, as_server).encode()


def refuse_early(octets: bytes) -> None:
    """Raise `ProtocolError` as soon as the first bytes show that the peer does not speak ZMTP 3.

    A ZMTP 1.0 peer starts with the length of its identity, and a 2.0 peer has a revision below 3 after the signature.
    Neither sends 64 bytes: without this check, both sides would wait for each other for ever.
    """
    if octets and octets[0] != 0xFF:
        raise ProtocolError("the peer speaks ZMTP 1.0, or no ZMTP at all; ZMTP 3.0 or later is needed")
    if len(octets) > 9 and not octets[9] & 0x01:
        raise ProtocolError("the peer speaks ZMTP 1.0, or no ZMTP at all; ZMTP 3.0 or later is needed")
    if len(octets) > 9 and octets[9] != 0x7F:
        raise ProtocolError(f"the tenth byte of the greeting is {octets[9]:#04x}, not 0x7f")
    if len(octets) > 10 and octets[10] < 3:
        raise ProtocolError("the peer speaks ZMTP 2.0 or older; ZMTP 3.0 or later is needed")
