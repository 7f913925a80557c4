"""Matching two streams by key."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from zambezi.spark.pipelines.joining import LEFT, MATCHED, RIGHT, UNKNOWN, UNMATCHED, WAITING, Event, match

WITHIN = 5


def outcomes(
    lefts: Sequence[int], rights: Sequence[int], read_up_to: int = 1000, known_from: int = 0
) -> list[tuple[str, int, str, int | None]]:
    events = sorted([Event("k", at, LEFT, 0) for at in lefts] + [Event("k", at, RIGHT, 0) for at in rights])
    found = match(events, WITHIN, read_up_to, known_from)
    return sorted((one.event.side, one.event.at, one.state, one.latency) for one in found)


def test_the_oldest_left_message_gets_the_next_right_one() -> None:
    assert outcomes([1, 2], [3, 4]) == [
        (LEFT, 1, MATCHED, 2),
        (LEFT, 2, MATCHED, 2),
        (RIGHT, 3, MATCHED, None),
        (RIGHT, 4, MATCHED, None),
    ]


def test_one_right_message_answers_one_left_message() -> None:
    assert outcomes([1, 2], [3]) == [(LEFT, 1, MATCHED, 2), (LEFT, 2, UNMATCHED, None), (RIGHT, 3, MATCHED, None)]


def test_a_right_message_at_the_limit_matches_and_one_after_it_does_not() -> None:
    assert outcomes([1], [1 + WITHIN])[0] == (LEFT, 1, MATCHED, WITHIN)
    assert outcomes([1], [2 + WITHIN]) == [(LEFT, 1, UNMATCHED, None), (RIGHT, 2 + WITHIN, UNMATCHED, None)]
    assert outcomes([1], [1])[0] == (LEFT, 1, MATCHED, 0)


def test_a_right_message_before_the_left_one_does_not_match() -> None:
    assert outcomes([4], [3]) == [(LEFT, 4, UNMATCHED, None), (RIGHT, 3, UNMATCHED, None)]


def test_what_can_still_come_and_what_cannot_be_known() -> None:
    assert outcomes([1], [], read_up_to=5) == [(LEFT, 1, WAITING, None)]
    assert outcomes([1], [], read_up_to=6) == [(LEFT, 1, UNMATCHED, None)]
    assert outcomes([], [3], known_from=4) == [(RIGHT, 3, UNKNOWN, None)]


def test_keys_are_apart() -> None:
    events = [Event("a", 1, LEFT, 1), Event("b", 2, RIGHT, 1)]
    assert [one.state for one in match(events, WITHIN, 1000, 0)] == [UNMATCHED, UNMATCHED]


def most_pairs(lefts: tuple[int, ...], rights: tuple[int, ...]) -> int:
    """Return the largest possible number of pairs, by trying every choice."""
    if not lefts:
        return 0
    best = most_pairs(lefts[1:], rights)
    for place, at in enumerate(rights):
        if 0 <= at - lefts[0] <= WITHIN:
            best = max(best, 1 + most_pairs(lefts[1:], rights[:place] + rights[place + 1 :]))
    return best


times = st.lists(st.integers(0, 20), max_size=5).map(lambda some: tuple(sorted(some)))


@given(times, times)
def test_no_other_choice_matches_more(lefts: tuple[int, ...], rights: tuple[int, ...]) -> None:
    found = outcomes(lefts, rights)
    assert len(found) == len(lefts) + len(rights)
    pairs = [one for one in found if one[3] is not None]
    assert all(0 <= (latency or 0) <= WITHIN for _, _, _, latency in pairs)
    assert len(pairs) == most_pairs(lefts, rights)
    assert sum(one[:1] == (RIGHT,) and one[2] == MATCHED for one in found) == len(pairs)
