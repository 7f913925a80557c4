"""The table of keys of a closed segment, `<first sequence>.key`: in which batches messages with a key are.

Segments of compacted streams have one, so that the last message of a key is found without reading the stream. The file
has a head, and a sorted list of numbers of eight bytes:

    head     "ZKEY", the CRC-32 of the rest of the file, the number of numbers (8)
    number   the digest of a key in the high 40 bits, and the number of an index entry in the low 24

Two keys can have the same digest: a batch of the table need not have the key, but no other batch has it. A table can
be missing: then the segment is read. It is written once, and never changed.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final
from zlib import crc32

from zambezi.zeps.journal.entry import count_before
from zambezi.zeps.journal.files import open_file

KEYS: Final = ".key"

_HEAD: Final = Struct(">4sIQ")
_MAGIC: Final = b"ZKEY"
_NUMBER: Final = Struct(">Q")
_BITS: Final = 24  # of the number of an entry
_DIGEST: Final = 5  # bytes
_BUCKETS: Final = 256
_PIECE: Final = 1 << 20


def _digest(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=_DIGEST).digest())


class KeyTable:
    """A table that is being made."""

    def __init__(self) -> None:
        # Many small lists instead of one, because a thread that sorts a long list keeps all others waiting.
        self._buckets = [array("Q") for _ in range(_BUCKETS)]
        self._is_possible = True

    def add(self, number: int, keys: Iterable[bytes]) -> None:
        """Add the keys of a batch, whose index entry has this number."""
        if number >> _BITS:
            self._is_possible = False
            return
        buckets = self._buckets
        for key in set(keys):
            digest = _digest(key)
            buckets[digest >> 8 * (_DIGEST - 1)].append(digest << _BITS | number)

    def pieces(self) -> Iterator[bytes]:
        """Yield the content of the file. A table of a segment with too many batches is empty, and is no table."""
        if not self._is_possible:
            return
        crc = count = 0
        for place, bucket in enumerate(self._buckets):
            found = array("Q", sorted(bucket))
            if sys.byteorder == "little":
                found.byteswap()
            self._buckets[place] = found
            crc = crc32(found.tobytes(), crc)
            count += len(found)
        yield _HEAD.pack(_MAGIC, crc, count)
        for bucket in self._buckets:
            yield bucket.tobytes()


def batches_of(path: str, key: bytes, checked: set[str]) -> list[int] | None:
    """Return the numbers of the batches that can have a key, in order; None if the segment has no whole table.

    `checked` has the tables whose CRC is known to be right.
    """
    try:
        descriptor = open_file(path + KEYS)
    except OSError:
        return None
    try:
        head = os.pread(descriptor, _HEAD.size, 0)
        if len(head) < _HEAD.size:
            return None
        magic, crc, count = _HEAD.unpack(head)
        if magic != _MAGIC or os.fstat(descriptor).st_size != _HEAD.size + count * _NUMBER.size:
            return None
        if path not in checked:
            if _crc_of(descriptor) != crc:
                return None
            checked.add(path)
        return list(_find(descriptor, count, _digest(key)))
    finally:
        os.close(descriptor)


def _crc_of(descriptor: int) -> int:
    crc, offset = 0, _HEAD.size
    while octets := os.pread(descriptor, _PIECE, offset):
        crc = crc32(octets, crc)
        offset += len(octets)
    return crc


def _find(descriptor: int, count: int, digest: int) -> Iterator[int]:
    def number(place: int) -> int:
        return int(_NUMBER.unpack(os.pread(descriptor, _NUMBER.size, _HEAD.size + place * _NUMBER.size))[0])

    place = count_before(count, lambda at: number(at) >> _BITS < digest)
    while place < count and (found := number(place)) >> _BITS == digest:
        yield found & (1 << _BITS) - 1
        place += 1
