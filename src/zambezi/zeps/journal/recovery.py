"""What is done to a stream when it is opened: it goes on where it ended, whatever ended it. (ZEP-17)

The last segment is repaired, and older ones are looked at; `zambezi.zeps.journal.repair` tells how. When that is done
log and index agree, and the disk has both.

The stream gets a new incarnation if a sequence that somebody may have seen could be used again: if the mark is of
another start of the operating system, if entries of the index speak of messages that are not there, or if there is no
segment at all. It is written before anything is cut, and anew after it: another process that looks in between must
not take the stream for what it was, nor for what it will be.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.entry import unpack
from zambezi.zeps.journal.identity import (
    Damaged,
    Identity,
    boot_id,
    read_identity,
    read_mark,
    remove_mark,
    sync_directory,
    write_identity,
)
from zambezi.zeps.journal.names import name_of
from zambezi.zeps.journal.repair import apply, examine
from zambezi.zeps.journal.segment import INDEX, LOG, Files, Segment, listing, stem_of

_WRITE = os.O_RDWR | os.O_CREAT  # an index that is missing is made


@dataclass(slots=True)
class State:
    """A stream that is whole again."""

    identity: Identity
    segments: list[Segment]
    files: Files  # of the last segment
    problems: list[str] = field(default_factory=list)


def recover(directory: Path, batch: int) -> State:
    """Make a stream whole. The data directory must be locked."""
    problems: list[str] = []
    mark = read_mark(directory)
    # A process that was killed has lost nothing; a system that went down has, and then only the disk counts.
    is_doubtful = mark is not None and mark != boot_id()
    identity, is_lossy = _identity(directory, problems)
    segments = [Segment(str(directory), first) for first in listing(directory)]
    if not segments:
        is_lossy = True
        segments = [Segment(str(directory), 1)]
        segments[0].create()
    _remove_strays(directory, segments)
    promised = segments[-1].first - 1
    _drop_empty(segments)
    time = 0
    for segment, following in pairwise(segments):
        problem = _look_at_old(segment, following, batch, time, sync=mark is not None)
        if problem:
            problems.append(problem)
        time = max(time, segment.last_time)
    active = segments[-1]
    files = Files(active.path, _WRITE)
    if is_doubtful:
        for descriptor in (files.log, files.index):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    found = examine(active, files, batch, thorough=is_doubtful, earliest=time)
    is_lossy = is_lossy or is_doubtful or found.is_lossy or found.kept < promised
    if is_lossy:
        write_identity(directory, identity.renewed())
    if found.spoilt is not None:
        batch_of = f"{found.spoilt.first} to {found.spoilt.last}"
        problems.append(f"{active.path}{LOG}: the batch of {batch_of} was not what was written; the log was cut there")
    elif found.is_lossy:
        problems.append(f"{active.path}{LOG} ended early: sequences {found.kept + 1} to {found.promised} are lost")
    if apply(files, found, cut_log=True) or mark is not None:
        files.sync()
        sync_directory(directory)
    active.look(files)
    if is_lossy:
        identity = identity.renewed()
        write_identity(directory, identity)
    if mark is not None:
        remove_mark(directory)
        sync_directory(directory)
    return State(identity, segments, files, problems)


def _identity(directory: Path, problems: list[str]) -> tuple[Identity, bool]:
    """Who the stream is, and whether that had to be guessed from the name of its directory."""
    try:
        return read_identity(directory), False
    except Damaged as problem:
        name = name_of(directory.name)
        if name is None or not listing(directory):
            raise JournalError(f"{problem}: restore it, or move its directory away") from None
        problems.append(f"{problem}; it was made anew, with the name of the directory")
        return Identity(name, uuid4()), True


def _remove_strays(directory: Path, segments: list[Segment]) -> None:
    """Remove indexes without a log from both ends: their removal was interrupted."""
    for first in listing(directory, INDEX):
        if not segments[0].first <= first <= segments[-1].first:
            (directory / (stem_of(first) + INDEX)).unlink()


def _drop_empty(segments: list[Segment]) -> None:
    """Remove segments without octets from the end if the one before is not whole: that is the one to repair."""
    while len(segments) > 1 and not Path(segments[-1].path + LOG).stat().st_size:
        segment, following = segments[-2:]
        files = Files(segment.path, _WRITE)
        segment.look(files)
        if segment.is_whole(files, following.first):
            break
        segments.pop().remove()


def _look_at_old(segment: Segment, following: Segment, batch: int, time: int, *, sync: bool) -> str:
    """See that an old segment leads up to the next one. Its index is made anew if that helps. What is wrong, if so."""
    problem = ""
    files = Files(segment.path, _WRITE)
    segment.look(files)
    if not segment.is_whole(files, following.first):
        head = unpack(Files(following.path, _WRITE).read(0, 1))
        latest = None if head is None else head.time
        found = examine(segment, files, batch, thorough=True, check_log=False, earliest=time, latest=latest)
        apply(files, found, cut_log=False)
        segment.look(files)
        if not segment.is_whole(files, following.first):
            problem = segment.hole(following.first)
        sync = True
    if sync:
        files.sync()
    return problem
