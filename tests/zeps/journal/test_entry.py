"""zambezi.zeps.journal.entry: the entries of an index."""

import struct
from itertools import accumulate
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.zeps.journal.streams import block, pieces
from zambezi.zeps.journal.entry import (
    LARGEST_BATCH,
    SIZE,
    Cuts,
    IndexEntry,
    IndexWindow,
    count_before,
    split_block,
    unpack,
)
from zambezi.zeps.layout import ENTRY

numbers_8 = st.integers(0, 2**64 - 1)
numbers_4 = st.integers(0, 2**32 - 1)
entries = st.builds(
    IndexEntry, *[numbers_8] * 3, *[numbers_4] * 5, gap=st.just(0) | numbers_8, removed=st.just(0) | numbers_8
)
bodies = st.lists(st.binary(max_size=300), min_size=1, max_size=12) | st.integers(1, 40).map(lambda n: [b"x" * 250] * n)


def test_the_format() -> None:
    octets = IndexEntry(1, 2, 3, 4, 5, 6, 7, 8, 9, 10).pack()
    assert octets[:60].hex(" ", 4) == (
        "00000000 00000001 00000000 00000002 00000000 00000003 00000004 00000005 00000006 00000007 00000008 "
        "00000000 00000009 00000000 0000000a"
    )
    assert octets[60:] == struct.pack(">I", crc32(octets[:60]))
    assert ENTRY.unpack(octets) == (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, crc32(octets[:60]))
    assert SIZE == ENTRY.size == len(octets) == 64


@given(entries)
def test_only_possible_values_come_back(entry: IndexEntry) -> None:
    assert unpack(b"before" + entry.pack(), 6) == (entry if entry.is_possible else None)
    assert (entry.last, entry.end) == (entry.first + entry.count + entry.gap - 1, entry.offset + entry.length)


@given(entries, st.integers(0, SIZE * 8 - 1))
def test_one_wrong_bit_is_noticed(entry: IndexEntry, bit: int) -> None:
    octets = bytearray(entry.pack())
    octets[bit // 8] ^= 1 << bit % 8
    assert unpack(bytes(octets)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"first": 0},
        {"first": 1 << 63},
        {"first": (1 << 63) - 1},
        {"offset": (1 << 63) - 1},
        {"time": 1 << 63},
        {"count": 0},
        {"count": 97},
        {"credit": 101},
        {"length": LARGEST_BATCH + 1},
    ],
)
def test_an_entry_that_no_broker_writes_is_none(change: dict[str, int]) -> None:
    """Each of these has a valid CRC, and used to lead to an exception, or to gigabytes of memory."""
    entry = IndexEntry(1, 0, 0, 2, 100, 96, 0)
    assert unpack(entry.pack()) == entry
    assert unpack(entry._replace(**change).pack()) is None
    assert unpack(entry._replace(count=1, length=LARGEST_BATCH + 1).pack()) is not None  # one large message is possible


def test_short_or_blank_bytes_are_no_entry() -> None:
    assert unpack(IndexEntry(1, 0, 0, 1, 18, 16, 0).pack()[:-1]) is None
    assert unpack(b"") is None
    assert unpack(bytes(SIZE)) is None


@given(bodies)
def test_where_a_block_can_be_cut(of: list[bytes]) -> None:
    made = block(1, of)
    cuts = Cuts.of(made)
    assert list(cuts.starts) == list(made.starts)
    assert list(cuts.spent) == [0, *accumulate(map(len, made.bodies))]


def test_messages_of_one_size_take_no_memory() -> None:
    cuts = Cuts.of(block(250, [b"x" * 300] * 1000))
    assert isinstance(cuts.starts, range)
    assert isinstance(cuts.spent, range)


@given(bodies, st.integers(0, 2000))
def test_messages_within_a_size(of: list[bytes], octets: int) -> None:
    made = block(1, of)
    until = Cuts.of(made).stop_for_size(0, octets)
    length = made.starts[until]
    assert until >= 1
    assert length <= octets or until == 1
    assert until == made.count or made.starts[until + 1] > octets


@given(bodies, st.integers(1, 4000))
def test_messages_that_credit_pays_for(of: list[bytes], credit: int) -> None:
    made = block(1, of)
    left, count = credit, 0
    for body in made.bodies:
        if left <= 0:
            break
        left -= len(body)
        count += 1
    assert Cuts.of(made).stop_for_credit(0, credit) == count


@given(bodies, st.integers(1, 1000))
def test_a_block_that_becomes_several_batches(of: list[bytes], batch: int) -> None:
    made = block(7, of)
    found = list(split_block(made, 1000, 5, batch))
    assert b"".join(made.octets[entry.offset - 1000 : entry.end - 1000] for entry in found) == made.octets
    sequence = 7
    for entry in found:
        octets = made.octets[entry.offset - 1000 : entry.end - 1000]
        messages = pieces(made)[sequence - 7 : sequence - 7 + entry.count]
        assert b"".join(messages) == octets
        assert entry.length <= batch or entry.count == 1
        assert (entry.first, entry.time, entry.crc) == (sequence, 5, crc32(octets))
        sequence += entry.count
    assert sequence == made.last + 1
    assert sum(entry.credit for entry in found) == made.credit


def test_a_window_is_columns() -> None:
    rows = [IndexEntry(2**40, 2**33, 2**50, 2, 100, 96, 1), IndexEntry(2**40 + 2, 2**33 + 100, 2**50 + 1, 1, 50, 48, 2)]
    window = IndexWindow(b"".join(entry.pack() for entry in rows))
    assert list(window.firsts) == [2**40, 2**40 + 2, 2**40 + 3]
    assert list(window.starts) == [2**33, 2**33 + 100, 2**33 + 150]
    assert list(window.spent) == [0, 96, 144]
    assert [window.time(0), window.time(1)] == [2**50, 2**50 + 1]
    assert len(window) == 2
    assert window.is_chain


@pytest.mark.parametrize("change", [{"first": 4}, {"offset": 101}])
def test_entries_that_do_not_follow_are_no_chain(change: dict[str, int]) -> None:
    rows = [IndexEntry(1, 0, 0, 2, 100, 96, 1), IndexEntry(3, 100, 0, 1, 50, 48, 2)._replace(**change)]
    assert not IndexWindow(b"".join(entry.pack() for entry in rows)).is_chain


@given(st.lists(st.integers(0, 50)).map(sorted), st.integers(0, 50))
def test_search(values: list[int], sought: int) -> None:
    found = count_before(len(values), lambda number: values[number] < sought)
    assert found == len([value for value in values if value < sought])
