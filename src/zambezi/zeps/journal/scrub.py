"""The scrub: closed segments are read again and again, slowly, so that damage is found while a copy still exists.

A disk can change bytes that nobody reads for months. The scrub reads every closed segment of every stream, and compares
each batch with its CRC. It works in steps, each of a limited number of bytes, on a thread of its own. It opens files
itself, one segment at a time, and skips a segment that retention removes. Pages that were not in memory before do not
stay there after the check: the scrub must not displace the pages that subscribers need.

A page that is in memory is checked there, and not on the disk.

A damaged segment of a journal that is a cache of an object store is removed from the disk, if the store has its
messages: readers get them from there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from zambezi.zeps.about import about
from zambezi.zeps.errors import ZepsError
from zambezi.zeps.journal.journal import Journal
from zambezi.zeps.journal.reader import is_cached
from zambezi.zeps.journal.segment import LOG, Files, Segment
from zambezi.zeps.journal.verify import Checked, SegmentCheck, Unfinished

_log: Final = logging.getLogger("zambezi.zeps")

RATE: Final = 10 << 20  # bytes per second
PASS: Final = 24 * 3600.0  # seconds from the beginning of a pass to that of the next one
_LEAST: Final = 4096  # the bytes that a batch or a stream counts for, at least: small ones cost time, too
_DROP: Final = 4 << 20  # bytes after which pages are dropped from memory
_PROBES: Final = 8  # pages of a segment that are looked at, to see whether it is in memory
_DAMAGED: Final = 1000  # damaged segments that are remembered


@dataclass(slots=True)
class ScrubCounters:
    """Counters of a scrub."""

    segments: int = 0  # checked
    octets: int = 0  # of logs, checked
    passes: int = 0  # over all streams
    repaired: int = 0  # segments that were damaged, and whose messages an object store has


class Scrub:
    """A check of all closed segments of some journals, in steps. One thread at a time calls `step`."""

    def __init__(self, journals: Callable[[], Sequence[Journal]]) -> None:
        self.counters = ScrubCounters()
        self._journals = journals
        self._damaged: dict[str, str] = {}  # what is wrong, by the path of the segment
        self._work: Iterator[int] | None = None
        self._next_pass = 0.0
        self._stopped = False

    @property
    def problems(self) -> list[str]:
        """The damage that was found: one text for each damaged segment."""
        return list(self._damaged.values())

    def stop(self) -> None:
        """End the current step soon. Any thread may call this."""
        self._stopped = True

    def step(self, octets: int, now: float) -> None:
        """Check about so many bytes. Blocks. `now` is the time in seconds, by any clock that only goes forward."""
        self._forget_removed()
        if self._work is None:
            if now < self._next_pass:
                return
            self._next_pass = now + PASS
            self._work = self._check_all()
        left = octets
        while left > 0 and not self._stopped:
            spent = next(self._work, None)
            if spent is None:
                self._work = None
                self.counters.passes += 1
                return
            left -= spent

    def _forget_removed(self) -> None:
        for path in list(self._damaged):
            if not Path(path + LOG).exists():
                del self._damaged[path]

    def _check_all(self) -> Iterator[int]:
        """Check all closed segments, and yield what each part of the work counts for."""
        for journal in self._journals():
            yield _LEAST
            time = 0
            segments = journal.segments
            for segment, following in pairwise(segments):
                try:
                    files = Files(segment.path)
                except OSError:
                    continue  # retention removed it, or no descriptor is left: the next pass looks again
                check = SegmentCheck(segment, time, is_parsed=False)
                yield from self._check(journal, segment, following, check, files)
                time = check.time

    def _check(
        self, journal: Journal, segment: Segment, following: Segment, check: SegmentCheck, files: Files
    ) -> Iterator[int]:
        is_cold = not _is_in_memory(files, segment.size)
        is_gap = segment.last + 1 != following.first and not journal.is_cache
        problem = segment.describe_gap(following.first) if is_gap else ""
        kept = 0  # where the pages begin that are still to be dropped
        try:
            for found in check.check_entries(files):
                if not isinstance(found, Checked):
                    problem = problem or str(found)
                    break
                self.counters.octets += found.entry.length
                yield max(_LEAST, found.entry.length)
                if is_cold and check.offset - kept >= _DROP:
                    _drop_pages(files, kept, check.offset)
                    kept = check.offset
            else:
                rest = [str(found) for found in check.check_tail(files, False) if not isinstance(found, Unfinished)]
                problem = problem or (rest[0] if rest else "")
        except OSError as error:
            problem = problem or f"{segment.path}{LOG} cannot be read: {error.strerror or error}"
        if is_cold:
            _drop_pages(files, kept, 0)
        if segment in journal.segments:
            self.counters.segments += 1
            self._note(journal, segment, problem)

    def _note(self, journal: Journal, segment: Segment, problem: str) -> None:
        if problem and self._is_stored(journal, segment) and journal.evict(segment):
            self.counters.repaired += 1
            _log.warning(
                "stream %a: %s; the segment was removed from the disk, because the object store has its messages",
                journal.name,
                problem,
                extra=about(journal.name, problem),
            )
            problem = ""
        if not problem:
            self._damaged.pop(segment.path, None)
        elif len(self._damaged) < _DAMAGED:
            data = journal.directory.parent
            self._damaged[segment.path] = (
                f"stream {journal.name!a}: {problem}; `zambezi journal verify {journal.name} --data {data}` says more; "
                f"stop the server and run `zambezi journal repair {journal.name} --data {data} --from COPY`"
            )

    def _is_stored(self, journal: Journal, segment: Segment) -> bool:
        """Return whether an object store has all messages of a segment, undamaged: all of them are read there."""
        if journal.backing is None:
            return False
        try:
            for _ in journal.backing.backwards(max(segment.first, journal.first) - 1, segment.last):
                if self._stopped:
                    return False
        except ZepsError:
            return False  # the next pass looks again
        return True


def _is_in_memory(files: Files, size: int) -> bool:
    """Return whether most of a log is in the page cache, judged by a few pages of it."""
    places = range(0, max(1, size), max(1, size // _PROBES))
    try:
        return sum(is_cached(files.log, place) for place in places) * 2 > len(places)
    except OSError:
        return True


def _drop_pages(files: Files, start: int, stop: int) -> None:
    os.posix_fadvise(files.log, start, max(0, stop - start), os.POSIX_FADV_DONTNEED)
