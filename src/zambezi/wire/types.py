"""The field types that the specifications name, from number-1 to msg.

A type encodes a value as bytes, and reads it back from an offset. A reader trusts no length and no count: it compares
them with the bytes that are left before it reads or builds anything of that size. A count is bounded by the fewest
bytes that one of its elements can take, so a message of ten bytes can never ask for a list of four billion.

Text is `str`, carried as UTF-8 with surrogateescape (PEP 383). So every sequence of bytes can be read as a `str` that
encodes to the same bytes again, and two received texts are equal exactly if their bytes are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from struct import Struct, error
from typing import Generic, TypeAlias, TypeVar, final

from zambezi.wire.errors import BadValue, TooMany, Truncated, Unencodable, shown
from zambezi.wire.text import as_bytes, as_text

Octets: TypeAlias = bytes | bytearray | memoryview
"""The types that decoding accepts. Decoded values are copies, and never refer to the input."""

T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)


class FieldType(ABC, Generic[T]):
    """A type of a message's field. `name` is the specification's name for it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def freeze(self, value: T) -> T:
        """Return the value in the immutable form in which a message keeps it."""
        return value


class OctetType(FieldType[T]):
    """A type whose values travel inside the first frame. `least` is the fewest bytes that a value takes."""

    def __init__(self, name: str, least: int) -> None:
        super().__init__(name)
        self.least = least

    @abstractmethod
    def encode(self, value: T) -> bytes:
        """Return the bytes of the value; raise `Unencodable` if it does not fit."""

    @abstractmethod
    def read(self, octets: bytes, offset: int) -> tuple[T, int]:
        """Return the value at the offset, and the offset after it; raise `Truncated` or `BadValue`."""


@final
class Number(OctetType[int]):
    """number-N: an unsigned integer of N bytes in network order."""

    def __init__(self, size: int) -> None:
        super().__init__(f"number-{size}", size)
        self.greatest = 256**size - 1
        self._struct = Struct({1: ">B", 2: ">H", 4: ">I", 8: ">Q"}[size])

    def encode(self, value: int) -> bytes:
        try:
            return self._struct.pack(value)
        except error:
            raise Unencodable(
                f"{shown(value)} is not a {self.name}, a whole number from 0 to {self.greatest}"
            ) from None

    def read(self, octets: bytes, offset: int) -> tuple[int, int]:
        end = offset + self.least
        if end > len(octets):
            raise Truncated(f"{self.name} takes {self.least} bytes, but {len(octets) - offset} are left", offset)
        return self._struct.unpack_from(octets, offset)[0], end

    def read_length(self, octets: bytes, offset: int) -> tuple[int, int]:
        """Read this number as the length of the bytes that follow it; return where they begin and end."""
        length, begin = self.read(octets, offset)
        if length > len(octets) - begin:
            raise Truncated(f"the declared length is {length}, but {len(octets) - begin} bytes are left", offset)
        return begin, begin + length

    def read_count(self, octets: bytes, offset: int, least: int, most: int | None) -> tuple[int, int]:
        """Read this number as a count of elements of at least `least` bytes each; return it and where they begin.

        A count above `most` raises `TooMany`, before any element is read.
        """
        count, begin = self.read(octets, offset)
        if most is not None and count > most:
            raise TooMany(f"the declared count is {count}, but at most {most} are allowed", offset)
        if count > (len(octets) - begin) // least:
            raise Truncated(
                f"the declared count is {count}, at least {least} bytes each, but {len(octets) - begin} bytes are left",
                offset,
            )
        return count, begin


@final
class Text(OctetType[str]):
    """string and longstr: the length in bytes, then text."""

    def __init__(self, name: str, length: Number) -> None:
        super().__init__(name, length.least)
        self._length = length

    def encode(self, value: str) -> bytes:
        if not isinstance(value, str):
            raise Unencodable(f"{shown(value)} is not a str")
        try:
            octets = as_bytes(value)
        except UnicodeEncodeError as problem:
            raise Unencodable(
                f"{shown(value)} cannot be encoded: character {problem.start} is a lone surrogate"
            ) from None
        if len(octets) > self._length.greatest:
            raise Unencodable(
                f"the text has {len(octets)} bytes, but a {self.name} has at most {self._length.greatest}"
            )
        return self._length.encode(len(octets)) + octets

    def read(self, octets: bytes, offset: int) -> tuple[str, int]:
        begin, end = self._length.read_length(octets, offset)
        return as_text(octets[begin:end]), end


@final
class Chunk(OctetType[bytes]):
    """chunk: a length in four bytes, then that many bytes."""

    def __init__(self, length: Number) -> None:
        super().__init__("chunk", length.least)
        self._length = length

    def freeze(self, value: object) -> bytes:
        return _frozen_bytes(value)

    def encode(self, value: bytes) -> bytes:
        return self._length.encode(len(value)) + value

    def read(self, octets: bytes, offset: int) -> tuple[bytes, int]:
        begin, end = self._length.read_length(octets, offset)
        return octets[begin:end], end


@final
class Strings(OctetType[Sequence[str]]):
    """strings: a count in four bytes, then as many longstr; with `most`, at most so many."""

    def __init__(self, count: Number, element: Text, most: int | None = None) -> None:
        super().__init__("strings", count.least)
        self._count = count
        self._element = element
        self._most = most

    def at_most(self, most: int) -> Strings:
        """Return the same type with a bound of the count, for messages from strangers."""
        return Strings(self._count, self._element, most)

    def freeze(self, value: object) -> tuple[str, ...]:
        # A str is an iterable of str: without this, groups="CHAT" would be four groups.
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise Unencodable(f"{shown(value)} is not a list of str")
        return tuple(value)

    def encode(self, value: Sequence[str]) -> bytes:
        return self._count.encode(len(value)) + b"".join(map(self._element.encode, value))

    def read(self, octets: bytes, offset: int) -> tuple[tuple[str, ...], int]:
        count, offset = self._count.read_count(octets, offset, self._element.least, self._most)
        elements = []
        for _ in range(count):
            element, offset = self._element.read(octets, offset)
            elements.append(element)
        return tuple(elements), offset


@final
class Dictionary(Mapping[str, str]):
    """An immutable mapping of names to values, in the order of the wire.

    It equals any mapping with the same items, in any order.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        self._items = dict(items)

    def __getitem__(self, name: str) -> str:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


@final
class DictionaryType(OctetType[Mapping[str, str]]):
    """dictionary: a count in four bytes, then as many pairs of a string and a longstr; with `most`, at most so many."""

    def __init__(self, count: Number, key: Text, element: Text, most: int | None = None) -> None:
        super().__init__("dictionary", count.least)
        self._count = count
        self._key = key
        self._element = element
        self._most = most

    def at_most(self, most: int) -> DictionaryType:
        """Return the same type with a bound of the count, for messages from strangers."""
        return DictionaryType(self._count, self._key, self._element, most)

    def freeze(self, value: object) -> Dictionary:
        if isinstance(value, Dictionary):
            return value
        if not isinstance(value, Mapping):
            raise Unencodable(f"{shown(value)} is not a mapping of names to values")
        return Dictionary(value)

    def encode(self, value: Mapping[str, str]) -> bytes:
        pairs = [self._key.encode(name) + self._element.encode(text) for name, text in value.items()]
        return self._count.encode(len(pairs)) + b"".join(pairs)

    def read(self, octets: bytes, offset: int) -> tuple[Dictionary, int]:
        least = self._key.least + self._element.least
        count, offset = self._count.read_count(octets, offset, least, self._most)
        items = {}
        for _ in range(count):
            name, offset = self._key.read(octets, offset)
            items[name], offset = self._element.read(octets, offset)
        return Dictionary(items), offset


@final
class Choice(OctetType[E]):
    """A number whose allowed values the grammar lists, as an enumeration."""

    def __init__(self, number: Number, values: type[E]) -> None:
        super().__init__(f"{number.name} of {values.__name__}", number.least)
        self._number = number
        self._values = values

    def freeze(self, value: int) -> E:
        try:
            return self._values(value)
        except ValueError:
            raise Unencodable(f"{shown(value)} is not a {self._values.__name__}") from None

    def encode(self, value: E) -> bytes:
        return self._number.encode(value)

    def read(self, octets: bytes, offset: int) -> tuple[E, int]:
        value, end = self._number.read(octets, offset)
        try:
            return self._values(value), end
        except ValueError:
            raise BadValue(f"{value} is not a {self._values.__name__}", offset) from None


@final
class Msg(FieldType[Sequence[bytes]]):
    """msg: zero or more frames, which travel as frames of their own after the first one."""

    def freeze(self, value: object) -> tuple[bytes, ...]:
        # bytes are an iterable of numbers: without this, content=b"hi" would be two frames of zeros.
        if isinstance(value, Octets | str) or not isinstance(value, Iterable):
            raise Unencodable(f"{shown(value)} is not a list of frames")
        return tuple(map(_frozen_bytes, value))


def _frozen_bytes(value: object) -> bytes:
    if not isinstance(value, Octets):
        raise Unencodable(f"{shown(value)} is not bytes")
    return bytes(value)


number_1 = Number(1)
number_2 = Number(2)
number_4 = Number(4)
number_8 = Number(8)
string = Text("string", number_1)
longstr = Text("longstr", number_4)
strings = Strings(number_4, longstr)
dictionary = DictionaryType(number_4, string, longstr)
chunk = Chunk(number_4)
msg = Msg("msg")


def choice(number: Number, values: type[E]) -> Choice[E]:
    """Return the type of a field whose allowed numbers are those of an enumeration."""
    return Choice(number, values)
