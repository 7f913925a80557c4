"""zambezi.spark.publish_columns: columns to PUBLISH messages, as the grammar says, also if all rows have one size."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.journal import Message
from zambezi.spark import publish_columns
from zambezi.spark.errors import SparkError
from zambezi.spark.publish_columns import encode_publish, split_frames
from zambezi.zeps.messages import Publish
from zambezi.zmtp.frames import Decoder

keys = st.one_of(st.sampled_from(["", "k", "key.7"]), st.text(max_size=60).filter(lambda key: len(key.encode()) < 256))
bodies = st.one_of(st.binary(max_size=40), st.sampled_from([bytes(300), bytes(65536)]))
varied = st.lists(st.tuples(keys, bodies), max_size=30)


def column(values: list[str] | list[bytes], kind: object, offset: int) -> pa.Array:
    """Return a column that begins within its buffers, as a slice does."""
    return pa.array([values[0]] * offset + values, kind).slice(offset) if values else pa.array(values, kind)


@st.composite
def alike(draw: st.DrawFn) -> list[Message]:
    """Return messages of one size, with different contents."""
    key, body, count = draw(st.integers(0, 255)), draw(st.integers(0, 300)), draw(st.integers(1, 20))
    return [(chr(97 + number) * key, bytes([number]) * body) for number in range(count)]


@given(st.one_of(varied, alike()), st.integers(0, 3))
def test_publish_messages_follow_the_grammar(written: list[Message], offset: int) -> None:
    octets, starts = encode_publish(
        column([key for key, _ in written], pa.string(), offset),
        column([body for _, body in written], pa.binary(), offset),
    )
    expected = [Publish(key, body).encode()[0] for key, body in written]
    decoder = Decoder(1 << 30, 1 << 30)
    found = decoder.feed(bytes(octets))
    assert [frame for batch in found for frame in batch.frames] == expected  # type: ignore[union-attr]
    assert split_frames(octets, starts) == expected


@given(alike())
def test_messages_of_one_size_have_the_bytes_of_any_others(written: list[Message]) -> None:
    """An attempt compares its rows with those of an earlier one, which can have been encoded in the other way."""
    names = pa.array([key for key, _ in written], pa.binary())
    values = pa.array([body for _, body in written], pa.binary())
    one, starts = publish_columns._encode_equal(names, values, len(written[0][0]), len(written[0][1]))
    other, others = encode_publish(pa.array([*names, "more"], pa.binary()), pa.array([*values, b""], pa.binary()))
    assert other[: int(others[-2])] == one
    assert list(others[:-1]) == list(starts)


def test_null_is_published_as_empty() -> None:
    octets, starts = encode_publish(pa.array(["a", None], pa.string()), pa.array([None, "text"], pa.string()))
    assert split_frames(octets, starts) == [Publish("a", b"").encode()[0], Publish("", b"text").encode()[0]]


def test_only_nulls_are_published_as_empty() -> None:
    octets, starts = encode_publish(pa.nulls(2, pa.string()), pa.nulls(2, pa.binary()))
    assert split_frames(octets, starts) == [Publish("", b"").encode()[0]] * 2


def test_columns_with_long_offsets_are_published() -> None:
    """Spark sends them with `spark.sql.execution.arrow.useLargeVarTypes`."""
    octets, starts = encode_publish(pa.array(["a", "b"], pa.large_string()), pa.array([b"x", b""], pa.large_binary()))
    assert split_frames(octets, starts) == [Publish("a", b"x").encode()[0], Publish("b", b"").encode()[0]]


def test_a_slice_of_a_column_is_published() -> None:
    values = pa.array(["a", "b", "c", "d"], pa.string()).slice(1, 2)
    octets, starts = encode_publish(values, values)
    assert split_frames(octets, starts) == [Publish(key, key.encode()).encode()[0] for key in "bc"]


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(SparkError, match="row 1: a key of 256 bytes is too long: at most 255"):
        encode_publish(pa.array(["a", "k" * 256]), pa.array([b"", b""], pa.binary()))
