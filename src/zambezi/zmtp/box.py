"""Boxes in bulk: the encrypted frames of an established CURVE connection (25/ZMTP-CURVE, "Message").

Each frame is a box of its own, so CURVE costs one call into libsodium per frame. PyNaCl's wrapper checks and copies
around each call, which nearly doubles the cost. This module calls the same functions of PyNaCl's libsodium directly.
It puts the arguments of many calls into columns, and `map` makes the calls: so the interpreter runs no bytecode for
a single frame. For frames whose sizes come again and again, `box_forms` has the arguments ready. Frames that are large,
or few, or wrong, are handled one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, repeat
from operator import add, itemgetter, lt, sub
from struct import Struct
from typing import Any, Final

import nacl.bindings
from nacl import _sodium  # the cffi module on which PyNaCl itself is built

from zambezi.zmtp.box_forms import COUNT, Forms, OpenForm, SealForm
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.frames import COMMAND, MORE

_lib: Final[Any] = _sodium.lib
_ffi: Final[Any] = _sodium.ffi

_MESSAGE: Final = b"\x07MESSAGE"
_COUNTER: Final = Struct(">Q")
_NONCE: Final = Struct(">16sQ")  # the prefix, which tells the direction, and the counter
_MAC: Final = 16
_HEADER: Final = len(_MESSAGE) + 8
OVERHEAD: Final = _HEADER + _MAC + 1  # the last byte is the flags byte inside the box
_LAST_NONCE: Final = 2**64 - 1
SLOTS: Final = COUNT
SLOT: Final = 4096 + 64  # bytes. Not a power of two: else all slots would share a few lines of the processor's cache
_FEW_TO_SEAL: Final = 6  # fewer boxes are cheaper to seal one by one,
_FEW_TO_OPEN: Final = 16  # or to open one by one
_NO_FLAGS: Final = "there are fewer flags than frames to seal"
_NO_BOX: Final = "CURVE: libsodium cannot make a box"  # it always can: no frame is too large for it

# 26/CURVEZMQ has no commands in boxes and reserves all bits except MORE. ZMTP 3.1 has them, and libzmq marks them in a
# box with bit 1, not with COMMAND, which is bit 2.
_BOXED_COMMAND: Final = 0x02
_FLAGS: Final = {0: b"\0", MORE: b"\1", COMMAND: bytes((_BOXED_COMMAND,))}
_BOXED_FLAGS: Final = bytes((0, MORE, 0, 0, _BOXED_COMMAND)) + bytes(251)
_WRONG: Final = 0xFF
_UNBOXED_FLAGS: Final = bytes((0, MORE, COMMAND)) + bytes([_WRONG]) * 253


class Sealer:
    """The sending side: puts frames into boxes. Its nonces only grow, and it raises when they are used up."""

    __slots__ = ("_key", "_nonce", "_prefix")

    def __init__(self, key: bytes, prefix: bytes, nonce: int) -> None:
        self._key = key
        self._prefix = prefix
        self._nonce = nonce

    def seal(self, flags: Iterable[int], payloads: Sequence[bytes]) -> bytes:
        """Return the ZMTP frames of the boxes of `payloads`, as one `bytes`. `flags` has the flags of each frame."""
        numbers = self._take_nonces(len(payloads))
        if len(payloads) < _FEW_TO_SEAL or max(map(len, payloads)) > SLOT - _MAC - 1:
            return self._seal_each(flags, payloads, numbers)
        every = bytes(islice(flags, len(payloads)))
        if len(every) < len(payloads):
            raise ValueError(_NO_FLAGS)
        sealed = []
        for start in range(0, len(payloads), SLOTS):
            stop = start + SLOTS
            sealed.append(self._seal_some(every[start:stop], payloads[start:stop], numbers[start:stop]))
        return sealed[0] if len(sealed) == 1 else b"".join(sealed)

    def seal_plan(self, plan: Plan) -> bytes:
        """Return what `seal` returns for the frames of a plan, in three quarters of the time."""
        numbers = self._take_nonces(plan.count)
        out, heads = plan.out, plan.heads
        heads[1::2] = numbers
        plan.layout.pack_into(out, 0, *heads)
        _seal(plan.places, plan.texts, plan.sizes, map(_NONCE.pack, repeat(self._prefix), numbers), self._key)
        return bytes(out)

    def _take_nonces(self, count: int) -> range:
        """Return the numbers of the next nonces. Whatever happens to their boxes, they are never used again."""
        first, end = self._nonce, self._nonce + count
        if end > _LAST_NONCE:
            raise ProtocolError("CURVE: the nonces of this connection are used up; connect again")
        self._nonce = end
        return range(first, end)

    def _seal_some(self, flags: bytes, payloads: Sequence[bytes], numbers: range) -> bytes:
        """Seal frames for which there are slots."""
        sizes = tuple(map(len, payloads))
        form = _SEAL_FORMS.take(sizes)
        if form is None:
            return self._seal_columns(flags, payloads, numbers)
        sealed = form.seal(self._key, self._prefix, numbers, flags.translate(_BOXED_FLAGS), payloads)
        if sealed is None:
            raise ProtocolError(_NO_BOX)
        _SEAL_FORMS.give_back(sizes, form)
        return sealed

    def _seal_columns(self, flags: bytes, payloads: Sequence[bytes], numbers: range) -> bytes:
        """Seal frames for which there are slots, and no form."""
        texts = _texts(flags, payloads)
        sizes = list(map(len, texts))
        counters = list(map(_COUNTER.pack, numbers))
        slots = _take_slots()
        slots.set_nonces(self._prefix, counters)
        _seal(slots.places, texts, sizes, slots.nonces, self._key)
        pieces = [b""] * (3 * len(texts))
        pieces[0::3] = map(_HEADS.__getitem__, sizes)
        pieces[1::3] = counters
        pieces[2::3] = map(_ffi.unpack, slots.boxes, map(add, sizes, repeat(_MAC)))
        _SPARE.append(slots)
        return b"".join(pieces)

    def _seal_each(self, flags: Iterable[int], payloads: Sequence[bytes], numbers: range) -> bytes:
        """Seal frames that are large or few."""
        box, key, prefix = _lib.crypto_box_easy_afternm, self._key, self._prefix
        heads = [_HEADS[len(payload) + 1] for payload in payloads]
        out = bytearray(sum(map(len, heads)) + sum(map(len, payloads)) + len(payloads) * (_COUNTER.size + _MAC + 1))
        base = _ffi.from_buffer(out)
        stop = 0
        # Without `strict`, because `flags` can be endless.
        for flag, payload, head, number in zip(flags, payloads, heads, numbers):  # noqa: B905
            counter = _COUNTER.pack(number)
            start = stop + len(head) + 8
            out[stop:start] = head + counter
            if box(base + start, _FLAGS[flag] + payload, len(payload) + 1, prefix + counter, key):
                raise ProtocolError(_NO_BOX)
            stop = start + len(payload) + 1 + _MAC
        if stop < len(out):
            raise ValueError(_NO_FLAGS)
        return bytes(out)


class Plan:
    """Frames that go into boxes for many peers: the plan does once all the work that does not depend on the key.

    Each frame in `out` has its header, and room for the counter of its nonce and for its box.
    """

    __slots__ = ("count", "heads", "layout", "out", "places", "sizes", "texts")

    def __init__(self, flags: Iterable[int], payloads: Sequence[bytes]) -> None:
        self.count = len(payloads)
        self.texts = _texts(flags, payloads)
        self.sizes = sizes = list(map(len, self.texts))
        self.layout = Struct(">" + "".join(map(_LAYOUTS.__getitem__, sizes)))
        headers = list(map(_HEADS.__getitem__, sizes))
        self.heads: list[bytes | int] = [0] * (2 * self.count)  # the header of each frame, and the number of its nonce
        self.heads[0::2] = headers
        self.out = bytearray(self.layout.size)
        self.places = list(map(add, repeat(_ffi.from_buffer(self.out)), _starts(headers, sizes)))


class Opener:
    """The receiving side: takes frames out of their boxes. It refuses a nonce that does not grow, as in a replay."""

    __slots__ = ("_key", "_nonce", "_prefix")

    def __init__(self, key: bytes, prefix: bytes, nonce: bytes) -> None:
        self._key = key
        self._prefix = prefix
        self._nonce = nonce  # eight bytes in network order, which compare like numbers

    def open(self, bodies: Sequence[bytes], flags: bytearray, payloads: list[bytes]) -> None:
        """Append the frame flags and the payload of each MESSAGE.

        If one of them is wrong, raise `ProtocolError`; those before it have been appended.
        """
        for start in range(0, len(bodies), SLOTS):
            some = bodies[start : start + SLOTS]
            if len(some) < _FEW_TO_OPEN or not (
                self._open_form(some, flags, payloads) or self._open_many(some, flags, payloads)
            ):
                self._open_each(some, flags, payloads)

    def _open_form(self, bodies: Sequence[bytes], flags: bytearray, payloads: list[bytes]) -> bool:
        """Open boxes of sizes that have come before; if there is no form for them, or one is wrong, return False."""
        sizes = tuple(map(len, bodies))
        form = _OPEN_FORMS.take(sizes) if min(sizes) > _HEADER + _MAC else None
        found = form.open(self._key, self._prefix, _MESSAGE + self._nonce, bodies) if form is not None else None
        if form is None or found is None:
            return False
        boxed, texts, head = found
        unboxed = boxed.translate(_UNBOXED_FLAGS)
        if _WRONG in unboxed:
            return False
        _OPEN_FORMS.give_back(sizes, form)
        flags += unboxed
        payloads += texts
        self._nonce = head[len(_MESSAGE) :]
        return True

    def _open_many(self, bodies: Sequence[bytes], flags: bytearray, payloads: list[bytes]) -> bool:
        """Open boxes together; if one is large or wrong, open none, and return False."""
        sizes = [len(body) - _HEADER for body in bodies]
        if min(sizes) <= _MAC or max(sizes) > SLOT:
            return False
        heads = list(map(_HEAD_OF, bodies))
        # If heads grow from one MESSAGE to another, all between are MESSAGEs, too; and their nonces grow.
        if not (heads[-1].startswith(_MESSAGE) and all(map(lt, [_MESSAGE + self._nonce, *heads], heads))):
            return False
        slots = _take_slots()
        slots.set_nonces(self._prefix, list(map(_NONCE_OF, heads)))
        unbox = _lib.crypto_box_open_easy_afternm
        if any(map(unbox, slots.places, map(_BOX_OF, bodies), sizes, slots.nonces, repeat(self._key))):
            return False
        found = slots.flags[: len(bodies)].tobytes().translate(_UNBOXED_FLAGS)
        if _WRONG in found:
            return False
        flags += found
        payloads += map(_ffi.unpack, slots.texts, map(sub, sizes, repeat(_MAC + 1)))
        _SPARE.append(slots)
        self._nonce = heads[-1][8:]
        return True

    def _open_each(self, bodies: Sequence[bytes], flags: bytearray, payloads: list[bytes]) -> None:
        """Open boxes one by one, up to the first that is wrong."""
        unbox, unpack = _lib.crypto_box_open_easy_afternm, _ffi.unpack
        key, prefix = self._key, self._prefix
        slots = _take_slots()
        box, place = slots.boxes[0], slots.places[0]  # the beginning of all the memory
        for body in bodies:
            size = len(body) - _HEADER
            if size <= _MAC or body[:8] != _MESSAGE:
                raise ProtocolError("CURVE: a frame is not a MESSAGE, or is too short to hold a box")
            nonce = body[8:16]
            if nonce <= self._nonce:
                raise ProtocolError("CURVE: the nonce of a MESSAGE did not grow: it was repeated or replayed")
            if size > len(slots.room):
                box = _ffi.new("char[]", size)
                place = _ffi.cast("unsigned char *", box)
            if unbox(place, body[16:], size, prefix + nonce, key):
                raise ProtocolError("CURVE: a MESSAGE does not open: wrong keys, or bytes changed on the way")
            self._nonce = nonce
            flag = _UNBOXED_FLAGS[place[0]]
            if flag == _WRONG:
                raise ProtocolError(f"CURVE: the flags byte in a box is {place[0]:#04x}, which no frame can have")
            flags.append(flag)
            payloads.append(unpack(box + 1, size - _MAC - 1))
        _SPARE.append(slots)


class _Slots:
    """Memory for the boxes of some calls, or for their contents, and for their nonces, with a pointer to each place."""

    __slots__ = ("_table", "boxes", "flags", "nonces", "places", "room", "texts")

    def __init__(self) -> None:
        self.room = _ffi.new("unsigned char[]", SLOTS * SLOT)
        table = _ffi.new("unsigned char[]", SLOTS * _NONCE.size)
        self._table = _ffi.buffer(table)
        self.places = [self.room + index * SLOT for index in range(SLOTS)]
        self.boxes = [_ffi.cast("char *", place) for place in self.places]
        self.texts = [box + 1 for box in self.boxes]  # the contents of opened boxes after their flags bytes
        self.flags = memoryview(_ffi.buffer(self.room))[::SLOT]
        self.nonces = [table + index * _NONCE.size for index in range(SLOTS)]

    def set_nonces(self, prefix: bytes, counters: list[bytes]) -> None:
        """Write the nonces with these counters to the first places."""
        parts = [prefix] * (2 * len(counters))
        parts[1::2] = counters
        _pairs(len(counters)).pack_into(self._table, 0, *parts)


_SPARE: Final[list[_Slots]] = []  # slots that no thread uses now; a thread that fails does not return its slots


def _take_slots() -> _Slots:
    try:
        return _SPARE.pop()
    except IndexError:
        return _Slots()


@lru_cache(maxsize=SLOTS)
def _pairs(count: int) -> Struct:
    return Struct("16s8s" * count)


_HEAD_OF: Final = itemgetter(slice(0, _HEADER))  # of the body of a MESSAGE: its name and the counter
_NONCE_OF: Final = itemgetter(slice(8, 16))
_BOX_OF: Final = itemgetter(slice(_HEADER, None))


def _texts(flags: Iterable[int], payloads: Sequence[bytes]) -> list[bytes]:
    """Return the contents of boxes: a flags byte and a payload in each."""
    texts = list(map(add, map(_FLAGS.__getitem__, flags), payloads))
    if len(texts) < len(payloads):
        raise ValueError(_NO_FLAGS)
    return texts


def _seal(places: Iterable[Any], texts: list[bytes], sizes: list[int], nonces: Iterable[Any], key: bytes) -> None:
    """Put contents into boxes at these places."""
    if any(map(_lib.crypto_box_easy_afternm, places, texts, sizes, nonces, repeat(key))):
        raise ProtocolError(_NO_BOX)


def _starts(headers: Iterable[bytes], sizes: Iterable[int]) -> Iterator[int]:
    """Yield where the box of each frame starts, after the header and the counter."""
    start = 0
    for header, size in zip(headers, sizes, strict=True):
        start += len(header) + _COUNTER.size
        yield start
        start += size + _MAC


class _Heads(dict[int, bytes]):
    """The frame header and the name of MESSAGE, by the size of the content of the box."""

    def __missing__(self, size: int) -> bytes:
        boxed = _HEADER + _MAC + size
        header = bytes((0, boxed)) if boxed < 256 else b"\x02" + _COUNTER.pack(boxed)
        head = header + _MESSAGE
        if size < 65536:
            self[size] = head
        return head


class _Layouts(dict[int, str]):
    """The parts of a frame for `Struct`, by the size of the content of the box: header, counter, room for the box."""

    def __missing__(self, size: int) -> str:
        layout = f"{len(_HEADS[size])}sQ{_MAC + size}x"
        if size <= SLOT:
            self[size] = layout
        return layout


_HEADS: Final = _Heads()
_LAYOUTS: Final = _Layouts()
_OPEN_FORMS: Final = Forms(OpenForm)
_SEAL_FORMS: Final = Forms(lambda sizes: SealForm(sizes, [_HEADS[size + 1] for size in sizes]))


def shared_key(public: bytes, secret: bytes) -> bytes:
    """Return the key of a connection, which is computed once for all its boxes."""
    return nacl.bindings.crypto_box_beforenm(public, secret)
