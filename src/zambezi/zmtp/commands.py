"""Commands: a name and data in a command frame (37/ZMTP, "Commands"), and the metadata that READY carries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from zambezi.zmtp.errors import ProtocolError

READY: Final = b"READY"
ERROR: Final = b"ERROR"
PING: Final = b"PING"
PONG: Final = b"PONG"
SUBSCRIBE: Final = b"SUBSCRIBE"
CANCEL: Final = b"CANCEL"

SOCKET_TYPE: Final = "Socket-Type"
IDENTITY: Final = "Identity"
PRODUCT: Final = "X-Zambezi"  # our CURVE clients send it: they understand ERROR, and come back nevertheless

_NAME_CHARACTERS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.+")
_CONTEXT_LIMIT: Final = 16
_SHARED: Final = 128  # bytes of metadata that connections share
NO_PROPERTIES: Final[Mapping[str, bytes]] = {}


def command(name: bytes, data: bytes = b"") -> bytes:
    """Return the body of a command frame."""
    return bytes((len(name),)) + name + data


def split(body: bytes) -> tuple[bytes, bytes]:
    """Return the name and the data of a command."""
    if not body:
        raise ProtocolError("a command frame is empty")
    end = 1 + body[0]
    name = body[1:end]
    if len(body) < end or not name:
        raise ProtocolError("the name of a command is empty, or longer than its frame")
    return name, body[end:]


def encode_metadata(properties: Mapping[str, bytes]) -> bytes:
    """Return properties as the metadata of a READY or INITIATE command."""
    return _encode_properties(tuple(properties.items()))


@lru_cache(maxsize=256)  # all connections of a socket send the same
def _encode_properties(properties: tuple[tuple[str, bytes], ...]) -> bytes:
    return b"".join(
        bytes((len(name),)) + name.encode("ascii") + len(value).to_bytes(4, "big") + value for name, value in properties
    )


def decode_metadata(data: bytes) -> Mapping[str, bytes]:
    """Return the properties by name. Names are not case-sensitive, so they are returned in lower case."""
    return _decode_shared(data) if len(data) <= _SHARED else _decode_properties(data)


@lru_cache(maxsize=1024)  # a node of a mesh sends the same to all others, and a process can have many nodes
def _decode_shared(data: bytes) -> Mapping[str, bytes]:
    return _decode_properties(data)


def _decode_properties(data: bytes) -> Mapping[str, bytes]:
    properties: dict[str, bytes] = {}
    pos = 0
    while pos < len(data):
        start = pos + 1 + data[pos]
        name = _property_name(data[pos + 1 : start])
        if not name or start + 4 > len(data):
            raise ProtocolError(f"a property in the metadata is malformed at byte {pos}")
        stop = start + 4 + int.from_bytes(data[start : start + 4], "big")
        if stop > len(data):
            raise ProtocolError(f"the value of property {name} is longer than the metadata")
        properties[name] = data[start + 4 : stop]
        pos = stop
    return properties


@lru_cache(maxsize=64)  # nearly all peers send the same names
def _property_name(name: bytes) -> str:
    """Return the name of a property in lower case, or nothing if it is not a valid name."""
    return name.decode("ascii").lower() if _NAME_CHARACTERS.issuperset(name) else ""


def is_application_property(name: str) -> bool:
    """Return whether a property is the application's: 37/ZMTP reserves names that begin with X- for applications."""
    return name[:2] in ("X-", "x-") and name.isascii() and _NAME_CHARACTERS.issuperset(name.encode())


def application_properties(properties: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return the properties of the peer's application. Most peers have none, and share one empty mapping."""
    return {name: value for name, value in properties.items() if name.startswith("x-")} or NO_PROPERTIES


def error(reason: str) -> bytes:
    """Return an ERROR command. libzmq understands a reason of three digits as an authentication status."""
    text = reason.encode("ascii", "replace")[:255]
    return command(ERROR, bytes((len(text),)) + text)


def error_reason(data: bytes) -> str:
    """Return the reason in an ERROR command, even a malformed one: the peer ends the connection anyway."""
    text = data[1 : 1 + data[0]] if data else b""
    return text.decode("ascii", "backslashreplace")


def ping(ttl: float, context: bytes = b"") -> bytes:
    """Return a PING: the peer may disconnect us if it receives nothing for `ttl` seconds (0: it must not)."""
    return command(PING, min(round(ttl * 10), 0xFFFF).to_bytes(2, "big") + context)


def read_ping(data: bytes) -> tuple[float, bytes]:
    """Return the time to live of a PING in seconds, and the context that the PONG must repeat."""
    if len(data) < 2 or len(data) > 2 + _CONTEXT_LIMIT:
        raise ProtocolError(f"a PING has 2 to {2 + _CONTEXT_LIMIT} bytes after its name, not {len(data)}")
    return int.from_bytes(data[:2], "big") / 10, data[2:]
