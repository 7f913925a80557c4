"""Recovery: opening a stream for writing, so that it continues after its last message. (ZEP-17)

Recovery repairs the last segment and checks the older ones; `zambezi.zeps.journal.repair` describes how. Afterwards log
and index agree, and the disk has both.

If the system went down, the messages that only the file `ahead` has are written to their places first. Segments after
one that lost its end are removed: see `zambezi.zeps.journal.unsynced`.

The stream gets a new incarnation if a sequence that a subscriber may have seen could be used again: if the mark is of
another start of the operating system, if entries of the index refer to messages that are missing, if the log of an
index at the end is missing, or if the stream has no segment. A new incarnation is written before anything is cut, and
another one after it: a process that reads the files in between must not take the stream for the old or the new one.

Last come the counts of publishers, which must agree with the messages: see `zambezi.zeps.journal.recounting`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.ahead import remove_ahead, replay
from zambezi.zeps.journal.counts import COUNTS, Counts
from zambezi.zeps.journal.entry import unpack
from zambezi.zeps.journal.files import unnamed
from zambezi.zeps.journal.identity import (
    DamagedIdentity,
    Identity,
    boot_id,
    is_cached,
    is_cached_since_boot,
    is_counted,
    read_identity,
    read_mark,
    remove_mark,
    sync_directory,
    write_identity,
)
from zambezi.zeps.journal.keytable import KEYS
from zambezi.zeps.journal.names import name_of
from zambezi.zeps.journal.recounting import Recounting
from zambezi.zeps.journal.repair import apply_repair, examine_segment
from zambezi.zeps.journal.segment import INDEX, LOG, Files, Name, Segment, found_names, without_replaced
from zambezi.zeps.journal.unsynced import count_trusted

_WRITE = os.O_RDWR | os.O_CREAT  # creates a missing index


@dataclass(slots=True)
class Recovered:
    """A stream whose files are consistent again."""

    identity: Identity
    segments: list[Segment]
    problems: list[str] = field(default_factory=list)


def recover(directory: Path, batch: int, counts: Counts) -> Recovered:
    """Repair a stream, fill in its counts, and return it. The data directory must be locked."""
    problems: list[str] = []
    mark = read_mark(directory)
    # A killed process has lost nothing. A system that went down may have lost writes: then only the disk counts.
    is_doubtful = mark is not None and mark.boot != boot_id()
    if is_doubtful:
        replay(directory)
    identity, is_lossy = _read_identity(directory, problems)
    segments = [Segment(str(directory), *name) for name in found_names(directory)]
    if not segments:
        is_lossy = True
        segments = [Segment(str(directory), 1)]
        segments[0].create()
    segments = _remove_replaced(segments)
    is_cache = is_cached(directory)
    has_all = is_cached_since_boot(directory)
    if is_cache:
        segments = _check_cache(segments, has_all=has_all)
    elif first_lost := _first_lost(directory, segments[-1].first):
        is_lossy = True
        problems.append(f"{directory}: the log of the messages from {first_lost} on is missing: they are lost")
    _remove_stray_files(directory, segments, is_cache=is_cache)
    promised = segments[-1].first - 1
    if not is_cache:
        _drop_empty_tail(segments)
        if mark is not None and is_doubtful and mark.synced is not None:
            problems += _drop_untrusted(directory, identity, segments, mark.synced, batch)
    time = 0
    for segment, following in () if is_cache else pairwise(segments):
        problem = _repair_old_segment(segment, following, batch, time, sync=mark is not None)
        if problem:
            problems.append(problem)
        time = max(time, segment.last_time)
    active = segments[-1]
    active.drop_table()
    has_index = Path(active.path + INDEX).exists()
    files = Files(active.path, _WRITE)
    if is_doubtful:
        for descriptor in (files.log, files.index, files.counts):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    diagnosis = examine_segment(
        active,
        files,
        batch,
        thorough=is_doubtful or (is_cache and not has_all),
        earliest=time,
    )
    is_lossy = is_lossy or is_doubtful or diagnosis.is_lossy or diagnosis.last_kept < promised
    if is_lossy:
        write_identity(directory, identity.renewed())
    corrupt = diagnosis.corrupt
    if corrupt is not None:
        problems.append(
            f"{active.path}{LOG}: the batch of {corrupt.first} to {corrupt.last} did not have its CRC; the log was "
            "cut there"
        )
    elif diagnosis.is_lossy:
        lost = f"{diagnosis.last_kept + 1} to {diagnosis.last_promised}"
        problems.append(f"{active.path}{LOG} ended early: sequences {lost} are lost")
    is_changed = apply_repair(files, diagnosis, cut_log=True)
    active.read_extent(files)
    counted = is_counted(directory)
    recounting = Recounting(segments, files, counts, is_counted=counted)
    if mark is not None and is_doubtful and has_index and counted:
        problems += recounting.cut_uncounted(diagnosis.last_promised, mark.synced or 0)
    problems += recounting.recount()
    is_changed |= recounting.is_changed
    if is_changed or mark is not None:
        files.sync()
    remove_ahead(directory)  # when the disk has its bytes at their places
    if is_changed or mark is not None:
        sync_directory(directory)
    if is_lossy:
        identity = identity.renewed()
        write_identity(directory, identity)
    if mark is not None:
        remove_mark(directory)
        sync_directory(directory)
    return Recovered(identity, segments, problems)


def _read_identity(directory: Path, problems: list[str]) -> tuple[Identity, bool]:
    """Return the identity of the stream, and whether it had to be guessed from the name of the directory."""
    try:
        return read_identity(directory), False
    except DamagedIdentity as problem:
        name = name_of(directory.name)
        if name is None or not found_names(directory):
            raise JournalError(f"{problem}: restore it, or move its directory away") from None
        problems.append(f"{problem}; it was created again, with the name of the directory")
        return Identity(name, uuid4()), True


def _first_lost(directory: Path, last: int) -> int:
    """Return the first sequence of an index whose log is missing, after the last segment; 0 if there is none."""
    names = [name for name in found_names(directory, INDEX) if name.first > last and not name.revision]
    return next((name.first for name in names if (directory / f"{name}{INDEX}").stat().st_size), 0)


def _check_cache(segments: list[Segment], *, has_all: bool) -> list[Segment]:
    """Remove segments of a cache that may be damaged: the store has their messages. Return the rest.

    Segments that were read from the store are not synced to the disk: they do not count after a crash of the system.
    """
    kept = []
    for segment in segments[:-1]:
        files = Files(segment.path, _WRITE)
        segment.read_extent(files)
        if segment.entries and segment.is_whole(files, segment.last + 1) and (has_all or not segment.revision):
            kept.append(segment)
        else:
            segment.remove()
    return [*kept, segments[-1]]


def _remove_stray_files(directory: Path, segments: list[Segment], *, is_cache: bool) -> None:
    """Remove the files of work that a crash interrupted: those that have not got their name, and those without a log.

    The index of a segment between others stays, unless the journal is a cache: its log is lost, and can come back from
    a copy.
    """
    for path in unnamed(directory):
        with suppress(OSError):  # it does no harm
            path.unlink()
    names = {Name(segment.first, segment.revision) for segment in segments}
    for suffix in (INDEX, COUNTS, KEYS):
        for name in set(found_names(directory, suffix)) - names:
            is_between = segments[0].first <= name.first <= segments[-1].first
            is_covered = any(segment.first <= name.first <= segment.last for segment in segments)
            if name.revision or is_covered or is_cache or not is_between:
                (directory / f"{name}{suffix}").unlink()


def _remove_replaced(segments: list[Segment]) -> list[Segment]:
    """Remove the segments that others have replaced: a crash came in between. Return the rest."""
    if any(segment.revision for segment in segments):
        for segment in segments:
            segment.read_extent(Files(segment.path, _WRITE))
        segments, replaced = without_replaced(segments)
        for segment in replaced:
            segment.remove()
    return segments


def _drop_empty_tail(segments: list[Segment]) -> None:
    """Remove empty segments from the end while the one before is incomplete: that one must be repaired as the last."""
    while len(segments) > 1 and not Path(segments[-1].path + LOG).stat().st_size:
        segment, following = segments[-2:]
        files = Files(segment.path, _WRITE)
        segment.read_extent(files)
        if segment.is_whole(files, following.first):
            break
        segments.pop().remove()


def _drop_untrusted(directory: Path, identity: Identity, segments: list[Segment], synced: int, batch: int) -> list[str]:
    """Remove the segments after one that lost its end with the system; return what was done."""
    trusted = count_trusted(segments, synced, batch)
    if trusted == len(segments):
        return []
    write_identity(directory, identity.renewed())
    first = segments[trusted].first
    while len(segments) > trusted:
        segments.pop().remove()
    told = "the disk does not have all messages before them, and had not confirmed them"
    return [f"{directory}: the messages from {first} on were removed: {told}"]


def _repair_old_segment(segment: Segment, following: Segment, batch: int, time: int, *, sync: bool) -> str:
    """Check that an old segment leads up to the next one, rebuild its index if not; return what is still wrong."""
    problem = ""
    files = Files(segment.path, _WRITE)
    segment.read_extent(files)
    if not segment.is_whole(files, following.first):
        head = unpack(Files(following.path, _WRITE).read_entries(0, 1))
        latest = None if head is None else head.time
        diagnosis = examine_segment(
            segment,
            files,
            batch,
            thorough=True,
            check_log=False,
            earliest=time,
            latest=latest,
            following=following.first,
        )
        apply_repair(files, diagnosis, cut_log=False)
        segment.read_extent(files)
        if not segment.is_whole(files, following.first):
            problem = segment.describe_gap(following.first)
        sync = True
    if sync:
        files.sync(Path(segment.path + COUNTS).exists())  # a segment without counts must not get an empty file of them
    return problem
