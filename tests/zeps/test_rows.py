"""zambezi.zeps.rows: messages of one size as a table, and the mask of those whose keys match."""

from itertools import compress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zeps import rows
from zambezi.zeps.block import Block, deliver
from zambezi.zeps.filters import Filter
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.messages import Publish
from zambezi.zeps.rows import find_rows, pick_rows

PATTERNS = st.text("ab.", max_size=4) | st.text("ab.", min_size=3, max_size=3).map("exact:{}".format)


def block_of(keys: list[str], size: int = 5) -> Block:
    """Return a block, as it is read from a journal."""
    made = deliver([Publish(key, bytes(size)).encode()[0] for key in keys], 7)
    return Block(made.first, made.last, made.count, made.octets, made.credit)


@given(st.lists(st.text("ab.", min_size=3, max_size=3), min_size=16, max_size=40), st.lists(PATTERNS, max_size=4))
def test_columns_find_the_same_messages_as_one_key_after_the_other(keys: list[str], patterns: list[str]) -> None:
    block = block_of(keys)
    wanted = Filter(patterns, Matchers())
    assert block.rows is not None
    mask = wanted.mask(block)
    assert mask == bytes([wanted(key.encode()) for key in keys])
    chosen = block.pick(mask)
    assert chosen.bodies == [body for body, is_wanted in zip(block.bodies, mask, strict=True) if is_wanted]
    assert chosen.octets == block.select([index for index, is_wanted in enumerate(mask) if is_wanted]).octets
    assert (chosen.count, chosen.credit) == (mask.count(1), sum(map(len, chosen.bodies)))


@given(st.lists(st.booleans(), max_size=70), st.integers(1, 5))
def test_picked_rows_are_those_of_the_mask(chosen: list[bool], stride: int) -> None:
    every = [bytes((number,)) * stride for number in range(len(chosen))]
    picked = b"".join([row for row, is_chosen in zip(every, chosen, strict=True) if is_chosen])
    assert pick_rows(b"".join(every), stride, bytes(chosen)) == picked


def test_rows_that_are_chosen_in_many_ways_need_few_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_FORMATS", 2)
    rows._cuts.cache_clear()
    octets = bytes(range(250))
    for number in range(1, 40):
        mask = bytes([place * number % 7 < 3 for place in range(250)])
        assert pick_rows(octets, 1, mask) == bytes(compress(octets, mask))
    assert len(rows._cuts(1)) <= 2


def test_long_patterns_and_messages_of_different_sizes_are_tried_by_key() -> None:
    keys = ["key"] * 20 + ["longer"] + ["key"] * 20
    block = block_of(keys)
    assert block.rows is None
    assert Filter(["lo"], Matchers()).mask(block) == bytes([key == "longer" for key in keys])
    chosen = block.pick(bytes([key == "longer" for key in keys]))
    assert chosen.keys == [b"longer"]
    same = block_of(["key"] * 20)
    assert Filter(["k" * 33, "ke"], Matchers()).mask(same) == b"\1" * 20


@pytest.mark.parametrize("size", [0, 300])
def test_rows_are_short_and_long_frames(size: int) -> None:
    block = block_of([f"k{number % 2}" for number in range(20)], size)
    chosen = block.pick(Filter(["k1"], Matchers()).mask(block))
    assert chosen.bodies == block.bodies[1::2]
    assert chosen.credit == sum(map(len, chosen.bodies))


def test_rows_must_be_as_many_as_the_index_says() -> None:
    block = block_of(["k"] * 20)
    assert find_rows(block.octets, 20) is not None
    assert find_rows(block.octets, 19) is None
    assert find_rows(block.octets + b"\0", 20) is None
    assert find_rows(b"", 0) is None
