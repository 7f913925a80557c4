"""zambezi.spark.columns: bytes to columns, as the grammar says, without trusting a wrong length."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.journal import Message, numbered, octets_of
from zambezi.spark import columns
from zambezi.spark.columns import (
    BareMessages,
    BatchTimes,
    EncodedMessages,
    RecordBatchBuilder,
    bodies_of,
    find_messages,
    join_small,
    keys_of,
)
from zambezi.spark.errors import DamagedLog
from zambezi.zeps.layout import DELIVER

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
TRAP = b"\x00\x10" + DELIVER + bytes(13)  # a message that can be in the body of another one

keys = st.one_of(st.sampled_from(["", "k", "key.7"]), st.text(max_size=60).filter(lambda key: len(key.encode()) < 256))
bodies = st.one_of(
    st.binary(max_size=40), st.sampled_from([TRAP, DELIVER, b"\x00" + DELIVER, bytes(300), bytes(65536)])
)
messages = st.lists(st.tuples(keys, bodies), max_size=30)
alike = st.builds(
    lambda key, body, count: [(key, body)] * count, st.text(max_size=5), st.binary(max_size=300), st.integers(1, 40)
)


def encoded(octets: bytes, first: int = 1, has_gaps: bool = False) -> EncodedMessages:
    return EncodedMessages(octets, first, BatchTimes(np.array([first]), np.array([1_000_000])), has_gaps)


def rows(batches: Iterable[Any]) -> list[tuple[int, str, bytes]]:
    return [(row["sequence"], row["key"], row["body"]) for batch in batches for row in batch.to_pylist()]


@given(st.one_of(messages, alike))
def test_all_messages_are_found(written: list[Message]) -> None:
    found = find_messages(octets_of(written, 7) if written else b"")
    assert [key.decode() for key in keys_of(found, pa.binary()).to_pylist()] == [key for key, _ in written]
    assert bodies_of(found).to_pylist() == [body for _, body in written]
    assert found.sequences().tolist() == list(range(7, 7 + len(written)))


@given(st.one_of(messages, alike).filter(bool), st.integers(-3, 40), st.integers(-3, 40))
def test_a_range_of_sequences_is_extracted(written: list[Message], after: int, last: int) -> None:
    batches = list(RecordBatchBuilder(SCHEMA, "s", "i").build(encoded(octets_of(written, 5), 5), after, last))
    expected = [(5 + place, *message) for place, message in enumerate(written)]
    assert rows(batches) == [row for row in expected if after < row[0] <= last]
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == SCHEMA


def test_all_columns_are_filled() -> None:
    times = BatchTimes(np.array([1, 3]), np.array([1_000_000, 2_000_000]))
    [batch] = RecordBatchBuilder(SCHEMA, "readings", "inc").build(
        EncodedMessages(octets_of(numbered(4)), 1, times), 0, 10
    )
    assert set(batch.column("stream").to_pylist()) == {"readings"}
    assert set(batch.column("incarnation").to_pylist()) == {"inc"}
    assert [time.timestamp() for time in batch.column("timestamp").to_pylist()] == [1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize("size", [0, 20, 300])
def test_a_key_test_leaves_out_messages(size: int) -> None:
    builder = RecordBatchBuilder(SCHEMA, "s", "i", lambda keys: pc.equal(keys, b"k3"))
    batch = builder.build(encoded(octets_of(numbered(25, size=size))), 0, 100)
    assert [row[0] for row in rows(batch)] == [3, 13, 23]
    assert list(builder.build(encoded(octets_of([("other", b"")] * 20)), 0, 100)) == []


def test_sequences_with_gaps_are_read_from_the_messages() -> None:
    octets = octets_of(numbered(1), 3) + octets_of(numbered(1), 9)
    batch = RecordBatchBuilder(SCHEMA, "s", "i").build(encoded(octets, 3, has_gaps=True), 0, 100)
    assert [row[0] for row in rows(batch)] == [3, 9]
    with pytest.raises(DamagedLog, match="should begin with sequence 3"):
        list(RecordBatchBuilder(SCHEMA, "s", "i").build(encoded(octets, 3), 0, 100))


@pytest.mark.parametrize("count", [1, 3, 40])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 4, 13, -1])
@pytest.mark.parametrize("change", [1, 7, 0x80])
def test_damage_is_an_error_or_changes_only_content(count: int, place: int, change: int) -> None:
    octets = bytearray(octets_of(numbered(count, size=20)))
    octets[place] ^= change
    try:
        found = find_messages(bytes(octets))
    except DamagedLog:
        return
    for column in (keys_of(found, pa.binary()), bodies_of(found)):
        column.validate(full=True)
        assert len(column) == count


@given(st.binary(max_size=200))
def test_random_bytes_do_no_harm(octets: bytes) -> None:
    try:
        found = find_messages(octets)
    except DamagedLog:
        return
    bodies_of(found).validate(full=True)
    assert int(found.starts[-1]) == len(octets)


def test_bare_messages_have_sequences_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_BARE_ROWS", 4)
    schema = pa.schema([("sequence", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("stream", pa.string())])
    times = BatchTimes(np.array([1, 8]), np.array([1_000_000, 2_000_000]))
    batches = list(RecordBatchBuilder(schema, "s", "i").build(BareMessages(3, 14, times), 4, 12))
    assert [batch.num_rows for batch in batches] == [4, 4]
    found = [row for batch in batches for row in batch.to_pylist()]
    assert [row["sequence"] for row in found] == list(range(5, 13))
    assert [row["timestamp"].timestamp() for row in found] == [1.0] * 3 + [2.0] * 5
    assert list(RecordBatchBuilder(schema, "s", "i").build(BareMessages(3, 14, times), 14, 20)) == []


def test_small_record_batches_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_FEW_ROWS", 10)
    builder = RecordBatchBuilder(SCHEMA, "s", "i")
    made = [batch for size in (3, 4, 5, 20, 2) for batch in builder.build(encoded(octets_of(numbered(size))), 0, 100)]
    joined = list(join_small(made))
    assert [batch.num_rows for batch in joined] == [12, 20, 2]
    assert rows(joined) == rows(made)
    monkeypatch.setattr(columns, "_SMALL_SIZE", 1)
    assert list(join_small(made)) == made
