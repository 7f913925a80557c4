"""The import of messages into a journal, which can be repeated: each message is in the stream once.

The messages are counted like those of a publisher (see `counts`), whose id is a digest of the file. The count goes to
the journal together with the messages. So an import that was interrupted goes on where it was, and one that is repeated
adds nothing, until the journal forgets the publisher (`keep_publishers`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from zambezi.zeps.block import deliver
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.journal import Journal
from zambezi.zeps.layout import BODY_LENGTH, PUBLISH

_MICRO: Final = 1_000_000
_BATCH: Final = 1 << 18  # bytes that are appended at once


def import_messages(
    journal: Journal, messages: Iterable[tuple[bytes, bytes, int]], publisher: bytes, now: float
) -> tuple[int, int]:
    """Append messages, each a key, a body and a time in microseconds; return how many, and how many were skipped.

    A message with the time 0 gets the time `now`. No message gets an earlier time than the one before.
    """
    known = journal.counts.get(publisher)
    skipped = known.count if known is not None else 0
    done = skipped
    frames: list[bytes] = []
    size = at = 0
    for key, body, time in islice(messages, skipped, None):
        if frames and (time != at or size >= _BATCH):
            done += _append(journal, frames, publisher, done, at, now)
            frames, size = [], 0
        at = time
        frames.append(b"".join((PUBLISH, bytes((len(key),)), key, BODY_LENGTH.pack(len(body)), body)))
        size += len(frames[-1])
    if frames:
        done += _append(journal, frames, publisher, done, at, now)
    return done - skipped, skipped


def _append(journal: Journal, frames: list[bytes], publisher: bytes, done: int, time: int, now: float) -> int:
    block = deliver(frames, journal.last + 1)
    # Half a microsecond more, so that the time is the same after it was rounded down.
    journal.append(block, (time + 0.5) / _MICRO if time else now, [Count(publisher, 1, done + block.count)])
    return block.count
