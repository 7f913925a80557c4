"""The trace of a node: a line for each message, beacon, connection and event, to the logger `zambezi.zre.trace`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Final

from zambezi.wire import Message, WireError
from zambezi.wire.text import printable
from zambezi.zre import dialect as dialects
from zambezi.zre import outputs
from zambezi.zre.beacon import Beacon
from zambezi.zre.dialect import STABLE, Dialect
from zambezi.zre.events import Event
from zambezi.zre.peer import Peer

_log: Final = logging.getLogger("zambezi.zre.trace")
_LONGEST: Final = 200  # characters of a field


class Trace:
    """Writes the trace of the node `name`, whose peers are `peers`."""

    def __init__(self, name: str, peers: Mapping[bytes, Peer]) -> None:
        self._name = printable(name)
        self._peers = peers

    def received(self, identity: bytes, frames: Sequence[bytes]) -> None:
        """Write a message that came."""
        key = identity[1:]
        self._write("<", self._called(key), self._text_of(key, frames))

    def received_beacon(self, octets: bytes, address: str) -> None:
        """Write a datagram that came."""
        self._write("<", address, _beacon(octets))

    def done(self, output: outputs.Output) -> None:
        """Write what the node does."""
        match output:
            case outputs.Send():
                self._write(">", self._called(output.peer), self._text_of(output.peer, output.frames))
            case outputs.Broadcast():
                self._write(">", "all", _beacon(output.octets))
            case outputs.Connect():
                self._write("+", self._called(output.peer), f"connect to {printable(output.endpoint)}")
            case outputs.Disconnect() | outputs.Adopt():
                self._write("-", self._called(output.peer), type(output).__name__.lower())
            case Event():
                self._write("*", self._called(output.peer.bytes), _event(output))

    def _write(self, mark: str, other: str, text: str) -> None:
        _log.info("%s %s %s: %s", self._name, mark, other, text)

    def _called(self, key: bytes) -> str:
        peer = self._peers.get(key)
        digits = key.hex()[:8] if len(key) == 16 else printable(key)
        return f"{printable(peer.name)} ({digits})" if peer is not None and peer.ready else digits

    def _text_of(self, key: bytes, frames: Sequence[bytes]) -> str:
        if not dialects.is_signed(frames[0]):
            return f"{len(frames[0])} bytes without the signature of ZRE"
        try:
            message = self._dialect_of(key, frames[0]).family.decode(list(frames))
        except WireError as error:
            return f"malformed: {printable(str(error))}"
        return _message(message)

    def _dialect_of(self, key: bytes, octets: bytes) -> Dialect:
        if dialects.is_hello(octets):
            return dialects.dialect_of_hello(octets) or STABLE
        peer = self._peers.get(key)
        return peer.dialect if peer is not None else STABLE


def _beacon(octets: bytes) -> str:
    beacon = Beacon.decode(octets)
    if beacon is None:
        return f"{len(octets)} bytes that are no beacon"
    return f"BEACON {beacon.uuid.hex[:8]} " + (f"port {beacon.port}" if beacon.port else "goodbye")


def _message(message: Message) -> str:
    name = type(message).__name__.removeprefix("Draft").upper()
    return " ".join([name, *(_field(message, one.name) for one in fields(message) if one.name != "version")])


def _event(event: Event) -> str:
    return " ".join(
        [type(event).__name__, *(_field(event, one.name) for one in fields(event) if one.name not in ("peer", "name"))]
    )


def _field(owner: object, name: str) -> str:
    value = getattr(owner, name)
    if name == "content":
        return f"{len(value)} frames, {sum(map(len, value))} bytes"
    if isinstance(value, Mapping):
        value = ", ".join(f"{key}: {item}" for key, item in value.items())
    elif isinstance(value, list | tuple):
        value = ", ".join(value)
    text = printable(str(value))
    return f"{name}={text[:_LONGEST]}{'...' if len(text) > _LONGEST else ''}"
