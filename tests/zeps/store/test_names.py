"""zambezi.zeps.store.names: what a LIST tells."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zeps.store.names import (
    Beginning,
    SegmentName,
    StreamPlace,
    parse_beginning,
    parse_chunk,
    parse_identity,
    parse_segment,
)

NUMBER = st.integers(1, (1 << 63) - 2)


@given(NUMBER, NUMBER, NUMBER, st.booleans())
def test_the_name_of_a_segment_has_its_facts(chunk: int, first: int, time: int, is_chunk: bool) -> None:
    name = SegmentName(chunk, first, first + 1, time, time, 7, is_chunk)
    assert parse_segment(str(name)) == name


@given(NUMBER, NUMBER)
def test_the_name_of_a_beginning_has_its_facts(first: int, time: int) -> None:
    name = Beginning(first, time)
    assert parse_beginning(str(name)) == name
    assert parse_segment(str(name)) is None
    assert str(name) > str(SegmentName(1 << 62, 1, 1, 1, 1, 1))  # the last one in a list
    assert str(name) < str(Beginning(first + 1, 0))


def test_the_bytes_of_a_segment_that_is_a_chunk_are_those_of_the_chunk() -> None:
    place = StreamPlace.of("a.b")
    name = SegmentName(9, 50, 99, 1, 1, 1)
    assert place.segment(name) == place.listed(name)
    assert place.segment(name._replace(is_chunk=True)) == place.chunk(9)
    assert place.listed(name._replace(is_chunk=True)).endswith("-chunk")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1-2",
        "x" * 50,
        f"{1:020}-{5:020}-3-1-1-1",
        f"{1:020}-{0:020}-3-1-1-1",
        f"{1:020}-{1:020}-03-1-1-1",
        f"{1:020}-{1:020}-3-1-1-1-",
        f"{1:020}-{1:020}-3-1-1-1-chunks",
        "first-1-1",
        f"first-{0:020}-1",
        f"first-{1:020}-01",
        f"first-{1 << 63:020}-1",
        "\u0663" * 20,
    ],
)
def test_a_name_that_no_broker_writes_is_no_segment(name: str) -> None:
    assert parse_segment(name) is None
    assert parse_chunk(name) is None
    assert parse_beginning(name) is None


def test_a_new_segment_is_the_last_one_in_a_list() -> None:
    old, new = SegmentName(9, 50, 99, 1, 1, 1), SegmentName(10, 1, 120, 1, 1, 1)
    assert sorted([str(new), str(old)]) == [str(old), str(new)]


def test_chunks_are_listed_in_their_order() -> None:
    place = StreamPlace.of("a.b")
    assert place.chunk(9) < place.chunk(10)
    assert parse_chunk(place.chunk(10)[-20:]) == 10
    assert parse_chunk("0" * 20) is None


def test_a_generation_of_a_stream_has_its_own_place() -> None:
    place = StreamPlace.of("a.b", 2)
    assert parse_identity(place.identity) == place
    assert parse_identity(place.chunk(1)) is None
    assert StreamPlace.of("a.b", 1).path != place.path
