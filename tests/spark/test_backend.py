"""zambezi.spark.backend: ranges of sequences, and their sizes according to the index of a journal."""

from __future__ import annotations

from zambezi.spark.backend import SequenceRange, StreamState, replaced_error, size_index_from_points, trimmed_error


def test_a_range_counts_its_messages() -> None:
    assert SequenceRange("s", "i", 5, 25).count == 20
    assert SequenceRange("s", "i", 25, 5).count == 0


def test_a_range_knows_whether_it_is_a_whole_stream() -> None:
    state = StreamState("s", "i", 5, 25, 1000, 0)
    assert SequenceRange("s", "i", 4, 25).covers(state)
    assert not SequenceRange("s", "i", 5, 25).covers(state)
    assert not SequenceRange("s", "i", 0, 24).covers(state)


def test_a_size_index_is_made_from_points() -> None:
    assert size_index_from_points([]) is None
    sizes = size_index_from_points([(6, 0), (11, 500), (21, 2500), (26, 4000)])
    assert sizes is not None
    assert sizes.sequences.tolist() == [6, 11, 21, 26]
    assert sizes.bytes_before.tolist() == [0, 500, 2500, 4000]
    assert (sizes.size, sizes.sequences_at([500, 2500]), sizes.size_before(16)) == (4000, [11, 21], 1500.0)


def test_the_error_for_a_replaced_stream_names_both() -> None:
    assert str(replaced_error("s", "new", "old")) == "stream 's' is now new, and was old"


def test_the_error_for_trimmed_messages_names_them() -> None:
    error = trimmed_error("s", 4, 9)
    assert error.oldest == 9
    assert str(error) == "stream 's': sequences 5 to 8 are not kept any more, the oldest is 9"
