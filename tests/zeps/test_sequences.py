"""zambezi.zeps.sequences: lists of sequences as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zeps.sequences import (
    BadSequences,
    pack_deliveries,
    pack_sequences,
    unpack_deliveries,
    unpack_sequences,
)

sequences = st.integers(0, (1 << 64) - 1)


@given(st.lists(sequences, max_size=9))
def test_sequences_are_read_again(found: list[int]) -> None:
    octets = pack_sequences(found)
    assert octets == b"".join([one.to_bytes(8) for one in found])
    assert unpack_sequences(octets) == found


@given(st.dictionaries(sequences, st.integers(0, (1 << 32) - 1), max_size=9))
def test_deliveries_are_read_again(found: dict[int, int]) -> None:
    assert unpack_deliveries(pack_deliveries(found.items())) == found


def test_incomplete_lists_are_refused() -> None:
    with pytest.raises(BadSequences, match="7 bytes"):
        unpack_sequences(bytes(7))
    with pytest.raises(BadSequences, match="13 bytes"):
        unpack_deliveries(bytes(13))
