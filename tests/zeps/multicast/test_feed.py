"""zambezi.zeps.multicast.feed: datagrams that are packed, fragmented, sent at a rate, and followed by marks."""

from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zambezi.zeps.block import Block, deliver
from zambezi.zeps.messages import Publish
from zambezi.zeps.multicast.datagram import Fragment, Mark, Messages, decode, unseal
from zambezi.zeps.multicast.feed import BURST, QUEUE, DatagramFeed
from zambezi.zeps.multicast.group import Group

WHO = UUID(int=7)
FAST = Group("udp", "239.77.1.1", 5680, rate=1 << 40)


def due(feed: DatagramFeed, now: float) -> list[bytes]:
    """Return the datagrams that may go now, as bytes."""
    return [b"".join(pieces) for pieces in feed.due_datagrams(now)]


def block_of(bodies: list[bytes], first: int = 1) -> Block:
    return deliver([Publish("k", body).encode()[0] for body in bodies], first)


@pytest.mark.spec("ZEP-16")
@given(st.lists(st.binary(max_size=600), min_size=1, max_size=60), st.integers(300, 2000), st.booleans())
def test_all_bytes_of_a_block_arrive_in_datagrams_that_fit(bodies: list[bytes], mtu: int, sealed: bool) -> None:
    key = bytes(32) if sealed else b""
    feed = DatagramFeed(Group("udp", "239.77.1.1", 5680, rate=1 << 40, mtu=mtu), WHO, 0, 0.0, key, bytes)
    block = block_of(bodies)
    feed.add(block, 0.0)
    came = b""
    expected = 1
    for octets in due(feed, 0.0):
        assert len(octets) <= mtu
        said = decode(unseal(octets, key) or b"" if sealed else octets)
        assert said is not None
        assert said.incarnation == WHO
        if isinstance(said, Messages):
            assert said.first == expected
            expected += said.count
            came += said.octets
        elif isinstance(said, Fragment):
            assert said.sequence == expected
            came += said.octets
            expected += said.offset + len(said.octets) == said.total
    assert came == block.octets
    assert expected == block.last + 1


@given(st.integers(16, 300), st.integers(0, 400), st.integers(300, 3000), st.integers(1, 1 << 40))
def test_messages_of_one_size_arrive_as_others_do(count: int, size: int, mtu: int, first: int) -> None:
    feed = DatagramFeed(Group("udp", "239.77.1.1", 5680, rate=1 << 40, mtu=mtu), WHO, 0, 0.0)
    block = block_of([b"x" * size] * count, first)
    feed.add(block, 0.0)
    came = b""
    expected = first
    for octets in due(feed, 0.0):
        assert len(octets) <= mtu
        said = decode(octets)
        if isinstance(said, Messages):
            assert said.first == expected
            expected += said.count
        else:
            assert isinstance(said, Fragment)
            expected += said.offset + len(said.octets) == said.total
        came += said.octets
    assert (came, expected) == (block.octets, first + count)


def test_many_messages_go_in_one_datagram() -> None:
    feed = DatagramFeed(FAST, WHO, 0, 0.0)
    feed.add(block_of([b"x" * 80] * 1000), 0.0)
    assert len(due(feed, 0.0)) < 100


def test_the_rate_is_kept_and_the_rest_waits() -> None:
    feed = DatagramFeed(Group("udp", "239.77.1.1", 5680, rate=100_000), WHO, 0, 0.0)
    block = block_of([b"x" * 80] * 1000)
    feed.add(block, 0.0)
    sent = sum(map(len, due(feed, 0.0)))
    assert sent <= 100_000 * BURST + 1400
    now = 0.0
    while sent < len(block.octets):
        assert feed.deadline > now
        now = feed.deadline
        sent += sum(map(len, due(feed, now)))
        assert sent <= 100_000 * (now + BURST) + 1400
    assert feed.counters.withheld == 0


def test_blocks_that_do_not_fit_into_the_queue_are_withheld_and_counted() -> None:
    feed = DatagramFeed(Group("udp", "239.77.1.1", 5680, rate=1000), WHO, 0, 0.0)
    first = block_of([b"x" * (QUEUE // 2)] * 2)
    feed.add(first, 0.0)
    feed.add(block_of([b"x"] * 10, 3), 0.0)
    assert feed.counters.withheld == 10


def test_marks_follow_the_last_message_soon_and_then_more_rarely() -> None:
    feed = DatagramFeed(FAST, WHO, 5, 0.0)
    feed.add(block_of([b"x"], 6), 0.0)
    assert [type(decode(octets)) for octets in due(feed, 0.0)] == [Messages]
    times = []
    for _ in range(5):
        now = feed.deadline
        (octets,) = due(feed, now)
        assert decode(octets) == Mark(WHO, 6)
        times.append(now)
    assert times == pytest.approx([0.02, 0.1, 0.5, 1.5, 2.5])


def test_a_broker_that_was_busy_does_not_make_up_for_marks() -> None:
    feed = DatagramFeed(FAST, WHO, 5, 0.0)
    assert [decode(octets) for octets in due(feed, 10.0)] == [Mark(WHO, 5)]
    assert due(feed, 10.2) == []
    assert feed.deadline == pytest.approx(10.5)


def test_no_mark_goes_out_before_its_message() -> None:
    feed = DatagramFeed(Group("udp", "239.77.1.1", 5680, rate=100_000), WHO, 0, 0.0)
    feed.add(block_of([b"x" * 80] * 1000), 0.0)
    now = 0.0
    kinds = []
    while Mark not in kinds:
        kinds += [type(decode(octets)) for octets in due(feed, now)]
        now = feed.deadline
    assert kinds.index(Mark) == len(kinds) - 1
    assert kinds.count(Messages) == feed.counters.datagrams
    assert feed.counters.messages == 1000


def test_messages_of_one_size_are_not_looked_at_and_not_copied() -> None:
    feed = DatagramFeed(FAST, WHO, 0, 0.0)
    block = block_of([b"x" * 80] * 1000)
    feed.add(block, 0.0)
    for _, messages in feed.due_datagrams(0.0):
        assert isinstance(messages, memoryview)
        assert messages.obj is block.octets
    assert block._parsed is None, "the keys were not parsed"


@given(st.lists(st.tuples(st.lists(st.binary(max_size=300), min_size=1, max_size=8), st.floats(0, 0.02)), max_size=30))
@example([([b"x" * 280] * 3, 0.0), ([b"x" * 280], 0.0)])  # the rate ends with the last datagram
def test_a_single_datagram_is_the_same_as_by_the_queue(blocks: list[tuple[list[bytes], float]]) -> None:
    group = Group("udp", "239.77.1.1", 5680, rate=100_000, mtu=1000)
    straight, other = DatagramFeed(group, WHO, 0, 0.0), DatagramFeed(group, WHO, 0, 0.0)
    now, first = 0.0, 1
    for bodies, later in blocks:
        now += later
        block = block_of(bodies, first)
        first = block.last + 1
        datagram = straight.single_datagram(block, now)
        if datagram is None:
            straight.add(block, now)
            given_now = due(straight, now)
        else:
            given_now = [b"".join(datagram)]
        other.add(block, now)
        assert given_now == due(other, now)
        assert straight.deadline == pytest.approx(other.deadline)
        assert straight.counters == other.counters
        assert straight._budget == pytest.approx(other._budget)
