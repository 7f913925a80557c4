"""zambezi.zeps.broker.group_state: the state of a group as bytes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zeps.broker.group_state import (
    BadState,
    Delivered,
    GroupOptions,
    GroupState,
    acknowledged_part,
    dying_part,
    read_state,
    returned_part,
)

OPTIONS = GroupOptions("exact:k", 5000, 3, "dead")
sequences = st.integers(1, (1 << 63) - 1)
delivered = st.builds(Delivered, st.integers(0, 1023), st.integers(0, 1 << 31))


@given(
    st.integers(0, (1 << 63) - 1),
    st.dictionaries(st.integers(0, 1023), sequences, max_size=5),
    st.dictionaries(sequences, delivered, max_size=5),
    st.sets(sequences, max_size=5),
)
def test_a_snapshot_is_read_again(
    frontier: int, lagging: dict[int, int], unacknowledged: dict[int, Delivered], done: set[int]
) -> None:
    state = GroupState(OPTIONS, frontier, lagging, unacknowledged, done, 7)
    assert read_state(state.snapshot()) == state


def test_changes_follow_a_snapshot() -> None:
    state = GroupState(OPTIONS, 10, {}, {4: Delivered(1, 2)})
    octets = state.snapshot() + returned_part({6: Delivered(2, 1), 12: Delivered(3, 4)})
    octets += acknowledged_part([4, 11, 12])
    found = read_state(octets)
    assert found.unacknowledged == {6: Delivered(2, 1)}
    assert found.done == {4, 11, 12}
    assert found.position == 5


def test_letters_are_announced_and_then_done() -> None:
    state = GroupState(OPTIONS, 10, {}, {4: Delivered(1, 3), 5: Delivered(1, 3)}, letters=2)
    announced = state.snapshot() + dying_part(2, [4, 5])
    assert read_state(announced).dying == (2, (4, 5))
    assert read_state(read_state(announced).snapshot()).dying == (2, (4, 5))
    buried = read_state(announced + acknowledged_part([4, 5]))
    assert (buried.letters, buried.dying) == (4, (0, ()))


def test_a_stream_that_loses_messages_takes_its_groups_back() -> None:
    state = GroupState(OPTIONS, 10, {1: 3, 2: 9}, {4: Delivered(1, 2), 9: Delivered(1, 2)}, {12}, dying=(0, (4, 9)))
    cut = b"C" + (8).to_bytes(4) + (5).to_bytes(8)
    found = read_state(state.snapshot() + cut)
    assert (found.frontier, found.lagging, list(found.unacknowledged), found.done) == (5, {1: 3, 2: 5}, [4], set())
    assert found.dying == (0, (4,))
    assert read_state(state.snapshot() + cut + acknowledged_part([6])).done == {6}


def test_the_position_is_before_everything_that_is_not_done() -> None:
    assert GroupState(OPTIONS, 10).position == 10
    assert GroupState(OPTIONS, 10, {3: 7}).position == 7
    assert GroupState(OPTIONS, 10, {3: 7}, {5: Delivered(0, 1)}).position == 4


@given(st.binary(max_size=80))
def test_no_bytes_raise_another_error(octets: bytes) -> None:
    for content in (octets, GroupState(OPTIONS, 1).snapshot() + octets):
        with suppress(BadState):
            read_state(content)


@pytest.mark.parametrize("length", range(1, 60, 7))
def test_a_cut_state_is_refused(length: int) -> None:
    octets = GroupState(OPTIONS, 1, {1: 1}, {1: Delivered(1, 1)}).snapshot()
    with pytest.raises(BadState):
        read_state(octets[:-length])


def test_a_slot_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadState, match="slot 4711"):
        read_state(GroupState(OPTIONS, 1, {4711: 1}).snapshot())
