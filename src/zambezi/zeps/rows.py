"""Messages of one size as the rows of a table: which rows have a key with a prefix, and some rows as one piece.

A mask says which rows are meant: it has a byte for each row, 1 or 0. The columns of a prefix give the mask of all rows
at once, so no key is cut out. Then `struct` cuts 32 rows with one call: for each way to choose from 32 rows there is a
format, which skips the other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from struct import Struct, unpack
from typing import Final

from zambezi.zeps.layout import DELIVER_KEY
from zambezi.zmtp.runs import Run, find_run

_GROUP: Final = 32  # rows that are cut with one call
_FORMATS: Final = 256  # formats that are kept for rows of one size: about 1 kB each
_STRIDES: Final = 16  # sizes of rows whose formats are kept
_ONLY: Final = [bytes(value) + b"\1" + bytes(255 - value) for value in range(256)]  # translates one value to 1

_Cut = Callable[[bytes, int], Sequence[bytes]]


class Rows:
    """The messages of a block that all have one size, and keys of one length."""

    __slots__ = ("_length", "_run", "stride")

    def __init__(self, run: Run, length: int) -> None:
        self._run = run
        self._length = length  # of a key
        self.stride = run.octets // run.count

    @property
    def count(self) -> int:
        return self._run.count

    def keys(self) -> list[bytes]:
        """Return the routing key of each message."""
        return self._run.cut(DELIVER_KEY, DELIVER_KEY + self._length)

    def mask(self, prefixes: Iterable[bytes], exact: Iterable[bytes]) -> bytes:
        """Return the mask of the messages whose key begins with one of the prefixes, or is one of the exact keys."""
        length = self._length
        wanted = [prefix for prefix in prefixes if len(prefix) <= length]
        wanted += [key for key in exact if len(key) == length]
        found = 0
        for values in wanted:
            found |= self._number(values)
        return found.to_bytes(self.count, "little")

    def _number(self, values: bytes) -> int:
        """Return the mask of the messages whose key begins with some bytes, as a number: then `&` is fast."""
        run = self._run
        count = run.count
        found: int | None = None
        for place, value in enumerate(values, DELIVER_KEY):
            column = run.column(place)
            if column.count(value) < count:
                number = int.from_bytes(column.translate(_ONLY[value]), "little")
                found = number if found is None else found & number
        return int.from_bytes(b"\1" * count, "little") if found is None else found


def find_rows(octets: bytes, count: int) -> Rows | None:
    """Return the `count` messages of a valid block as rows; None if they are few, or differ in size."""
    run = find_run(octets, 0, len(octets)) if octets else None
    if run is None or run.count != count or run.octets != len(octets):
        return None
    length = run.first(DELIVER_KEY - 1, DELIVER_KEY)
    return Rows(run, length[0]) if run.has(DELIVER_KEY - 1, length) else None


def pick_rows(octets: bytes, stride: int, mask: bytes) -> bytes:
    """Return the rows that a mask has, as one piece; `stride` is the size of a row."""
    whole = len(mask) // _GROUP * _GROUP
    bits = 0
    for place in range(8):
        bits |= int.from_bytes(mask[place:whole:8], "little") << place
    groups = unpack(f"<{whole // _GROUP}I", bits.to_bytes(whole // 8, "little"))
    cuts = _cuts(stride)
    pieces: list[bytes] = []
    for group, start in zip(groups, range(0, whole * stride, _GROUP * stride), strict=True):
        if group:
            pieces += cuts[group](octets, start)
    for place in range(whole, len(mask)):
        if mask[place]:
            pieces.append(octets[place * stride : (place + 1) * stride])
    return b"".join(pieces)


class _Cuts(dict[int, _Cut]):
    """The formats for rows of one size, by the bits of the rows that are meant. Each is made when it is first used.

    Keys in turn need few formats. Keys in any order would need one for each of 2^32 ways to choose: when there are
    `_FORMATS`, the rows of other ways are cut eight at a time.
    """

    def __init__(self, stride: int) -> None:
        self._stride = stride
        self._eights: dict[int, _Cut] = {}

    def __missing__(self, group: int) -> _Cut:
        if len(self) >= _FORMATS:
            return partial(self._cut_eights, group)
        made = self[group] = self._format(group, _GROUP)
        return made

    def _cut_eights(self, group: int, octets: bytes, start: int) -> list[bytes]:
        pieces: list[bytes] = []
        for eight in group.to_bytes(_GROUP // 8, "little"):
            if eight:
                cut = self._eights.get(eight)
                if cut is None:
                    cut = self._eights[eight] = self._format(eight, 8)
                pieces += cut(octets, start)
            start += 8 * self._stride
        return pieces

    def _format(self, group: int, rows: int) -> _Cut:
        fields = [f"{self._stride}{'s' if group >> place & 1 else 'x'}" for place in range(rows)]
        return Struct("".join(fields)).unpack_from


@lru_cache(maxsize=_STRIDES)
def _cuts(stride: int) -> _Cuts:
    return _Cuts(stride)
