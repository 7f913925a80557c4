"""The messages of request and reply, as bytes. (docs/protocol.md, the extension "requests")

A request is a message of an ordinary stream, so that servers read it like every other message. Its body begins with an
envelope: the address to which the reply goes. The broker writes it.

    the client to $requests/S   key, body: id (8) timeout (4) content
    the broker to the stream S  key, body: magic (4) address (16) id (8) deadline (8) content
    a server to $replies/S      status, body: address (16) id (8) content
    the broker to the client    status, body: id (8) content

The address stands for one connection of a client. It is random, so that no program can guess it, and a program reads
only the replies to its own requests. A client that wants to have the same address at the next broker, too, chooses a
random token: the address is a digest of it, so that servers, which know the address, cannot have it. The id is random,
too: a server that knows the address, because it has answered another request of this client, cannot answer a request
that it has not read.

The deadline is the time when the client no longer waits, in microseconds since 1970 by the clock of the broker; 0 if
there is none. The timeout is in milliseconds.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from zambezi.wire.text import as_bytes
from zambezi.zeps.directory import GROUP_NAME
from zambezi.zeps.layout import BODY_LENGTH, PUBLISH

OK: Final = b"ok"
ERROR: Final = b"error"
NOBODY: Final = b"nobody"  # no server listens
TIME: Final = b"time"  # the broker tells a server its clock and its limit

MAGIC: Final = b"ZRQ\x01"
ADDRESS: Final = 16
ID: Final = 8
TOKEN: Final = 16  # bytes; it is written in hexadecimal
CLOCK: Final = Struct(">QQ")  # the time of the broker, and the bytes of the largest message that it takes
_ASKED: Final = Struct(f">{ID}sI")
_STORED: Final = Struct(f">4s{ADDRESS}s{ID}sQ")
LONGEST: Final = 0xFFFFFFFF  # milliseconds of a timeout
SERVERS: Final = "serve "  # how the names of groups of servers begin
DELIVERIES: Final = 5  # after so many servers have got a request and not answered, it is passed over
GROWTH: Final = _STORED.size - _ASKED.size  # bytes by which the stored request is longer


def address_of(token: str) -> bytes | None:
    """Return the address that a client has by its token; None if the text is no token."""
    try:
        octets = bytes.fromhex(token) if len(token) == 2 * TOKEN else b""
    except ValueError:
        return None
    return blake2b(octets, digest_size=ADDRESS, person=b"zeps requests").digest() if len(octets) == TOKEN else None


def group_of(pattern: str) -> str:
    """Return the name of the group that shares the requests with a pattern among its servers."""
    name = SERVERS + pattern
    octets = as_bytes(name)
    return name if len(octets) <= GROUP_NAME else SERVERS + blake2b(octets, digest_size=16).hexdigest()


class Asked(NamedTuple):
    """A request, as a client sends it."""

    id: bytes
    timeout: int  # milliseconds; 0: none
    content: bytes

    def encode(self) -> bytes:
        """Return the body of its PUBLISH."""
        return encode_asked(*self)


class Stored(NamedTuple):
    """A request, as the stream has it."""

    address: bytes
    id: bytes
    deadline: int  # microseconds since 1970; 0: none
    content: bytes

    def encode(self) -> bytes:
        """Return the body of the message."""
        return encode_stored(*self)


# A named tuple made in this way takes a third of the time.
_asked: Final = partial(tuple.__new__, Asked)
_stored: Final = partial(tuple.__new__, Stored)


def publish_frame(key: bytes, body: bytes) -> bytes:
    """Return a PUBLISH. It is several times as fast as the class in `messages`; the key has at most 255 bytes."""
    return PUBLISH + bytes((len(key),)) + key + BODY_LENGTH.pack(len(body)) + body


def encode_asked(number: bytes, timeout: int, content: bytes) -> bytes:
    """Return the body of the PUBLISH of a request."""
    return _ASKED.pack(number, timeout) + content


def encode_stored(address: bytes, number: bytes, deadline: int, content: bytes) -> bytes:
    """Return the body of a request in its stream."""
    return _STORED.pack(MAGIC, address, number, deadline) + content


def read_asked(body: bytes) -> Asked | None:
    """Return the request in the body of a client's PUBLISH, or None if it is too short."""
    if len(body) < _ASKED.size:
        return None
    number, timeout = _ASKED.unpack_from(body)
    return _asked((number, timeout, body[_ASKED.size :]))


def read_stored(body: bytes) -> Stored | None:
    """Return the request in the body of a message, or None if the message is not a request."""
    if body[: len(MAGIC)] != MAGIC or len(body) < _STORED.size:
        return None
    _, address, number, deadline = _STORED.unpack_from(body)
    return _stored((address, number, deadline, body[_STORED.size :]))


def encode_reply(request: Stored, content: bytes) -> bytes:
    """Return the body of a server's PUBLISH with the reply to a request."""
    return request.address + request.id + content
