"""Frames: octets to batches of messages, and back (37/ZMTP, "Framing").

This is the hot path, so it is written for bulk. One read of a connection goes in and one `Batch` comes out,
however many messages it holds; many messages go in and one `bytes` comes out.

What keeps the cost per message low, in pure Python:

- A batch is a flat list of frames. As long as every message is a single frame, which is the normal case, there
  is nothing else: no list per message, no flags. `ends` exists only from the first multipart message on.
- Messages of equal size come in runs. If a frame of `n` octets starts here, then the next frame starts `n + 2`
  octets on; and if the header *there* is the same, then so on for the one after it. So a strided slice of the
  read, compared in C, proves a whole run of frames at once, and `struct` cuts it up, 64 frames to a call.
  The proof is exact: each header is checked at the place where the header before it says it must be.
- A frame that spans reads is collected in pieces and joined once, so a large message costs its size, not the
  number of reads times its size.

Nothing is allocated on a peer's word: a length is checked against the limits when the header is seen, and memory
is taken only for octets that have come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, TypeAlias

from zambezi.zmtp.errors import ProtocolError

MORE: Final = 0x01
LONG: Final = 0x02
COMMAND: Final = 0x04

# A frame of an unfinished message costs this much of the message limit beside its octets, about what it takes in
# memory, so that a message of endless tiny frames is bounded too.
FRAME_COST: Final = 64

MULTIPART: Final = "a multipart message came, and sockets of this type have none"

_LONG_SIZE: Final = Struct(">Q")
_FIRST_WINDOW: Final = 64
_SPLIT: Final = 64


class Batch:
    """Messages that came together, in order.

    `frames` is flat. `ends` is None while every message is a single frame; otherwise it has, for each message, the
    index just past its last frame. `octets` is what they took on the wire, with headers. `sender` is the identity
    of the peer where the socket is a ROUTER, and empty elsewhere.

    >>> batch = Batch([b"a", b"b"])
    >>> len(batch), list(batch)
    (2, [[b'a'], [b'b']])
    """

    __slots__ = ("ends", "frames", "octets", "sender")

    def __init__(
        self, frames: list[bytes], ends: list[int] | None = None, octets: int = 0, sender: bytes = b""
    ) -> None:
        self.frames = frames
        self.ends = ends
        self.octets = octets
        self.sender = sender

    def __len__(self) -> int:
        return len(self.frames if self.ends is None else self.ends)

    def __iter__(self) -> Iterator[list[bytes]]:
        """Each message as the list of its frames."""
        if self.ends is None:
            return ([frame] for frame in self.frames)
        return self._multipart([])

    def addressed(self) -> Iterator[list[bytes]]:
        """Each message as a ROUTER gives it: the sender's identity, then the frames."""
        sender = self.sender
        if self.ends is None:
            return ([sender, frame] for frame in self.frames)
        return self._multipart([sender])

    def _multipart(self, before: list[bytes]) -> Iterator[list[bytes]]:
        start = 0
        for end in self.ends or ():
            yield before + self.frames[start:end]
            start = end

    def tail(self, count: int) -> Batch:
        """Return a batch of the last `count` messages."""
        if self.ends is None:
            frames = self.frames[len(self.frames) - count :]
            return Batch(frames, None, self.octets, self.sender)
        start = self.ends[-count - 1] if count < len(self.ends) else 0
        return Batch(self.frames[start:], [end - start for end in self.ends[-count:]], self.octets, self.sender)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        return self.sender == other.sender and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} messages, {self.octets} octets>"


# One frame, or several.
Frames: TypeAlias = bytes | tuple[bytes, ...]


class Shared:
    """Messages that go to many peers together: their bytes are made once and shared.

    `plan` is for mechanisms that cannot share bytes, as each peer gets boxes of its own: what they can share.
    """

    __slots__ = ("_wire", "messages", "plan", "size")

    def __init__(self, messages: Sequence[Frames]) -> None:
        self.messages = messages
        self.size = sum(map(size_of, messages))
        self.plan: object = None
        self._wire = b""

    @property
    def wire(self) -> bytes:
        """The messages with their frame headers."""
        if not self._wire:
            self._wire = encode(self.messages)
        return self._wire

    def __len__(self) -> int:
        return self.size


Message: TypeAlias = Frames | Shared


class CommandFrame(bytes):
    """The body of a command frame, told apart from a message by its type."""

    __slots__ = ()


class Decoder:
    """Cuts the octets of the traffic phase into batches and commands.

    `feed` never raises. What came before a violation is returned like anything else, and `failure` is set: so the
    same octets give the same messages however they are split into reads.
    """

    __slots__ = (
        "_body",
        "_body_flags",
        "_carried",
        "_missing",
        "_open",
        "_open_cost",
        "_tail",
        "failure",
        "frame_limit",
        "message_limit",
        "multipart",
    )

    def __init__(self, frame_limit: int, message_limit: int, multipart: bool = True) -> None:
        self.frame_limit = frame_limit
        self.message_limit = message_limit
        self.multipart = multipart
        self.failure: ProtocolError | None = None
        self._tail = b""  # a header that is not whole yet
        self._body: list[bytes] = []  # the pieces of a frame that spans reads,
        self._body_flags = 0  # its flags
        self._missing = 0  # and how much of it is still to come
        self._open: list[bytes] = []  # the frames of a message whose last frame is still to come
        self._open_cost = 0
        self._carried = 0  # the octets that those frames took

    def feed(self, data: bytes) -> list[Batch | CommandFrame]:
        """Take one read's octets; give what they complete, in order."""
        if self.failure is not None:
            return []
        if self._tail:
            data = self._tail + data
            self._tail = b""
        pos = 0
        size_of_read = len(data)
        out: list[Batch | CommandFrame] = []
        frames = self._open
        ends: list[int] | None = [] if frames else None
        # Where the current batch began, and in it the message that is not whole, for `octets`. What came in earlier
        # reads counts as if it stood before this one; commands count for nobody.
        first = began = -self._carried

        if self._missing:
            if self._missing > size_of_read:
                self._missing -= size_of_read
                self._body.append(data)
                return []
            pos = self._missing
            self._body.append(data[:pos])
            body = b"".join(self._body)
            self._body = []
            self._missing = 0
            flags = self._body_flags
            if flags & COMMAND:
                first = began = first + pos
                out.append(CommandFrame(body))
            else:
                frames.append(body)
                first = began = first + pos - len(body) - (9 if flags & LONG else 2)
                if flags & MORE:
                    if ends is None:
                        ends = []
                elif ends is not None:
                    ends.append(len(frames))
                    self._open_cost = 0

        previous = -1  # the size of the frame before: two alike may be the beginning of a run
        try:
            while size_of_read - pos >= 2:
                flags = data[pos]
                size = data[pos + 1]
                if not flags:
                    start = pos + 2
                    stop = start + size
                    if stop <= size_of_read and not self._open_cost:
                        frames.append(data[start:stop])
                        pos = stop
                        if ends is not None:
                            ends.append(len(frames))
                        elif size == previous:
                            pos = _take_run(data, pos, size, frames)
                        previous = size
                        continue
                elif flags & LONG:
                    if size_of_read - pos < 9:
                        break
                    start = pos + 9
                    size = _LONG_SIZE.unpack_from(data, pos + 1)[0]
                    stop = start + size
                else:
                    start = pos + 2
                    stop = start + size
                # Everything but a whole short frame of a single-frame message comes here.
                if not self._open_cost:
                    began = pos
                self._check(flags, size)
                if stop > size_of_read:
                    self._body = [data[start:]]
                    self._missing = stop - size_of_read
                    self._body_flags = flags
                    size_of_read = pos
                    break
                body = data[start:stop]
                if flags & COMMAND:
                    if frames and not self._open_cost:
                        out.append(Batch(frames, ends, began - first))
                        frames, ends = [], None
                    elif ends:
                        # A command may stand between the frames of a message: what is whole goes out before it.
                        whole = ends[-1]
                        out.append(Batch(frames[:whole], ends, began - first))
                        frames, ends = frames[whole:], []
                    first = began = began + stop - pos
                    pos = stop
                    out.append(CommandFrame(body))
                    continue
                pos = stop
                if flags & MORE and ends is None:
                    ends = list(range(1, len(frames) + 1))
                frames.append(body)
                if not flags & MORE:
                    self._open_cost = 0
                    if ends is not None:
                        ends.append(len(frames))
                    elif flags == LONG:
                        pos = _take_long_run(data, start - 9, stop, frames)
        except ProtocolError as error:
            self.failure = error
            size_of_read = pos
        self._tail = data[pos:size_of_read]

        whole = len(frames) if ends is None else ends[-1] if ends else 0
        if whole == len(frames):
            self._open = []
            began = pos
        elif whole:
            self._open = frames[whole:]
            del frames[whole:]
        else:
            self._open = frames  # not a copy: a message of many frames must not cost its size with every read
        self._carried = pos - began
        if whole:
            out.append(Batch(frames, ends, began - first))
        return out

    def _check(self, flags: int, size: int) -> None:
        if flags & 0xF8:
            raise ProtocolError(f"reserved bits are set in the flags octet {flags:#04x}")
        if flags & COMMAND and flags & MORE:
            raise ProtocolError("a command frame says that more frames follow")
        if size > self.frame_limit:
            raise ProtocolError(f"a frame of {size} octets is over the limit of {self.frame_limit}")
        if flags & COMMAND:
            return
        if flags & MORE and not self.multipart:
            raise ProtocolError(MULTIPART)
        if flags & MORE or self._open_cost:
            self._open_cost += size + FRAME_COST
            if self._open_cost > self.message_limit:
                raise ProtocolError(f"a message is over the limit of {self.message_limit} octets")
        elif size > self.message_limit:
            raise ProtocolError(f"a message of {size} octets is over the limit of {self.message_limit}")


class Assembler:
    """Puts frames that come with their flags, and without headers, together into batches: those from boxes.

    Like the decoder, it never raises: at a violation `failure` is set, and what came before it is there.
    """

    __slots__ = (
        "_carried",
        "_cost",
        "_ends",
        "_frames",
        "_octets",
        "_out",
        "failure",
        "message_limit",
        "multipart",
        "overhead",
    )

    def __init__(self, message_limit: int, overhead: int = 0) -> None:
        self.message_limit = message_limit
        self.multipart = True
        self.overhead = overhead  # of a frame's box
        self.failure: ProtocolError | None = None
        self._cost = 0  # of the message whose last frame is still to come; zero where there is none
        self._out: list[Batch | CommandFrame] = []
        self._frames: list[bytes] = []
        self._ends: list[int] | None = None
        self._octets = 0  # of the messages that are whole,
        self._carried = 0  # and of the one that is not

    def assemble(self, flags: list[int], bodies: list[bytes], octets: int) -> list[Batch | CommandFrame]:
        """What the frames, which took `octets`, make whole. An unfinished message stays for the next call."""
        if not self._cost and not any(flags):
            return [Batch(bodies, None, octets)] if bodies else []
        for flag, body in zip(flags, bodies, strict=True):
            if flag & COMMAND:
                self._cut()
                self._out.append(CommandFrame(body))
            elif not self._add(flag & MORE, body):
                break
        self._cut()
        out, self._out = self._out, []
        return out

    def _add(self, more: int, body: bytes) -> bool:
        if more and not self.multipart:
            self.failure = ProtocolError(MULTIPART)
            return False
        if more or self._cost:
            self._cost += len(body) + FRAME_COST
            if self._cost > self.message_limit:
                self.failure = ProtocolError(f"a message is over the limit of {self.message_limit} octets")
                return False
            if self._ends is None:
                self._ends = list(range(1, len(self._frames) + 1))
        self._frames.append(body)
        size = len(body) + self.overhead
        self._carried += size + 2 if size < 256 else size + 9
        if not more:
            self._cost = 0
            self._octets += self._carried
            self._carried = 0
            if self._ends is not None:
                self._ends.append(len(self._frames))
        return True

    def _cut(self) -> None:
        frames, ends = self._frames, self._ends
        whole = len(frames) if ends is None else ends[-1] if ends else 0
        if whole:
            self._frames = frames[whole:]
            self._out.append(Batch(frames[:whole], ends, self._octets))
            self._octets = 0
            self._ends = [] if self._frames else None


def _take_run(data: bytes, pos: int, size: int, frames: list[bytes]) -> int:
    """Append the frames of a run of short single frames of `size` octets that starts at `pos`; where it ends.

    The window grows with the run, so that looking ahead never costs more than what it finds.
    """
    stride = size + 2
    window = _FIRST_WINDOW
    octet = data[pos - stride + 1 : pos - stride + 2]
    while True:
        count = min(window, (len(data) - pos) // stride)
        span = pos + count * stride
        flags = data[pos:span:stride]
        sizes = data[pos + 1 : span : stride]
        run = min(len(flags) - len(flags.lstrip(b"\0")), len(sizes) - len(sizes.lstrip(octet)))
        left = run
        if left >= _SPLIT:
            unpack = _splitter(size).unpack_from
            while left >= _SPLIT:
                frames += unpack(data, pos)
                pos += _SPLIT * stride
                left -= _SPLIT
        stop = pos + left * stride
        frames += [data[start : start + size] for start in range(pos + 2, stop + 2, stride)] if left else ()
        pos = stop
        if run < count or count < window:
            return pos
        window *= 8


def _take_long_run(data: bytes, start: int, stop: int, frames: list[bytes]) -> int:
    """Append the long single frames that follow the one from `start` to `stop`, and have its size; where they end."""
    head = data[start : start + 9]
    stride = stop - start
    end = len(data) - stride
    while stop <= end and data[stop : stop + 9] == head:
        frames.append(data[stop + 9 : stop + stride])
        stop += stride
    return stop


@lru_cache(maxsize=256)
def _splitter(size: int) -> Struct:
    return Struct(f"2x{size}s" * _SPLIT)


class _Headers(dict[int, bytes]):
    """Frame headers by size: looked up at the speed of a dictionary, made when first needed."""

    def __init__(self, flags: int) -> None:
        self.flags = flags
        super().__init__((size, bytes((flags, size))) for size in range(256))

    def __missing__(self, size: int) -> bytes:
        header = bytes((self.flags | LONG,)) + _LONG_SIZE.pack(size)
        if len(self) < 65536:
            self[size] = header
        return header


_LAST: Final = _Headers(0)
_MORE: Final = _Headers(MORE)
_COMMAND: Final = _Headers(COMMAND)


def encode_singles(payloads: Sequence[bytes]) -> bytes:
    """Many single-frame messages, as one bytes."""
    pieces: list[bytes] = [b""] * (2 * len(payloads))
    pieces[0::2] = map(_LAST.__getitem__, map(len, payloads))
    pieces[1::2] = payloads
    return b"".join(pieces)


def encode(messages: Sequence[Message]) -> bytes:
    """Many messages of any number of frames, as one bytes."""
    pieces: list[bytes] = []
    add = pieces.append
    for message in messages:
        if isinstance(message, bytes):
            add(_LAST[len(message)])
            add(message)
        elif isinstance(message, Shared):
            add(message.wire)
        else:
            for frame in message[:-1]:
                add(_MORE[len(frame)])
                add(frame)
            frame = message[-1]
            add(_LAST[len(frame)])
            add(frame)
    return b"".join(pieces)


def encode_command(body: bytes) -> bytes:
    return _COMMAND[len(body)] + body


def parts_of(message: Frames) -> tuple[bytes, ...]:
    """Return the frames of a message."""
    return (message,) if isinstance(message, bytes) else message


def wire_size(body: bytes) -> int:
    """The octets of a frame, with its header."""
    size = len(body)
    return size + 2 if size < 256 else size + 9


def size_of(message: Message) -> int:
    """The octets of a message, without headers: what the bounds of the queues count."""
    return sum(map(len, message)) if isinstance(message, tuple) else len(message)
