"""Work is cut evenly, and nothing is lost or done twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.spark.backend import Marks, Slice, marks_of
from zambezi.spark.errors import SparkError
from zambezi.spark.offsets import Offsets, Position
from zambezi.spark.plan import LEAST, PIECE, Part, cut, even, how_many, share

sizes = st.lists(st.integers(1, 500), max_size=6)


def pieces(parts: list[Part]) -> list[tuple[str, int]]:
    return [
        (piece.stream, sequence)
        for part in parts
        for piece in part.slices
        for sequence in range(piece.after + 1, piece.last + 1)
    ]


@given(sizes, st.one_of(st.none(), st.integers(1, 20)), st.one_of(st.none(), st.integers(1, 100)), st.integers(1, 5))
def test_every_message_is_in_one_partition(counts: list[int], least: int | None, most: int | None, cores: int) -> None:
    slices = [Slice(f"s{number}", "i", 10, 10 + count) for number, count in enumerate(counts)]
    parts = cut([(piece, even(piece, 100)) for piece in slices], least=least, most=most, cores=cores)
    assert pieces(parts) == [(piece.stream, number) for piece in slices for number in range(11, piece.last + 1)]
    assert all(part.count for part in parts)
    if most is not None:
        assert all(part.count <= most for part in parts)
    if least is not None and sum(counts) >= 2 * least * (len(counts) + 1):
        assert len(parts) >= least


def test_partitions_are_even_in_octets() -> None:
    """The first half of the messages is large, the second half small."""
    marks = Marks(np.array([1, 101, 201]), np.array([0, 90_000, 100_000]))
    first, second = cut([(Slice("s", "i", 0, 200), marks)], least=2)
    assert [first.count, second.count] == [55, 145]


def test_many_small_streams_share_a_partition() -> None:
    slices = [Slice(f"s{number}", "i", 0, 3) for number in range(50)]
    [part] = cut([(piece, even(piece, 100)) for piece in slices], cores=8)
    assert len(part.slices) == 50


@pytest.mark.parametrize(
    ("octets", "least", "cores", "parts"),
    [
        (0, None, 4, 1),
        (2 * LEAST, None, 4, 1),
        (2 * LEAST + 1, None, 4, 3),  # too little for one each
        (100 * LEAST, None, 4, 4),
        (PIECE * 5, None, 4, 8),  # two rounds, and nobody idle in the second
        (PIECE * 5, 11, 4, 11),
        (1, 3, 4, 3),
    ],
)
def test_how_many_partitions(octets: int, least: int | None, cores: int, parts: int) -> None:
    assert how_many(octets, least, cores) == parts


def test_nothing_makes_no_partition() -> None:
    assert cut([]) == []
    assert cut([(Slice("s", "i", 5, 5), Marks(np.array([6, 6]), np.array([0, 0])))]) == []


def test_marks_are_cut_to_the_slice() -> None:
    firsts, starts = np.array([1, 11, 21]), np.array([0, 1000, 3000, 6000])
    marks = marks_of(firsts, starts, 31, Slice("s", "i", 5, 25))
    assert marks.sequences.tolist() == [6, 11, 21, 26]
    assert marks.octets.tolist() == [0, 500, 2500, 4000]
    assert (marks.size, marks.at(500), marks.before(16)) == (4000, 11, 1500.0)


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 1000)), st.integers(1, 500))
def test_a_share_is_what_was_asked_for(waiting: dict[str, int], limit: int) -> None:
    taken = share(waiting, limit)
    assert sum(taken.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= taken[name] <= count for name, count in waiting.items())


@given(st.dictionaries(st.text(max_size=5), st.builds(Position, st.integers(0, 1 << 62), st.text(max_size=5))))
def test_offsets_survive_the_checkpoint(positions: dict[str, Position]) -> None:
    assert Offsets.from_json(Offsets(positions).to_json()) == Offsets(positions)


@pytest.mark.parametrize("told", [None, {"a": 1}, {"a": {"sequence": 1}}, [1], {"partition": {"0": 7}}])
def test_an_offset_of_something_else_is_refused(told: object) -> None:
    with pytest.raises(SparkError, match="no offset of the source `zeps`"):
        Offsets.from_json(told)
