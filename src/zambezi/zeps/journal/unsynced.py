"""Closed segments that the disk may not have, after the system went down.

A burst of messages can end a segment, and begin the next one, before a sync. If the power fails then, the disk can have
the messages of the new segment without those before them. No client has a confirmation of any of them: the sync that
confirms a message covers all messages before it. So the stream ends at the first message that is missing, and the
segments after it are removed. If they stayed, publishers would send messages again that the stream has.

The mark says up to which sequence the disk had everything. It is written again when a new segment was synced for the
first time. So damage in older segments has another cause, and costs nothing but the damaged messages.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Final

from zambezi.zeps.journal.repair import examine_segment
from zambezi.zeps.journal.segment import LOG, Files, Segment

_RECENT: Final = 600.0  # seconds: the kernel writes a file to the disk earlier than that, even if no program syncs it


def count_trusted(segments: list[Segment], synced: int, batch: int) -> int:
    """Return how many segments, from the first on, are whole up to their end, and the one after them.

    `synced` is a sequence up to which the disk had everything.
    """
    latest = max(_changed(segment) for segment in segments)
    for number, (segment, following) in enumerate(pairwise(segments), 1):
        is_old = following.first - 1 <= synced or _changed(segment) < latest - _RECENT
        if not is_old and not _is_sound(segment, following.first, batch):
            return number
    return len(segments)


def _is_sound(segment: Segment, following: int, batch: int) -> bool:
    """Return whether a segment has all its messages, and each batch its CRC, as the disk has them."""
    files = Files(segment.path, os.O_RDWR | os.O_CREAT)
    for descriptor in (files.log, files.index):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    segment.read_extent(files)
    if not segment.is_whole(files, following):
        return False
    found = examine_segment(segment, files, batch, thorough=True, following=following)
    return found.corrupt is None and not found.new and found.last_good + 1 == following


def _changed(segment: Segment) -> float:
    return Path(segment.path + LOG).stat().st_mtime
