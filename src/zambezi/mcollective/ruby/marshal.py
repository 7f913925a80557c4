"""A reader of Ruby's Marshal format, version 4.8. It returns plain values and makes no objects.

    nil, true, false, integers, floats    the same in Python
    symbols, names of classes             str
    strings, regular expressions          str if they are marked as UTF-8 or ASCII and valid, otherwise bytes
    arrays, hashes                        list, dict (see `Pairs`)
    objects and structs                   a dict of their attributes, without the name of the class
    objects with a format of their own    what the object wrote: bytes (`_dump`) or a value (`marshal_dump`)

Like Ruby, the reader ignores bytes after the value: a node executes a request with such bytes, so it must be readable.

A message can contain a value once, and links to it. A link returns the same Python object, and costs no memory. But a
program that prints the result would print it again for each link, and with links in linked lists exponentially often.
So the bytes that all links stand for are counted and bounded. A link from a value to itself is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from zambezi.mcollective.ruby.values import MAX_DEPTH, MAX_DIGITS, MAX_VALUES, Pairs, Unreadable, Value

VERSION: Final = b"\x04\x08"
_MAX_LINKED: Final = 1 << 24  # bytes that all links of a message can stand for
_FLOAT: Final = re.compile(rb"[-+]?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?")
_MAX_FLOAT: Final = 64  # bytes; Ruby writes 17 digits and, before version 2, a few bytes more
_FLOATS: Final = {b"inf": float("inf"), b"-inf": float("-inf"), b"nan": float("nan")}
_SYMBOLS: Final = frozenset((b":", b";"))
_UNFINISHED: Final = -1  # the size of a value of which the end was not read yet


def is_marshal(octets: bytes) -> bool:
    """Return whether bytes begin like Marshal."""
    return octets.startswith(VERSION)


def load(octets: bytes) -> Value:
    """Return the value in bytes of the Marshal format; raise `Unreadable` if it is malformed or exceeds a bound."""
    if not is_marshal(octets):
        raise Unreadable(f"these bytes are not Marshal 4.8: they begin with {octets[:2].hex() or 'nothing'}, not 0408")
    return _Reader(octets).value(0)


class _Reader:
    """The position in the bytes, and the symbols and objects so far, to which links refer by their number."""

    __slots__ = ("_at", "_linked", "_mark", "_objects", "_octets", "_sizes", "_symbols", "_values")

    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self._at = len(VERSION)
        self._symbols: list[str] = []
        self._objects: list[Value] = []
        self._sizes: list[int] = []  # bytes of each object, with the bytes that its links stand for
        self._values = 0
        self._linked = 0
        self._mark = b""  # the attribute that marks a string as text, with a link to its name, once that was read

    def value(self, depth: int) -> Value:
        """Read a value."""
        at = self._at
        self._values += 1
        if depth > MAX_DEPTH:
            raise self._unreadable(f"values are more than {MAX_DEPTH} levels deep")
        if self._values > MAX_VALUES:
            raise self._unreadable(f"there are more than {MAX_VALUES} values")
        try:
            read = _KINDS[self._octets[at]]
        except IndexError:
            raise self._unreadable("a value is missing") from None
        except KeyError:
            raise self._unreadable(f"there is no kind of value {self._octets[at : at + 1]!r}") from None
        self._at = at + 1
        return read(self, depth)

    # The parts of values

    def _integer(self) -> int:
        """Read an integer of Marshal's variable length: itself (plus 5, away from zero), or its size and its bytes."""
        at = self._at
        if at >= len(self._octets):
            raise self._unreadable("an integer is missing")
        first = self._octets[at]
        self._at = at + 1
        if first == 0:
            return 0
        if 4 < first < 128:
            return first - 5
        if 128 <= first < 252:
            return first - 251
        if first <= 4:
            return int.from_bytes(self._take(first), "little")
        size = 256 - first
        return int.from_bytes(self._take(size), "little") - (1 << 8 * size)

    def _count(self, least: int = 1) -> int:
        """Read the number of parts of a value, each of which takes at least some bytes."""
        count = self._integer()
        if not 0 <= count * least <= len(self._octets) - self._at:
            raise self._unreadable(f"a value has {count} parts, but there are {len(self._octets) - self._at} bytes")
        return count

    def _take(self, size: int) -> bytes:
        at = self._at
        if at + size > len(self._octets):
            raise self._unreadable(f"{size} bytes are announced, but there are {len(self._octets) - at}")
        self._at = at + size
        return self._octets[at : at + size]

    def _bytes(self) -> bytes:
        return self._take(self._count())

    def _name(self, depth: int) -> str:
        """Read a symbol: the name of a class or of an attribute."""
        if not self._is_symbol():
            raise self._unreadable("a name is missing")
        return str(self.value(depth + 1))

    def _is_symbol(self) -> bool:
        at = self._at
        return self._octets[at : at + 1] in _SYMBOLS or self._octets[at : at + 2] == b"I:"

    def _attributes(self, depth: int) -> dict[str, Value]:
        """Read pairs of a name and a value."""
        found: dict[str, Value] = {}
        for _ in range(self._count(2)):
            name = self._name(depth)
            found[name] = self.value(depth + 1)
        return found

    # Objects that links can refer to

    def _begin(self) -> int:
        """Give an object its number before its parts are read, as Ruby does."""
        self._objects.append(None)
        self._sizes.append(_UNFINISHED)
        return len(self._objects) - 1

    def _end(self, number: int, start: int, linked: int, value: Value) -> Value:
        """Finish an object that began at a position, when links stood for so many bytes."""
        self._objects[number] = value
        self._sizes[number] = self._at - start + self._linked - linked
        return value

    def _whole(self, value: Value, size: int = 8) -> Value:
        """Number an object that has no parts."""
        self._objects.append(value)
        self._sizes.append(size)
        return value

    def _link_costs(self, size: int) -> None:
        self._linked += size
        if self._linked > _MAX_LINKED:
            raise self._unreadable(f"links stand for more than {_MAX_LINKED} bytes")

    # Kinds of values

    def _nil(self, depth: int) -> None:
        return None

    def _true(self, depth: int) -> bool:
        return True

    def _false(self, depth: int) -> bool:
        return False

    def _fixnum(self, depth: int) -> int:
        return self._integer()

    def _bignum(self, depth: int) -> Value:
        sign = self._take(1)
        if sign not in (b"+", b"-"):
            raise self._unreadable(f"an integer has the sign {sign!r}")
        octets = self._take(2 * self._count(2))
        if len(octets) * 2.5 > MAX_DIGITS:
            raise self._unreadable(f"an integer has more than {MAX_DIGITS} digits")
        number = int.from_bytes(octets, "little")
        return self._whole(-number if sign == b"-" else number)

    def _float(self, depth: int) -> Value:
        octets = self._bytes()
        text = octets.partition(b"\0")[0]  # old versions of Ruby add binary digits after a zero byte
        if text in _FLOATS:
            return self._whole(_FLOATS[text])
        if len(octets) > _MAX_FLOAT or not _FLOAT.fullmatch(text):
            raise self._unreadable(f"{octets[:_MAX_FLOAT]!r} is not a float")
        return self._whole(float(text))

    def _symbol(self, depth: int) -> str:
        symbol = self._bytes().decode("utf-8", "backslashreplace")
        if symbol == "E":
            self._mark = b"\x06;" + _small(len(self._symbols))
        self._symbols.append(symbol)
        return symbol

    def _symbol_link(self, depth: int) -> str:
        number = self._integer()
        if not 0 <= number < len(self._symbols):
            raise self._unreadable(f"there is no symbol {number}")
        symbol = self._symbols[number]
        self._link_costs(len(symbol))
        return symbol

    def _link(self, depth: int) -> Value:
        number = self._integer()
        if not 0 <= number < len(self._objects):
            raise self._unreadable(f"there is no object {number}")
        if self._sizes[number] == _UNFINISHED:
            raise self._unreadable(f"object {number} contains itself")
        self._link_costs(self._sizes[number])
        return self._objects[number]

    def _string(self, depth: int) -> Value:
        octets = self._bytes()
        return self._whole(octets, len(octets))

    def _regexp(self, depth: int) -> Value:
        source = self._string(depth)
        self._take(1)  # the options
        return source

    def _array(self, depth: int) -> Value:
        start, linked, number = self._at, self._linked, self._begin()
        found = [self.value(depth + 1) for _ in range(self._count())]
        return self._end(number, start, linked, found)

    def _hash(self, depth: int) -> Value:
        start, linked, number = self._at, self._linked, self._begin()
        return self._end(number, start, linked, self._pairs(depth))

    def _hash_with_default(self, depth: int) -> Value:
        start, linked, number = self._at, self._linked, self._begin()
        pairs = self._pairs(depth)
        self.value(depth + 1)
        return self._end(number, start, linked, pairs)

    def _pairs(self, depth: int) -> Value:
        pairs = Pairs()
        for _ in range(self._count(2)):
            is_symbol = self._is_symbol()
            key = self.value(depth + 1)
            pairs.add(key, self.value(depth + 1), is_symbol=is_symbol)
        return pairs.values

    def _with_attributes(self, depth: int) -> Value:
        """Read a value and its attributes. The only attribute that matters is the encoding of a string."""
        kind = self._octets[self._at : self._at + 1]
        if kind == b"u":  # Ruby numbers such an object after its attributes
            self._at += 1
            self._name(depth)
            octets = self._bytes()
            self._attributes(depth)
            return self._whole(octets, len(octets))
        number = len(self._objects)
        value = self.value(depth + 1)
        at = self._at
        if (
            kind == b'"'
            and isinstance(value, bytes)
            and self._octets[at : at + 4] in (self._mark + b"T", self._mark + b"F")
        ):
            self._at = at + 4  # nearly every string ends like this: a short way for them saves a fifth of the time
            self._objects[number] = text = _decoded(value)
            return text
        attributes = self._attributes(depth)
        if not isinstance(value, bytes) or not isinstance(attributes.get("E"), bool):
            return value
        text = _decoded(value)
        if number < len(self._objects) and self._objects[number] is value:  # it was no link
            self._objects[number] = text
        return text

    def _object(self, depth: int) -> Value:
        start, linked, number = self._at, self._linked, self._begin()
        self._name(depth)
        found: Value = {name.removeprefix("@"): value for name, value in self._attributes(depth).items()}
        return self._end(number, start, linked, found)

    def _own_format(self, depth: int) -> Value:
        self._name(depth)
        octets = self._bytes()
        return self._whole(octets, len(octets))

    def _own_value(self, depth: int) -> Value:
        start, linked, number = self._at, self._linked, self._begin()
        self._name(depth)
        return self._end(number, start, linked, self.value(depth + 1))

    def _of_class(self, depth: int) -> Value:
        """Read a string, list or hash of a subclass, or a value that a module extends."""
        self._name(depth)
        return self.value(depth + 1)

    def _class(self, depth: int) -> Value:
        octets = self._bytes()
        return self._whole(octets.decode("utf-8", "backslashreplace"), len(octets))

    def _data(self, depth: int) -> Value:
        raise self._unreadable("an object of a C extension has a format that only the extension knows")

    def _unreadable(self, reason: str) -> Unreadable:
        return Unreadable(f"at byte {self._at} of {len(self._octets)}: {reason}")


def _small(number: int) -> bytes:
    """Return a number up to 122 as Marshal writes it; b"" for others."""
    return bytes([number + 5 if number else 0]) if number < 123 else b""


def _decoded(octets: bytes) -> str | bytes:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets


_KINDS: Final[dict[int, Callable[[_Reader, int], Value]]] = {
    ord("0"): _Reader._nil,
    ord("T"): _Reader._true,
    ord("F"): _Reader._false,
    ord("i"): _Reader._fixnum,
    ord("l"): _Reader._bignum,
    ord("f"): _Reader._float,
    ord(":"): _Reader._symbol,
    ord(";"): _Reader._symbol_link,
    ord("@"): _Reader._link,
    ord('"'): _Reader._string,
    ord("/"): _Reader._regexp,
    ord("["): _Reader._array,
    ord("{"): _Reader._hash,
    ord("}"): _Reader._hash_with_default,
    ord("I"): _Reader._with_attributes,
    ord("o"): _Reader._object,
    ord("S"): _Reader._object,
    ord("u"): _Reader._own_format,
    ord("U"): _Reader._own_value,
    ord("C"): _Reader._of_class,
    ord("e"): _Reader._of_class,
    ord("c"): _Reader._class,
    ord("m"): _Reader._class,
    ord("M"): _Reader._class,
    ord("d"): _Reader._data,
}
