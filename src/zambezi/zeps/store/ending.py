"""The end of a stream's log: the last sequence, the publishers, the owner. A new owner must know it, and a planner.

The newest segment has a snapshot of all publishers, and each chunk above it the records of those that published in it.
A segment can be a chunk, with the kind and the epoch of that. So only the ends of these objects are read, and no
messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from zambezi.zeps.errors import StoreDamaged
from zambezi.zeps.journal.counts import RECORD, unpack
from zambezi.zeps.store.chunk import FOOTER, NOBODY, UNCHANGED, Footer, Kind, unpack_footer
from zambezi.zeps.store.commands import MISSING, Get, Procedure, ask_all, get
from zambezi.zeps.store.names import StreamPlace
from zambezi.zeps.store.view import ChunkObject, View

_GUESS: Final = 4096  # bytes at the end of a chunk that usually have its records and its footer


@dataclass(frozen=True, slots=True)
class End:
    """The end of a log."""

    view: View
    last: int  # the last sequence
    last_time: int  # its time
    epoch: int
    owner: bytes
    incarnation: bytes  # 16 bytes; zeros if the log does not tell it: then it is that of `stream.json`
    is_deleted: bool
    records: Sequence[bytes]  # the records of publishers, the oldest first
    footers: Sequence[Footer]  # of the tail

    @property
    def is_released(self) -> bool:
        """Whether the last owner has given the stream up, or it never had an owner."""
        return self.owner == NOBODY


def read_end(place: StreamPlace, view: View) -> Procedure[End | None]:
    """Read the end of a log; return None if an object was removed meanwhile: then look again.

    An object that was replaced meanwhile seems to be damaged: see `look_and_read`.
    """
    view.check_whole()
    footers: list[Footer] = []
    records: list[bytes] = []
    newest = view.newest
    if newest is not None:
        key = place.segment(newest.name)
        octets = yield from get(key, max(0, newest.size - FOOTER), FOOTER)
        if octets is None:
            return None
        footer = _segment_footer(octets, key, newest.size)
        if footer.snapshot:
            snapshot = yield from get(key, newest.size - FOOTER - footer.snapshot, footer.snapshot)
            if snapshot is None:
                return None
            records += _split(snapshot, key)
        footers.append(footer)
    tails = yield from _read_tails(place, view.tail)
    if tails is None:
        return None
    for footer, found in tails:
        footers.append(footer)
        records += found
    return _fold(view, footers, records)


def _segment_footer(octets: bytes, key: str, size: int) -> Footer:
    footer = unpack_footer(octets, key)
    if footer.kind not in (Kind.SEGMENT, Kind.DATA) or footer.size != size:
        raise StoreDamaged(f"{key} has {size} bytes, and its footer says a {footer.kind.name.lower()} of {footer.size}")
    return footer


def _read_tails(place: StreamPlace, tail: Sequence[ChunkObject]) -> Procedure[list[tuple[Footer, list[bytes]]] | None]:
    """Return the footer and the records of each chunk; None if one was removed meanwhile."""
    starts = [max(0, chunk.size - _GUESS) for chunk in tail]
    ends = yield from ask_all(
        [Get(place.chunk(chunk.number), start, chunk.size - start) for chunk, start in zip(tail, starts, strict=True)]
    )
    if MISSING in ends:
        return None
    found = []
    for chunk, start, part in zip(tail, starts, ends, strict=True):
        octets: bytes | None
        key = place.chunk(chunk.number)
        footer = unpack_footer(part, key)
        if (footer.number, footer.size) != (chunk.number, chunk.size) or footer.kind == Kind.SEGMENT:
            raise StoreDamaged(
                f"{key} has {chunk.size} bytes, and its footer says chunk {footer.number}, {footer.size}"
            )
        at = chunk.size - FOOTER - footer.snapshot - footer.records
        if at >= start:
            octets = part[at - start :][: footer.records]
        else:
            octets = yield from get(key, at, footer.records)
        if octets is None:
            return None
        found.append((footer, _split(octets, key)))
    return found


def _split(octets: bytes, key: str) -> list[bytes]:
    """Return the records in some bytes."""
    records = [octets[at : at + RECORD] for at in range(0, len(octets), RECORD)]
    if any(unpack(record) is None for record in records):
        raise StoreDamaged(f"{key} has a damaged record of a publisher")
    return records


def _fold(view: View, footers: Sequence[Footer], records: Sequence[bytes]) -> End:
    """Return what consecutive objects say together."""
    last = last_time = epoch = 0
    owner, incarnation = NOBODY, UNCHANGED
    is_deleted = False
    for index, footer in enumerate(footers):
        if footer.kind in (Kind.DATA, Kind.SEGMENT):
            # The first message of a log can have any sequence: a stream that is copied may have lost its beginning.
            wanted = last + 1 if last else footer.first
            is_segment = view.newest is not None and index == 0
            if not is_segment and (footer.epoch, footer.first) != (epoch, wanted):
                raise StoreDamaged(
                    f"chunk {footer.number} has epoch {footer.epoch} and sequence {footer.first}, and epoch {epoch} "
                    f"and sequence {last + 1} must follow"
                )
            last, last_time = footer.last, footer.last_time
        epoch = footer.epoch
        owner = NOBODY if footer.kind == Kind.RELEASE else footer.owner
        incarnation = incarnation if footer.incarnation == UNCHANGED else footer.incarnation
        is_deleted |= footer.kind == Kind.DELETION
    tail = footers[1:] if view.newest is not None else footers
    return End(view, last, last_time, epoch, owner, incarnation, is_deleted, records, tail)
