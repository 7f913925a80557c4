"""zambezi.zeps.store.truncation: a stream ends with the message that an operator names, in a new incarnation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

import pytest

from tests.zeps.store.positions_simulation import Violation
from tests.zeps.store.shelf import PLACE, Shelf
from tests.zeps.store.truncation_simulation import TruncationWorld, read_stream
from zambezi.zeps.errors import OutOfRange, StoreDamaged, StoreError
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.positions import Content, Position
from zambezi.zeps.store import catalog, truncation
from zambezi.zeps.store.catalog import FORMAT, StoredStream, find_stream, list_streams, make_stream
from zambezi.zeps.store.chunk import Ending, piece_of_positions
from zambezi.zeps.store.commands import Answer, Procedure, Together, Wait, put
from zambezi.zeps.store.names import StreamPlace
from zambezi.zeps.store.stream_log import LogSettings, StreamLog
from zambezi.zeps.store.truncation import clear_deleted, clear_others, truncate
from zambezi.zeps.store.view import look

T = TypeVar("T")
OWNER = b"o" * 16
OLD, NEW = UUID(int=1), UUID(int=2)
PUBLISHER = b"publisher-000001"
FEW = LogSettings(commit=0.0, chunks=4)
READER = Position(1, "reader", 9)


def filled(shelf: Shelf, settings: LogSettings = FEW) -> StoredStream:
    """Make a stream with twelve messages in chunks of two, and a reader."""
    stream = shelf.run(make_stream("prices", OLD, {"keep": 1}))
    log = StreamLog(stream.place, OWNER, OLD.bytes, settings)
    log.take(0.0)
    shelf.settle(log)
    for one in range(1, 12, 2):
        shelf.clock.now += 1
        shelf.publish(log, b"%d" % one, b"%d" % (one + 1), counts=[Count(PUBLISHER, 1, one + 1)])
    log.append(piece_of_positions(READER.pack()))
    shelf.settle(log)
    return stream


def taken(shelf: Shelf, stream: StoredStream) -> StreamLog:
    log = StreamLog(stream.place, OWNER, stream.incarnation.bytes, FEW)
    log.take(shelf.clock.now)
    shelf.settle(log)
    return log


def present(shelf: Shelf) -> list[int]:
    """Return the sequences that a reader without a broker finds."""
    found = shelf.run(read_stream())
    assert found is not None
    return sorted(found.messages)


@pytest.mark.parametrize("last", range(12))
@pytest.mark.parametrize("settings", [FEW, LogSettings(commit=0.0, chunk=60, segment=200, snapshot=10.0)])
def test_a_stream_ends_exactly_where_it_was_cut(last: int, settings: LogSettings) -> None:
    shelf = Shelf()
    stream = filled(shelf, settings)
    made = shelf.run(truncate(stream, OWNER, last, NEW))
    assert (made.incarnation, made.place.generation, made.settings) == (NEW, 2, {"keep": 1})
    assert present(shelf) == list(range(1, last + 1))
    log = taken(shelf, made)
    assert (log.first, log.last, log.incarnation) == (1, last, NEW.bytes)
    state = log.counts.get(PUBLISHER)
    assert state is not None
    assert state.count == 12  # messages that were cut off are not sent again
    (position,) = Content(log.positions.octets).states.values()
    assert position.position == min(9, last)
    shelf.publish(log, b"99")
    assert present(shelf) == list(range(1, last + 2))


def test_a_stream_that_was_trimmed_begins_where_it_did() -> None:
    shelf = Shelf()
    stream = filled(shelf)
    log = taken(shelf, stream)
    log.trim(4, lambda _: None)
    shelf.settle(log)
    with pytest.raises(OutOfRange, match="has sequences 4 to 12, and cannot be cut after 2"):
        shelf.run(truncate(stream, OWNER, 2, NEW))
    made = shelf.run(truncate(stream, OWNER, 8, NEW))
    assert present(shelf) == [4, 5, 6, 7, 8]
    made = shelf.run(truncate(made, OWNER, 3, UUID(int=3)))
    assert present(shelf) == []
    assert taken(shelf, made).first == 4


def test_a_stream_without_messages_after_the_cut_stays() -> None:
    shelf = Shelf()
    stream = filled(shelf)
    assert shelf.run(truncate(stream, OWNER, 12, NEW)) == stream
    assert shelf.run(find_stream("prices")) == stream


def test_an_owner_that_does_not_know_it_confirms_nothing_any_more() -> None:
    shelf = Shelf()
    stream = filled(shelf)
    log = taken(shelf, stream)
    shelf.run(truncate(stream, b"2" * 16, 6, NEW))
    shelf.publish(log, b"13")
    assert not log.is_owner
    assert present(shelf) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(StoreError, match="deleted or truncated meanwhile"):
        shelf.run(truncate(stream, OWNER, 2, UUID(int=3)))


def interrupted(shelf: Shelf, procedure: Procedure[object], requests: int) -> tuple[bool, Answer]:
    """Execute some requests of a procedure; return whether it came to its end, and the last answer."""
    answer: Answer = None
    for _ in range(requests):
        try:
            command = procedure.send(answer)
        except StopIteration:
            return True, None
        assert not isinstance(command, Wait)
        if isinstance(command, Together):
            answer = [shelf.execute(request) for request in command.commands]
        else:
            answer = shelf.execute(command)
    return False, answer


def resumed(procedure: Procedure[T], answer: Answer) -> Procedure[T]:
    """Go on with a procedure that was interrupted."""
    while True:
        try:
            command = procedure.send(answer)
        except StopIteration as end:
            found: T = end.value
            return found
        answer = yield command


@pytest.mark.parametrize("requests", range(8))
def test_a_stream_that_is_truncated_while_it_is_looked_for_is_not_made_again(requests: int) -> None:
    shelf = Shelf()
    stream = filled(shelf)
    makes = make_stream("prices", UUID(int=7), {})
    is_done, answer = interrupted(shelf, makes, requests)
    made = shelf.run(truncate(stream, OWNER, 5, NEW))
    if not is_done:
        assert shelf.run(resumed(makes, answer)) in (stream, made)  # a broker that takes the old one looks again
    assert shelf.run(find_stream("prices")) == made


def test_a_crash_at_any_request_leaves_the_old_stream_or_the_new_one() -> None:
    old = new = 0
    for requests in range(200):
        shelf = Shelf()
        stream = filled(shelf)
        is_done, _ = interrupted(shelf, truncate(stream, OWNER, 5, NEW), requests)
        found = shelf.run(find_stream("prices"))
        assert found is not None
        (listed,) = shelf.run(list_streams())
        assert listed == found
        is_new = found.incarnation == NEW
        assert present(shelf) == list(range(1, 6 if is_new else 13))
        old, new = old + (not is_new), new + is_new
        log = taken(shelf, found)
        log.has_others = True
        log.sweep(None, None)
        shelf.settle(log)
        others = [StreamPlace.of("prices", 1 if is_new else 2)]
        for view in [shelf.run(look(other)) for other in others]:
            assert not any(one.name.octets for one in view.segments)
            assert all(chunk.is_fence for chunk in view.chunks)
        again = shelf.run(truncate(found, OWNER, 3, UUID(int=3)))
        assert present(shelf) == [1, 2, 3]
        assert shelf.run(make_stream("prices", UUID(int=4), {})) == again
        if is_done:
            break
    assert old > 5
    assert new >= 1


def test_an_interrupted_removal_is_finished() -> None:
    shelf = Shelf()
    stream = filled(shelf)
    made = shelf.run(truncate(stream, OWNER, 5, NEW))
    assert shelf.run(look(stream.place)).readable
    shelf.run(clear_others(made.place))
    view = shelf.run(look(stream.place))
    assert all(chunk.is_fence for chunk in view.chunks)
    before = len(shelf.requests)
    shelf.run(clear_deleted(stream.place))
    assert not [one for one in shelf.requests[before:] if type(one).__name__ in ("Put", "Delete")]
    shelf.run(clear_deleted(made.place))  # it is not deleted
    assert present(shelf) == [1, 2, 3, 4, 5]


def test_an_attempt_that_can_succeed_is_not_removed() -> None:
    shelf = Shelf()
    stream = filled(shelf)
    made = shelf.run(catalog.claim_generation(stream, NEW, 99))
    shelf.run(put(made.place.listed(shelf.view().segments[0].name), b"copied"))
    shelf.run(clear_others(stream.place))
    assert shelf.store.objects[made.place.listed(shelf.view().segments[0].name)][0] == b"copied"


@pytest.mark.parametrize(
    "origin", ['"1"', "7", '{"generation": 0, "chunk": 1}', '{"generation": 1}', '{"generation": "1", "chunk": 1}']
)
def test_a_damaged_origin(origin: str) -> None:
    shelf = Shelf()
    text = f'{{"format": {FORMAT}, "name": "prices", "incarnation": "{NEW}", "truncated": {origin}}}'
    shelf.run(put(PLACE.identity, text.encode()))
    with pytest.raises(StoreDamaged, match="is damaged"):
        shelf.run(find_stream("prices"))


# Simulation

MOST = 300  # seeds to find a violation in
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.timeout(0)  # `--seeds` can be many
def test_all_invariants_hold_in_every_run(pytestconfig: pytest.Config) -> None:
    cuts = confirmed = 0
    for seed in range(max(20, int(pytestconfig.getoption("--seeds")) // 20)):
        try:
            world = TruncationWorld(seed).run()
        except Violation as problem:
            raise AssertionError(f"seed {seed}: {problem}") from problem
        cuts += world.cuts
        confirmed += len(world.confirmed)
    assert cuts > 3  # so much happened
    assert confirmed > 30


def _every_generation_counts(patch: pytest.MonkeyPatch) -> None:
    def counts(_: StoredStream) -> Procedure[bool]:
        yield from ()
        return True

    patch.setattr(catalog, "_counts", counts)


def _the_commit_always_succeeds(patch: pytest.MonkeyPatch) -> None:
    def careless(key: str, data: bytes) -> Procedure[bool]:
        yield from put(key, data)
        return True

    patch.setattr(truncation, "put_own", careless)


def _a_generation_is_not_claimed(patch: pytest.MonkeyPatch) -> None:
    def careless(key: str, data: bytes) -> Procedure[bool]:
        yield from put(key, data)
        return True

    patch.setattr(catalog, "put_own", careless)
    patch.setattr(catalog, "_next_place", _second)


def _second(directory: str) -> Procedure[StreamPlace]:
    yield from ()
    return StreamPlace(directory, 2)


def _counts_are_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(truncation, "_ending_at", lambda end, last: Ending())


def _attempts_that_may_succeed_are_removed(patch: pytest.MonkeyPatch) -> None:
    def always(stream: StoredStream) -> Procedure[bool]:
        yield from ()
        return True

    patch.setattr(truncation, "is_void", always)


@pytest.mark.parametrize(
    "without_rule",
    [
        _every_generation_counts,
        _the_commit_always_succeeds,
        _a_generation_is_not_claimed,
        _counts_are_cut,
        _attempts_that_may_succeed_are_removed,
    ],
)
def test_each_rule_is_needed(
    without_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_rule(monkeypatch)
    for seed in range(MOST):
        try:
            TruncationWorld(seed).run()
        except (Violation, IndexError, KeyError, StoreError):
            return
    pytest.fail(f"{MOST} runs without the rule found nothing")
