"""The line of each key in a TOML text, for the texts of mistakes.

The parser of the standard library does not report lines. This one reads a text that the standard parser has accepted,
and only looks at keys: of a value it finds no more than its end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, TypeAlias

# Names, from the outermost table inwards. In a list of tables, [[name]], the number of the table follows its name.
KeyPath: TypeAlias = tuple[str | int, ...]

_PART: Final = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*")|'([^']*)'|([\w-]+))\s*(\.?)""", re.ASCII)
_FENCES: Final = ('"""', "'''")


class KeyLines:
    """The lines of the keys of a text.

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
        """Return the line of a key, or else of the table that it belongs to; 0 if the text has neither."""
        for depth in range(len(path), 0, -1):
            if path[:depth] in self._lines:
                return self._lines[path[:depth]]
        return 0


def _found(text: str) -> Iterator[tuple[KeyPath, int]]:
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    value = _Value()
    for number, line in enumerate(text.split("\n"), 1):
        if value.is_open:
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
    """Return the full path of a header: one below a list of tables belongs to the last table of the list."""
    made: KeyPath = ()
    for part in path[:-1]:
        made = (*made, part)
        if made in counts:
            made = (*made, counts[made])
    return (*made, *path[-1:])


def _key(text: str) -> tuple[KeyPath, str]:
    """Return the key at the start of a text, and the rest of the text."""
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
        return quoted[1:-1]  # it has an escape that JSON does not have


class _Value:
    """The value of a key, read line by line until it ends."""

    def __init__(self) -> None:
        self._depth = 0
        self._fence = ""

    @property
    def is_open(self) -> bool:
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
    """Return whether an odd number of backslashes precedes a position."""
    before = line[:position]
    return bool((len(before) - len(before.rstrip("\\"))) % 2)
