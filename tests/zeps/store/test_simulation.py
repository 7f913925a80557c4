"""Many runs of the simulation, each with its seed; and the proof that each rule is needed.

A rule is needed if runs without it find a violation. `pytest --seeds 5000 tests/zeps/store` runs more seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from tests.zeps.store.positions_simulation import Violation
from tests.zeps.store.simulation import World
from tests.zeps.store.trimming_simulation import Trims
from zambezi.zeps.store import merging, position_records, stream_log, takeover
from zambezi.zeps.store import view as views
from zambezi.zeps.store.chunk import Author, Ending, Kind, Piece, pack_segment, unpack_footer, unpack_object
from zambezi.zeps.store.commands import Procedure, delete, get, listing, put
from zambezi.zeps.store.merging import MergePlan
from zambezi.zeps.store.names import ALL, StreamPlace
from zambezi.zeps.store.stream_log import Stored, StreamLog
from zambezi.zeps.store.view import SegmentObject, View

PARTS: Final = 20  # of the runs, for processes that share them
ENOUGH: Final = 20  # runs of a part, for a minimum of events
MOST: Final = 400  # seeds to find a violation in
KEPT: Final = 400  # bytes, in each third run


def run(seed: int) -> World:
    return World(
        seed,
        keep=KEPT if seed % 3 == 0 else None,
        deletes=seed % 5 == 4,
        acknowledges=seed % 2 == 1,
        trims=seed % 5 in (1, 2),
    ).run()


@pytest.mark.timeout(0)  # `--seeds` can be many
@pytest.mark.parametrize("part", range(PARTS))
def test_all_invariants_hold_in_every_run(part: int, pytestconfig: pytest.Config) -> None:
    confirmed = takeovers = merges = promoted = 0
    seeds = range(part, int(pytestconfig.getoption("--seeds")), PARTS)
    for seed in seeds:
        try:
            world = run(seed)
        except Violation as problem:
            raise AssertionError(f"seed {seed}: {problem}") from problem
        confirmed += len(world.history.confirmed)
        keys = {key for key, _ in world.store.accepted}
        merges += sum("/segments/" in key for key in keys)
        promoted += sum(key.endswith("-chunk") for key in keys)
        takeovers += sum(
            unpack_footer(octets, key).kind is Kind.FENCE for key, octets in world.store.accepted if "/chunks/" in key
        )
    print(f"{len(seeds)} runs, {confirmed} confirmed messages, {takeovers} takeovers, {merges} segments")
    if len(seeds) >= ENOUGH:  # so much happened
        assert confirmed > 5 * len(seeds)
        assert takeovers > len(seeds)
        assert merges > len(seeds)
        assert promoted > len(seeds) / 5


Patch = Callable[[pytest.MonkeyPatch], None]


def _no_second_list(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(View, "is_void", lambda view, fence: False)


def _remove_fences(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merging, "is_removable", lambda chunk: True)


def _overwrite(patch: pytest.MonkeyPatch) -> None:
    def overwrite(key: str, data: bytes) -> Procedure[bool]:
        yield from put(key, data, create=False)
        return True

    patch.setattr(stream_log, "put_own", overwrite)


def _exists_is_success(patch: pytest.MonkeyPatch) -> None:
    def careless(key: str, data: bytes) -> Procedure[bool]:
        yield from put(key, data)
        return True

    patch.setattr(stream_log, "put_own", careless)
    patch.setattr(takeover, "put_own", careless)


def _remove_before_the_segment(patch: pytest.MonkeyPatch) -> None:
    def hasty(place: StreamPlace, author: Author, plan: MergePlan) -> Procedure[SegmentObject | None]:
        pieces: list[Piece] = []
        keys = [place.segment(one.name) for one in plan.segments] + [
            place.chunk(one.number) for one in plan.data_chunks
        ]
        for key in keys:
            octets = yield from get(key)
            if octets is None:
                return None
            pieces.append(unpack_object(octets, key).piece)
        yield from delete(keys)
        octets = pack_segment(author, plan.number, pieces, plan.ending or Ending(), plan.following, plan.last_time)
        made = SegmentObject(unpack_footer(octets, "segment").segment_name, len(octets))
        yield from put(place.segment(made.name), octets)
        return made

    patch.setattr(stream_log, "merge", hasty)


def _remove_the_newest_segment(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merging, "expired_segments", lambda view, keep_bytes, horizon: list(view.readable))


def _list_segments_first(patch: pytest.MonkeyPatch) -> None:
    def look(place: StreamPlace) -> Procedure[View]:
        segments = yield from listing(place.segments)
        chunks = yield from listing(place.chunks)
        return View.of(chunks, segments)

    patch.setattr(views, "look", look)


def _look_once(patch: pytest.MonkeyPatch) -> None:
    """Do not look again if the chunk of a segment that is a chunk is not listed."""

    def look(place: StreamPlace) -> Procedure[View]:
        chunks = yield from listing(place.chunks)
        segments = yield from listing(place.segments)
        return View.of(chunks, segments)

    patch.setattr(views, "look", look)


def _confirm_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    append = StreamLog.append

    def early(log: StreamLog, piece: Piece) -> int:
        ticket = append(log, piece)
        log._events.append(Stored(ticket + 1, log.last))
        return ticket

    patch.setattr(StreamLog, "append", early)


def _forget_publishers(patch: pytest.MonkeyPatch) -> None:
    _patch_plan(patch, lambda ending: Ending(b"", ending.positions))


def _forget_positions(patch: pytest.MonkeyPatch) -> None:
    _patch_plan(patch, lambda ending: Ending(ending.publishers, b""))


def _forget_what_was_added(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(position_records, "MORE", -1)


def _confirm_a_trim_without_a_chunk(patch: pytest.MonkeyPatch) -> None:
    def prove(trims: Trims, log: StreamLog, first: int, problem: str, _: object) -> None:
        if not problem:
            trims._confirm(log, first)

    patch.setattr(Trims, "_prove", prove)


def _remove_messages_without_a_beginning(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(View, "beginning", ALL)


def _patch_plan(patch: pytest.MonkeyPatch, forget: Callable[[Ending], Ending]) -> None:
    def plan(
        number: int,
        segments: Sequence[SegmentObject],
        chunks: Sequence[views.ChunkObject],
        ending: Ending | None,
        *others: Any,
    ) -> MergePlan:
        return MergePlan(number, segments, chunks, forget(ending or Ending()), *others)

    patch.setattr(stream_log, "MergePlan", plan)


@pytest.mark.parametrize(
    "without_rule",
    [
        _no_second_list,
        _remove_fences,
        _overwrite,
        _exists_is_success,
        _remove_before_the_segment,
        _remove_the_newest_segment,
        _list_segments_first,
        _look_once,
        _confirm_before_it_is_stored,
        _forget_publishers,
        _forget_positions,
        _forget_what_was_added,
        _confirm_a_trim_without_a_chunk,
        _remove_messages_without_a_beginning,
    ],
)
def test_each_rule_is_needed(without_rule: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    without_rule(monkeypatch)
    for seed in range(MOST):
        try:
            run(seed)
        except (Violation, IndexError, KeyError):
            return
    pytest.fail(f"{MOST} runs without the rule found nothing")
