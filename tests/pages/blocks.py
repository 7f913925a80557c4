"""The blocks of code on the pages: what is in a fence, and after which words.

The word after a fence says what a block is, and with that which test it gets:

    python                  a program; the blocks of a page are one, and it runs            tests/test_examples.py
    python title="Spark"    a program that wants a Spark session                            tests/spark/
    console                 what is typed at a terminal, after `$`, and what is answered    tests/pages/test_sessions.py
    sh                      what cannot be run here: its words are checked                  tests/pages/test_commands.py
    toml, json, text, ...   what a person reads: each is compared with the real thing       tests/pages/test_texts.py
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
    kind: str  # what stands after the fence; "indented" for a block without one
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path, *kinds: str) -> list[Block]:
    """The blocks of a page that are of some kinds."""
    return [block for block in split(page.relative_to(ROOT).as_posix(), page.read_text()) if block.kind in kinds]


def all_blocks(*kinds: str) -> list[Block]:
    """The blocks of all pages, or those of some kinds."""
    every = [block for page in PAGES for block in split(page.relative_to(ROOT).as_posix(), page.read_text())]
    return [block for block in every if block.kind in kinds] if kinds else every


def split(page: str, text: str) -> Iterator[Block]:
    """The blocks of a text."""
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
    """A page without its blocks."""
    return re.sub(r"^\s*(```+).*?^\s*\1\s*$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
