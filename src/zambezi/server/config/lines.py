"""Where each key of a TOML text stands: its line, for those who must tell of a mistake in it.

The parser of the standard library keeps no lines. This reads a text that it has found good, and looks no further than
the keys: of a value it only wants to know where it ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, TypeAlias

# The names from the outermost table on; in a list of tables, [[so]], the number of the table comes after its name.
KeyPath: TypeAlias = tuple[str | int, ...]

_PART: Final = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*")|'([^']*)'|([\w-]+))\s*(\.?)""", re.ASCII)
_FENCES: Final = ('"""', "'''")


class KeyLines:
    """The lines of a text's keys.

    >>> lines = KeyLines('[zeps]\\nenabled = true\\n[[rules]]\\n[[rules]]\\nkeys = ["ann"]')
    >>> lines.line(("zeps", "enabled")), lines.line(("rules", 1, "keys")), lines.line(("zre",))
    (2, 5, 0)
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = {}
        for path, line in _found(text):
            for depth in range(1, len(path) + 1):
                self._lines.setdefault(path[:depth], line)

    def line(self, path: KeyPath) -> int:
        """The line of a key, or of the table that it would stand in; 0 if neither is there."""
        for depth in range(len(path), 0, -1):
            if path[:depth] in self._lines:
                return self._lines[path[:depth]]
        return 0


def _found(text: str) -> Iterator[tuple[KeyPath, int]]:
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    value = _Value()
    for number, line in enumerate(text.split("\n"), 1):
        if value.goes_on:
            value.read(line)
            continue
        start = line.strip()
        if not start or start.startswith("#"):
            continue
        if start.startswith("[["):
            path = _inside(_key(start[2:])[0], counts)
            counts[path] = counts.get(path, -1) + 1
            table = (*path, counts[path])
            yield table, number
        elif start.startswith("["):
            table = _inside(_key(start[1:])[0], counts)
            yield table, number
        else:
            key, rest = _key(start)
            yield (*table, *key), number
            value = _Value()
            value.read(rest)


def _inside(path: KeyPath, counts: dict[KeyPath, int]) -> KeyPath:
    """A header's path; what stands below a list of tables is in its last one."""
    made: KeyPath = ()
    for part in path[:-1]:
        made = (*made, part)
        if made in counts:
            made = (*made, counts[made])
    return (*made, *path[-1:])


def _key(text: str) -> tuple[KeyPath, str]:
    """The key that a text begins with, and what follows it."""
    path: list[str] = []
    position = 0
    while match := _PART.match(text, position):
        quoted, literal, bare, dot = match.groups()
        path.append(_unescaped(quoted) if quoted is not None else literal if literal is not None else bare)
        position = match.end()
        if not dot:
            break
    return tuple(path), text[position:]


def _unescaped(quoted: str) -> str:
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError:
        return quoted[1:-1]  # an escape that JSON does not have


class _Value:
    """What follows a key, line by line, until it is over."""

    def __init__(self) -> None:
        self._depth = 0
        self._fence = ""

    @property
    def goes_on(self) -> bool:
        return bool(self._depth or self._fence)

    def read(self, line: str) -> None:
        position = 0
        while position < len(line):
            position = self._step(line, position)

    def _step(self, line: str, position: int) -> int:
        if self._fence:
            end = line.find(self._fence, position)
            while self._fence == '"""' and end > 0 and _escaped(line, end):
                end = line.find(self._fence, end + 1)
            if end < 0:
                return len(line)
            self._fence = ""
            return end + 3
        if line.startswith(_FENCES, position):
            self._fence = line[position : position + 3]
            return position + 3
        char = line[position]
        if char == "#":
            return len(line)
        if char in "\"'":
            end = line.find(char, position + 1)
            while char == '"' and end > 0 and _escaped(line, end):
                end = line.find(char, end + 1)
            return end + 1 if end > 0 else len(line)
        self._depth += (char in "[{") - (char in "]}")
        return position + 1


def _escaped(line: str, position: int) -> bool:
    """Whether an odd number of backslashes stands before a place."""
    before = line[:position]
    return bool((len(before) - len(before.rstrip("\\"))) % 2)
