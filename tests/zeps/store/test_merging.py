"""zambezi.zeps.store.merging: chunks become segments, and old segments go."""

from tests.zeps.store.shelf import PLACE, Shelf
from tests.zeps.store.test_view import view
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.positions import READER, REMOVED, Position
from zambezi.zeps.store.chunk import piece_of_positions, unpack_object
from zambezi.zeps.store.commands import Delete, Get, Put
from zambezi.zeps.store.merging import expired_segments, segments_to_absorb, sweep
from zambezi.zeps.store.stream_log import LogSettings, State, StreamLog

SMALL = LogSettings(commit=0.0, chunks=3, segment=100_000)


def filled(messages: int, settings: LogSettings = SMALL) -> tuple[Shelf, StreamLog]:
    shelf = Shelf()
    log = shelf.log(settings=settings)
    for number in range(1, messages + 1):
        shelf.publish(log, b"%d" % number)
    return shelf, log


def test_a_long_tail_becomes_a_segment_and_its_fences_stay() -> None:
    shelf, log = filled(2)
    found = shelf.view()
    assert [(one.name.first, one.name.last, one.name.last_chunk) for one in found.segments] == [(1, 2, 3)]
    assert [chunk.number for chunk in found.chunks] == [1]  # the fence
    assert found.following == 4
    segment = unpack_object(shelf.store.objects[PLACE.segment(found.segments[0].name)][0], "segment")
    assert [entry.first for entry in segment.entries] == [1, 2]
    shelf.publish(log, b"3")
    assert [number for _, number in shelf.messages()] == [1, 2, 3]


def test_a_segment_is_put_before_its_parts_are_removed() -> None:
    shelf, _ = filled(9)
    for index, request in enumerate(shelf.requests):
        if isinstance(request, Delete):
            put = next(one for one in reversed(shelf.requests[:index]) if isinstance(one, Put))
            assert "/segments/" in put.key


LARGE = LogSettings(commit=0.0, chunk=1000, chunks=100, segment=3000)


def large(number: int) -> bytes:
    return b"%d" % number + b" " * 600


def test_large_chunks_become_segments_and_are_not_sent_again() -> None:
    shelf = Shelf()
    log = shelf.log(settings=LARGE)
    for number in range(1, 13):
        shelf.publish(log, large(number), counts=[Count(b"p" * 16, 1, number)])
    assert not any(isinstance(request, Get) and request.length is None for request in shelf.requests)
    puts = [request for request in shelf.requests if isinstance(request, Put) and "/segments/" in request.key]
    assert {put.octets for put in puts} == {b""}
    found = shelf.view()
    assert len(found.segments) > 4
    assert all(one.name.is_chunk for one in found.segments)
    assert sum(chunk.size for chunk in found.tail) < LARGE.segment
    assert [number for _, number in shelf.messages()] == list(range(1, 13))
    other = shelf.log(2, LARGE)
    state = other.counts.get(b"p" * 16)
    assert state is not None
    assert state.count == other.last == 12


def test_large_chunks_have_all_positions() -> None:
    shelf = Shelf()
    log = shelf.log(settings=LARGE)
    kept, gone = Position(READER, "kept", 1), Position(READER, "gone", 1)
    log.append(piece_of_positions(kept.pack() + gone.pack()))
    shelf.publish(log, large(1))
    log.append(piece_of_positions(gone.pack(REMOVED)))
    shelf.publish(log, large(2))
    assert shelf.log(2, LARGE).positions.octets == kept.pack()  # the large chunks are chunks now
    log = shelf.log(3, LARGE)
    for number in range(3, 13):
        shelf.publish(log, large(number))
    assert shelf.view().segments[-1].name.is_chunk
    assert shelf.log(4, LARGE).positions.octets == kept.pack()


def test_small_chunks_before_a_large_one_are_merged_with_it() -> None:
    shelf = Shelf()
    log = shelf.log(settings=LARGE)
    for number in range(1, 11):
        shelf.publish(log, b"%d" % number if number < 4 else large(number))
    names = [one.name for one in shelf.view().segments]
    assert [(name.first, name.last, name.is_chunk) for name in names][:2] == [(1, 4, False), (5, 5, True)]
    assert [number for _, number in shelf.messages()] == list(range(1, 11))


def test_a_chunk_has_no_snapshot_that_is_large_for_it() -> None:
    shelf = Shelf()
    log = shelf.log(settings=LARGE)
    for number in range(1, 13):
        shelf.publish(log, large(number), counts=[Count(b"%016d" % number, 1, 1)])
    names = [one.name for one in shelf.view().segments]
    assert not names[-1].is_chunk
    assert len(shelf.log(2, LARGE).counts) == 12


def test_positions_do_not_count_for_retention() -> None:
    shelf = Shelf()
    log = shelf.log(settings=LARGE)
    for number in range(1, 13):
        shelf.publish(log, large(number))
    before = shelf.messages()
    log.append(piece_of_positions(Position(READER, "reader", 9, payload=bytes(2000)).pack()))
    shelf.settle(log)
    log.sweep(sum(one.name.octets for one in shelf.view().segments), None)
    shelf.settle(log)
    assert shelf.messages() == before


def test_retention_removes_segments_that_are_chunks() -> None:
    shelf = Shelf()
    log = shelf.log(settings=LARGE)
    for number in range(1, 13):
        shelf.publish(log, large(number))
    kept = shelf.run(sweep(PLACE, 1200, None))
    found = shelf.view()
    assert (kept.chunks, kept.segments) == (found.chunks, found.segments)
    assert len(found.segments) == 2
    assert shelf.messages()[0][1] == found.segments[0].name.first > 1
    numbers = [chunk.number for chunk in found.chunks if not chunk.is_fence]
    assert numbers[0] == found.segments[0].name.last_chunk


def test_a_slow_stream_has_few_segments() -> None:
    shelf, _ = filled(200)
    assert len(shelf.view().segments) < 12
    assert [number for _, number in shelf.messages()] == list(range(1, 201))


def test_large_and_overlapping_segments_are_not_merged_again() -> None:
    assert segments_to_absorb(view([4, 5], (3, 1, 9), octets=200), 10_000)
    assert not segments_to_absorb(view([4, 5], (3, 1, 9), octets=200), 1500)  # too large together
    assert not segments_to_absorb(view([4], (3, 1, 9), fences=(4,), octets=200), 10_000)  # too much work for one chunk
    assert len(segments_to_absorb(view([5, 6], (3, 1, 9), (4, 5, 12)), 10_000)) == 1


def test_the_snapshots_of_a_segment_do_not_count() -> None:
    assert segments_to_absorb(view([4], (3, 1, 9), fences=(4,), octets=50), 10_000)


def test_a_stream_that_is_only_read_does_not_grow() -> None:
    shelf, log = filled(9)
    for number in range(200):
        records = [Position(READER, f"reader {reader}", number % 9 + 1) for reader in range(50)]
        log.append(piece_of_positions(b"".join([record.pack() for record in records])))
        shelf.settle(log)
    found = shelf.view()
    assert len(found.segments) <= 2
    assert len(found.chunks) < 10
    assert shelf.log(2).positions.octets == log.positions.octets
    assert log.positions.size == sum(record.size for record in records)
    assert [number for _, number in shelf.messages()] == list(range(1, 10))


def test_retention_removes_the_oldest_segments_but_never_the_newest() -> None:
    found = view([], (3, 1, 9), (4, 10, 19), (5, 20, 29))  # of 10 bytes each
    assert [one.name.first for one in expired_segments(found, 20, None)] == [1]
    assert expired_segments(found, 21, None) == []  # what stays has as many bytes as are to be kept
    assert [one.name.first for one in expired_segments(found, 0, None)] == [1, 10]
    assert [one.name.first for one in expired_segments(found, None, 2)] == [1, 10]
    assert expired_segments(found, None, 1) == []


def test_a_sweep_removes_leftovers_and_keeps_fences() -> None:
    shelf, log = filled(2, LogSettings(commit=0.0, chunks=3))
    leftover = next(request for request in shelf.requests if isinstance(request, Put) and request.key == PLACE.chunk(2))
    shelf.execute(leftover)  # a put that arrives a second time
    assert PLACE.chunk(2) in shelf.store.objects
    kept = shelf.run(sweep(PLACE, None, None))
    assert PLACE.chunk(2) not in shelf.store.objects
    assert PLACE.chunk(1) in shelf.store.objects
    assert (kept.chunks, kept.segments) == (shelf.view().chunks, shelf.view().segments)
    assert log.state is State.OWNER


def test_a_merge_that_finds_a_part_missing_looks_again() -> None:
    shelf, log = filled(1)
    octets, time = shelf.store.objects.pop(PLACE.chunk(2))
    shelf.publish(log, b"2")  # wants to merge, and cannot
    assert log.is_owner
    assert not shelf.view().segments
    shelf.store.objects[PLACE.chunk(2)] = (octets, time)
    shelf.publish(log, b"3")
    assert len(shelf.view().segments) == 1


def test_a_void_fence_in_the_place_of_a_part_is_not_merged() -> None:
    shelf, log = filled(1)
    fence, time = shelf.store.objects[PLACE.chunk(1)]
    shelf.store.objects[PLACE.chunk(2)] = (fence, time)
    shelf.publish(log, b"2")
    assert not shelf.view().segments


def test_a_damaged_part_stops_the_merge_and_not_the_stream() -> None:
    shelf, log = filled(1)
    octets, time = shelf.store.objects[PLACE.chunk(2)]
    shelf.store.objects[PLACE.chunk(2)] = (b"!" + octets[1:], time)
    shelf.publish(log, b"2")
    assert log.is_owner
    assert "CRC" in log.problem
