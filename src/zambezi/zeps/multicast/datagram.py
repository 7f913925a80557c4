"""What travels to a group: datagrams of three kinds, each complete in itself.

    datagram    = magic version kind content
    magic       = %x5A %x4D                                "ZM"
    version     = %d1
    kind        = messages / fragment / mark / sealed

    messages    = %d1 incarnation first count deliver*     DELIVER messages with frame headers, as in the journal
    fragment    = %d2 incarnation sequence total offset *OCTET     a part of one that is too large for a datagram
    mark        = %d3 incarnation last                     the last sequence: so loss at the end is noticed
    sealed      = %d4 nonce *OCTET                         one of the others, from its kind on, in a secret box

    incarnation = 16OCTET
    first, sequence, last = number-8
    count, total, offset  = number-4
    nonce       = 24OCTET

A datagram that is none of these is nobody's: others may use the group too.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias
from uuid import UUID

import nacl.exceptions
from nacl.bindings import crypto_secretbox_easy, crypto_secretbox_open_easy

MAGIC: Final = b"ZM\x01"
MESSAGES, FRAGMENT, MARK, SEALED = b"\x01", b"\x02", b"\x03", b"\x04"

_MESSAGES: Final = Struct(">16sQI")
_FRAGMENT: Final = Struct(">16sQII")
_MARK: Final = Struct(">16sQ")
NONCE: Final = 24
SEAL: Final = 1 + NONCE + 16  # what a seal adds: the kind once more, the nonce and the tag

MESSAGES_HEAD: Final = len(MAGIC) + 1 + _MESSAGES.size
FRAGMENT_HEAD: Final = len(MAGIC) + 1 + _FRAGMENT.size


@dataclass(frozen=True, slots=True)
class Messages:
    """Whole messages."""

    incarnation: UUID
    first: int
    count: int
    octets: bytes

    def encode(self) -> bytes:
        return MAGIC + MESSAGES + _MESSAGES.pack(self.incarnation.bytes, self.first, self.count) + self.octets


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a message."""

    incarnation: UUID
    sequence: int
    total: int
    offset: int
    octets: bytes

    def encode(self) -> bytes:
        head = _FRAGMENT.pack(self.incarnation.bytes, self.sequence, self.total, self.offset)
        return MAGIC + FRAGMENT + head + self.octets


@dataclass(frozen=True, slots=True)
class Mark:
    """Where the stream ends."""

    incarnation: UUID
    last: int

    def encode(self) -> bytes:
        return MAGIC + MARK + _MARK.pack(self.incarnation.bytes, self.last)


Datagram: TypeAlias = Messages | Fragment | Mark


def decode(octets: bytes) -> Datagram | None:
    """What a datagram says; None if it is none of ours."""
    if octets[:3] != MAGIC:
        return None
    kind, content = octets[3:4], octets[4:]
    if kind == MESSAGES and len(content) >= _MESSAGES.size:
        incarnation, first, count = _MESSAGES.unpack_from(content)
        return Messages(UUID(bytes=incarnation), first, count, content[_MESSAGES.size :])
    if kind == FRAGMENT and len(content) >= _FRAGMENT.size:
        incarnation, sequence, total, offset = _FRAGMENT.unpack_from(content)
        part = content[_FRAGMENT.size :]
        return Fragment(UUID(bytes=incarnation), sequence, total, offset, part) if part else None
    if kind == MARK and len(content) == _MARK.size:
        incarnation, last = _MARK.unpack(content)
        return Mark(UUID(bytes=incarnation), last)
    return None


def seal(octets: bytes, key: bytes, nonce: bytes) -> bytes:
    """A datagram that only those can read who have the key of the group."""
    return MAGIC + SEALED + nonce + crypto_secretbox_easy(octets[len(MAGIC) :], nonce, key)


def unseal(octets: bytes, key: bytes) -> bytes | None:
    """The datagram in a sealed one; None if it is not sealed, or not with this key."""
    if octets[:4] != MAGIC + SEALED:
        return None
    nonce, box = octets[4 : 4 + NONCE], octets[4 + NONCE :]
    try:
        return MAGIC + crypto_secretbox_open_easy(box, nonce, key)
    except (nacl.exceptions.CryptoError, ValueError):
        return None
