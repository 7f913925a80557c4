"""Messages in files, as `zambezi journal export` writes them: lines of JSON, or DELIVER messages one after another.

A line has `key` and `body`; or `key_hex` and `body_hex`, if the bytes are not UTF-8. `time` is optional, and other
fields are ignored. An error says the file, the line and the column, or the byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from zambezi.cli.errors import InputError
from zambezi.wire.text import as_bytes
from zambezi.zeps.block import message_at
from zambezi.zeps.directory import microseconds_of
from zambezi.zeps.journal.repair import mapped
from zambezi.zeps.layout import DELIVER_LEAST, LONG, SHORT

LONGEST: Final = 1 << 28  # bytes of a line
_KEY: Final = 255  # bytes of a key


class ExportedMessage(NamedTuple):
    """A message of a file. `time` is in microseconds since 1970; 0 if the file does not tell it."""

    key: bytes
    body: bytes
    time: int = 0


class _WrongField(ValueError):
    """A field of a line that cannot be used."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(problem)
        self.name = name


def parse_line(line: bytes, where: str, number: int) -> ExportedMessage:
    """Return the message of a line; raise `InputError` if it is not a valid one."""
    text = line.decode("utf-8", "replace")
    try:
        if len(line) >= LONGEST:
            raise _WrongField("", f"the line has {LONGEST} bytes or more")
        return _message_of(_object_of(line))
    except json.JSONDecodeError as error:
        raise InputError(f"{where}:{number}:{error.colno}: it is not JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{where}:{number}:{error.start + 1}: it is not UTF-8") from None
    except _WrongField as error:
        column = text.find(f'"{error.name}"') + 1 if error.name else 0
        raise InputError(f"{where}:{number}:{column or 1}: {error}") from None


def _object_of(line: bytes) -> dict[str, Any]:
    try:
        content = json.loads(line.decode("utf-8"))
    except RecursionError:
        raise _WrongField("", "its values are nested too deep") from None
    if not isinstance(content, dict):
        raise _WrongField("", "it must be a JSON object")
    return content


def _message_of(content: dict[str, Any]) -> ExportedMessage:
    key = _bytes_of(content, "key")
    if len(key) > _KEY:
        name = "key" if "key" in content else "key_hex"
        raise _WrongField(name, f"the key has {len(key)} bytes, and the most is {_KEY}")
    return ExportedMessage(key, _bytes_of(content, "body"), _time_of(content.get("time")))


def _bytes_of(content: dict[str, Any], name: str) -> bytes:
    """Return the bytes of a field, which is text, or hexadecimal if its name says so."""
    hexadecimal = f"{name}_hex"
    if (name in content) == (hexadecimal in content):
        raise _WrongField(name if name in content else "", f"it must have either {name!r} or {hexadecimal!r}")
    found = name if name in content else hexadecimal
    value = content[found]
    try:
        if not isinstance(value, str):
            raise ValueError
        return as_bytes(value) if found == name else bytes.fromhex(value)
    except ValueError:
        kind = "text" if found == name else "bytes in hexadecimal"
        raise _WrongField(found, f"{found!r} must be {kind}") from None


def _time_of(value: object) -> int:
    if value is None:
        return 0
    try:
        if not isinstance(value, str):
            raise ValueError
        when = datetime.fromisoformat(value)
        if when.tzinfo is None:
            raise ValueError
        return max(0, microseconds_of(when))
    except (ValueError, OverflowError):
        raise _WrongField("time", "'time' must be a time with its zone, such as 2026-01-31T12:00:00+00:00") from None


def read_lines(file: BinaryIO, where: str) -> Iterator[ExportedMessage]:
    """Yield the messages of a file with lines of JSON."""
    number = 0
    while line := file.readline(LONGEST):
        number += 1
        if line.strip():
            yield parse_line(line, where, number)


def read_frames(file: BinaryIO, where: str) -> Iterator[ExportedMessage]:
    """Yield the messages of a file with DELIVER messages and their frame headers."""
    with mapped(file.fileno()) as octets:
        position = 0
        while position < len(octets):
            place = message_at(octets, position, len(octets))
            if place is None:
                raise InputError(f"{where}, byte {position}: it is not a whole DELIVER message with its frame header")
            begin = position + (LONG if octets[position] else SHORT) + DELIVER_LEAST + len(place.key)
            with octets[begin : place.stop] as body:
                yield ExportedMessage(place.key, bytes(body))
            position = place.stop


def read_exported(path: Path, *, is_zeps: bool) -> Iterator[ExportedMessage]:
    """Yield the messages of a file."""
    try:
        with path.open("rb") as file:
            yield from (read_frames if is_zeps else read_lines)(file, str(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
