"""Patterns on routing keys: which messages a subscriber wants. (ZEP-13)

A pattern is text. If it has the form `name:rest` and `name` is the name of a matcher, that matcher gets `rest`. Any
other pattern is a prefix, and the empty pattern matches everything. So a prefix with a colon in it works as people
expect, and `prefix:glob:` matches keys that begin with the bytes `glob:`.

    sensor.            keys that begin with "sensor."
    exact:sensor.7     that key only
    glob:*.kitchen     `*` any bytes, `?` one character, `[a-f]` one of some characters
    regex:^s[0-9]+$    a regular expression, found anywhere in the key unless it is anchored

Clients send regular expressions, so they are RE2's: the time to match grows with the length of the key, and no pattern
can make it explode.

A program can register more matchers: a name, and a function that makes a test of keys from the rest of the pattern.

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

KeyTest: TypeAlias = Callable[[bytes], object]
Maker: TypeAlias = Callable[[bytes], KeyTest]

_log: Final = logging.getLogger("zambezi.zeps")

_MEMORY: Final = 1 << 20  # bytes that RE2 may use for one pattern


class Matchers:
    """The matchers that patterns can name."""

    def __init__(self) -> None:
        self._makers = dict(_BUILT_IN)
        self.memory = Memory()  # the bound on the caches of all filters with these matchers

    def register(self, name: str, maker: Maker) -> None:
        """Add a matcher. It must be fast for every pattern and key: the broker waits for it."""
        if not name.isidentifier():
            raise PatternError(f"the name of a matcher must be a word, not {name!r}")
        if name in self._makers:
            raise PatternError(f"a matcher {name!r} exists already; choose another name")
        self._makers[name] = maker

    def split(self, pattern: str) -> tuple[str, bytes]:
        """Return the name of a pattern's matcher, and the rest of the pattern."""
        name, colon, rest = pattern.partition(":")
        if not colon or name not in self._makers:
            name, rest = "prefix", pattern
        return name, as_bytes(rest)

    def parse(self, pattern: str) -> KeyTest:
        """Return the test of keys for a pattern, or raise `PatternError`."""
        name, rest = self.split(pattern)
        maker = self._makers[name]
        return maker(rest) if name in _BUILT_IN else _guarded(name, maker, rest)

    @property
    def names(self) -> list[str]:
        """The names of all matchers, in order."""
        return sorted(self._makers)


def prefix(rest: bytes) -> KeyTest:
    """Return a test for keys that begin with some bytes."""
    return lambda key: key.startswith(rest)


def exact(rest: bytes) -> KeyTest:
    """Return a test for one key."""
    return rest.__eq__


def glob(rest: bytes) -> KeyTest:
    """Return a test for keys that match a glob."""
    return _compile("glob", rest, b"(?s)^" + _glob_to_regex(rest) + b"$")


def regex(rest: bytes) -> KeyTest:
    """Return a test for keys that contain a match of a regular expression."""
    return _compile("regex", rest, rest)


_BUILT_IN: Final[dict[str, Maker]] = {"prefix": prefix, "exact": exact, "glob": glob, "regex": regex}


def _guarded(name: str, maker: Maker, rest: bytes) -> KeyTest:
    """Return the test of a registered matcher, with its exceptions caught: no pattern or key may stop a broker.

    A key for which the test raises does not match.
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


def _compile(name: str, given: bytes, pattern: bytes) -> KeyTest:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    if not _is_text(given):
        options.encoding = re2.Options.Encoding.LATIN1  # every byte is a character
    try:
        search: KeyTest = re2.compile(pattern, options).search
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(f"{name}:{given.decode('utf-8', 'replace')} cannot be understood: {text}") from None
    return search


def _is_text(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


def _glob_to_regex(glob: bytes) -> bytes:
    """Translate a glob into a regular expression."""
    pieces = []
    position = 0
    while position < len(glob):
        octet = glob[position : position + 1]
        position += 1
        if octet == b"*":
            pieces.append(b"\\C*")  # bytes: a key need not be UTF-8
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
