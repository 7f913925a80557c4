"""An encoder of Ruby's Marshal format, for tests: it writes what Ruby 3.1 writes for the same values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Symbol:
    """A symbol: Python has no such values."""

    name: str


def integer(number: int) -> bytes:
    """Return a number of up to 31 bits, as counts and small integers are written."""
    if number == 0:
        return b"\0"
    if 0 < number < 123:
        return bytes([number + 5])
    if -124 < number < 0:
        return bytes([(number - 5) & 0xFF])
    for size in range(1, 5):
        if number > 0 and number < 1 << 8 * size:
            return bytes([size]) + number.to_bytes(size, "little")
        if number < 0 and -(1 << 8 * size) <= number:
            return bytes([256 - size]) + (number + (1 << 8 * size)).to_bytes(size, "little")
    raise AssertionError(number)


class Encoder:
    """Writes values, and remembers the symbols and objects that it wrote: the second time it writes a link."""

    def __init__(self) -> None:
        self._symbols: list[str] = []
        self._objects: list[Any] = []

    def dump(self, value: Any) -> bytes:
        return b"\x04\x08" + self.value(value)

    def symbol(self, name: str) -> bytes:
        if name in self._symbols:
            return b";" + integer(self._symbols.index(name))
        self._symbols.append(name)
        octets = name.encode()
        plain = b":" + integer(len(octets)) + octets
        return plain if name.isascii() else b"I" + plain + self._encoding()

    def _encoding(self) -> bytes:
        return integer(1) + self.symbol("E") + b"T"

    def value(self, value: Any) -> bytes:
        simple = {id(None): b"0", id(True): b"T", id(False): b"F"}.get(id(value))
        if simple is not None:
            return simple
        if isinstance(value, Symbol):
            return self.symbol(value.name)
        if isinstance(value, int) and -(1 << 30) <= value < 1 << 30:
            return b"i" + integer(value)
        for number, known in enumerate(self._objects):
            if known is value:
                return b"@" + integer(number)
        self._objects.append(value)
        return self._object(value)

    def _object(self, value: Any) -> bytes:
        if isinstance(value, int):
            size = (abs(value).bit_length() + 15) // 16
            return b"l" + (b"-" if value < 0 else b"+") + integer(size) + abs(value).to_bytes(2 * size, "little")
        if isinstance(value, float):
            text = repr(value).encode()
            return b"f" + integer(len(text)) + text
        if isinstance(value, bytes):
            return b'"' + integer(len(value)) + value
        if isinstance(value, str):
            octets = value.encode()
            return b'I"' + integer(len(octets)) + octets + self._encoding()
        if isinstance(value, list):
            return b"[" + integer(len(value)) + b"".join(map(self.value, value))
        pairs = b"".join(self.value(key) + self.value(each) for key, each in value.items())
        return b"{" + integer(len(value)) + pairs


def dump(value: Any) -> bytes:
    """Return a value in Marshal."""
    return Encoder().dump(value)
