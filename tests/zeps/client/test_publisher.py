"""zambezi.zeps.client.publisher: nothing is lost before it is confirmed, and nothing is held beyond the bound."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zeps.client import publisher as publishers
from zambezi.zeps.client.publisher import (
    BOUND,
    PARCEL,
    PING_LEAST,
    PING_OCTETS,
    PING_SECONDS,
    PINGS,
    POST,
    POSTS,
    Outgoing,
    Parcel,
    Publisher,
)
from zambezi.zeps.errors import BrokerError, QueueFull, ZepsError
from zambezi.zeps.messages import Ping, Publish, Zeps
from zambezi.zmtp.frames import Batch, Decoder

ID = bytes(range(16))


def read(outgoing: Outgoing) -> list[Zeps]:
    """Return the messages that go out, decoded."""
    frames = []
    for item in Decoder(1 << 30, 1 << 30).feed(outgoing.octets):
        assert isinstance(item, Batch)
        frames += item.frames
    assert frames == outgoing.bodies
    return [Zeps.decode(frame) for frame in frames]


class Wire:
    """A connection to a broker that journals messages at once, and answers PINGs when the test says so."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.journal: list[tuple[str, bytes]] = []
        self.pings = 0

    def send(self, now: float = 0.0, most: int = 1_000_000) -> int:
        """Send up to `most` times, and return how many times there was something to send."""
        sent = 0
        while sent < most and (outgoing := self.publisher.next_outgoing(now)) is not None:
            waits = self.publisher.mark_sent(outgoing, now)
            assert waits == (self.publisher.next_outgoing(now) is not None)  # the connection does not ask again
            sent += 1
            for message in read(outgoing):
                if isinstance(message, Publish):
                    self.journal.append((message.key, message.body))
                else:
                    assert isinstance(message, Ping)
                    self.pings += 1
        return sent

    def answer(self) -> None:
        assert self.pings
        self.pings -= 1
        self.publisher.ping_answered()

    def lose(self) -> None:
        self.pings = 0
        self.publisher.connection_lost()
        self.publisher.begin()


def test_a_message_goes_out_as_the_grammar_says() -> None:
    publisher = Publisher(ID)
    wire = Wire(publisher)
    given: list[tuple[str | bytes, bytes]] = [
        ("tea", b"4.20"),
        ("", b""),
        ("k" * 255, b"x" * 300),
        ("caf\u00e9", b"\xaa\xa5\x06"),
        (b"\xff", b"1"),
    ]
    for key, body in given:
        assert publisher.publish(key, body)
    publisher.collect()
    wire.send()
    assert wire.journal == [
        ("tea", b"4.20"),
        ("", b""),
        ("k" * 255, b"x" * 300),
        ("caf\u00e9", b"\xaa\xa5\x06"),
        ("\udcff", b"1"),
    ]
    assert publisher.counters.published == 5
    assert publisher.unconfirmed == 5


@given(st.lists(st.tuples(st.text(max_size=8), st.binary(max_size=400)), max_size=60))
def test_many_are_the_same_as_one_by_one(items: list[tuple[str, bytes]]) -> None:
    one, many = Publisher(ID), Publisher(ID)
    for key, body in items:
        assert one.publish(key, body)
    one.collect()
    assert many.publish_many(items, 0) == len(items)
    wires = [Wire(one), Wire(many)]
    for wire in wires:
        wire.send()
    assert wires[0].journal == wires[1].journal == items
    assert one.unconfirmed_bytes == many.unconfirmed_bytes


@pytest.mark.parametrize(
    ("key", "body"), [("k" * 256, b""), (b"k" * 256, b""), (7, b""), ("\ud800", b""), ("k", b"x" * 100)]
)
def test_wrong_messages_raise_at_once(key: Any, body: bytes) -> None:
    publisher = Publisher(ID, largest=64)
    with pytest.raises(ZepsError):
        publisher.publish(key, body)
    assert publisher.unconfirmed == 0


@pytest.mark.parametrize("options", [{"bound": 0}, {"on_full": "maybe"}])
def test_options_that_mean_nothing_are_refused(options: Any) -> None:
    with pytest.raises(ZepsError):
        Publisher(ID, **options)


def test_a_ping_ok_confirms_all_before_its_ping_and_nothing_after() -> None:
    publisher = Publisher(ID)
    wire = Wire(publisher)
    publisher.publish("k", b"1")
    barrier = publisher.request_confirmation()
    wire.send()
    assert wire.pings == 1
    publisher.publish("k", b"2")
    publisher.collect()
    wire.send()
    assert not publisher.check_confirmed(barrier)
    wire.answer()
    assert publisher.check_confirmed(barrier)
    assert publisher.unconfirmed == 1
    assert publisher.counters.confirmed == 1


def test_a_ping_ok_without_a_ping_confirms_nothing() -> None:
    publisher = Publisher(ID)
    publisher.publish("k", b"1")
    publisher.collect()
    Wire(publisher).send()
    publisher.ping_answered()
    assert publisher.unconfirmed == 1


def test_a_barrier_with_nothing_before_it_is_confirmed() -> None:
    publisher = Publisher(ID)
    assert publisher.check_confirmed(publisher.request_confirmation())
    assert publisher.next_outgoing(0.0) is None


def test_a_second_barrier_with_nothing_new_needs_no_second_ping() -> None:
    publisher = Publisher(ID)
    wire = Wire(publisher)
    publisher.publish("k", b"1")
    barriers = [publisher.request_confirmation()]
    wire.send()
    barriers.append(publisher.request_confirmation())
    wire.send()
    assert wire.pings == 1
    wire.answer()
    assert all(publisher.check_confirmed(barrier) for barrier in barriers)


def test_it_asks_by_itself_when_something_has_waited_long_enough() -> None:
    publisher = Publisher(ID)
    wire = Wire(publisher)
    publisher.publish("k", b"1")
    publisher.collect()
    assert [publisher.deadline] == [None]
    wire.send(now=10.0)
    assert [publisher.deadline] == [10.0 + PING_SECONDS]
    assert wire.send(now=10.0 + PING_SECONDS / 2) == 0
    wire.send(now=10.0 + PING_SECONDS)
    assert wire.pings == 1
    # While one PING is unanswered, time alone causes no other.
    publisher.publish("k", b"2")
    publisher.collect()
    wire.send(now=11.0)
    wire.send(now=99.0)
    assert wire.pings == 1
    wire.answer()
    assert [publisher.deadline] == [11.0 + PING_SECONDS]
    wire.send(now=99.0)
    assert wire.pings == 1


def test_it_sends_pings_after_so_many_bytes_and_a_few_at_a_time() -> None:
    publisher = Publisher(ID, bound=1 << 30)
    wire = Wire(publisher)
    publisher.publish_many([("k", bytes(1000))] * (3 * PINGS * PING_OCTETS // 1000), 0)
    wire.send()
    assert wire.pings == PINGS
    wire.answer()
    wire.send()
    assert wire.pings == PINGS, "what came after is asked for when there is room for one more PING"


def test_with_a_small_bound_it_sends_more_pings() -> None:
    small, usual = (Wire(Publisher(ID, bound=bound)) for bound in (8 * PING_LEAST, BOUND))
    for wire in (small, usual):
        wire.publisher.publish_many([("k", bytes(1000))] * (2 * PING_LEAST // 1000), 0)
        wire.send()
    assert (small.pings, usual.pings) == (1, 0)


@pytest.mark.parametrize("sizes", [[1024], [100], [1, 3000, 70_000], [0]])
def test_messages_of_one_call_fill_parcels_of_the_size_that_the_broker_reads(sizes: list[int]) -> None:
    publisher = Publisher(ID, bound=1 << 30)
    wire = Wire(publisher)
    items = [("k", bytes(size)) for size in sizes * (1000 // len(sizes))]
    assert publisher.publish_many(items, 0) == len(items)
    octets = publisher.unconfirmed_bytes
    sends = wire.send()
    assert octets / PARCEL <= sends <= 2 * octets / PARCEL + 1
    assert wire.journal == items


def test_many_small_posts_are_parcels_of_about_one_size() -> None:
    publisher = Publisher(ID)
    publisher.posting = True
    assert all(publisher.post("k", bytes(POST)) for _ in range(POSTS))
    publisher.collect()
    wire = Wire(publisher)
    assert wire.send() == 3
    assert len(wire.journal) == POSTS


@pytest.mark.spec("ZEP-15")
def test_unconfirmed_messages_are_sent_again_in_order() -> None:
    publisher = Publisher(ID)
    wire = Wire(publisher)
    publisher.publish("k", b"1")
    publisher.request_confirmation()
    wire.send()
    wire.answer()
    for body in (b"2", b"3"):
        publisher.publish("k", body)
        publisher.collect()
        wire.send()
    barrier = publisher.request_confirmation()
    wire.send()
    wire.lose()
    publisher.publish("k", b"4")
    publisher.collect()
    assert not publisher.check_confirmed(barrier)
    wire.send()
    assert [body for _, body in wire.journal] == [b"1", b"2", b"3", b"2", b"3", b"4"]
    assert publisher.counters.republished == 2
    wire.answer()
    assert publisher.check_confirmed(barrier)


@pytest.mark.spec("ZEP-15")
def test_at_the_bound_it_waits() -> None:
    publisher = Publisher(ID, bound=100)
    wire = Wire(publisher)
    taken = 0
    while publisher.publish("k", b"x" * 20):
        taken += 1
    assert taken == 3
    assert publisher.unconfirmed_bytes <= 100
    wire.send()
    assert wire.pings == 1, "who waits needs somebody to ask"
    assert not publisher.publish("k", b"x" * 20)
    wire.answer()
    assert publisher.publish("k", b"x" * 20)
    assert len(wire.journal) == 3


def test_a_message_beyond_the_bound_goes_alone() -> None:
    publisher = Publisher(ID, bound=100)
    assert publisher.publish("k", bytes(500))
    assert not publisher.publish("k", b"")


def test_many_stop_at_the_bound_and_go_on() -> None:
    publisher = Publisher(ID, bound=1000)
    wire = Wire(publisher)
    items = [("k", b"%04d" % number) for number in range(500)]
    done = publisher.publish_many(items, 0)
    assert 0 < done < 500
    assert publisher.unconfirmed_bytes <= 1000
    while done < 500:
        wire.send()
        wire.answer()
        more = publisher.publish_many(items, done)
        assert more > done
        done = more
    wire.send()
    assert wire.journal == items


@pytest.mark.spec("ZEP-15")
def test_at_the_bound_it_raises_with_on_full_raise() -> None:
    publisher = Publisher(ID, bound=100, on_full="raise")
    with pytest.raises(QueueFull, match="the first 3 of 10"):
        publisher.publish_many([("k", b"x" * 20)] * 10, 0)
    with pytest.raises(QueueFull, match="bound is 100"):
        publisher.publish("k", b"x" * 20)
    assert publisher.unconfirmed == 3


def test_without_waiting_a_full_queue_raises() -> None:
    publisher = Publisher(ID, bound=100)
    publisher.publish("k", b"x" * 80)
    with pytest.raises(QueueFull):
        publisher.publish("k", b"x" * 80, wait=False)


@pytest.mark.spec("ZEP-15")
def test_at_the_bound_it_drops_the_oldest_with_on_full_drop_oldest_and_counts() -> None:
    publisher = Publisher(ID, bound=100, on_full="drop-oldest")
    for number in range(10):
        assert publisher.publish("k", b"%020d" % number)
    publisher.collect()
    wire = Wire(publisher)
    wire.send()
    assert [int(body) for _, body in wire.journal] == [7, 8, 9]
    assert publisher.counters.dropped == 7
    # The sent message is the oldest now; a flush does not wait for dropped messages.
    barrier = publisher.request_confirmation()
    for number in range(10, 14):
        publisher.publish("k", b"%020d" % number)
    publisher.collect()
    assert publisher.check_confirmed(barrier)
    assert publisher.unconfirmed_bytes <= 100


def test_a_refusal_is_raised_to_all_waiting_callers_once() -> None:
    publisher = Publisher(ID)
    wire = Wire(publisher)
    publisher.publish("k", b"1")
    barriers = [publisher.request_confirmation(), publisher.request_confirmation()]
    wire.send()
    publisher.note_refusal("you may not")
    for barrier in barriers:
        with pytest.raises(BrokerError, match="you may not"):
            publisher.check_confirmed(barrier)
    wire.answer()
    assert publisher.check_confirmed(publisher.request_confirmation())
    assert publisher.counters.refused == 1


def test_a_request_after_a_refusal_is_answered() -> None:
    """The broker may have refused the PING: then no PING-OK comes."""
    publisher = Publisher(ID)
    wire = Wire(publisher)
    publisher.publish("k", b"1")
    publisher.request_confirmation()
    wire.send()
    publisher.note_refusal("the stream is stopped")
    assert wire.send() == 0, "nobody asks again by itself"
    with pytest.raises(BrokerError):
        publisher.check_confirmed(publisher.request_confirmation())
    publisher.request_confirmation()
    wire.send()
    assert wire.pings == 2


def test_small_messages_that_wait_share_their_parcels() -> None:
    publisher = Publisher(ID)
    for _ in range(1000):
        publisher.publish("k", b"")
        publisher.collect()
    assert len(publisher._waiting) < 10
    assert publisher.unconfirmed == 1000


def test_a_post_is_accepted_only_while_the_connection_will_collect() -> None:
    publisher = Publisher(ID)
    assert not publisher.post("k", b"1")
    publisher.posting = True
    assert publisher.post("k", b"1")
    assert not publisher.post("k", bytes(POST + 1))
    assert not publisher.post("k", bytearray(b"1"))  # type: ignore[arg-type]
    publisher.posting = False
    assert publisher.unconfirmed == 1
    assert not publisher.take_back(bytes(1000))


def test_posts_are_bounded() -> None:
    publisher = Publisher(ID)
    publisher.posting = True
    taken = 0
    while publisher.post("k", b"1"):
        taken += 1
    assert taken == POSTS
    assert not Publisher(ID, bound=POSTS * POST).has_room_to_post


def test_a_post_that_came_too_late_is_taken_back() -> None:
    publisher = Publisher(ID)
    publisher.posting = True
    first, second = bytes(bytearray(b"first")), bytes(bytearray(b"second"))
    publisher.post("k", first)
    publisher.post("k", second)
    assert publisher.take_back(first)
    assert not publisher.take_back(first)
    publisher.collect()
    wire = Wire(publisher)
    wire.send()
    assert wire.journal == [("k", b"second")]


def test_threads_that_post_lose_nothing_to_one_that_collects() -> None:
    publisher = Publisher(ID, bound=1 << 30)
    publisher.posting = True
    wire = Wire(publisher)
    each = 5_000

    def flood(name: str) -> None:
        for number in range(each):
            while not publisher.post(name, b"%d" % number):
                pass

    threads = [threading.Thread(target=flood, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        publisher.collect()
    publisher.collect()
    wire.send()
    for name in "ab":
        assert [int(body) for key, body in wire.journal if key == name] == list(range(each))


def test_the_memory_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishers, "PREFIXES", 50)
    publisher = Publisher(ID, bound=1 << 30)
    items = [(f"key {number}", b"x" * (number % 7)) for number in range(1000)]
    for key, body in items:
        publisher.publish(key, body)
        assert sum(map(len, publisher.prefixes.values())) <= 51
    publisher.collect()
    wire = Wire(publisher)
    wire.send()
    assert wire.journal == items


STEPS = st.lists(
    st.sampled_from(["publish", "publish", "many", "collect", "send", "send", "answer", "lose", "flush", "time"]),
    max_size=80,
)


@given(STEPS, st.sampled_from([60, 400, 1 << 20]))
def test_all_accepted_messages_arrive_in_order_for_any_events(steps: list[str], bound: int) -> None:
    """Each message arrives; only messages that were not confirmed when a connection broke are repeated, in order."""
    publisher = Publisher(ID, bound=bound)
    wire = Wire(publisher)
    taken: list[int] = []
    now = 0.0
    for step in steps:
        if step == "publish" and publisher.publish("k", b"%06d" % len(taken)):
            taken.append(len(taken))
        elif step == "many":
            items = [("k", b"%06d" % (len(taken) + number)) for number in range(20)]
            for _ in range(publisher.publish_many(items, 0)):
                taken.append(len(taken))
        elif step == "collect":
            publisher.collect()
        elif step == "send":
            wire.send(now, 1)
        elif step == "answer" and wire.pings:
            arrived = {int(body) for _, body in wire.journal}
            wire.answer()
            left = publisher.unconfirmed
            assert set(taken[: len(taken) - left]) <= arrived
        elif step == "lose":
            wire.lose()
        elif step == "flush":
            publisher.request_confirmation()
        elif step == "time":
            now += PING_SECONDS
        assert publisher.unconfirmed_bytes <= bound
    barrier = publisher.request_confirmation()
    while not publisher.check_confirmed(barrier):
        wire.send(now)
        wire.answer()
    assert publisher.unconfirmed_bytes == 0
    assert publisher.counters.confirmed == publisher.counters.published == len(taken)
    seen = [int(body) for _, body in wire.journal]
    firsts = [number for index, number in enumerate(seen) if number not in seen[:index]]
    assert firsts == taken
    assert len(seen) - len(taken) <= publisher.counters.republished


def test_the_bodies_of_an_outgoing_parcel() -> None:
    outgoing = Outgoing([Parcel(1, 1, b"\x00\x01a"), Parcel(2, 2, b"\x00\x01b\x02" + bytes(7) + b"\x01c")], ping=True)
    assert outgoing.bodies == [b"a", b"b", b"c", publishers.PING]
