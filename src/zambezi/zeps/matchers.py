"""Patterns on routing keys: which messages a subscriber wants. (ZEP-13)

A pattern is text. `name:rest`, where `name` is that of a matcher, is that matcher on `rest`; anything else is a prefix,
and the empty pattern is everything. So keys that happen to have a colon in them are matched as people expect, and
`prefix:glob:` is the way to say that a key begins with the octets `glob:`.

    sensor.            keys that begin with "sensor."
    exact:sensor.7     that key alone
    glob:*.kitchen     `*` any octets, `?` one character, `[a-f]` one of some
    regex:^s[0-9]+$    a regular expression, found anywhere in the key unless it is anchored

Regular expressions come from strangers, and are RE2's: they take time in proportion to the key, whatever the pattern.

More matchers can be registered: a name, and a function that makes a test of keys out of the rest of the pattern.

>>> matchers = Matchers()
>>> matchers.register("suffix", lambda rest: lambda key: key.endswith(rest))
>>> wanted = matchers.parse("suffix:.kitchen")
>>> wanted(b"temp.kitchen"), wanted(b"temp.attic")
(True, False)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

import re2  # type: ignore[import-untyped]

from zambezi.wire.text import as_bytes
from zambezi.zeps.answers import Memory
from zambezi.zeps.errors import PatternError

Test: TypeAlias = Callable[[bytes], object]
Maker: TypeAlias = Callable[[bytes], Test]

_log: Final = logging.getLogger("zambezi.zeps")

_MEMORY: Final = 1 << 20  # what RE2 may use for one pattern


class Matchers:
    """The matchers that patterns can name."""

    def __init__(self) -> None:
        self._makers = dict(_BUILT_IN)
        self.memory = Memory()  # of all filters that are made with these

    def register(self, name: str, maker: Maker) -> None:
        """Add a matcher. It must answer in a time that no pattern and no key can stretch: the broker waits for it."""
        if not name.isidentifier():
            raise PatternError(f"a matcher's name is a word, not {name!r}")
        if name in self._makers:
            raise PatternError(f"there is a matcher {name!r} already; choose another name")
        self._makers[name] = maker

    def split(self, pattern: str) -> tuple[str, bytes]:
        """The matcher's name, and what it is to look for."""
        name, colon, rest = pattern.partition(":")
        if not colon or name not in self._makers:
            name, rest = "prefix", pattern
        return name, as_bytes(rest)

    def parse(self, pattern: str) -> Test:
        """The test of keys that a pattern stands for; `PatternError` if it stands for none."""
        name, rest = self.split(pattern)
        maker = self._makers[name]
        return maker(rest) if name in _BUILT_IN else _guarded(name, maker, rest)

    @property
    def names(self) -> list[str]:
        return sorted(self._makers)


def prefix(rest: bytes) -> Test:
    return lambda key: key.startswith(rest)


def exact(rest: bytes) -> Test:
    return rest.__eq__


def glob(rest: bytes) -> Test:
    return _search("glob", rest, b"(?s)^" + _translated(rest) + b"$")


def regex(rest: bytes) -> Test:
    return _search("regex", rest, rest)


_BUILT_IN: Final[dict[str, Maker]] = {"prefix": prefix, "exact": exact, "glob": glob, "regex": regex}


def _guarded(name: str, maker: Maker, rest: bytes) -> Test:
    """What somebody registered, with its mistakes kept to itself: no stranger's pattern or key may stop a broker.

    A key that the test fails on is not wanted.
    """
    try:
        test = maker(rest)
    except PatternError:
        raise
    except Exception as error:
        raise PatternError(f"the matcher {name!r} failed on this pattern: {error!r}") from error

    def guarded(key: bytes) -> object:
        try:
            return test(key)
        except Exception:
            _log.exception("the matcher %r failed on the key %r", name, key)
            return False

    return guarded


def _search(name: str, given: bytes, pattern: bytes) -> Test:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    if not _is_text(given):
        options.encoding = re2.Options.Encoding.LATIN1  # an octet is a character then
    try:
        search: Test = re2.compile(pattern, options).search
    except re2.error as error:
        reason = error.args[0] if error.args else error
        told = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        shown = given.decode("utf-8", "replace")
        raise PatternError(f"{name}:{shown} cannot be understood: {told}") from None
    return search


def _is_text(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


def _translated(glob: bytes) -> bytes:
    """A glob as a regular expression."""
    pieces = []
    position = 0
    while position < len(glob):
        octet = glob[position : position + 1]
        position += 1
        if octet == b"*":
            pieces.append(b"\\C*")  # octets: a key need not be UTF-8
        elif octet == b"?":
            pieces.append(b".")
        elif octet == b"[" and (close := glob.find(b"]", position + 1 + glob.startswith(b"!", position))) > 0:
            negated = glob.startswith(b"!", position)
            inside = glob[position + negated : close]
            members = inside.replace(b"\\", b"\\\\").replace(b"[", b"\\[").replace(b"^", b"\\^")
            pieces.append(b"[" + (b"^" if negated else b"") + members + b"]")
            position = close + 1
        else:
            pieces.append(octet if octet.isalnum() or octet >= b"\x80" or octet == b"_" else b"\\" + octet)
    return b"".join(pieces)
