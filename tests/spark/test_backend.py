"""zambezi.spark.backend: ranges of sequences, and their sizes according to the index of a journal."""

from __future__ import annotations

import numpy as np

from zambezi.spark.backend import SequenceRange, size_index_from_entries, trimmed_error


def test_a_range_counts_its_messages() -> None:
    assert SequenceRange("s", "i", 5, 25).count == 20
    assert SequenceRange("s", "i", 25, 5).count == 0


def test_a_size_index_covers_only_the_range() -> None:
    firsts, starts = np.array([1, 11, 21]), np.array([0, 1000, 3000, 6000])
    sizes = size_index_from_entries(firsts, starts, 31, SequenceRange("s", "i", 5, 25))
    assert sizes.sequences.tolist() == [6, 11, 21, 26]
    assert sizes.bytes_before.tolist() == [0, 500, 2500, 4000]
    assert (sizes.size, sizes.sequence_at(500), sizes.size_before(16)) == (4000, 11, 1500.0)


def test_the_error_for_trimmed_messages_names_them() -> None:
    error = trimmed_error("s", 4, 9)
    assert error.oldest == 9
    assert str(error) == "stream 's': sequences 5 to 8 are not kept any more, the oldest is 9"
