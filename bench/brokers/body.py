"""What is published in a measurement: bodies of one size, each with its number, the last one marked as the last.

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
KEY: Final = "k"  # of every message, and what the stream is called where it needs a name


@dataclass(frozen=True, slots=True)
class Case:
    """What one measurement is about."""

    count: int  # messages that are published
    size: int = 100  # octets of a body
    subscribers: int = 1
    rate: float = 0  # messages a second; 0: as fast as it goes
    prefixes: int = 0  # distinct keys (and, where `each`, distinct patterns); 0: one key, and no pattern
    each: bool = False

    def body(self, number: int) -> bytes:
        stamp = b"T%020d" % time.monotonic_ns() if self.rate else b""
        mark = END if number == self.count - 1 else b""
        return (b"%010d" % number + stamp).ljust(self.size - len(mark), b"x") + mark

    def bodies(self) -> Iterator[bytes]:
        """All bodies: made before the clock starts, unless they are stamped."""
        made = map(self.body, range(self.count))
        return made if self.rate else iter(list(made))

    def key(self, number: int) -> str:
        return f"{KEY}{number % self.prefixes:03d}." if self.prefixes else KEY

    def share(self, pattern: str) -> int:
        """How many messages match a pattern: one key, or all."""
        if not self.each:
            return self.count
        number = int(pattern[len(KEY) : -1])
        return (self.count - number + self.prefixes - 1) // self.prefixes


def delays(data: bytes | memoryview) -> list[float]:
    """The ages, in seconds, of the stamped bodies in what was just received."""
    now = time.monotonic_ns()
    return [(now - int(stamp)) / 1e9 for stamp in STAMP.findall(data)]


def paced_blocking(case: Case) -> Iterator[bytes]:
    """Bodies at the rate of the case."""
    start = time.monotonic()
    for number in range(case.count):
        time.sleep(max(0.0, start + number / case.rate - time.monotonic()))
        yield case.body(number)


async def paced(case: Case) -> AsyncIterator[bytes]:
    """The same on asyncio."""
    start = time.monotonic()
    for number in range(case.count):
        await asyncio.sleep(max(0.0, start + number / case.rate - time.monotonic()))
        yield case.body(number)
