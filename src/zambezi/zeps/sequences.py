"""Lists of sequences as bytes, in the messages of the extension "shared" and in the state of a group."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from struct import Struct
from typing import Final

from zambezi.zeps.errors import ZepsError

MOST: Final = 8192  # sequences in one message
SIZE: Final = 8
_DELIVERIES: Final = Struct(">QI")
_SWAPPED: Final = sys.byteorder == "little"


class BadSequences(ZepsError):
    """The bytes are not a list of sequences."""


def pack_sequences(sequences: Iterable[int]) -> bytes:
    """Return sequences as bytes, eight for each."""
    found = array("Q", sequences)
    if _SWAPPED:
        found.byteswap()
    return found.tobytes()


def unpack_sequences(octets: bytes) -> list[int]:
    """Return the sequences in bytes; raise `BadSequences` if the last one is not complete."""
    if len(octets) % SIZE:
        raise BadSequences(f"{len(octets)} bytes are no list of sequences of {SIZE} bytes")
    found = array("Q", octets)
    if _SWAPPED:
        found.byteswap()
    return found.tolist()


def pack_deliveries(deliveries: Iterable[tuple[int, int]]) -> bytes:
    """Return sequences, and how often each was delivered, as bytes."""
    return b"".join([_DELIVERIES.pack(*pair) for pair in deliveries])


def unpack_deliveries(octets: bytes) -> dict[int, int]:
    """Return how often messages were delivered, by sequence; raise `BadSequences` if the bytes are not valid."""
    if len(octets) % _DELIVERIES.size:
        raise BadSequences(f"{len(octets)} bytes are no list of deliveries of {_DELIVERIES.size} bytes")
    return dict(_DELIVERIES.iter_unpack(octets))
