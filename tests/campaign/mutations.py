"""Mutations of valid inputs: noise alone would never get beyond the first check of a parser.

A mutator is a function of its random numbers: the same seed gives the same inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

Frames: TypeAlias = tuple[bytes, ...]

LARGEST: Final = 8192  # bytes of an input; most are as long as their seed
_FIELDS: Final = (1, 2, 4, 8)  # the sizes of numbers in our protocols
_EDGES: Final = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0xFFFFFFFF,
    (1 << 63) - 1,
    (1 << 64) - 1,
)


class Mutator:
    """Changes of bytes and of lists of frames, chosen by random numbers."""

    def __init__(self, chance: Random) -> None:
        self._random = chance.random
        self._octets = chance.randbytes
        self._changes: tuple[Callable[[bytes, bytes], bytes], ...] = (
            self._flip,
            self._flip,
            self._replace,
            self._set_number,
            self._set_number,
            self._cut,
            self._delete,
            self._insert,
            self._repeat,
            self._splice,
        )
        self._rearrangements: tuple[Callable[[list[bytes]], None], ...] = (
            self._drop_frame,
            self._repeat_frame,
            self._swap_frames,
            self._add_frame,
        )

    def below(self, limit: int) -> int:
        """Return a number from 0 to `limit - 1`; faster than `Random.randrange`."""
        return int(self._random() * limit)

    def mutate(self, octets: bytes, other: bytes = b"") -> bytes:
        """Return bytes that differ from a valid input by one to three changes; `other` is a second valid input."""
        changes = self._changes
        for _ in range(1 + int(self._random() ** 3 * 3)):
            octets = changes[int(self._random() * len(changes))](octets, other)
        return octets[:LARGEST]

    def mutate_frames(self, frames: Frames, other: Frames = ()) -> Frames:
        """Return a message with one frame changed; or with its frames dropped, repeated, swapped or added to."""
        changed = list(frames)
        if self._random() < 0.2:
            self._rearrangements[int(self._random() * len(self._rearrangements))](changed)
        else:
            at = int(self._random() * len(changed))
            changed[at] = self.mutate(changed[at], other[int(self._random() * len(other))] if other else b"")
        return tuple(changed) or (b"",)

    # Changes of bytes

    def _flip(self, octets: bytes, other: bytes) -> bytes:
        if not octets:
            return b"\0"
        at = int(self._random() * len(octets))
        return octets[:at] + bytes((octets[at] ^ 1 << int(self._random() * 8),)) + octets[at + 1 :]

    def _replace(self, octets: bytes, other: bytes) -> bytes:
        at = int(self._random() * len(octets))
        return octets[:at] + self._octets(1) + octets[at + 1 :]

    def _set_number(self, octets: bytes, other: bytes) -> bytes:
        """Replace what may be a length or a sequence: by an edge of its range, or by one more or less."""
        size = _FIELDS[int(self._random() * 4)]
        at = int(self._random() * len(octets))
        if self._random() < 0.5:
            value = _EDGES[int(self._random() * len(_EDGES))]
        else:
            value = int.from_bytes(octets[at : at + size]) + int(self._random() * 9) - 4
        return octets[:at] + (value % (1 << 8 * size)).to_bytes(size) + octets[at + size :]

    def _cut(self, octets: bytes, other: bytes) -> bytes:
        return octets[: int(self._random() * len(octets))]

    def _delete(self, octets: bytes, other: bytes) -> bytes:
        at = int(self._random() * len(octets))
        return octets[:at] + octets[at + 1 + int(self._random() ** 2 * 16) :]

    def _insert(self, octets: bytes, other: bytes) -> bytes:
        at = int(self._random() * len(octets))
        return octets[:at] + self._octets(1 + int(self._random() ** 2 * 16)) + octets[at:]

    def _repeat(self, octets: bytes, other: bytes) -> bytes:
        """Repeat a piece: mostly a few times, sometimes thousands of times."""
        at = int(self._random() * len(octets))
        piece = octets[at : at + 1 + int(self._random() ** 2 * 16)]
        times = 2 + int(self._random() ** 8 * LARGEST)
        return octets[:at] + piece * times + octets[at + len(piece) :]

    def _splice(self, octets: bytes, other: bytes) -> bytes:
        return octets[: int(self._random() * len(octets))] + other[int(self._random() * len(other)) :]

    # Changes of lists of frames

    def _drop_frame(self, frames: list[bytes]) -> None:
        del frames[int(self._random() * len(frames))]

    def _repeat_frame(self, frames: list[bytes]) -> None:
        at = int(self._random() * len(frames))
        frames[at:at] = [frames[at]] * (1 + int(self._random() ** 8 * 1000))

    def _swap_frames(self, frames: list[bytes]) -> None:
        one, other = int(self._random() * len(frames)), int(self._random() * len(frames))
        frames[one], frames[other] = frames[other], frames[one]

    def _add_frame(self, frames: list[bytes]) -> None:
        frames.insert(int(self._random() * (len(frames) + 1)), self._octets(int(self._random() ** 2 * 40)))


def pick(chance: Random, seeds: Sequence[bytes]) -> bytes:
    """Return one of the seeds."""
    return seeds[int(chance.random() * len(seeds))]
