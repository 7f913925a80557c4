"""zambezi.zeps.multicast.reception: one sequence from a group that loses, repeats and reorders, and from a broker."""

import random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from zambezi.zeps.block import Block, deliver
from zambezi.zeps.client.batch import MessageBatch
from zambezi.zeps.layout import sequence_of
from zambezi.zeps.messages import Publish
from zambezi.zeps.multicast.datagram import Fragment, Mark, Messages
from zambezi.zeps.multicast.feed import DatagramFeed
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.reception import FIRST_PENALTY, PATIENCE, SILENCE, Phase, Reception

WHO = UUID(int=7)


def block_of(first: int, count: int, size: int = 20) -> Block:
    return deliver([Publish("k", b"%d" % number + b"x" * size).encode()[0] for number in range(count)], first)


def datagram_of(first: int, count: int = 1) -> bytes:
    return Messages(WHO, first, count, block_of(first, count).octets).encode()


class Reader:
    """A reception, the broker that it falls back to, and the messages that the program gets."""

    def __init__(self, position: int = 0, window: int = 1 << 20) -> None:
        self.reception = Reception(position, WHO, 0.0, window=window)
        self.reception.on_messages = self.take
        self.got: list[int] = []

    def take(self, frames: list[bytes], after: int) -> None:
        assert MessageBatch("s", frames, after).bodies() == MessageBatch("s", frames).bodies()
        self.got += map(sequence_of, frames)

    def from_broker(self, first: int, count: int, now: float) -> None:
        """Deliver messages from the broker. Some of them may have come from the group already."""
        last = first + count - 1
        self.got += range(max(first, self.reception.position + 1), last + 1)
        self.reception.broker_delivered(last, count, now)

    def phase(self) -> Phase:
        return self.reception.phase


def in_group(position: int = 0) -> Reader:
    """Return a subscriber in phase GROUP."""
    reader = Reader(position)
    reader.reception.receive([Mark(WHO, position).encode()], 0.0)
    assert reader.phase() is Phase.GROUP
    return reader


def test_it_begins_with_the_broker_and_goes_over_when_the_group_goes_on_there() -> None:
    reader = Reader()
    reader.reception.receive([datagram_of(5)], 0.0)
    assert reader.phase() is Phase.BROKER
    reader.from_broker(1, 3, 0.0)
    assert reader.phase() is Phase.BROKER
    reader.from_broker(4, 1, 0.0)
    assert reader.phase() is Phase.GROUP
    assert reader.got == [1, 2, 3, 4, 5]


def test_datagrams_that_overtake_each_other_are_put_in_order() -> None:
    reader = in_group()
    for first in (3, 1, 2, 2, 1):
        reader.reception.receive([datagram_of(first)], 0.0)
    assert reader.got == [1, 2, 3]
    assert reader.phase() is Phase.GROUP


def test_a_message_that_is_missing_for_too_long_comes_from_the_broker() -> None:
    reader = in_group()
    reader.reception.receive([datagram_of(2)], 1.0)
    assert reader.reception.deadline == 1.0 + PATIENCE
    reader.reception.tick(1.0 + PATIENCE / 2)
    assert reader.phase() is Phase.GROUP
    reader.reception.tick(1.0 + PATIENCE)
    assert reader.phase() is Phase.BROKER
    reader.from_broker(1, 1, 1.1)
    assert reader.got == [1, 2]
    assert reader.phase() is Phase.GROUP


def test_loss_at_the_end_is_noticed_by_the_mark() -> None:
    reader = in_group()
    reader.reception.receive([datagram_of(1)], 1.0)
    reader.reception.receive([Mark(WHO, 2).encode()], 1.0)
    reader.reception.tick(1.0 + PATIENCE)
    assert reader.phase() is Phase.BROKER


def test_a_group_that_is_silent_is_left() -> None:
    reader = in_group()
    reader.reception.tick(SILENCE)
    assert reader.phase() is Phase.BROKER
    reader.from_broker(1, 5, SILENCE + 1)
    assert reader.phase() is Phase.BROKER, "nobody is heard in the group"
    reader.reception.receive([Mark(WHO, 5).encode()], SILENCE + 2)
    assert reader.phase() is Phase.GROUP


def test_each_fall_makes_the_return_later() -> None:
    reader = in_group()
    reception = reader.reception
    now = 1.0
    waits = []
    for first in range(1, 12, 2):
        reception.receive([datagram_of(first + 1)], now)
        reception.tick(now + PATIENCE)
        fell = now = now + PATIENCE
        reader.from_broker(first, 2, now)
        while reader.phase() is Phase.BROKER:
            now = reception.deadline or now + 0.01
            reception.tick(now)
            reception.receive([Mark(WHO, first + 1).encode()], now)
        waits.append(now - fell)
    assert waits[0] == 0
    assert waits[1:] == pytest.approx([FIRST_PENALTY * 2**n for n in range(1, 6)], abs=0.05)


def test_a_large_message_comes_in_fragments_in_any_order() -> None:
    reader = in_group()
    message = block_of(1, 1, 5000).octets
    parts = [
        Fragment(WHO, 1, len(message), offset, message[offset : offset + 1000])
        for offset in range(0, len(message), 1000)
    ]
    random.Random(1).shuffle(parts)
    for part in [*parts[:3], *parts]:
        reader.reception.receive([part.encode()], 0.0)
    assert reader.got == [1]


@pytest.mark.parametrize(
    "octets",
    [
        b"noise",
        Messages(UUID(int=8), 1, 1, block_of(1, 1).octets).encode(),
        Messages(WHO, 1, 2, block_of(1, 1).octets).encode(),
        Messages(WHO, 5, 1, block_of(1, 1).octets).encode(),
        Messages(WHO, 1, 1, b"garbage").encode(),
        Fragment(WHO, 1, 3, 0, b"abc").encode(),
    ],
)
def test_foreign_and_damaged_datagrams_are_counted_and_dropped(octets: bytes) -> None:
    reader = in_group()
    reader.reception.receive([octets], 0.0)
    assert reader.got == []
    assert reader.reception.counters.foreign == 1


def test_the_window_bounds_the_kept_messages() -> None:
    reader = Reader(window=1000)
    for first in range(100, 500):
        reader.reception.receive([datagram_of(first)], 0.0)
    assert reader.reception._kept_bytes <= 1000
    assert reader.reception.counters.discarded > 0
    reader.from_broker(1, 499, 0.0)
    assert reader.got == list(range(1, 500))
    assert reader.reception._kept_bytes == 0


@pytest.mark.spec("ZEP-16")
@settings(max_examples=cases(15))
@given(st.randoms(use_true_random=False), st.floats(0, 0.6), st.integers(20, 400))
def test_every_message_comes_once_and_in_order_for_any_loss(chance: random.Random, loss: float, messages: int) -> None:
    feed = DatagramFeed(Group("udp", "239.77.1.1", 5680, rate=1 << 40, mtu=600), WHO, 0, 0.0)
    reader = Reader()
    reception = reader.reception
    now, written, late = 0.0, 0, []
    while written < messages or reader.got != list(range(1, messages + 1)):
        assert now < 300, "it never gets there"
        if written < messages and chance.random() < 0.7:
            count = chance.randint(1, min(20, messages - written))
            feed.add(block_of(written + 1, count, chance.choice([0, 10, 900])), now)
            written += count
        sent = [
            b"".join(octets)
            for octets in feed.due_datagrams(now)
            for _ in range(chance.choice([1, 1, 2]))
            if chance.random() >= loss
        ]
        late += sent
        chance.shuffle(late)
        while late and chance.random() < 0.8:
            reception.receive([late.pop()], now)
        if reader.phase() is Phase.BROKER and written > reception.position:
            reader.from_broker(reception.position + 1, min(30, written - reception.position), now)
        now += chance.choice([0.001, 0.01, 0.1])
        reception.tick(now)
    assert reader.got == list(range(1, messages + 1))


def test_packets_that_overtake_each_other_all_the_time_are_no_loss() -> None:
    """At no moment is everything there; but nothing is missing for long."""
    reader = in_group()
    now = 1.0
    for first in range(1, 401, 2):
        # The next two overtake each other before the late one arrives.
        reader.reception.receive([datagram_of(first + 1)], now)
        reader.reception.tick(now)
        now += PATIENCE / 2
        reader.reception.receive([datagram_of(first + 3)], now)
        reader.reception.receive([datagram_of(first)], now)
    assert reader.reception.counters.falls == 0
    assert reader.got[:400] == list(range(1, 401))


def test_another_gap_has_its_own_time() -> None:
    reader = in_group()
    reader.reception.receive([datagram_of(2)], 1.0)
    reader.reception.receive([datagram_of(4)], 1.02)
    reader.reception.receive([datagram_of(1)], 1.02)
    assert reader.reception.deadline == 1.02 + PATIENCE
    reader.reception.tick(1.0 + PATIENCE)
    assert reader.phase() is Phase.GROUP


def test_fragments_of_one_byte_each_are_bounded_too() -> None:
    reader = Reader(window=10_000)
    for sequence in range(1, 100):
        for offset in range(50):
            reader.reception.receive([Fragment(WHO, sequence, 5000, offset, b"x").encode()], 0.0)
    kept = sum(len(parts.pieces) for parts in reader.reception._parts.values())
    assert kept <= 10_000 // 64


def test_a_held_subscriber_stays_with_the_broker_until_it_resumes() -> None:
    reader = in_group()
    reader.reception.hold(1.0)
    assert reader.phase() is Phase.BROKER
    reader.reception.receive([datagram_of(1)], 1.1)
    reader.from_broker(1, 1, 1.2)
    reader.reception.tick(2.0)
    assert reader.phase() is Phase.BROKER
    assert reader.reception.deadline is None
    reader.reception.resume(3.0)
    assert reader.phase() is Phase.GROUP
    reader.reception.receive([datagram_of(2)], 3.1)
    assert reader.got == [1, 2]


def test_the_broker_corrects_a_mark_that_promises_too_much() -> None:
    reader = in_group()
    reader.reception.receive([Mark(WHO, 1 << 40).encode()], 1.0)
    reader.reception.tick(1.0 + PATIENCE)
    assert reader.phase() is Phase.BROKER
    reader.reception.receive([Mark(WHO, 0).encode()], 1.1)
    assert reader.phase() is Phase.BROKER
    reader.reception.set_last_known(0)
    reader.reception.receive([Mark(WHO, 0).encode()], 1.2)
    assert reader.phase() is Phase.GROUP


def test_a_position_in_the_middle_of_a_datagram_repeats_nothing() -> None:
    reader = Reader(position=4)
    reader.reception.receive([datagram_of(1, 10)], 0.0)
    assert reader.got == [5, 6, 7, 8, 9, 10]
    assert reader.phase() is Phase.GROUP
    late = Reader()
    late.reception.receive([datagram_of(5, 10)], 0.0)
    late.from_broker(1, 8, 0.0)
    assert late.got == list(range(1, 15))
    assert late.reception._kept_bytes == 0
