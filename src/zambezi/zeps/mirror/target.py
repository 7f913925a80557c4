"""The position of a mirror, without I/O: how the stream that it fills tells where to go on in its source.

A mirror keeps nothing itself. It must know, after its own death and that of either broker, which messages of the source
the target has. A position that is stored beside the messages (in a file, or as a named reader at the source) is written
before them or after them: a crash between the two loses messages or repeats them. So the position must be in the
journal of the target *together with* the messages. The extension "once" has what is needed: the target counts the
messages of each publisher, and keeps a MARK of 16 bytes with the count at which it was set; count, mark and messages
are one write. (docs/protocol.md)

The mark of a mirror is a digest of the source's incarnation, and a sequence of the source. The mirror sends a MARK
before each *run*: messages whose sequences follow each other without a gap.

    source       5  6  7        11 12       (8 to 10 do not match the pattern, or were removed by retention)
    to target    MARK 4, 5, 6, 7, MARK 10, 11, 12

So the last message that the target has is always

    sequence in the mark  +  count  -  count at the mark

and no message must be read again to find it, even if retention has removed it from the source meanwhile. A source that
is read without a pattern is nearly always one run. Refused messages count, too, and so do not shift the position.

The mirror asks for the count on every connection, and says that it knows of no confirmed message: what the target has
is all that counts. If the target has lost messages, because its machine lost power, the mirror reads them again from
the source. Messages that an operator has cut off stay counted, and do not come again.

Two mirrors under one name are one publisher: the one that began later fences the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from zambezi.zeps.client.batch import MessageBatch
from zambezi.zeps.layout import DELIVER_KEY, GROWTH, PUBLISH, SEQUENCE, frame_header
from zambezi.zeps.messages import MARK, Mark, Ping, Resume, ResumeOk

UNCONFIRMED: Final = 8 << 20  # bytes that may be unconfirmed: then the mirror waits
PING_BYTES: Final = 256 << 10  # bytes after which a PING is sent, even if one is unanswered
_REST: Final = DELIVER_KEY - 1  # where a DELIVER goes on like a PUBLISH: with the length of its key
_rest: Final = itemgetter(slice(_REST, None))
_DIGEST: Final = MARK - SEQUENCE.size
_NO_MARK: Final = bytes(MARK)
_MARK: Final = Mark(_NO_MARK).encode()[0][:-MARK]  # a MARK without its last field

PING: Final = Ping().encode()[0]


class Standing(NamedTuple):
    """The point of a source that a target has reached."""

    digest: bytes  # of the source's incarnation
    sequence: int  # the last one that the target has


def digest_of(incarnation: str) -> bytes:
    """Return the digest of an incarnation that a mark has room for."""
    return blake2b(incarnation.encode("utf-8", "surrogateescape"), digest_size=_DIGEST, person=b"zeps mirror").digest()


def standing_in(answer: ResumeOk) -> Standing | None:
    """Return the point that a target has reached, by its RESUME-OK; None if it has no mark of this mirror."""
    if len(answer.mark) != MARK or answer.mark == _NO_MARK:
        return None
    (sequence,) = SEQUENCE.unpack(answer.mark[_DIGEST:])
    return Standing(answer.mark[:_DIGEST], sequence + max(0, answer.count - answer.marked))


@dataclass(slots=True)
class MirrorCounters:
    """Counters of a mirror: messages, except where noted."""

    mirrored: int = 0  # known to be in the target
    missed: int = 0  # removed from the source before they could be mirrored
    begun_again: int = 0  # times that the source was another stream under the same name
    resumed: int = 0  # connections to the target


class _Heads(dict[int, bytes]):
    """The bytes before the key of a PUBLISH, frame header included, by the size of the DELIVER that it is made from."""

    def __missing__(self, size: int) -> bytes:
        if len(self) >= 4096:
            self.clear()
        made = self[size] = frame_header(size - GROWTH) + PUBLISH
        return made


_heads: Final = _Heads()


class Parcel:
    """Messages for the target: MARK, PUBLISH and PING, in order."""

    __slots__ = ("_parts", "_ping")

    def __init__(self, parts: list[tuple[bytes, list[bytes]]], ping: bool) -> None:
        self._parts = parts  # a MARK or nothing, and the DELIVER messages that follow it
        self._ping = ping

    @property
    def octets(self) -> bytes:
        """The messages with their frame headers."""
        pieces: list[bytes] = []
        for mark, frames in self._parts:
            if mark:
                pieces += (frame_header(len(mark)), mark)
            if len(set(map(len, frames))) == 1:
                head = _heads[len(frames[0])]
                pieces += (head, head.join(map(_rest, frames)))
            else:
                for frame in frames:
                    pieces += (_heads[len(frame)], frame[_REST:])
        if self._ping:
            pieces += (frame_header(len(PING)), PING)
        return b"".join(pieces)

    @property
    def bodies(self) -> list[bytes]:
        """The messages without their frame headers."""
        found: list[bytes] = []
        for mark, frames in self._parts:
            if mark:
                found.append(mark)
            found += [PUBLISH + frame[_REST:] for frame in frames]
        if self._ping:
            found.append(PING)
        return found


class Target:
    """The rules of filling a target, on one connection after another."""

    def __init__(self, publisher: bytes) -> None:
        self.counters = MirrorCounters()
        self.epoch = 0
        self.refused = 0  # messages that the target has refused, in all lives of the mirror
        self.position = 0  # the last sequence of the source that was sent
        self.confirmed = 0  # the last sequence of the source that the target is known to have
        self._publisher = publisher
        self._digest = b""
        self._marked = False  # whether the mark of the target is known, and the next message may continue its run
        self._count = 0  # messages of this mirror, in the target or under way
        self._known: int | None = None  # messages that the target is known to have
        self._unpinged = 0  # bytes sent since the last PING
        self._pings: deque[tuple[int, int, int]] = deque()  # for each PING: position, count and bytes that it confirms
        self.unconfirmed = 0  # bytes

    def request(self) -> bytes:
        """Return the RESUME for a new connection."""
        return Resume(self._publisher, self.epoch, 0).encode()[0]

    def resume(self, answer: ResumeOk) -> Standing | None:
        """Take the target's answer; return the point that it has reached."""
        self.epoch = answer.epoch
        self.refused = answer.refused
        self.counters.resumed += 1
        if self._known is not None:
            self.counters.mirrored += max(0, answer.count - self._known)
        self._known = self._count = answer.count
        self._pings.clear()
        self._unpinged = self.unconfirmed = 0
        self._marked = False
        return standing_in(answer)

    def begin(self, digest: bytes, position: int, standing: Standing | None) -> Parcel | None:
        """Go on after a sequence of the source; return what makes the target remember it, unless it does already."""
        self._digest = digest
        self.position = position
        self._marked = True
        if standing == (digest, position):
            if not self.unconfirmed:
                self.confirmed = position
            return None
        self._note_ping()
        return Parcel([(self._mark(position), [])], ping=True)

    @property
    def standing(self) -> Standing:
        """The point that the target reaches when it has everything that was sent."""
        return Standing(self._digest, self.position)

    def _mark(self, sequence: int) -> bytes:
        return _MARK + self._digest + SEQUENCE.pack(sequence)

    @property
    def has_room(self) -> bool:
        """Whether more messages may be sent now."""
        return self.unconfirmed < UNCONFIRMED

    def take(self, batch: MessageBatch) -> Parcel:
        """Return the messages of a batch as they go to the target."""
        parts = []
        for first, frames in _runs(batch):
            mark = b"" if self._marked and first == self.position + 1 else self._mark(first - 1)
            self._marked = True
            parts.append((mark, frames))
            self.position = first + len(frames) - 1
        self._count += len(batch)
        size = batch.octets
        self.unconfirmed += size
        self._unpinged += size
        ping = not self._pings or self._unpinged >= PING_BYTES
        if ping:
            self._note_ping()
        return Parcel(parts, ping)

    def _note_ping(self) -> None:
        self._pings.append((self.position, self._count, self._unpinged))
        self._unpinged = 0

    def ping_answered(self) -> Parcel | None:
        """Confirm what was sent before the oldest PING; return the next PING, if messages wait for one."""
        if not self._pings:
            return None
        self.confirmed, count, octets = self._pings.popleft()
        self.unconfirmed -= octets
        if self._known is not None:
            self.counters.mirrored += max(0, count - self._known)
        self._known = count
        if self._pings or not self._unpinged:
            return None
        self._note_ping()
        return Parcel([], ping=True)


def _runs(batch: MessageBatch) -> list[tuple[int, list[bytes]]]:
    """Return the parts of a batch whose sequences follow each other, each with its first sequence."""
    frames = batch.frames
    if batch.last - batch.first == len(frames) - 1:
        return [(batch.first, frames)]
    sequences: Sequence[int] = batch.sequences()
    starts = [0, *(index for index, (one, two) in enumerate(pairwise(sequences), 1) if two != one + 1), len(frames)]
    return [(sequences[start], frames[start:stop]) for start, stop in pairwise(starts)]
