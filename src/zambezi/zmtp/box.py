"""Boxes in bulk: the encrypted frames of an established CURVE connection (25/ZMTP-CURVE, "Message").

Each frame is a box of its own, so CURVE costs one call into libsodium per frame. PyNaCl's wrapper checks and copies
around each call, which nearly doubles the cost. This module calls the same functions of PyNaCl's libsodium directly,
and has them write the boxes straight into the output buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final

import nacl.bindings
from nacl import _sodium  # the cffi module on which PyNaCl itself is built

from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.frames import COMMAND, MORE

_lib: Final[Any] = _sodium.lib
_ffi: Final[Any] = _sodium.ffi

_MESSAGE: Final = b"\x07MESSAGE"
_COUNTER: Final = Struct(">Q")
_MAC: Final = 16
_HEADER: Final = len(_MESSAGE) + 8
OVERHEAD: Final = _HEADER + _MAC + 1  # the last byte is the flags byte inside the box
_SCRATCH: Final = 65536
_LAST_NONCE: Final = 2**64 - 1


class Sealer:
    """The sending side: puts frames into boxes. Its nonces only grow, and it raises when they are used up."""

    __slots__ = ("_key", "_nonce", "_prefix")

    def __init__(self, key: bytes, prefix: bytes, nonce: int) -> None:
        self._key = key
        self._prefix = prefix
        self._nonce = nonce

    def seal(self, flags: Sequence[int] | None, payloads: Sequence[bytes]) -> bytes:
        """Return the ZMTP frames of the boxes of `payloads`, as one `bytes`.

        `flags` has the frame flags of each payload; None means that all are zero.
        """
        if self._nonce + len(payloads) > _LAST_NONCE:
            raise ProtocolError("CURVE: the nonces of this connection are used up; connect again")
        total = sum(map(len, payloads)) + len(payloads) * (OVERHEAD + 2)
        total += 7 * sum(len(payload) > 255 - OVERHEAD for payload in payloads)
        out = bytearray(total)
        base = _ffi.from_buffer(out)
        box, pack, heads = _lib.crypto_box_easy_afternm, _COUNTER.pack, _HEADS
        key, prefix, nonce, pos = self._key, self._prefix, self._nonce, 0
        inner = b"\0"
        for index, payload in enumerate(payloads):
            size = len(payload)
            counter = pack(nonce)
            nonce += 1
            head = heads[size] + counter
            start = pos + len(head)
            out[pos:start] = head
            if flags is not None:
                inner = _FLAGS[flags[index]]
            box(base + start, inner + payload, size + 1, prefix + counter, key)
            pos = start + size + _MAC + 1
        self._nonce = nonce
        return bytes(out)

    def seal_plan(self, plan: Plan) -> bytes:
        """Return what `seal` returns for the frames of a plan, in two thirds of the time."""
        if self._nonce + plan.count > _LAST_NONCE:
            raise ProtocolError("CURVE: the nonces of this connection are used up; connect again")
        out, box, pack = plan.out, _lib.crypto_box_easy_afternm, _COUNTER.pack
        key, prefix, nonce = self._key, self._prefix, self._nonce
        for start, stop, where, inner, size in plan.steps:
            counter = pack(nonce)
            nonce += 1
            out[start:stop] = counter
            box(where, inner, size, prefix + counter, key)
        self._nonce = nonce
        return bytes(out)


class Plan:
    """Frames that go into boxes for many peers: the plan does once all the work that does not depend on the key.

    Each frame in `out` has its header, and room for its nonce and its box.
    """

    __slots__ = ("count", "out", "steps")

    def __init__(self, flags: Sequence[int], payloads: Sequence[bytes]) -> None:
        pieces: list[bytes] = []
        places: list[int] = []
        pos = 0
        for payload in payloads:
            head = _HEADS[len(payload)]
            room = bytes(8 + _MAC + 1 + len(payload))
            pieces += (head, room)
            places.append(pos + len(head))
            pos += len(head) + len(room)
        self.count = len(payloads)
        self.out = bytearray().join(pieces)
        base = _ffi.from_buffer(self.out)
        # Where the nonce begins and ends, where the box begins, its content, and the size of the content.
        self.steps = [
            (place, place + 8, base + place + 8, _FLAGS[flag] + payload, len(payload) + 1)
            for flag, payload, place in zip(flags, payloads, places, strict=True)
        ]


class Opener:
    """The receiving side: takes frames out of their boxes. It refuses a nonce that does not grow, as in a replay."""

    __slots__ = ("_chars", "_key", "_nonce", "_prefix", "_scratch")

    def __init__(self, key: bytes, prefix: bytes, nonce: bytes) -> None:
        self._key = key
        self._prefix = prefix
        self._nonce = nonce  # eight bytes in network order, which compare like numbers
        self._scratch = _ffi.new("unsigned char[]", _SCRATCH)
        self._chars = _ffi.cast("char *", self._scratch) + 1

    def open(self, bodies: Iterable[bytes], flags: list[int], payloads: list[bytes]) -> None:
        """Append the frame flags and the payload of each MESSAGE.

        If one of them is wrong, raise `ProtocolError`; those before it have been appended.
        """
        unbox, unpack = _lib.crypto_box_open_easy_afternm, _ffi.unpack
        key, prefix, last = self._key, self._prefix, self._nonce
        add_flags, add = flags.append, payloads.append
        try:
            for body in bodies:
                size = len(body) - _HEADER
                if size <= _MAC or body[:8] != _MESSAGE:
                    raise ProtocolError("CURVE: a frame is not a MESSAGE, or is too short to hold a box")
                nonce = body[8:16]
                if nonce <= last:
                    raise ProtocolError("CURVE: the nonce of a MESSAGE did not grow: it was repeated or replayed")
                scratch, chars = self._scratch, self._chars
                if size > _SCRATCH:
                    scratch = _ffi.new("unsigned char[]", size)
                    chars = _ffi.cast("char *", scratch) + 1
                if unbox(scratch, body[16:], size, prefix + nonce, key):
                    raise ProtocolError("CURVE: a MESSAGE does not open: wrong keys, or bytes changed on the way")
                last = nonce
                flag = scratch[0]
                if flag > MORE:
                    if flag != _BOXED_COMMAND:
                        raise ProtocolError(f"CURVE: the flags byte in a box is {flag:#04x}, which no frame can have")
                    flag = COMMAND
                add_flags(flag)
                add(unpack(chars, size - _MAC - 1))
        finally:
            self._nonce = last


class _Heads(dict[int, bytes]):
    """The frame header and the name of MESSAGE, by payload size."""

    def __missing__(self, size: int) -> bytes:
        boxed = size + OVERHEAD
        header = bytes((0, boxed)) if boxed < 256 else b"\x02" + _COUNTER.pack(boxed)
        head = header + _MESSAGE
        if len(self) < 65536:
            self[size] = head
        return head


_HEADS: Final = _Heads()

# 26/CURVEZMQ has no commands in boxes and reserves all bits except MORE. ZMTP 3.1 has them, and libzmq marks them in a
# box with bit 1, not with COMMAND, which is bit 2.
_BOXED_COMMAND: Final = 0x02
_FLAGS: Final = {0: b"\0", MORE: b"\1", COMMAND: bytes((_BOXED_COMMAND,))}


def shared_key(public: bytes, secret: bytes) -> bytes:
    """Return the key of a connection, which is computed once for all its boxes."""
    return nacl.bindings.crypto_box_beforenm(public, secret)
