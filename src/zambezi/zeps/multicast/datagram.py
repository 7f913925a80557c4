"""The grammar of the datagrams of a group: three kinds, each complete in itself, and a sealed form of each.

    datagram    = magic version kind content
    magic       = %x5A %x4D                                "ZM"
    version     = %d1
    kind        = messages / fragment / mark / sealed

    messages    = %d1 incarnation first count deliver*     DELIVER messages with frame headers, as in the journal
    fragment    = %d2 incarnation sequence total offset *OCTET     a part of one that is too large for a datagram
    mark        = %d3 incarnation last                     the last sequence, so that a loss at the end is noticed
    sealed      = %d4 nonce *OCTET                         one of the others, from its kind on, in a secret box

    incarnation = 16OCTET
    first, sequence, last = number-8
    count, total, offset  = number-4
    nonce       = 24OCTET

Any other datagram is ignored: other programs may use the group too.

The sender makes the headers (`messages_head`, `fragment_head`) separately from the messages: the messages are a part of
a block, and are not copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
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
KEY: Final = 32
SEAL: Final = 1 + NONCE + 16  # bytes that sealing adds: the kind once more, the nonce and the tag

MESSAGES_HEAD: Final = len(MAGIC) + 1 + _MESSAGES.size
FRAGMENT_HEAD: Final = len(MAGIC) + 1 + _FRAGMENT.size


def messages_head(incarnation: bytes, first: int, count: int) -> bytes:
    """Return the bytes before the messages of a datagram."""
    return MAGIC + MESSAGES + _MESSAGES.pack(incarnation, first, count)


def fragment_head(incarnation: bytes, sequence: int, total: int, offset: int) -> bytes:
    """Return the bytes before a part of a message."""
    return MAGIC + FRAGMENT + _FRAGMENT.pack(incarnation, sequence, total, offset)


@dataclass(frozen=True, slots=True)
class Messages:
    """A datagram of whole messages."""

    incarnation: UUID
    first: int
    count: int
    octets: bytes

    def encode(self) -> bytes:
        return messages_head(self.incarnation.bytes, self.first, self.count) + self.octets


@dataclass(frozen=True, slots=True)
class Fragment:
    """A datagram with a part of a message."""

    incarnation: UUID
    sequence: int
    total: int
    offset: int
    octets: bytes

    def encode(self) -> bytes:
        return fragment_head(self.incarnation.bytes, self.sequence, self.total, self.offset) + self.octets


@dataclass(frozen=True, slots=True)
class Mark:
    """A datagram with the last sequence of the stream."""

    incarnation: UUID
    last: int

    def encode(self) -> bytes:
        return MAGIC + MARK + _MARK.pack(self.incarnation.bytes, self.last)


Datagram: TypeAlias = Messages | Fragment | Mark


def decode(octets: bytes) -> Datagram | None:
    """Decode a datagram; return None if it does not match the grammar."""
    if octets[:3] != MAGIC:
        return None
    kind, size = octets[3:4], len(octets)
    if kind == MESSAGES and size >= MESSAGES_HEAD:
        incarnation, first, count = _MESSAGES.unpack_from(octets, 4)
        return Messages(_uuid(incarnation), first, count, octets[MESSAGES_HEAD:])
    if kind == FRAGMENT and size > FRAGMENT_HEAD:
        incarnation, sequence, total, offset = _FRAGMENT.unpack_from(octets, 4)
        return Fragment(_uuid(incarnation), sequence, total, offset, octets[FRAGMENT_HEAD:])
    if kind == MARK and size == 4 + _MARK.size:
        incarnation, last = _MARK.unpack_from(octets, 4)
        return Mark(_uuid(incarnation), last)
    return None


@lru_cache(maxsize=16)
def _uuid(octets: bytes) -> UUID:
    return UUID(bytes=octets)


def seal(octets: bytes, key: bytes, nonce: bytes) -> bytes:
    """Encrypt a datagram with the key of the group."""
    return MAGIC + SEALED + nonce + crypto_secretbox_easy(octets[len(MAGIC) :], nonce, key)


def unseal(octets: bytes, key: bytes) -> bytes | None:
    """Decrypt a sealed datagram; return None if it is not sealed, or not with this key."""
    if octets[:4] != MAGIC + SEALED:
        return None
    nonce, box = octets[4 : 4 + NONCE], octets[4 + NONCE :]
    try:
        return MAGIC + crypto_secretbox_open_easy(box, nonce, key)
    except (nacl.exceptions.CryptoError, ValueError):
        return None
