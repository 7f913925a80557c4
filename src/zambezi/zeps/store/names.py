"""The names of objects. What a planner and the next owner of a stream need is in the names, so that a LIST tells it.

    zambezi.json                                          the format of everything under the prefix
    brokers/<id>.json                                     a heartbeat: which broker lives, and its endpoints
    streams/<name>/<generation>/stream.json               the stream's name, incarnation and settings
    streams/<name>/<generation>/chunks/<number>           messages that were published in one go, or a fence
    streams/<name>/<generation>/segments/<last chunk>-<first>-<last>-<first time>-<last time>-<bytes>[-chunk]
    streams/<name>/<generation>/segments/first-<first>-<time>

A segment whose name ends with `-chunk` is an empty object: its bytes are those of its last chunk, which stays.

A new segment has a higher last chunk than all others, so its name is the last one. That matters because a LIST of many
objects comes in pages: a page that was read before never hides a new segment whose parts are removed already.

An empty object `first-...` says that the stream begins with that sequence, whatever messages before it the objects
have: an operator has trimmed the stream, or retention has removed them. The highest one counts. It sorts after all
segments and all lower ones, so no page hides it either.

A stream that is deleted and made again has the next generation, so that objects of the old stream that arrive late
never mix with those of the new one. Names of streams are encoded like the directories of journals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from zambezi.zeps.journal.entry import HIGHEST
from zambezi.zeps.journal.names import directory_of

FORMAT_KEY: Final = "zambezi.json"
BROKERS: Final = "brokers"
STREAMS: Final = "streams"
_CHUNK: Final = "-chunk"
_SEGMENT: Final = re.compile(r"(\d{20})-(\d{20})-(\d{1,19})-(\d{1,19})-(\d{1,19})-(\d{1,19})(-chunk)?")
_BEGINNING: Final = re.compile(r"first-(\d{20})-(\d{1,19})")
_STREAM: Final = re.compile(rf"{STREAMS}/([^/]+)/(\d{{10}})/stream\.json")


class SegmentName(NamedTuple):
    """The facts in the name of a segment. An empty one has `first` = `last` + 1. Times are microseconds since 1970."""

    last_chunk: int
    first: int
    last: int
    first_time: int
    last_time: int
    octets: int  # of messages: the object is larger
    is_chunk: bool = False  # whether the last chunk, and no other object, has the bytes

    def __str__(self) -> str:
        facts = f"{self.last_chunk:020}-{self.first:020}-{self.last}-{self.first_time}-{self.last_time}-{self.octets}"
        return facts + _CHUNK if self.is_chunk else facts

    @property
    def rank(self) -> tuple[int, int]:
        """The order in which segments replace each other. The highest one tells the next number: it is never removed.

        Of two that end with the same chunk, the one that begins earlier has all that the other one has.
        """
        return self.last_chunk, -self.first


def parse_segment(name: str) -> SegmentName | None:
    """Return the facts in the name of a segment, or None if no broker writes such a name."""
    found = _SEGMENT.fullmatch(name) if name.isascii() else None
    if found is None:
        return None
    *numbers, suffix = found.groups()
    last_chunk, first, last, first_time, last_time, octets = map(int, numbers)
    facts = SegmentName(last_chunk, first, last, first_time, last_time, octets, suffix is not None)
    is_possible = 1 <= facts.first <= facts.last + 1 and max(facts) <= HIGHEST and str(facts) == name
    return facts if is_possible else None


class Beginning(NamedTuple):
    """The first sequence of a stream, and the time of that message in microseconds since 1970, if it exists."""

    first: int
    time: int

    def __str__(self) -> str:
        return f"first-{self.first:020}-{self.time}"


ALL: Final = Beginning(1, 0)  # the beginning of a stream from which nothing was removed


def parse_beginning(name: str) -> Beginning | None:
    """Return the facts in the name of a beginning, or None if no broker writes such a name."""
    found = _BEGINNING.fullmatch(name) if name.isascii() else None
    if found is None:
        return None
    facts = Beginning(int(found[1]), int(found[2]))
    return facts if facts.first >= 1 and max(facts) <= HIGHEST and str(facts) == name else None


def parse_chunk(name: str) -> int | None:
    """Return the number of a chunk, or None if no broker writes such a name."""
    if len(name) != 20 or not (name.isascii() and name.isdigit()):
        return None
    number = int(name)
    return number if 1 <= number <= HIGHEST else None


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """The place of one generation of a stream in the store."""

    directory: str  # the stream's name, encoded
    generation: int = 1

    @classmethod
    def of(cls, name: str, generation: int = 1) -> StreamPlace:
        """Return the place of a stream."""
        return cls(directory_of(name), generation)

    @property
    def path(self) -> str:
        return f"{STREAMS}/{self.directory}/{self.generation:010}"

    @property
    def identity(self) -> str:
        """The key of the object that has the stream's name and incarnation."""
        return f"{self.path}/stream.json"

    @property
    def chunks(self) -> str:
        return f"{self.path}/chunks"

    @property
    def segments(self) -> str:
        return f"{self.path}/segments"

    def chunk(self, number: int) -> str:
        """Return the key of a chunk."""
        return f"{self.chunks}/{number:020}"

    def segment(self, name: SegmentName) -> str:
        """Return the key of the object that has the bytes of a segment."""
        return self.chunk(name.last_chunk) if name.is_chunk else self.listed(name)

    def listed(self, name: SegmentName | Beginning) -> str:
        """Return the key under which a segment, or a beginning, is listed."""
        return f"{self.segments}/{name}"


def parse_identity(key: str) -> StreamPlace | None:
    """Return the place of which a key is the identity; None for other keys."""
    found = _STREAM.fullmatch(key)
    return StreamPlace(found[1], int(found[2])) if found and int(found[2]) else None


def last_part(key: str) -> str:
    """Return the part of a key after its last slash."""
    return key.rpartition("/")[2]
