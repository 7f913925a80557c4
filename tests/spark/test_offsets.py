"""zambezi.spark.offsets: offsets as Spark stores them in the checkpoint."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.spark.errors import SparkError
from zambezi.spark.offsets import Offsets, Position


@given(st.dictionaries(st.text(max_size=5), st.builds(Position, st.integers(0, 1 << 62), st.text(max_size=5))))
def test_offsets_survive_the_checkpoint(positions: dict[str, Position]) -> None:
    assert Offsets.from_json(Offsets(positions).to_json()) == Offsets(positions)


def test_equal_offsets_are_equal_as_text() -> None:
    one, other = Position(7, "x"), Position(9, "y", 3)
    texts = {json.dumps(Offsets(given).to_json()) for given in ({"a": one, "b": other}, {"b": other, "a": one})}
    assert len(texts) == 1


@pytest.mark.parametrize("value", [None, {"a": 1}, {"a": {"sequence": 1}}, [1], {"partition": {"0": 7}}])
def test_an_offset_of_another_source_is_refused(value: object) -> None:
    with pytest.raises(SparkError, match="not an offset of the source `zeps`"):
        Offsets.from_json(value)
