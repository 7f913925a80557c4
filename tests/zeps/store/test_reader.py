"""zambezi.zeps.store.reader: reading without a broker, while brokers merge and remove."""

import pytest

from tests.zeps.store.shelf import INCARNATION, PLACE, Shelf
from zambezi.zeps.errors import OutOfRange, StoreDamaged
from zambezi.zeps.store.commands import Get, List
from zambezi.zeps.store.merging import sweep
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.stream_log import LogSettings

SMALL = LogSettings(commit=0.0, chunks=4)


def filled(messages: int, settings: LogSettings = SMALL) -> Shelf:
    shelf = Shelf()
    log = shelf.log(settings=settings)
    for number in range(1, messages + 1):
        shelf.clock.now = float(number)
        shelf.publish(log, b"%d" % number)
    return shelf


def reader(shelf: Shelf) -> LogReader:
    made = LogReader(PLACE)
    shelf.run(made.refresh())
    return made


def test_a_plan_needs_two_lists_and_the_end_of_the_last_chunk() -> None:
    shelf = filled(9)
    shelf.requests.clear()
    found = reader(shelf)
    assert (found.first, found.last, found.incarnation) == (1, 9, INCARNATION)
    assert [type(request) for request in shelf.requests] == [List, List, Get]
    assert found.segments[0].first == 1


def test_messages_are_read_in_ranges() -> None:
    shelf = filled(50)
    found = reader(shelf)
    piece = shelf.run(found.read(0, 100))
    assert piece is not None
    assert piece.entries[0].first == 1
    assert 1 < len(piece.entries) < 6
    assert [number for _, number in shelf.messages()] == list(range(1, 51))
    assert shelf.run(found.read(50, 100)) is None


def test_a_reader_goes_on_when_an_object_was_merged() -> None:
    shelf = Shelf()
    log = shelf.log(settings=SMALL)
    shelf.publish(log, b"1")
    found = reader(shelf)
    shelf.publish(log, b"2")
    shelf.publish(log, b"3")
    piece = shelf.run(found.read(0, 1))
    assert piece is not None
    assert piece.entries[0].first == 1
    assert found.last == 3


def test_messages_that_retention_removed_are_out_of_range() -> None:
    shelf = filled(400)
    found = reader(shelf)
    shelf.run(sweep(PLACE, 0, None))
    with pytest.raises(OutOfRange) as error:
        shelf.run(found.read(0, 100))
    assert error.value.oldest == found.first > 1


def test_times_are_found() -> None:
    shelf = filled(20)
    found = reader(shelf)
    for number in (1, 2, 7, 19, 20):
        assert shelf.run(found.last_before(number * 1_000_000)) == number - 1
        assert shelf.run(found.last_before(number * 1_000_000 + 1)) == number
    assert shelf.run(found.last_before(0)) == 0


def test_a_damaged_chunk_is_reported_and_not_read() -> None:
    shelf = filled(1)
    octets, time = shelf.store.objects[PLACE.chunk(2)]
    shelf.store.objects[PLACE.chunk(2)] = (b"!" + octets[1:], time)
    with pytest.raises(StoreDamaged, match="CRC"):
        shelf.run(reader(shelf).read(0, 100))


def test_an_empty_stream_and_a_deleted_one_have_no_messages() -> None:
    shelf = Shelf()
    found = reader(shelf)
    assert (found.first, found.last, found.is_deleted) == (1, 0, False)
    log = shelf.log()
    log.delete()
    shelf.settle(log)
    assert reader(shelf).is_deleted


def test_a_stream_that_only_has_segments_tells_its_incarnation() -> None:
    shelf = filled(3)
    assert not shelf.view().tail
    assert reader(shelf).incarnation == INCARNATION
