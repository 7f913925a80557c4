"""The blocks of code on the pages: the text inside a fence, and the words after the fence.

The words after a fence say what kind of block it is, and so which test checks it:

    python                  a program; all blocks of a page are run as one program          tests/test_examples.py
    python title="Spark"    a program that needs a Spark session                            tests/spark/
    console                 a transcript: commands after `$`, and their output              tests/pages/test_sessions.py
    sh                      commands that cannot run in a test: their syntax is checked     tests/pages/test_commands.py
    toml, json, text, ...   a file or a picture, compared with the real thing               tests/pages/test_texts.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SPARK = 'python title="Spark"'


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code on a page."""

    page: str
    line: int
    kind: str  # the words after the fence; "indented" for a block without a fence
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path, *kinds: str) -> list[Block]:
    """Return the blocks of a page that are of these kinds."""
    return [block for block in split(page.relative_to(ROOT).as_posix(), page.read_text()) if block.kind in kinds]


def all_blocks(*kinds: str) -> list[Block]:
    """Return the blocks of all pages, or only those of these kinds."""
    every = [block for page in PAGES for block in split(page.relative_to(ROOT).as_posix(), page.read_text())]
    return [block for block in every if block.kind in kinds] if kinds else every


def split(page: str, text: str) -> Iterator[Block]:
    """Yield the blocks of a text."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        begin, line = number, lines[number]
        if fence := re.fullmatch(r"\s*(```+|~~~+)\s*(.*?)\s*", line):
            while lines[number + 1].strip() != fence[1]:
                number += 1
            yield Block(page, begin + 1, fence[2], "".join(f"{one}\n" for one in lines[begin + 1 : number + 1]))
            number += 1
        elif line.startswith("    ") and not (begin and lines[begin - 1].strip()):
            while number + 1 < len(lines) and (lines[number + 1].startswith("    ") or not lines[number + 1].strip()):
                number += 1
            yield Block(page, begin + 1, "indented", "\n".join(lines[begin : number + 1]))
        number += 1


def prose(page: Path) -> str:
    """Return a page without its blocks."""
    return re.sub(r"^\s*(```+).*?^\s*\1\s*$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
