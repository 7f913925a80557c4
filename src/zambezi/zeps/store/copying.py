"""Copies between a data directory and an object store: `copy_stream` to the store, `restore_stream` from it.

Both keep sequences, times, the incarnation, the counts of publishers, and the positions of readers and groups. A copy
that is made again goes on where the one before ended. All functions block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID, uuid4

from zambezi.zeps.block import Block
from zambezi.zeps.errors import StoreError
from zambezi.zeps.journal import Journal, Store
from zambezi.zeps.journal.counts import Count, Counts, Recount, unpack
from zambezi.zeps.journal.extract import batches
from zambezi.zeps.journal.loaded import clip
from zambezi.zeps.journal.positions import REMOVED, Content, Key, Position, read_positions
from zambezi.zeps.store.catalog import StoredStream, make_stream
from zambezi.zeps.store.chunk import UNCHANGED, Piece, piece_of_counts, piece_of_positions
from zambezi.zeps.store.commands import Failed, Procedure
from zambezi.zeps.store.ending import End, read_end
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.shell import PATIENCE, ObjectStore
from zambezi.zeps.store.stream_log import LogSettings, State, StreamLog
from zambezi.zeps.store.takeover import Prepared
from zambezi.zeps.store.view import look_and_read

_MICRO: Final = 1_000_000
_PIECE: Final = 8 << 20  # bytes that are read at once
_SETTINGS: Final = LogSettings(commit=0.0)
Advance = Callable[[int], object]  # called with the bytes that were copied


class StreamEnded(StoreError):
    """A stream was deleted, or truncated: then it goes on in another place."""


def _ignore(octets: int) -> None:
    """Do nothing: the caller shows no progress."""


def end_of(store: ObjectStore, stream: StoredStream) -> End:
    """Return the end of a stream's log."""

    def read() -> Procedure[End]:
        return look_and_read(stream.place, lambda view: read_end(stream.place, view))

    return store.run(read())


def incarnation_of(stream: StoredStream, incarnation: bytes) -> UUID:
    """Return the incarnation that the log tells, or else that of the stream's identity."""
    return stream.incarnation if incarnation == UNCHANGED else UUID(bytes=incarnation)


def copy_stream(store: ObjectStore, journal: Journal, advance: Advance = _ignore) -> int:
    """Copy the messages of a journal that the store does not have yet, and return their number.

    Raises `StoreError` if a broker owns the stream in the store, or if the store has another stream of this name.
    """
    if journal.removed:
        raise StoreError(f"stream {journal.name!a} is compacted: a store has all messages of a stream, or none")
    stream = store.run(make_stream(journal.name, journal.incarnation, journal.settings))
    end = end_of(store, stream)
    stored = incarnation_of(stream, end.incarnation)
    if stored != journal.incarnation:
        raise StoreError(
            f"the store has incarnation {stored} of stream {journal.name!a}, and {journal.directory} is "
            f"{journal.incarnation}: their sequences may stand for other messages; use another prefix"
        )
    if not end.is_released:
        raise StoreError(
            f"stream {journal.name!a} in the store belongs to broker {end.owner.hex()}: a stream that a broker writes "
            "to the store needs no copy"
        )
    positions = changed_positions(read_positions(journal.directory).states, end.positions)
    if end.last >= journal.last and not positions:
        return 0
    if end.last and end.last + 1 < journal.first:
        raise StoreError(
            f"stream {journal.name!a}: the store ends at {end.last}, and {journal.directory} begins at "
            f"{journal.first}: the messages between them are lost; use another prefix"
        )
    log = StreamLog(stream.place, uuid4().bytes, stored.bytes, _SETTINGS)
    log.take(0.0)
    settle(store, log)
    copied = begun = max(log.last, journal.first - 1)
    for entry, octets in batches(journal, copied, journal.last):
        if entry.gap:
            raise StoreError(f"stream {journal.name!a} is compacted, and the store has streams without gaps only")
        if entry.first != copied + 1:
            raise StoreError(f"stream {journal.name!a}: the store ends at {copied}, inside a batch of the journal")
        log.append(Piece(octets, [entry._replace(offset=0, publishers=0, removed=0)], b""))
        copied = entry.last
        advance(len(octets))
        if log.pending_bytes >= log.settings.chunk:
            settle(store, log)
    known = Recount(Counts(journal.policy.publishers))
    known.read(journal.segments[-1].path, journal.last)
    counts = list(known.counts.states())
    if counts:
        log.append(piece_of_counts(counts, copied, int(time.time() * _MICRO)))
    if positions:
        log.append(piece_of_positions(positions))
    log.release()
    settle(store, log)
    if log.state is not State.RELEASED:
        raise StoreError(f"stream {journal.name!a} was taken by another broker while it was copied")
    return copied - begun


def changed_positions(known: Mapping[Key, Position], records: bytes) -> bytes:
    """Return the records of positions that a store does not have, and of the names that it must forget.

    `known` are all positions, and `records` those that the store has.
    """
    stored = Content(records).states
    changed = [state.pack() for key, state in known.items() if stored.get(key) != state]
    return b"".join([*changed, *[state.pack(REMOVED) for key, state in stored.items() if key not in known]])


def settle(store: ObjectStore, log: StreamLog, patience: float = PATIENCE) -> None:
    """Run a log until it has nothing to do; raise `StoreError` if it is broken, or the store fails for long."""
    answered = time.monotonic()
    while True:
        now = time.monotonic()
        tickets = log.requests(now)
        answers = store.execute_all([ticket.request for ticket in tickets])
        for (number, _), answer in zip(tickets, answers, strict=True):
            if not isinstance(answer, Failed):
                answered = time.monotonic()
            elif silence := store.silence(answer, time.monotonic() - answered, patience):
                raise silence
            log.answer(number, answer, time.monotonic())
        if log.state is State.BROKEN:
            raise StoreError("; ".join(str(event) for event in log.take_events()))
        if not tickets:
            if log.next_time is None:
                return
            time.sleep(max(0.0, log.next_time - now))


def take_log(
    store: ObjectStore,
    log: StreamLog,
    what: str = "it",
    patience: float = PATIENCE,
    prepared: Prepared | None = None,
) -> None:
    """Become the owner of a log. Raise `StoreError`, with `what` as its subject, if that is not possible."""
    log.take(time.monotonic(), prepared=prepared)
    settle(store, log, patience)
    if not log.is_owner:
        problem = StreamEnded if log.state is State.DELETED else StoreError
        raise problem(f"{what} could not be taken: it is {log.state.value}")
    log.take_events()


def restore_stream(store: ObjectStore, stream: StoredStream, data: Store, advance: Advance = _ignore) -> int:
    """Make a stream in a data directory from the store, and return the number of its messages.

    After a crash the stream exists complete, or not at all.
    """
    reader = LogReader(stream.place)
    store.run(reader.refresh())
    if reader.is_deleted:
        raise StoreError(f"stream {stream.name!a} is deleted")
    if (data.path / stream.place.directory).is_dir():
        raise StoreError(f"{data.path} has a stream {stream.name!a} already: move it away, or use another directory")
    first = reader.first if reader.first <= reader.last else reader.last + 1
    data.make(
        stream.name,
        stream.settings,
        lambda journal: _fill_all(store, stream, reader, journal, advance),
        first=first,
        incarnation=incarnation_of(stream, reader.incarnation),
    )
    return reader.last - first + 1


def _fill_all(store: ObjectStore, stream: StoredStream, reader: LogReader, journal: Journal, advance: Advance) -> None:
    fill_journal(store, stream, reader, journal, advance)
    journal.positions.load(end_of(store, stream).positions)


def fill_journal(
    store: ObjectStore, stream: StoredStream, reader: LogReader, journal: Journal, advance: Advance = _ignore
) -> None:
    """Append the messages that a journal lacks, and the counts of publishers."""
    journal.may_block = True  # it can be the journal of a stream that the broker owned before
    while (piece := store.run(reader.read(journal.last, _PIECE))) is not None:
        entries, log = clip(piece.entries, piece.octets, journal.last + 1, reader.last)  # segments overlap
        for entry in entries:
            octets = log[entry.offset : entry.end]
            # In the middle of the microsecond, so that no rounding changes it.
            journal.append(
                Block(entry.first, entry.last, entry.count, octets, entry.credit), (entry.time + 0.5) / _MICRO
            )
        advance(len(piece.octets))
    counts = [record.state for octets in end_of(store, stream).records if (record := unpack(octets)) is not None]
    latest: dict[bytes, Count] = {count.publisher: count for count in counts}
    missing = [count for count in latest.values() if journal.counts.get(count.publisher) != count]
    if missing:
        journal.append_counts(missing, time.time())
