"""Octets to columns and back: the same as the grammar says, whatever the sizes, and never past a wrong length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.journal import Message, numbered, octets_of
from zambezi.spark.columns import Shaper, Window, bodies_of, frames, keys_of, layout, publish, whole
from zambezi.spark.errors import DamagedLog, SparkError
from zambezi.zeps.layout import DELIVER
from zambezi.zeps.messages import Publish
from zambezi.zmtp.frames import Decoder

SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("sequence", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.string()),
        ("body", pa.binary()),
        ("incarnation", pa.string()),
    ]
)
TRAP = b"\x00\x10" + DELIVER + bytes(13)  # a message, as it can stand in the body of another

keys = st.one_of(st.sampled_from(["", "k", "key.7"]), st.text(max_size=60).filter(lambda key: len(key.encode()) < 256))
bodies = st.one_of(
    st.binary(max_size=40), st.sampled_from([TRAP, DELIVER, b"\x00" + DELIVER, bytes(300), bytes(65536)])
)
messages = st.lists(st.tuples(keys, bodies), max_size=30)
alike = st.builds(
    lambda key, body, count: [(key, body)] * count, st.text(max_size=5), st.binary(max_size=300), st.integers(1, 40)
)


def window(octets: bytes, first: int = 1, gaps: bool = False) -> Window:
    return Window(octets, first, np.array([first]), np.array([1_000_000]), gaps)


def rows(batch: Any) -> list[tuple[int, str, bytes]]:
    return [(row["sequence"], row["key"], row["body"]) for row in batch.to_pylist()] if batch is not None else []


@given(st.one_of(messages, alike))
def test_messages_are_found_as_they_were_written(written: list[Message]) -> None:
    found = layout(octets_of(written, 7) if written else b"")
    assert [key.decode() for key in keys_of(found, pa.binary()).to_pylist()] == [key for key, _ in written]
    assert bodies_of(found).to_pylist() == [body for _, body in written]
    assert found.sequences().tolist() == list(range(7, 7 + len(written)))


@given(st.one_of(messages, alike).filter(bool), st.integers(-3, 40), st.integers(-3, 40))
def test_a_range_of_sequences_is_cut_out(written: list[Message], after: int, last: int) -> None:
    batch = Shaper(SCHEMA, "s", "i").shape(window(octets_of(written, 5), 5), after, last)
    expected = [(5 + place, *message) for place, message in enumerate(written)]
    assert rows(batch) == [row for row in expected if after < row[0] <= last]
    if batch is not None:
        batch.validate(full=True)
        assert batch.schema == SCHEMA


def test_all_columns_are_there() -> None:
    batch = Shaper(SCHEMA, "readings", "inc").shape(
        Window(octets_of(numbered(4)), 1, np.array([1, 3]), np.array([1_000_000, 2_000_000])), 0, 10
    )
    assert batch is not None
    assert set(batch.column("stream").to_pylist()) == {"readings"}
    assert set(batch.column("incarnation").to_pylist()) == {"inc"}
    assert [time.timestamp() for time in batch.column("timestamp").to_pylist()] == [1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize("size", [0, 20, 300])
def test_keys_are_tested_before_anything_is_copied(size: int) -> None:
    shaper = Shaper(SCHEMA, "s", "i", lambda keys: pc.equal(keys, b"k3"))
    batch = shaper.shape(window(octets_of(numbered(25, size=size))), 0, 100)
    assert [row[0] for row in rows(batch)] == [3, 13, 23]
    assert shaper.shape(window(octets_of([("other", b"")] * 20)), 0, 100) is None


def test_sequences_with_gaps_are_read_from_the_messages() -> None:
    octets = octets_of(numbered(1), 3) + octets_of(numbered(1), 9)
    batch = Shaper(SCHEMA, "s", "i").shape(window(octets, 3, gaps=True), 0, 100)
    assert [row[0] for row in rows(batch)] == [3, 9]
    with pytest.raises(DamagedLog, match="should begin with sequence 3"):
        Shaper(SCHEMA, "s", "i").shape(window(octets, 3), 0, 100)


@pytest.mark.parametrize("count", [1, 3, 40])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 4, 13, -1])
@pytest.mark.parametrize("change", [1, 7, 0x80])
def test_damage_is_an_error_or_other_content_and_never_more(count: int, place: int, change: int) -> None:
    octets = bytearray(octets_of(numbered(count, size=20)))
    octets[place] ^= change
    try:
        found = layout(bytes(octets))
    except DamagedLog:
        return
    for column in (keys_of(found, pa.binary()), bodies_of(found)):
        column.validate(full=True)
        assert len(column) == count


@given(st.binary(max_size=200))
def test_no_octets_lead_astray(octets: bytes) -> None:
    try:
        found = layout(octets)
    except DamagedLog:
        return
    bodies_of(found).validate(full=True)
    assert int(found.starts[-1]) == len(octets)


@given(st.one_of(messages, alike), st.binary(max_size=30).filter(lambda rest: rest[:1] not in (b"\0", b"\2")))
def test_whole_messages_end_where_something_else_begins(written: list[Message], rest: bytes) -> None:
    octets = octets_of(written) if written else b""
    assert whole(np.frombuffer(octets + rest, np.uint8)) == len(octets)


@given(messages.filter(bool), st.data())
def test_what_is_not_all_there_is_not_whole(written: list[Message], data: st.DataObject) -> None:
    octets = octets_of(written)
    starts = layout(octets).starts.tolist()
    cut = data.draw(st.integers(0, len(octets)))
    assert whole(np.frombuffer(octets[:cut], np.uint8)) == max(start for start in starts if start <= cut)


@given(messages)
def test_publish_makes_what_the_grammar_makes(written: list[Message]) -> None:
    octets, starts = publish(
        pa.array([key for key, _ in written], pa.string()), pa.array([body for _, body in written], pa.binary())
    )
    expected = [Publish(key, body).encode()[0] for key, body in written]
    decoder = Decoder(1 << 30, 1 << 30)
    assert [frame for batch in decoder.feed(octets) for frame in batch.frames] == expected  # type: ignore[union-attr]
    assert frames(octets, starts) == expected


def test_nothing_is_published_for_null() -> None:
    octets, starts = publish(pa.array(["a", None], pa.string()), pa.array([None, "text"], pa.string()))
    assert frames(octets, starts) == [Publish("a", b"").encode()[0], Publish("", b"text").encode()[0]]


def test_a_slice_of_a_column_is_published_alone() -> None:
    column = pa.array(["a", "b", "c", "d"], pa.string()).slice(1, 2)
    octets, starts = publish(column, column)
    assert frames(octets, starts) == [Publish(key, key.encode()).encode()[0] for key in "bc"]


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(SparkError, match="row 1: a key of 256 octets is too long"):
        publish(pa.array(["a", "k" * 256]), pa.array([b"", b""], pa.binary()))
