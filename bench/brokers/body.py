"""The messages of a measurement: bodies of one size, each with its number; the last one has a mark.

number (10 digits)  [ T nanoseconds (20 digits) ]  padding  [ mark ]
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

END: Final = b"<the-end>"
STAMP: Final = re.compile(rb"T(\d{20})")
KEY: Final = "k"  # the key of every message, and the name of the stream


@dataclass(frozen=True, slots=True)
class Case:
    """The parameters of one measurement."""

    count: int  # messages to publish
    size: int = 100  # bytes of a body
    subscribers: int = 1
    rate: float = 0  # messages per second; 0: as fast as possible
    prefixes: int = 0  # distinct keys; 0: one key and no pattern
    each: bool = False  # whether each key has its own pattern

    def body(self, number: int) -> bytes:
        stamp = b"T%020d" % time.monotonic_ns() if self.rate else b""
        mark = END if number == self.count - 1 else b""
        return (b"%010d" % number + stamp).ljust(self.size - len(mark), b"x") + mark

    def bodies(self) -> Iterator[bytes]:
        """Return all bodies, made before the measurement starts unless they have time stamps."""
        made = map(self.body, range(self.count))
        return made if self.rate else iter(list(made))

    def key(self, number: int) -> str:
        return f"{KEY}{number % self.prefixes:03d}." if self.prefixes else KEY

    def share(self, pattern: str) -> int:
        """Return how many messages match a pattern: those of one key, or all."""
        if not self.each:
            return self.count
        number = int(pattern[len(KEY) : -1])
        return (self.count - number + self.prefixes - 1) // self.prefixes


def delays(data: bytes | memoryview) -> list[float]:
    """Return the ages, in seconds, of the stamped bodies in data that has just arrived."""
    now = time.monotonic_ns()
    return [(now - int(stamp)) / 1e9 for stamp in STAMP.findall(data)]


def paced_blocking(case: Case) -> Iterator[bytes]:
    """Yield bodies at the rate of the case."""
    start = time.monotonic()
    for number in range(case.count):
        time.sleep(max(0.0, start + number / case.rate - time.monotonic()))
        yield case.body(number)


async def paced(case: Case) -> AsyncIterator[bytes]:
    """Yield bodies at the rate of the case, on asyncio."""
    start = time.monotonic()
    for number in range(case.count):
        await asyncio.sleep(max(0.0, start + number / case.rate - time.monotonic()))
        yield case.body(number)
