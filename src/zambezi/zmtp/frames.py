"""Frames: bytes to batches of messages, and back (37/ZMTP, "Framing").

This is the hot path, so it works in bulk. The decoder turns one read of a connection into one `Batch`, however many
messages the read contains; the encoders turn many messages into one `bytes`.

Five things keep the cost per message low, in pure Python:

- A batch is a flat list of frames. While every message is a single frame, which is the normal case, a batch has no
  list per message and no flags. `ends` exists only from the first multipart message on.
- Messages of equal size come in runs (`zambezi.zmtp.runs`). If a whole read is a run, the batch keeps it as it is, and
  cuts it into frames when they are needed.
- Frames of a few sizes in turn are a `Cycle`: the decoder expects the next read to go on like the last one.
- `Decoder._take_frames` handles the ordinary frames of a read in one loop, with its state in local variables. It
  leaves rare frames to `Decoder._take_frame`, which applies every rule: commands, violations, sizes close to a limit.
- A frame that spans reads is collected in pieces and joined once, so a large message costs its size, not the number
  of reads times its size.

A peer cannot make this side allocate memory by declaring a length: the decoder checks the length when it sees the
header, and keeps only bytes that have arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from struct import Struct
from typing import Final, Self, TypeAlias

from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.runs import LEAST, LONG, Run, cycle_of, find_cycle, find_run, take_long_run, take_run

MORE: Final = 0x01
COMMAND: Final = 0x04

# The message limit counts this much for each frame of a multipart message, besides its bytes: about what a frame takes
# in memory. So a message of endless tiny frames is bounded, too.
FRAME_COST: Final = 64

MULTIPART: Final = "the peer sent a multipart message, and sockets of this type accept only single frames"

_LONG_SIZE: Final = Struct(">Q")
_LONG_STRIDE: Final = 512  # bytes of a long frame
_SEARCHED: Final = 1024  # bytes of a read in which a run is looked for


class Batch:
    """Messages that arrived together, in order.

    `frames` is a flat list; while `run` is not None, the frames are a run that is not cut yet. `ends` is None if every
    message is a single frame; otherwise it has, for each message, the index just past its last frame. `octets` is the
    number of bytes that the messages took on the wire, with headers. `sender` is the identity of the peer if the socket
    is a ROUTER, and empty otherwise.

    >>> batch = Batch([b"a", b"b"])
    >>> len(batch), list(batch)
    (2, [[b'a'], [b'b']])
    """

    __slots__ = ("_frames", "ends", "octets", "run", "sender")

    def __init__(
        self,
        frames: list[bytes],
        ends: list[int] | None = None,
        octets: int = 0,
        sender: bytes = b"",
        run: Run | None = None,
    ) -> None:
        self._frames = frames
        self.ends = ends
        self.octets = octets
        self.sender = sender
        self.run = run

    @property
    def frames(self) -> list[bytes]:
        if self.run is not None:
            self._frames = self.run.cut()
            self.run = None  # so that nothing is in memory twice
        return self._frames

    def __len__(self) -> int:
        if self.run is not None:
            return self.run.count
        return len(self._frames if self.ends is None else self.ends)

    def __iter__(self) -> Iterator[list[bytes]]:
        """Yield each message as the list of its frames."""
        if self.ends is None:
            return ([frame] for frame in self.frames)
        return self._multipart([])

    def addressed(self) -> Iterator[list[bytes]]:
        """Yield each message as a ROUTER returns it: the sender's identity, then the frames."""
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
        return f"<Batch of {len(self)} messages, {self.octets} bytes>"


# A message: its only frame, or all its frames.
Frames: TypeAlias = bytes | tuple[bytes, ...]


class Shared:
    """Messages that go to many peers: they are encoded once, and the peers share the bytes.

    CURVE cannot share bytes, because each peer gets boxes of its own; it keeps what it can share in `plan`.
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
    """The body of a command frame. The type distinguishes it from a message."""

    __slots__ = ()


class Oversize(bytes):
    """The place of a message that was too long, and was skipped. It is empty; `size` is the size of the message."""

    def __new__(cls, size: int) -> Self:
        new = super().__new__(cls)
        new.size = size
        return new

    size: int


Item: TypeAlias = Batch | CommandFrame | Oversize


class _BatchBuilder:
    """A collector of frames: the frames of whole messages, then those of an unfinished message.

    `failure` is the violation that ended the collection, or None.
    """

    __slots__ = ("_cost", "_ends", "_frames", "_out", "_taken", "carried", "failure", "message_limit", "multipart")

    def __init__(self, message_limit: int, multipart: bool) -> None:
        self.message_limit = message_limit
        self.multipart = multipart
        self.failure: ProtocolError | None = None
        self._out: list[Item] = []  # what `_finish` returns
        self._frames: list[bytes] = []
        self._ends: list[int] | None = None  # as in a batch
        self._cost = 0  # of the unfinished message, as `message_limit` counts it; 0 if no message is unfinished
        self._taken = 0  # the bytes that the frames took on the wire,
        self.carried = 0  # and how many of those belong to the unfinished message

    @property
    def unfinished(self) -> int:
        """The memory that an unfinished message takes: its bytes that have arrived, and a share for each piece."""
        return self.carried + FRAME_COST * len(self._frames)

    def _charge(self, more: int, size: int) -> None:
        """Add a frame to the cost of a multipart message; raise `ProtocolError` if the message is not allowed."""
        if more and not self.multipart:
            raise ProtocolError(MULTIPART)
        self._cost += size + FRAME_COST
        if self._cost > self.message_limit:
            raise ProtocolError(f"a message is over the limit of {self.message_limit} bytes")

    def _add(self, flags: int, body: bytes) -> None:
        """Append a frame that the caller has checked and counted."""
        if flags & COMMAND:
            self._cut()  # the messages before the command; it can even stand between two frames of a message
            self._out.append(CommandFrame(body))
            return
        self._frames.append(body)
        if flags & MORE:
            if self._ends is None:
                self._ends = list(range(1, len(self._frames)))
            return
        self._cost = self.carried = 0
        if self._ends is not None:
            self._ends.append(len(self._frames))

    def _cut(self) -> None:
        """Move the whole messages into a batch of their own."""
        frames, ends = self._frames, self._ends
        whole = len(frames) if ends is None else ends[-1] if ends else 0
        if whole:  # if not, nothing is copied: a message of many frames must not cost its size with every read
            self._out.append(Batch(frames, ends, self._taken - self.carried))
            self._taken = self.carried
            self._frames = frames[whole:]
            self._ends = [] if self._frames else None
            del frames[whole:]

    def _finish(self) -> list[Item]:
        """Return the whole messages and the commands, in order."""
        if self._ends is None and not self._out:  # the most frequent case; the code below does the same, but slower
            frames = self._frames
            if not frames:
                return []
            octets = self._taken - self.carried
            self._taken = self.carried
            self._frames = []
            return [Batch(frames, None, octets)]
        self._cut()
        out = self._out
        self._out = []
        return out


class Decoder(_BatchBuilder):
    """The bytes of the traffic phase, cut into batches and commands.

    `feed` never raises. At a violation it returns what came before, as always, and sets `failure`. So the same bytes
    give the same messages, however they are split into reads. With `skip`, a single-frame message over the limit is no
    violation: its bytes are discarded as they arrive, and an `Oversize` takes its place.
    """

    __slots__ = (
        "_body",
        "_body_flags",
        "_body_size",
        "_cycle",
        "_room",
        "_skip",
        "_skipping",
        "_special",
        "_stride",
        "_tail",
        "frame_limit",
        "missing",
    )

    def __init__(self, frame_limit: int, message_limit: int, multipart: bool = True, skip: bool = False) -> None:
        super().__init__(message_limit, multipart)
        self.frame_limit = frame_limit
        self._skip = skip
        self._skipping = False  # whether the frame that spans reads is skipped
        self._stride = 0  # the bytes of each frame of the last run, with its header
        self._cycle: tuple[int, ...] = ()  # the sizes of the frames of the last cycle
        self._tail = b""  # a header that is not whole yet
        self._body: list[bytes] = []  # the pieces of a frame that spans reads,
        self._body_flags = 0  # its flags,
        self._body_size = 0  # its size,
        self.missing = 0  # and how many bytes of it are still to come
        # `_take_frames` leaves frames with these flags, or larger than this, to `_take_frame`.
        self._special = 0xFF ^ (LONG | MORE if multipart else LONG)
        self._room = min(frame_limit, message_limit) - FRAME_COST

    def feed(self, data: bytes) -> list[Item]:
        """Take the bytes of one read; return the batches and commands that they complete, in order."""
        if self.failure is not None:
            return []
        end = len(data)
        if 2 <= end < 258 and data[1] == end - 2 and not (data[0] or self.missing or self.carried or self._tail):
            return [Batch([data[2:]], None, end)]  # one short message: most reads, if there is little to do
        if self._tail:
            data = self._tail + data
            self._tail = b""
            end = len(data)
        elif self._body_size * LEAST <= end and self._can_rejoin:
            data = self._rejoin(data)
            end = len(data)
        pos = self.missing  # where the next frame begins
        if pos:
            if not self._skipping:
                self._body.append(data[:pos])
            if pos > end:
                self.missing -= end
                return []
            self._finish_body()
        if end - pos >= _SEARCHED and not self._frames and (run := find_run(data, pos, self._room)) is not None:
            self._out.append(Batch([], None, run.octets, run=run))
            self._stride = run.octets // run.count
            pos += run.octets
        try:
            if self._cycle:
                pos = self._take_cycle(data, pos)
            pos = self._take_frames(data, pos, end)
            while pos < end:
                pos = self._take_frames(data, self._take_frame(data, pos, end), end)
        except ProtocolError as error:
            self.failure = error
        self._cycle = find_cycle(self._frames) if self._ends is None else ()
        return self._finish()

    def _take_cycle(self, data: bytes, pos: int) -> int:
        """Append the frames that go on as in the last read; return where they end."""
        begun = len(self._frames)  # of the cycle: a frame that spans reads, or none
        sizes, self._cycle = self._cycle, ()
        if begun > 1 or self._ends is not None or self._cost:
            return pos
        end = cycle_of(sizes[begun:] + sizes[:begun]).take(data, pos, self._frames)
        self._taken += end - pos
        return end

    def read_size(self, most: int) -> int:
        """Return how many bytes to read at once: at most `most`, or twice as many if long frames arrive.

        If the frames go on as in the last run, the read ends with a frame: a frame that spans reads must be joined, and
        the frames after it with it. A read of long frames has fewer messages, which share the cost of a turn.
        """
        stride = self._stride
        if not stride:
            return most
        if stride >= _LONG_STRIDE:
            most *= 2
        rest = stride - len(self._tail) if self._tail else self.missing  # of a frame that has begun
        return most - (most - rest) % stride

    @property
    def _can_rejoin(self) -> bool:
        """Whether the unfinished message is a single frame, of which one piece has arrived."""
        return len(self._body) == 1 and not (self._body_flags & ~LONG or self._frames or self._skipping)

    def _rejoin(self, data: bytes) -> bytes:
        """Return a read with the beginning of the unfinished frame before it: so the read can be a run from there."""
        size = self._body_size
        header = bytes((LONG,)) + _LONG_SIZE.pack(size) if self._body_flags else bytes((0, size))
        data = b"".join((header, self._body.pop(), data))
        self._taken -= self.carried
        self.carried = self.missing = 0
        return data

    @property
    def unfinished(self) -> int:
        held = self.carried + FRAME_COST * len(self._frames)
        if self.missing and not self._skipping:
            # The size of a message's frame is in the sum already, all of it; that of a command is not.
            held += FRAME_COST * len(self._body) - self.missing
            if self._body_flags & COMMAND:
                held += self._body_size
        return held

    def _finish_body(self) -> None:
        """Append the frame that spans reads, now that all of it has arrived."""
        pieces = self._body
        self._body = []
        self.missing = 0
        if self._skipping:
            self._skipping = False
        else:
            self._add(self._body_flags, b"".join(pieces))

    def _take_frames(self, data: bytes, pos: int, end: int) -> int:
        """Append the ordinary frames from `pos` on; return where they end: past `end` if the last one is not whole.

        Whole short frames of single-frame messages need no check: no limit is below 255 bytes.
        """
        first = pos
        frames = self._frames
        ends = self._ends
        cost = self._cost
        previous = -1  # the size of the previous frame: two equal sizes may be the beginning of a run
        while end - pos >= 2:
            flags = data[pos]
            size = data[pos + 1]
            start = pos + 2
            stop = start + size
            if not flags:
                if stop <= end and not cost:
                    frames.append(data[start:stop])
                    pos = stop
                    if ends is not None:
                        ends.append(len(frames))
                    elif size == previous:
                        pos = take_run(data, pos, size, frames)
                    previous = size
                    continue
            elif flags & LONG:
                if end - pos < 9:
                    break
                start = pos + 9
                size = _LONG_SIZE.unpack_from(data, pos + 1)[0]
                stop = start + size
            if flags & self._special or size + cost > self._room:
                break
            if stop > end:
                self._body.append(data[start:])
                self._body_flags = flags
                self._body_size = size
                self.missing = stop - end
                self.carried += stop - pos
                if flags & MORE:
                    self._cost = cost + size + FRAME_COST
                pos = stop
                break
            frames.append(data[start:stop])
            if flags & MORE:
                self._cost = cost = cost + size + FRAME_COST
                self.carried += stop - pos
                if ends is None:
                    self._ends = ends = list(range(1, len(frames)))
            elif ends is not None:
                self._cost = cost = self.carried = 0
                ends.append(len(frames))
            else:
                stop = take_long_run(data, pos, stop, frames)
            pos = stop
        self._taken += pos - first
        return pos

    def _take_frame(self, data: bytes, pos: int, end: int) -> int:
        """Check and append the frame at `pos`, or keep the part of it that has arrived; return where it ends."""
        flags = data[pos]
        start = pos + (9 if flags & LONG else 2)
        if start > end:
            self._tail = data[pos:]
            return end
        size = _LONG_SIZE.unpack_from(data, pos + 1)[0] if flags & LONG else data[pos + 1]
        stop = start + size
        if self._skips(flags, size):
            self._cut()
            self._out.append(Oversize(size))
            self.missing = max(0, stop - end)
            self._skipping = stop > end
            return stop
        self._check(flags, size)
        if not flags & COMMAND:
            self._taken += stop - pos
            self.carried += stop - pos
        if stop > end:
            self._body.append(data[start:])
            self._body_flags = flags
            self._body_size = size
            self.missing = stop - end
        else:
            self._add(flags, data[start:stop])
        return stop

    def _skips(self, flags: int, size: int) -> bool:
        """Return whether a frame is a message over the limit, to be skipped."""
        return self._skip and flags in (0, LONG) and not self._cost and size > min(self.frame_limit, self.message_limit)

    def _check(self, flags: int, size: int) -> None:
        """Raise `ProtocolError` if a frame is not allowed; add it to the cost of its message."""
        if flags & 0xF8:
            raise ProtocolError(f"reserved bits are set in the flags byte {flags:#04x}")
        if flags & COMMAND and flags & MORE:
            raise ProtocolError("a command frame says that more frames follow")
        if size > self.frame_limit:
            raise ProtocolError(f"a frame of {size} bytes is over the limit of {self.frame_limit}")
        if flags & COMMAND:
            return
        if flags & MORE or self._cost:
            self._charge(flags & MORE, size)
        elif size > self.message_limit:
            raise ProtocolError(f"a message of {size} bytes is over the limit of {self.message_limit}")


class Assembler(_BatchBuilder):
    """Frames from CURVE boxes, with their flags but without headers, put together into batches.

    Like the decoder, it never raises: at a violation it sets `failure`, and returns what came before.
    """

    __slots__ = ("overhead",)

    def __init__(self, message_limit: int, overhead: int = 0) -> None:
        super().__init__(message_limit, multipart=True)
        self.overhead = overhead  # bytes that a box adds to a frame

    def assemble(self, flags: bytes | bytearray, bodies: list[bytes], octets: int) -> list[Item]:
        """Return the batches and commands that these frames complete. The frames took `octets` bytes on the wire.

        An unfinished message stays for the next call.
        """
        if not self._cost and not any(flags):
            return [Batch(bodies, None, octets)] if bodies else []
        cost = sum(map(len, bodies)) + FRAME_COST * len(bodies)
        if self.multipart and max(flags, default=0) <= MORE and self._cost + cost <= self.message_limit:
            # All frames together are within the limit, so each message is.
            self._add_all(flags, bodies, octets)
            return self._finish()
        try:
            for flag, body in zip(flags, bodies, strict=True):
                if not flag & COMMAND:
                    if flag or self._cost:
                        self._charge(flag & MORE, len(body))
                    size = self._size_of(body)
                    self._taken += size
                    self.carried += size
                self._add(flag, body)
        except ProtocolError as error:
            self.failure = error
        return self._finish()

    def _add_all(self, flags: bytes | bytearray, bodies: list[bytes], octets: int) -> None:
        """Append frames of messages that are within the limit: faster than `_add` for each of them."""
        before = len(self._frames)  # all of the unfinished message
        self._frames += bodies
        self._ends = list(compress(range(before + 1, len(self._frames) + 1), flags.translate(_IS_LAST)))
        self._taken += octets
        rest = bodies
        if self._ends:
            self._cost = self.carried = 0
            rest = self._frames[self._ends[-1] :]
        self._cost += sum(map(len, rest)) + FRAME_COST * len(rest)
        self.carried += sum(map(self._size_of, rest))

    def _size_of(self, body: bytes) -> int:
        """Return the number of bytes that the box of a frame took on the wire."""
        size = len(body) + self.overhead
        return size + 2 if size < 256 else size + 9


_IS_LAST: Final = b"\1" + bytes(255)  # of the flags of a message's frames: no MORE


class _Headers(dict[int, bytes]):
    """Frame headers by size: a look-up costs as much as in a dictionary, and makes a header when it is first needed."""

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
    """Return the frames of many single-frame messages, as one `bytes`."""
    if len(payloads) == 1:
        return _LAST[len(payloads[0])] + payloads[0]
    pieces: list[bytes] = [b""] * (2 * len(payloads))
    pieces[0::2] = map(_LAST.__getitem__, map(len, payloads))
    pieces[1::2] = payloads
    return b"".join(pieces)


def encode(messages: Sequence[Message]) -> bytes:
    """Return the frames of many messages, each of one or more frames, as one `bytes`."""
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
    """Return a command frame."""
    return _COMMAND[len(body)] + body


def parts_of(message: Frames) -> tuple[bytes, ...]:
    """Return the frames of a message."""
    return (message,) if isinstance(message, bytes) else message


def wire_size(body: bytes) -> int:
    """Return the number of bytes of a frame, with its header."""
    size = len(body)
    return size + 2 if size < 256 else size + 9


def size_of(message: Message) -> int:
    """Return the number of bytes of a message, without headers, as the bounds of queues count them."""
    return sum(map(len, message)) if isinstance(message, tuple) else len(message)
