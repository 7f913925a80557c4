"""zambezi.zeps.store.takeover and ending: ownership is a chunk, and what lies below a fence is final."""

import pytest

from tests.zeps.store.shelf import INCARNATION, PLACE, Shelf
from zambezi.zeps.errors import StoreDamaged
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.store.chunk import UNCHANGED, Kind, unpack_object
from zambezi.zeps.store.commands import DONE, EXISTS, Get, List, Put
from zambezi.zeps.store.names import StreamPlace
from zambezi.zeps.store.runner import Runner
from zambezi.zeps.store.stream_log import LogSettings, State, StreamLog
from zambezi.zeps.store.takeover import prepare, put_own, take_over

SMALL = LogSettings(commit=0.0, chunks=3)
ME = b"m" * 16


def test_the_first_owner_puts_the_first_chunk() -> None:
    shelf = Shelf()
    end = shelf.run(take_over(PLACE, ME, UNCHANGED))
    assert (end.last, end.epoch, end.owner, end.is_deleted) == (0, 1, ME, False)
    fence = unpack_object(shelf.store.objects[PLACE.chunk(1)][0], "fence").footer
    assert (fence.kind, fence.owner, fence.epoch) == (Kind.FENCE, ME, 1)


def test_a_new_owner_knows_the_last_sequence_and_all_publishers() -> None:
    shelf = Shelf()
    log = shelf.log(settings=SMALL)
    for number in range(1, 8):
        shelf.publish(log, b"x", counts=[Count(b"%d" % (number % 3) * 16, 1, number)])
    end = shelf.run(take_over(PLACE, ME, UNCHANGED))
    assert end.last == 7
    assert end.incarnation == INCARNATION
    assert shelf.view().segments
    new = StreamLog(PLACE, ME, INCARNATION)
    new.take(0.0)
    shelf.settle(new)
    assert {state.publisher[:1]: state.count for state in new.counts.states()} == {b"0": 6, b"1": 7, b"2": 5}


def test_a_chunk_with_many_publishers_is_read_whole() -> None:
    shelf = Shelf()
    log = shelf.log()
    shelf.publish(log, b"x", counts=[Count(b"%016d" % number, 1, number) for number in range(100)])
    end = shelf.run(take_over(PLACE, ME, UNCHANGED))
    assert len(end.records) == 100


def test_a_broker_that_read_the_end_long_ago_gets_no_ownership() -> None:
    shelf = Shelf()
    log = shelf.log(settings=SMALL)
    shelf.publish(log, b"1")
    results: list[object] = []
    runner = Runner()
    runner.start(take_over(PLACE, ME, UNCHANGED), 0.0, results.append, results.append)
    put = None
    while put is None:  # it reads the log, and is stalled before it puts its fence
        for ticket in runner.requests(0.0):
            if isinstance(ticket.request, Put):
                put = ticket
            else:
                runner.answer(ticket.number, shelf.execute(ticket.request), 0.0)
    assert put.request == Put(PLACE.chunk(3), put.request.data)  # type: ignore[union-attr]
    shelf.publish(log, b"2")  # chunk 3, which is merged and removed
    assert PLACE.chunk(3) not in shelf.store.objects
    assert shelf.execute(put.request) is DONE
    runner.answer(put.number, DONE, 0.0)
    assert isinstance(runner.requests(0.0)[0].request, List)  # the fence is void: it begins again
    shelf.publish(log, b"3")
    assert log.is_owner
    assert [number for _, number in shelf.messages()] == [1, 2, 3]


def test_an_own_object_that_exists_is_a_success_and_another_one_is_not() -> None:
    shelf = Shelf()
    assert shelf.run(put_own("key", b"mine"))
    assert shelf.run(put_own("key", b"mine"))
    assert not shelf.run(put_own("key", b"other"))
    assert shelf.execute(Put("key", b"third")) is EXISTS


def test_a_new_incarnation_stands_in_the_fence() -> None:
    shelf = Shelf()
    shelf.publish(shelf.log(), b"1")
    end = shelf.run(take_over(PLACE, ME, b"N" * 16))
    assert end.incarnation == b"N" * 16


def test_a_chunk_that_was_removed_by_hand_is_reported() -> None:
    shelf = Shelf()
    log = shelf.log()
    shelf.publish(log, b"1")
    shelf.publish(log, b"2")
    del shelf.store.objects[PLACE.chunk(2)]
    with pytest.raises(StoreDamaged, match="between 1 and 3 is missing"):
        shelf.run(take_over(PLACE, ME, UNCHANGED))
    assert PLACE.chunk(4) not in shelf.store.objects


def test_a_damaged_end_breaks_the_log_with_a_reason() -> None:
    shelf = Shelf()
    log = shelf.log()
    shelf.publish(log, b"1")
    octets, time = shelf.store.objects[PLACE.chunk(2)]
    shelf.store.objects[PLACE.chunk(2)] = (octets[:-1] + b"!", time)
    other = StreamLog(StreamPlace.of("prices"), ME, INCARNATION)
    other.take(0.0)
    shelf.settle(other)
    assert other.state is State.BROKEN


def test_a_take_needs_one_list_before_its_fence_and_two_after_it() -> None:
    shelf = Shelf()
    log = shelf.log()
    shelf.publish(log, b"1")
    shelf.requests.clear()
    shelf.run(take_over(PLACE, ME, UNCHANGED))
    assert shelf.requests[0] == List(PLACE.path)
    assert isinstance(shelf.requests[1], Put)
    assert shelf.requests[2:4] == [List(PLACE.chunks), List(PLACE.segments)]
    read = [request.key for request in shelf.requests[4:] if isinstance(request, Get)]
    assert read == [PLACE.chunk(1), PLACE.chunk(2)]  # not its own fence
    assert len(shelf.requests) == 6


def test_a_take_that_was_prepared_reads_nothing_again() -> None:
    shelf = Shelf()
    log = shelf.log()
    shelf.publish(log, b"1", counts=[Count(b"p" * 16, 1, 1)])
    prepared = shelf.run(prepare(PLACE))
    assert prepared is not None
    shelf.requests.clear()
    end = shelf.run(take_over(PLACE, ME, UNCHANGED, prepared))
    assert (end.last, end.owner, len(end.records)) == (1, ME, 1)
    assert [type(request) for request in shelf.requests] == [Put, List, List]


def test_a_take_is_right_if_its_preparation_is_old() -> None:
    shelf = Shelf()
    log = shelf.log(settings=SMALL)
    shelf.publish(log, b"1")
    prepared = shelf.run(prepare(PLACE))
    for number in range(2, 8):
        shelf.publish(log, b"%d" % number)  # the chunks that were prepared are merged, and removed
    assert shelf.view().segments
    end = shelf.run(take_over(PLACE, ME, UNCHANGED, prepared))
    assert (end.last, end.owner) == (7, ME)


def test_a_log_with_a_gap_is_not_prepared() -> None:
    shelf = Shelf()
    log = shelf.log()
    shelf.publish(log, b"1")
    shelf.publish(log, b"2")
    del shelf.store.objects[PLACE.chunk(2)]
    assert shelf.run(prepare(PLACE)) is None
