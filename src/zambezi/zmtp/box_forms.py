"""Boxes of frames whose sizes come again and again: most protocols send messages of a few forms.

A form knows the sizes of `COUNT` frames in a row. It has memory for their boxes with a pointer to each, and one
`Struct` that writes or cuts all of them with a single call; boxes are made and opened in place. So `zambezi.zmtp.box`
has little to do for each frame besides the call into libsodium. A form is made when its sizes come for the second
time. If the sizes of frames never come again, as with bodies of many sizes, forms are not used.

A thread takes a form for itself as long as it uses it.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat
from operator import lt
from struct import Struct
from typing import Any, Final, Generic, TypeVar

from nacl import _sodium

_lib: Final[Any] = _sodium.lib
_ffi: Final[Any] = _sodium.ffi

COUNT: Final = 60  # frames of a form: a multiple of the frames of most messages
LARGEST: Final = 1 << 16  # bytes of all frames of a form. The calls into libsodium take most of the time of others.
_KEPT: Final = 64  # forms
_NOTED: Final = 256  # rows of sizes that have come once
_MAC: Final = 16
_NONCE: Final = 24
_NAME: Final = 8  # bytes of the name of MESSAGE
_HEADER: Final = 16  # bytes of a MESSAGE before its box: its name, and the counter of the nonce

F = TypeVar("F")
Sizes = tuple[int, ...]


class Forms(Generic[F]):
    """The forms that were used lately."""

    def __init__(self, make: Callable[[Sizes], F]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._kept: dict[Sizes, F] = {}  # the last one was used last
        self._noted: set[Sizes] = set()

    def take(self, sizes: Sizes) -> F | None:
        """Return a form for frames of these sizes, for one thread; None if it is not worth it."""
        if len(sizes) < COUNT:
            return None
        with self._lock:
            found = self._kept.pop(sizes, None)
            if found is not None:
                return found
            if sizes not in self._noted:
                if len(self._noted) >= _NOTED:
                    self._noted.clear()
                self._noted.add(sizes)
                return None
        return self._make(sizes) if sum(sizes) <= LARGEST else None

    def give_back(self, sizes: Sizes, form: F) -> None:
        """Keep a form for the next time. A form that has failed need not come back."""
        with self._lock:
            self._kept[sizes] = form
            if len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]


class _Nonces:
    """The nonces of the boxes of a form: each is a prefix, which tells the direction, and a counter."""

    __slots__ = ("_numbers", "_prefix", "_table", "places")

    def __init__(self) -> None:
        self._table = _ffi.new("unsigned char[]", COUNT * _NONCE)
        self._numbers = memoryview(_ffi.buffer(self._table)).cast("B").cast("Q")
        self._prefix = b""
        self.places = [self._table + index * _NONCE for index in range(COUNT)]

    def set(self, prefix: bytes, counters: memoryview) -> None:
        """Write the nonces; the counters are numbers of eight bytes in network order."""
        if prefix != self._prefix:
            _PREFIXES.pack_into(_ffi.buffer(self._table), 0, *[prefix] * COUNT)
            self._prefix = prefix
        self._numbers[2::3] = counters


_PREFIXES: Final = Struct("16s8x" * COUNT)


class SealForm:
    """Frames to put into boxes: a header, the counter, room for the MAC, the flags byte and the payload of each."""

    __slots__ = ("_boxes", "_fields", "_layout", "_nonces", "_out", "_sizes", "_texts")

    def __init__(self, sizes: Sizes, heads: Sequence[bytes]) -> None:
        fields = [f"{len(head)}sQ{_MAC}xB{size}s" for head, size in zip(heads, sizes, strict=True)]
        self._layout = Struct(">" + "".join(fields))
        self._fields: list[bytes | int] = [0] * (4 * COUNT)
        self._fields[0::4] = heads
        room = _ffi.new("unsigned char[]", self._layout.size)
        self._out = _ffi.buffer(room)
        ends = accumulate([len(head) + 8 + _MAC + 1 + size for head, size in zip(heads, sizes, strict=True)])
        self._boxes = [room + (end - size - 1 - _MAC) for end, size in zip(ends, sizes, strict=True)]
        self._texts = [box + _MAC for box in self._boxes]
        self._sizes = [size + 1 for size in sizes]
        self._nonces = _Nonces()

    def seal(self, key: bytes, prefix: bytes, numbers: range, flags: bytes, payloads: Sequence[bytes]) -> bytes | None:
        """Return the frames with their boxes; None if libsodium cannot make one. `flags` are those inside the boxes."""
        fields = self._fields
        fields[1::4] = numbers
        fields[2::4] = flags
        fields[3::4] = payloads
        self._layout.pack_into(self._out, 0, *fields)
        counters = array("Q", numbers)
        if sys.byteorder == "little":
            counters.byteswap()
        self._nonces.set(prefix, memoryview(counters))
        if _any(_lib.crypto_box_easy_afternm, self._boxes, self._texts, self._sizes, self._nonces.places, key):
            return None
        return self._out[:]  # type: ignore[no-any-return]


class OpenForm:
    """MESSAGEs of these sizes to take out of their boxes."""

    __slots__ = ("_boxes", "_contents", "_heads", "_nonces", "_room", "_sizes", "_texts")

    def __init__(self, sizes: Sizes) -> None:
        self._heads = Struct("".join([f"{_HEADER}s{size - _HEADER}x" for size in sizes]))
        before = _HEADER + _MAC
        self._contents = Struct("".join([f"{before}xB{size - before - 1}s" for size in sizes]))
        room = _ffi.new("unsigned char[]", sum(sizes))
        self._room = _ffi.buffer(room)
        ends = accumulate(sizes)
        self._boxes = [room + (end - size + _HEADER) for end, size in zip(ends, sizes, strict=True)]
        self._texts = [box + _MAC for box in self._boxes]
        self._sizes = [size - _HEADER for size in sizes]
        self._nonces = _Nonces()

    def open(
        self, key: bytes, prefix: bytes, least: bytes, bodies: Sequence[bytes]
    ) -> tuple[bytes, tuple[bytes, ...], bytes] | None:
        """Return the flags inside the boxes, the payloads, and the last head; None if something is wrong.

        Heads must be greater than `least`, and grow.
        """
        octets = b"".join(bodies)
        heads = self._heads.unpack(octets)
        # If heads grow from one MESSAGE to another, all between are MESSAGEs, too; and their nonces grow.
        if heads[-1][:_NAME] != least[:_NAME] or not all(map(lt, (least, *heads), heads)):
            return None
        self._room[:] = octets
        self._nonces.set(prefix, memoryview(b"".join(heads)).cast("Q")[1::2])
        if _any(_lib.crypto_box_open_easy_afternm, self._texts, self._boxes, self._sizes, self._nonces.places, key):
            return None
        contents = self._contents.unpack_from(self._room)
        return bytes(contents[0::2]), contents[1::2], heads[-1]


def _any(
    call: Any, out: Iterable[Any], given: Iterable[Any], sizes: Iterable[int], nonces: Iterable[Any], key: bytes
) -> bool:
    """Return whether a call of libsodium has failed."""
    return any(map(call, out, given, sizes, nonces, repeat(key)))
