"""Patterns on routing keys: which messages a subscriber wants. (ZEP-13)

A pattern is text. If it has the form `name:rest` and `name` is the name of a matcher, that matcher gets `rest`. Any
other pattern is a prefix, and the empty pattern matches everything. So a prefix with a colon in it works as people
expect, and `prefix:glob:` matches keys that begin with the bytes `glob:`.

    sensor.            keys that begin with "sensor."
    exact:sensor.7     that key only
    glob:*.kitchen     `*` any bytes, `?` one character, `[a-f]` one of some characters
    regex:^s[0-9]+$    a regular expression, found anywhere in the key unless it is anchored

Clients send regular expressions, so they are RE2's: the time to match grows with the length of the key, and no pattern
can make it explode. RE2 refuses a pattern whose program does not fit into `PROGRAM` bytes, so none takes much more than
half a millisecond to compile. Equal patterns are compiled once, and the number of compiled patterns is bounded.

A program can register more matchers: a name, and a function that makes a test of keys from the rest of the pattern.

>>> matchers = Matchers()
>>> matchers.register("suffix", lambda rest: lambda key: key.endswith(rest))
>>> wanted = matchers.parse("suffix:.kitchen")
>>> wanted(b"temp.kitchen"), wanted(b"temp.attic")
(True, False)
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

import re2  # type: ignore[import-untyped]

from zambezi.wire.text import as_bytes, is_utf8
from zambezi.zeps.answers import Memory
from zambezi.zeps.errors import PatternError

KeyTest: TypeAlias = Callable[[bytes], object]
Maker: TypeAlias = Callable[[bytes], KeyTest]

_log: Final = logging.getLogger("zambezi.zeps")

PROGRAM: Final = 32 * 1024  # bytes that RE2 may use for one pattern
COMPILED: Final = 4096  # patterns that can be compiled at a time: 128 MiB
_RECENT: Final = 128  # compiled patterns that are kept although nobody uses them: clients ask the same again


class Pattern:
    """A test of keys. `weight` is the size of its program: the work that one key can be, or 0 if it is little."""

    __slots__ = ("__weakref__", "test", "weight")

    def __init__(self, test: KeyTest, weight: int = 0) -> None:
        self.test = test
        self.weight = weight

    def __call__(self, key: bytes) -> object:
        return self.test(key)


class Matchers:
    """The matchers that patterns can name, and the patterns that are compiled."""

    def __init__(self, most: int = COMPILED) -> None:
        self._makers = dict(_BUILT_IN)
        self._most = most
        self._compiled: WeakValueDictionary[tuple[str, bytes], Pattern] = WeakValueDictionary()
        self._recent: OrderedDict[tuple[str, bytes], Pattern] = OrderedDict()
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

    def parse(self, pattern: str) -> Pattern:
        """Return the test of keys for a pattern, or raise `PatternError`."""
        name, rest = self.split(pattern)
        if name not in _BUILT_IN:
            return Pattern(_guarded(name, self._makers[name], rest))
        if name == "regex" or (name == "glob" and not _is_simple_glob(rest)):
            return self._compile(name, rest)
        return Pattern(self._makers[name](rest))

    def _compile(self, name: str, rest: bytes) -> Pattern:
        known = self._compiled.get((name, rest))
        if known is None:
            if len(self._compiled) >= self._most:
                self._recent.clear()
            if len(self._compiled) >= self._most:
                raise PatternError(
                    f"the broker uses {self._most} glob and regex patterns already, the limit: use a prefix instead"
                )
            known = self._compiled[name, rest] = _compile(name, rest)
        self._recent[name, rest] = known
        self._recent.move_to_end((name, rest))
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        return known

    @property
    def names(self) -> list[str]:
        """The names of all matchers, in order."""
        return sorted(self._makers)

    @property
    def compiled(self) -> int:
        """The number of compiled patterns."""
        return len(self._compiled)


def prefix(rest: bytes) -> KeyTest:
    """Return a test for keys that begin with some bytes."""
    return lambda key: key.startswith(rest)


def exact(rest: bytes) -> KeyTest:
    """Return a test for one key."""
    return rest.__eq__


def glob(rest: bytes) -> KeyTest:
    """Return a test for keys that match a glob."""
    return _simple_glob(rest) if _is_simple_glob(rest) else _compile("glob", rest).test


def regex(rest: bytes) -> KeyTest:
    """Return a test for keys that contain a match of a regular expression."""
    return _compile("regex", rest).test


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


def _is_simple_glob(glob: bytes) -> bool:
    """Return whether `*` is the only special character of a glob."""
    return b"?" not in glob and b"[" not in glob


def _simple_glob(glob: bytes) -> KeyTest:
    """Return a test for keys that match a simple glob. It needs no program, so there can be any number of them."""
    first, *middle = glob.split(b"*")
    if not middle:
        return glob.__eq__
    last = middle.pop()
    least = len(first) + len(last)

    def test(key: bytes) -> bool:
        if len(key) < least or not (key.startswith(first) and key.endswith(last)):
            return False
        position, end = len(first), len(key) - len(last)
        for part in middle:  # the first place where a part fits is the best: it leaves most for the others
            position = key.find(part, position, end)
            if position < 0:
                return False
            position += len(part)
        return True

    return test


def _compile(name: str, given: bytes) -> Pattern:
    pattern = b"(?s)^" + _glob_to_regex(given) + b"$" if name == "glob" else given
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PROGRAM
    if not is_utf8(given):
        options.encoding = re2.Options.Encoding.LATIN1  # every byte is a character
    try:
        program = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(f"{name}:{given.decode('utf-8', 'replace')} cannot be understood: {text}") from None
    return Pattern(program.search, program.programsize)


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
