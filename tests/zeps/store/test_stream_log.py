"""zambezi.zeps.store.stream_log: group commit, and how ownership ends."""

from tests.zeps.store.shelf import INCARNATION, PLACE, Shelf, piece
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.positions import Position
from zambezi.zeps.store.chunk import piece_of_counts, piece_of_positions
from zambezi.zeps.store.commands import DONE, EXISTS, Failed, Put
from zambezi.zeps.store.stream_log import Ended, LogSettings, Owned, State, Stored, StreamLog

OTHER = 2
READER = Position(1, "reader", 1).pack()


def puts(shelf: Shelf) -> list[Put]:
    return [request for request in shelf.requests if isinstance(request, Put)]


def test_pieces_that_wait_for_a_put_become_one_chunk() -> None:
    shelf = Shelf()
    log = shelf.log()
    log.append(piece(1, b"1"))
    (first,) = log.requests(1.0)
    log.append(piece(2, b"2"))
    log.append(piece(3, b"3"))
    assert log.requests(9.0) == []  # one put at a time
    log.answer(first.number, shelf.execute(first.request), 9.0)
    assert log.take_events() == [Stored(1, 1)]
    (second,) = log.requests(9.0)
    log.answer(second.number, shelf.execute(second.request), 9.0)
    assert log.take_events() == [Stored(3, 3)]
    assert shelf.messages() == [(b"key", 1), (b"key", 2), (b"key", 3)]


def test_puts_keep_their_distance_unless_a_chunk_is_full() -> None:
    shelf = Shelf()
    log = shelf.log(settings=LogSettings(commit=0.05, chunk=400))
    log.append(piece(1, b"a"))
    (first,) = log.requests(1.0)
    log.answer(first.number, DONE, 1.01)
    log.append(piece(2, b"b"))
    assert log.requests(1.02) == []
    assert log.next_time == 1.05
    log.append(piece(3, b"c" * 400))
    (second,) = log.requests(1.02)  # more than a chunk is waiting
    assert len(second.request.octets) < 400  # type: ignore[union-attr]
    log.answer(second.number, DONE, 1.03)
    assert log.pending_bytes > 400


def test_a_failed_put_is_repeated_with_the_same_bytes() -> None:
    shelf = Shelf()
    log = shelf.log()
    log.append(piece(1, b"a"))
    (first,) = log.requests(1.0)
    log.answer(first.number, Failed("timeout"), 2.0)
    log.append(piece(2, b"b"))
    assert log.requests(2.0) == []
    (second,) = log.requests(log.next_time or 0)
    assert second.request == first.request
    shelf.execute(first.request)  # the first one arrives after all
    log.answer(second.number, shelf.execute(second.request), 3.0)
    (read,) = log.requests(3.0)
    log.answer(read.number, shelf.execute(read.request), 3.0)
    assert log.take_events() == [Stored(1, 1)]


def test_an_owner_that_slept_confirms_nothing_any_more() -> None:
    shelf = Shelf()
    old = shelf.log()
    shelf.publish(old, b"1")
    new = shelf.log(OTHER)
    shelf.publish(new, b"2")
    old.append(piece(2, b"3"))
    events = shelf.settle(old)
    assert events == [Ended(State.DEPOSED, "another broker has taken the stream")]
    assert [number for _, number in shelf.messages()] == [1, 2]
    old.take(9.0)
    assert isinstance(shelf.settle(old)[0], Owned)
    assert old.last == 2


def test_an_idle_owner_finds_out_when_it_checks() -> None:
    shelf = Shelf()
    old = shelf.log()
    old.check(1.0)
    shelf.settle(old)
    assert old.is_owner
    shelf.log(OTHER)
    old.check(2.0)
    shelf.settle(old)
    assert old.state is State.DEPOSED


def test_a_released_stream_has_no_owner() -> None:
    shelf = Shelf()
    log = shelf.log()
    log.append(piece(1, b"1"))
    log.release()
    assert shelf.settle(log)[-1] == Ended(State.RELEASED)
    assert [number for _, number in shelf.messages()] == [1]
    other = StreamLog(PLACE, b"o" * 16, INCARNATION)
    other.take(1.0)
    events = shelf.settle(other)
    assert isinstance(events[0], Owned)
    log.release()
    assert shelf.settle(log) == []


def test_a_deleted_stream_stays_deleted_for_brokers_that_come_late() -> None:
    shelf = Shelf()
    log = shelf.log(settings=LogSettings(commit=0.0, chunks=4))
    late = StreamLog(PLACE, b"l" * 16, INCARNATION)
    late.take(1.0)
    for number in range(9):
        shelf.publish(log, b"%d" % number)
    log.delete()
    assert shelf.settle(log)[-1] == Ended(State.DELETED)
    assert shelf.settle(late) == [Ended(State.DELETED)]
    assert shelf.messages() == []
    view = shelf.view()
    assert [(one.name.first, one.name.last) for one in view.segments] == [(10, 9)]
    assert all(chunk.is_fence for chunk in view.chunks)


def test_a_deletion_that_was_interrupted_is_finished_by_the_next_broker() -> None:
    shelf = Shelf()
    log = shelf.log()
    shelf.publish(log, b"1")
    log.delete()
    (put,) = log.requests(5.0)
    log.answer(put.number, shelf.execute(put.request), 5.0)  # and the broker is killed
    assert PLACE.chunk(2) in shelf.store.objects
    other = shelf.log(OTHER)
    assert other.state is State.DELETED
    assert PLACE.chunk(2) not in shelf.store.objects


def test_an_idle_stream_asks_nothing_of_the_store() -> None:
    shelf = Shelf()
    log = shelf.log(settings=LogSettings(commit=0.0, chunks=3, segment=1))
    for number in range(9):
        shelf.publish(log, b"%d" % number)
    shelf.requests.clear()
    log.sweep(None, 0)
    assert shelf.settle(log) == []
    assert not shelf.requests
    log.sweep(1, None)
    shelf.settle(log)
    assert len(shelf.view().segments) == 1


def test_counts_without_messages_are_stored() -> None:
    shelf = Shelf()
    log = shelf.log()
    ticket = log.append(piece_of_counts([Count(b"p" * 16, 4, 0)], 0, 1))
    assert shelf.settle(log) == [Stored(ticket, 0)]
    shelf.publish(log, b"1")
    assert shelf.log(OTHER).counts.get(b"p" * 16) == Count(b"p" * 16, 4, 0)


def test_positions_go_with_the_next_chunk_and_to_the_next_owner() -> None:
    shelf = Shelf()
    log = shelf.log()
    log.append(piece_of_positions(READER))
    ticket = log.append(piece(1, b"1"))
    assert shelf.settle(log) == [Stored(ticket, 1)]
    assert len(puts(shelf)) == 2  # a fence and a chunk
    long = Position(2, "group", 1, payload=b"x" * 9000).pack()  # more than a new owner reads at first
    log.append(piece_of_positions(long))
    shelf.settle(log)
    assert shelf.log(OTHER).positions.octets == READER + long
    assert shelf.messages() == [(b"key", 1)]


def test_a_number_that_is_taken_by_a_chunk_which_vanished_ends_the_ownership() -> None:
    shelf = Shelf()
    log = shelf.log()
    log.append(piece(1, b"a"))
    (put,) = log.requests(1.0)
    log.answer(put.number, EXISTS, 1.0)  # and is merged before it can be read
    shelf.settle(log)
    assert log.state is State.DEPOSED
