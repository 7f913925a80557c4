"""zambezi.zeps.store.trimming: a stream begins with the message that an operator names."""

import pytest

from tests.zeps.store.shelf import PLACE, Shelf
from tests.zeps.store.simulation import messages_of
from zambezi.zeps.errors import OutOfRange
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.positions import Position
from zambezi.zeps.store.chunk import piece_of_positions
from zambezi.zeps.store.names import Beginning
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.stream_log import LogSettings, StreamLog
from zambezi.zeps.store.trimming import trim

FEW = LogSettings(commit=0.0, chunks=4)
OTHER = 2
PUBLISHER = b"publisher-000001"


def filled(shelf: Shelf, count: int, settings: LogSettings = FEW) -> StreamLog:
    """Return the log of a stream with chunks of two messages, whose bodies are their sequences."""
    log = shelf.log(settings=settings)
    while log.last < count:
        shelf.clock.now += 1
        one = log.last + 1
        shelf.publish(log, b"%d" % one, b"%d" % (one + 1), counts=[Count(PUBLISHER, 1, one + 1)])
    return log


def trimmed(shelf: Shelf, log: StreamLog, first: int) -> list[str]:
    """Trim a stream, and return what the log says."""
    told: list[str] = []
    log.trim(first, told.append)
    shelf.settle(log)
    return told


def present(shelf: Shelf) -> list[int]:
    """Return the sequences that a reader without a broker finds."""
    return [number for _, number in shelf.messages()]


@pytest.mark.parametrize("first", range(1, 14))
def test_a_stream_begins_exactly_where_it_was_trimmed(first: int) -> None:
    shelf = Shelf()
    log = filled(shelf, 12)
    assert trimmed(shelf, log, first) == [""]
    wanted = list(range(first, 13))
    assert present(shelf) == wanted
    assert (log.first, log.last) == (first, 12)
    other = shelf.log(OTHER, FEW)
    assert (other.first, other.last) == (first, 12)
    state = other.counts.get(PUBLISHER)
    assert state is not None
    assert state.count == 12  # the publishers stay, whatever is removed
    shelf.publish(other, b"13")
    assert present(shelf) == [*wanted, 13]
    assert other.extents.first_time == (first + 1) // 2 * 1_000_000 if first < 13 else shelf.clock.now


@pytest.mark.parametrize("first", range(2, 14))
def test_objects_with_removed_messages_only_are_removed(first: int) -> None:
    shelf = Shelf()
    log = filled(shelf, 12)
    log.append(piece_of_positions(Position(1, "reader", 7).pack()))
    shelf.settle(log)
    trimmed(shelf, log, first)
    log.sweep(None, None)
    shelf.settle(log)
    view = shelf.view()
    assert all(one.name.last >= first for one in view.segments if one.name.octets)
    assert not view.merged_chunks
    assert not view.leftovers
    assert view.is_whole
    assert shelf.log(OTHER).positions.octets == Position(1, "reader", 7).pack()


def test_large_chunks_with_removed_messages_only_are_removed() -> None:
    shelf = Shelf()
    log = shelf.log(settings=LogSettings(commit=0.0, chunk=300, segment=10_000, snapshot=10.0))
    for number in range(1, 7):
        shelf.publish(log, bytes(b"%d" % number).rjust(250, b"0"), counts=[Count(PUBLISHER, 1, number)])
    before = len(shelf.store.objects)
    trimmed(shelf, log, 4)
    log.sweep(None, None)
    shelf.settle(log)
    assert present(shelf) == [4, 5, 6]
    (segment,) = shelf.view().segments
    assert segment.name.is_chunk  # it was not copied
    assert len(shelf.store.objects) == before - 3 + 2  # the name of the segment, and the beginning


def test_a_beginning_never_goes_back() -> None:
    shelf = Shelf()
    log = filled(shelf, 12)
    trimmed(shelf, log, 9)
    assert trimmed(shelf, log, 5) == [""]
    assert present(shelf)[0] == log.first == 9
    assert shelf.run(trim(PLACE, 3)) == Beginning(9, 5_000_000)
    trimmed(shelf, log, 11)
    log.sweep(None, None)
    shelf.settle(log)
    assert shelf.view().beginnings == [Beginning(11, 6_000_000)]


def test_a_broker_that_is_no_owner_trims_nothing() -> None:
    shelf = Shelf()
    log = StreamLog(PLACE, b"1" * 16, b"I" * 16)
    assert trimmed(shelf, log, 1) == ["the broker does not own the stream: it is absent"]


def test_a_reader_that_has_begun_can_go_on_for_the_grace() -> None:
    shelf = Shelf()
    log = filled(shelf, 12, LogSettings(commit=0.0, chunks=4, grace=60.0))
    reader = LogReader(PLACE)
    shelf.run(reader.refresh())
    trimmed(shelf, log, 13)
    log.sweep(None, None)
    shelf.settle(log)
    assert present(shelf) == []  # for readers that begin now
    found: list[int] = []
    while (piece := shelf.run(reader.read(len(found), 1))) is not None:
        found += [number for _, (_, number) in messages_of(piece)]
        shelf.run(reader.refresh())
    assert found == list(range(1, 13))
    shelf.clock.now += 61
    for _ in range(2):  # the first one tells the log the time
        shelf.settle(log)
        log.sweep(None, None)
    shelf.settle(log)
    assert not [key for key in shelf.store.objects if "/chunks/" in key][2:]
    reader = LogReader(PLACE)
    shelf.run(reader.refresh())
    assert reader.oldest == 13
    shelf.publish(log, b"13")
    shelf.run(reader.refresh())
    with pytest.raises(OutOfRange, match="the oldest is 13"):
        shelf.run(reader.read(0, 1))


def test_segments_that_are_too_old_stay_for_the_grace() -> None:
    shelf = Shelf()
    settings = LogSettings(commit=0.0, chunks=2, segment=100, grace=60.0)
    log = filled(shelf, 12, settings)
    segments = shelf.view().segments
    log.sweep(1, None)
    shelf.settle(log)
    first = log.first
    assert first > 1
    assert present(shelf) == list(range(first, 13))
    assert shelf.view().segments == segments
    shelf.clock.now += 61
    for _ in range(2):
        shelf.settle(log)
        log.sweep(1, None)
    shelf.settle(log)
    assert shelf.view().segments == segments[-1:]
    assert present(shelf) == list(range(first, 13))


def test_segments_are_removed_although_others_become_too_old_each_time() -> None:
    shelf = Shelf()
    log = shelf.log(settings=LogSettings(commit=0.0, chunks=2, segment=100, grace=60.0))
    for number in range(1, 200):
        shelf.clock.now += 10
        shelf.publish(log, b"%d" % number)
        log.sweep(200, None)
        shelf.settle(log)
    assert len(shelf.view().segments) < 20
    assert len(shelf.view().beginnings) == 1


def test_the_grace_begins_anew_for_a_new_owner() -> None:
    shelf = Shelf()
    settings = LogSettings(commit=0.0, chunks=4, grace=60.0)
    trimmed(shelf, filled(shelf, 12, settings), 9)
    before = len(shelf.view().segments)
    shelf.clock.now += 59
    log = shelf.log(OTHER, settings)
    shelf.clock.now += 59
    shelf.settle(log)
    log.sweep(None, None)
    assert len(shelf.view().segments) == before
    shelf.clock.now += 2
    for _ in range(3):
        shelf.settle(log)
        log.sweep(None, None)
    shelf.settle(log)
    assert [one.name.first for one in shelf.view().segments] == [9]
