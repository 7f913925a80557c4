"""Messages of one size as the rows of a table: which rows have a key with a prefix, and some rows as one piece.

A mask says which rows are meant: it has a byte for each row, 1 or 0. The columns of a prefix give the mask of all rows
at once, so no key is cut out. Then `struct` cuts eight rows with one call: for each of the 256 ways to choose from
eight rows there is a format, which skips the other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct
from typing import Final

from zambezi.zeps.layout import DELIVER, DELIVER_KEY
from zambezi.zmtp.runs import Run, find_run

_GROUP: Final = 8  # rows that are cut with one call
_STRIDES: Final = 16  # sizes of rows whose formats are kept: about 100 kB each
_ONLY: Final = [bytes(value) + b"\1" + bytes(255 - value) for value in range(256)]  # translates one value to 1

_Cut = Callable[[bytes, int], tuple[bytes, ...]]


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
    if run is None or run.count != count or run.octets != len(octets) or not run.has(0, DELIVER):
        return None
    length = run.first(DELIVER_KEY - 1, DELIVER_KEY)
    return Rows(run, length[0]) if run.has(DELIVER_KEY - 1, length) else None


def pick_rows(octets: bytes, stride: int, mask: bytes) -> bytes:
    """Return the rows that a mask has, as one piece; `stride` is the size of a row."""
    whole = len(mask) // _GROUP * _GROUP
    groups = 0
    for place in range(_GROUP):
        groups |= int.from_bytes(mask[place:whole:_GROUP], "little") << place
    cuts = _cuts(stride)
    pieces: list[bytes] = []
    start = 0
    for group in groups.to_bytes(whole // _GROUP, "little"):
        if group:
            pieces += cuts[group](octets, start)
        start += _GROUP * stride
    for place in range(whole, len(mask)):
        if mask[place]:
            pieces.append(octets[place * stride : (place + 1) * stride])
    return b"".join(pieces)


class _Cuts(dict[int, _Cut]):
    """The formats for rows of one size, by the bits of the rows that are meant. Each is made when it is first used."""

    def __init__(self, stride: int) -> None:
        self._stride = stride

    def __missing__(self, group: int) -> _Cut:
        made = self[group] = Struct("".join([self._field(group, place) for place in range(_GROUP)])).unpack_from
        return made

    def _field(self, group: int, place: int) -> str:
        return f"{self._stride}{'s' if group >> place & 1 else 'x'}"


@lru_cache(maxsize=_STRIDES)
def _cuts(stride: int) -> _Cuts:
    return _Cuts(stride)
