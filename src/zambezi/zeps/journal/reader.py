"""Reading a journal in order: a position in it, and the runs of messages that follow.

A reader returns spans: whole messages that are contiguous in one log, so that one `sendfile` sends them to a socket.
The reader finds the end of a span in the index, and reads many entries of it at once. It parses a batch only if a span
begins or ends inside it; the journal then caches the cuts of that batch for all readers.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from zambezi.zeps.block import Block
from zambezi.zeps.errors import JournalError, OutOfRange, Rewritten
from zambezi.zeps.journal.entry import LARGEST_BATCH, IndexWindow
from zambezi.zeps.journal.segment import Files, Segment

if TYPE_CHECKING:
    from zambezi.zeps.journal.reading import JournalReading

_LEAST, _MOST = 64, 2048  # entries of the index that are read at once: more with each read of a reader
_PIECE: Final = 256 * 1024
_SEE: Final = "see `zambezi journal verify`"
_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)


class Span:
    """A run of whole messages in a log. The file stays open as long as the span exists.

    It covers the sequences from `first` to `last`, and has `count` messages: fewer, if compaction has removed some.
    `time` is that of the batch of the first message, in microseconds since 1970.
    """

    __slots__ = ("_files", "count", "credit", "fd", "first", "last", "length", "offset", "time")

    def __init__(
        self, files: Files, offset: int, length: int, first: int, last: int, count: int, credit: int, time: int
    ) -> None:
        self._files = files
        self.fd = files.log
        self.offset = offset
        self.length = length
        self.first = first
        self.last = last
        self.count = count
        self.credit = credit
        self.time = time

    def read(self) -> Block:
        """Return the messages. Blocks if they are not in the page cache."""
        if self.count == 1 and self.length > LARGEST_BATCH and not self._files.has_message(self.offset, self.length):
            raise JournalError(f"the log has no message of {self.length} bytes at {self.offset}: {_SEE}")
        octets = self._files.read_log(self.offset, self.length)
        if len(octets) < self.length:
            raise JournalError(
                f"the log ends before sequence {self.last}: it was truncated while it was read; start again, and {_SEE}"
            )
        return Block(self.first, self.last, self.count, octets, self.credit)

    def is_resident(self) -> bool:
        """Return whether `read` would not wait for the disk, judged by the first and the last byte."""
        return is_cached(self.fd, self.offset) and is_cached(self.fd, self.offset + self.length - 1)

    def warm(self) -> None:
        """Load the messages into the page cache. Blocks."""
        buffer = bytearray(min(self.length, _PIECE))
        end = self.offset + self.length
        for offset in range(self.offset, end, len(buffer)):
            os.preadv(self.fd, [buffer], offset)

    def __repr__(self) -> str:
        return f"<Span of {self.first} to {self.last}, {self.length} bytes at {self.offset}>"


def is_cached(descriptor: int, offset: int) -> bool:
    """Return whether a byte of a file is in the page cache; True if the file system cannot tell."""
    try:
        os.preadv(descriptor, [bytearray(1)], offset, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
    return True


class Reader:
    """A position in a journal. `position` is the last sequence that the reader has passed.

    If sequences are missing because an old segment is damaged, the next span begins after them. Sequences whose
    messages were removed are part of the span before or after them.
    """

    __slots__ = ("_generation", "_journal", "_limit", "_number", "_segment", "_window", "position")

    def __init__(self, journal: JournalReading, after: int) -> None:
        self._journal = journal
        self._segment: Segment | None = None
        self._window: IndexWindow | None = None
        self._number = 0  # the number of the first entry in the window
        self._limit = _LEAST
        self._generation = -1
        self.position = after

    def seek(self, after: int) -> None:
        """Move to the position right after a sequence."""
        self.position = after

    def release_window(self) -> None:
        """Free the memory of a large window: a reader at the end of the stream needs none."""
        if self._window is not None and len(self._window) > _LEAST:
            self._window = None

    def skip(self, span: Span) -> None:
        """Move past a span that `peek` returned."""
        self.position = span.last

    def check_gap(self, span: Span) -> None:
        """Raise `OutOfRange` if messages before a span that `peek` returned are missing: the disk is damaged."""
        if self._journal.gaps and span.first > self.position + 1:
            raise OutOfRange(missing_reason(self.position + 1, span.first), span.first)

    def peek(self, octets: int, credit: int | None = None) -> Span | None:
        """Return the next messages, about `octets` at most but at least one; None if there are none, or no credit.

        A message is included while credit is above zero, so the last one may overdraw it. (ZEP-03)
        """
        while True:
            try:
                span = self._peek(octets, credit)
            except Rewritten:
                self._window = None
                continue
            if span is None or span.count:
                return span
            self.position = span.last  # all messages up to there were removed

    def _peek(self, octets: int, credit: int | None) -> Span | None:
        journal = self._journal
        wanted = self.position + 1
        if wanted < journal.first:
            raise OutOfRange(
                f"stream {journal.name!a}: sequence {wanted} is not kept any more, the oldest is {journal.first}",
                journal.first,
            )
        if wanted > journal.last or (credit is not None and credit <= 0):
            return None
        window = self._window
        if (
            window is None
            or self._generation != journal.generation
            or not window.firsts[0] <= wanted < window.firsts[-1]
        ):
            found = self._go_to_segment(wanted)
            if found is None:
                return None
            window, wanted = found
        segment = self._segment
        assert segment is not None
        number = bisect_right(window.firsts, wanted) - 1
        span = self._span(segment, window, number, wanted, octets, credit)
        while (
            span.last + 1 == window.firsts[-1]
            and (number or len(window) < _MOST)
            and self._number + len(window) < segment.entries
        ):
            # The span ends at the end of the window, and the index has more entries: the span may become longer.
            window = self._load_window(segment, self._number + number)
            number = 0
            span = self._span(segment, window, number, wanted, octets, credit)
        return span

    def times(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the times of messages that `peek` has just returned: pairs of a sequence, and the time from it on."""
        window = self._window
        assert window is not None
        number = bisect_right(window.firsts, first) - 1
        found = [(first, window.time(number))]
        for later in range(number + 1, bisect_right(window.firsts, last)):
            time = window.time(later)
            if time != found[-1][1]:
                found.append((window.firsts[later], time))
        return found

    def pairs(self, first: int, last: int) -> bytes:
        """Return the times of messages that `peek` has just returned: of each batch its first sequence and its time, as
        8 bytes each. The first batch can begin before `first`."""
        window = self._window
        assert window is not None
        return window.pairs(bisect_right(window.firsts, first) - 1, bisect_right(window.firsts, last))

    def _go_to_segment(self, wanted: int) -> tuple[IndexWindow, int] | None:
        """Load the window of a sequence, or of the next one that exists; return it with that sequence."""
        journal = self._journal
        generation = journal.generation  # first: another thread may replace segments now
        segments = journal.segments
        place = max(0, bisect_right(segments, wanted, key=_first) - 1)
        if journal.is_cache:
            journal.note_use(wanted, segments[place])
        while segments[place].last < wanted:
            place += 1
            if place == len(segments):
                return None
        segment = segments[place]
        wanted = max(wanted, segment.first)
        window = self._window
        if (
            window is not None
            and segment is self._segment
            and self._generation == journal.generation
            and window.firsts[-1] == wanted
        ):
            number = self._number + len(window)  # right after the current window: the usual case
        else:
            number = segment.locate(journal.files(segment), wanted)
            self._limit = _LEAST
        self._segment = segment
        self._generation = generation
        return self._load_window(segment, number), wanted

    def _load_window(self, segment: Segment, number: int) -> IndexWindow:
        self._window = window = segment.load_window(self._journal.files(segment), number, self._limit)
        self._number = number
        self._limit = min(_MOST, 4 * self._limit)
        return window

    def _span(
        self, segment: Segment, window: IndexWindow, number: int, wanted: int, octets: int, credit: int | None
    ) -> Span:
        journal = self._journal
        files = journal.files(segment)
        firsts, starts, costs, numbers = window.firsts, window.starts, window.spent, window.numbers
        inside = 0  # messages of the batch that the reader has passed
        if wanted > firsts[number]:
            cuts = journal.cuts(segment, self._number + number, window, number)
            inside = cuts.index_of(wanted)
        while inside == numbers[number + 1] - numbers[number]:  # the other messages of the batch were removed
            number, inside = number + 1, 0
            if number == len(window):
                return Span(files, starts[number], 0, wanted, firsts[number] - 1, 0, 0, window.time(number - 1))
        start, spent = starts[number], costs[number]
        if inside:
            start += cuts.starts[inside]
            spent += cuts.spent[inside]
        passed = numbers[number] + inside
        # The batch to stop before: those before it fit into `octets`, and the credit pays for them.
        after = bisect_right(starts, start + octets) - 1
        affordable = len(window) if credit is None else bisect_right(costs, spent + credit) - 1
        stop = min(after, affordable)
        exhausted = credit is None or costs[stop] - spent >= credit
        if stop > number and (stop == after or exhausted):
            end, last, paid = starts[stop], firsts[stop] - 1, costs[stop] - spent
            count = numbers[stop] - passed
        else:
            # The span ends inside the batch `stop`: `octets` or the credit is used up there.
            inside = inside if stop == number else 0
            cuts = journal.cuts(segment, self._number + stop, window, stop)
            until = len(cuts.starts) - 1
            if after <= stop:
                until = min(until, cuts.stop_for_size(inside, octets))
            if credit is not None and affordable <= stop:
                until = min(until, cuts.stop_for_credit(inside, credit - (costs[stop] + cuts.spent[inside] - spent)))
            end = starts[stop] + cuts.starts[until]
            last = (cuts.sequences[until] if until < len(cuts.sequences) else firsts[stop + 1]) - 1
            count = numbers[stop] + until - passed
            paid = costs[stop] + cuts.spent[until] - spent
        return Span(files, start, end - start, wanted, last, count, paid, window.time(number))

    def __repr__(self) -> str:
        return f"<Reader of {self._journal.name!a} after {self.position}>"


def missing_reason(wanted: int, following: int) -> str:
    """Return the reason why a reader gets no more messages before a gap."""
    return (
        f"messages {wanted} to {following - 1} are missing, because the journal is damaged; repair it, or subscribe "
        f"from {following - 1} to go on after them"
    )


def _first(segment: Segment) -> int:
    return segment.first
