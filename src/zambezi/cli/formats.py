"""The formats in which commands print messages."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from zambezi.cli.terminal import say
from zambezi.wire.text import as_bytes, printable

if TYPE_CHECKING:
    from zambezi.zeps.client.batch import Message


def json_bytes(name: str, octets: bytes) -> dict[str, str]:
    """Return the field of a JSON object for bytes: `name`, or `name_hex` if they are not UTF-8."""
    try:
        return {name: octets.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_hex": octets.hex()}


def _text(message: Message) -> None:
    say(f"{message.sequence} {printable(message.key)} {printable(message.body)}")


def _json(message: Message) -> None:
    time = message.time.isoformat(timespec="microseconds") if message.time is not None else None
    head = {"stream": message.stream, "sequence": message.sequence, "time": time}
    say(json.dumps({**head, **json_bytes("key", as_bytes(message.key)), **json_bytes("body", message.body)}))


def _raw(message: Message) -> None:
    sys.stdout.buffer.write(message.body + b"\n")
    sys.stdout.buffer.flush()


def _hex(message: Message) -> None:
    say(message.body.hex())


FORMATS: Final[Mapping[str, Callable[[Message], None]]] = {"text": _text, "json": _json, "raw": _raw, "hex": _hex}
