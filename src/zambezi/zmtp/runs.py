"""Runs: consecutive single frames of one size, so that their headers are equal, too.

If a frame of `n` bytes starts here, the next frame starts `n` bytes and a header later; if its header is the same, so
does the frame after it, and so on. Strided slices of a read, compared in C, prove a whole run of frames at once. The
proof is exact: each header is checked at the place where the header before it says it must be. `struct` then cuts the
run up, 64 frames to a call.

With CURVE each frame of a message is encrypted alone, so the frames of equal messages have a few sizes in turn. A
`Cycle` proves and cuts 60 of them at once, which is a multiple of the frames of most messages.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

LONG: Final = 0x02
SHORT_HEADER: Final = 2
LONG_HEADER: Final = 9
LEAST: Final = 16  # frames of a read that are worth the search

_LONG_SIZE: Final = Struct(">Q")
_FIRST_WINDOW: Final = 64
_SPLIT: Final = 64
_OCTETS: Final = [bytes((value,)) for value in range(256)]
_CYCLE: Final = 60
_LARGEST: Final = 1 << 16  # bytes of a cycle; larger frames cost more than to find them


class Run:
    """A run, as it stands in a read: `count` frames of `size` bytes. It is cut into frames when they are needed."""

    __slots__ = ("_octets", "_start", "_stride", "count", "size")

    def __init__(self, octets: bytes, start: int, header: int, size: int, count: int) -> None:
        self._octets = octets
        self._start = start + header  # of the first frame, without its header
        self._stride = header + size
        self.size = size
        self.count = count

    def has(self, offset: int, values: bytes) -> bool:
        """Return whether each frame has these bytes at an offset."""
        return _have(self._octets, self._start + offset, self._stride, self.count, values)

    def column(self, offset: int) -> bytes:
        """Return the byte at an offset of each frame."""
        start = self._start + offset
        return self._octets[start : start + (self.count - 1) * self._stride + 1 : self._stride]

    def first(self, start: int, stop: int) -> bytes:
        """Return some bytes of the first frame."""
        return self._octets[self._start + start : self._start + stop]

    def cut(self, start: int = 0, stop: int | None = None) -> list[bytes]:
        """Return the frames, or of each frame the bytes from `start` to `stop`."""
        stop = self.size if stop is None else stop
        return cut_rows(self._octets, self._start + start, self._stride, stop - start, self.count)

    @property
    def octets(self) -> int:
        """The number of bytes that the frames took on the wire, with headers."""
        return self.count * self._stride


def find_run(data: bytes, pos: int, room: int) -> Run | None:
    """Return the run of frames from `pos` to the end of a read, if whole frames of one size are all that is there.

    The read can end in a frame that is not whole. Frames must not have more than `room` bytes.
    """
    flags = data[pos]
    if not flags:
        header, size = SHORT_HEADER, data[pos + 1]
    elif flags == LONG:
        header, size = LONG_HEADER, _LONG_SIZE.unpack_from(data, pos + 1)[0]
        if size > room:
            return None
    else:
        return None
    stride = header + size
    count = (len(data) - pos) // stride
    if count < LEAST:
        return None
    head = data[pos : pos + header]
    last = pos + (count - 1) * stride
    # The search in messages of different sizes ends here, nearly always.
    if data[last : last + header] != head or data[pos + stride : pos + stride + header] != head:
        return None
    return Run(data, pos, header, size, count) if _have(data, pos, stride, count, head) else None


def _have(data: bytes, start: int, stride: int, count: int, values: bytes) -> bool:
    """Return whether `count` rows, the first at `start` and each next one `stride` bytes later, begin with `values`."""
    stop = start + (count - 1) * stride + 1
    return all(
        # A list, because it is faster than a generator.
        [data[start + shift : stop + shift : stride] == _OCTETS[value] * count for shift, value in enumerate(values)]  # noqa: C419
    )


def take_run(data: bytes, pos: int, size: int, frames: list[bytes]) -> int:
    """Append the frames of a run of short frames of `size` bytes that starts at `pos`; return where it ends.

    The window grows with the run, so that the search never costs more than the frames that it finds.
    """
    stride = size + SHORT_HEADER
    window = _FIRST_WINDOW
    size_byte = data[pos - stride + 1 : pos - stride + 2]
    while True:
        count = min(window, (len(data) - pos) // stride)
        span = pos + count * stride
        flags = data[pos:span:stride]
        sizes = data[pos + 1 : span : stride]
        run = min(len(flags) - len(flags.lstrip(b"\0")), len(sizes) - len(sizes.lstrip(size_byte)))
        if run:
            frames += cut_rows(data, pos + SHORT_HEADER, stride, size, run)
            pos += run * stride
        if run < count or count < window:
            return pos
        window *= 8


def take_long_run(data: bytes, start: int, stop: int, frames: list[bytes]) -> int:
    """Append the long frames after the one from `start` to `stop` that have its size; return where they end."""
    head = data[start : start + LONG_HEADER]
    stride = stop - start
    end = len(data) - stride
    while stop <= end and data[stop : stop + LONG_HEADER] == head:
        frames.append(data[stop + LONG_HEADER : stop + stride])
        stop += stride
    return stop


class Cycle:
    """Frames of these sizes in a row, again and again."""

    __slots__ = ("_bodies", "_headers", "_heads")

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._headers = tuple(bytes((0, size)) if size < 256 else b"\x02" + _LONG_SIZE.pack(size) for size in sizes)
        pairs = list(zip(map(len, self._headers), sizes, strict=True))
        self._heads = Struct("".join(f"{header}s{size}x" for header, size in pairs))
        self._bodies = Struct("".join(f"{header}x{size}s" for header, size in pairs))

    def take(self, data: bytes, pos: int, frames: list[bytes]) -> int:
        """Append the frames from `pos` on, as long as all of a cycle are there; return where they end."""
        last = len(data) - self._heads.size
        while pos <= last and self._heads.unpack_from(data, pos) == self._headers:
            frames += self._bodies.unpack_from(data, pos)
            pos += self._heads.size
        return pos


def find_cycle(frames: list[bytes]) -> tuple[int, ...]:
    """Return the sizes of the frames that are likely to come next; empty if the last ones were in no cycle."""
    if len(frames) < 2 * _CYCLE:
        return ()
    sizes = tuple(map(len, frames[-2 * _CYCLE :]))
    is_cycle = sizes[:_CYCLE] == sizes[_CYCLE:] and sum(sizes[:_CYCLE]) <= _LARGEST
    return sizes[:_CYCLE] if is_cycle else ()


@lru_cache(maxsize=64)
def cycle_of(sizes: tuple[int, ...]) -> Cycle:
    """Return the cycle of these sizes. Connections with the same messages share it."""
    return Cycle(sizes)


def cut_rows(data: bytes, start: int, stride: int, size: int, count: int) -> list[bytes]:
    """Return `count` pieces of `size` bytes: the first is at `start`, and each next one `stride` bytes later."""
    pieces: list[bytes] = []
    for split in (_SPLIT, _SPLIT // 8):
        if count >= split:
            unpack = _splitter(size, stride - size, split).unpack_from
            for _ in range(count // split):
                pieces += unpack(data, start)
                start += split * stride
            count %= split
    pieces += [data[at : at + size] for at in range(start, start + count * stride, stride)]
    return pieces


@lru_cache(maxsize=512)
def _splitter(size: int, gap: int, split: int) -> Struct:
    return Struct(f"{size}s{gap}x" * (split - 1) + f"{size}s")
