"""zambezi.mcollective.pressure: senders wait for a client with a full queue, for a time."""

from __future__ import annotations

from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.pressure import REFILL, Pressure
from zambezi.mcollective.session import Session

BOUND = 1000


def client(name: bytes) -> Session:
    return Session(None, name, "", "", 0.0)


def pressure(reserve: int = 10_000) -> Pressure:
    return Pressure(Bounds(reading_time=5.0, reserve_bytes=reserve), BOUND)


def test_senders_wait_until_half_of_the_queue_is_read() -> None:
    jams, slow, ann, bob = pressure(), client(b"slow"), client(b"ann"), client(b"bob")
    assert jams.accept(slow, 1000, ann, 10.0)
    assert jams.accept(slow, 1600, ann, 10.1)
    assert jams.accept(slow, 2200, bob, 10.2)
    assert (ann.paused, bob.paused, jams.reserved, jams.deadline) == (True, True, 1200, 15.0)
    assert jams.drained(slow, 501, 11.0) == []
    assert jams.reserved == 0
    assert jams.drained(slow, 500, 11.0) == [ann, bob]
    assert (ann.paused, bob.paused, len(jams), jams.deadline) == (False, False, 0, float("inf"))
    assert jams.drained(slow, 0, 11.0) == []


def test_a_client_that_does_not_read_in_time_misses_messages_and_no_sender_waits() -> None:
    jams, slow, ann = pressure(), client(b"slow"), client(b"ann")
    assert jams.accept(slow, 1000, ann, 10.0)
    assert jams.due(14.9) == []
    assert jams.due(15.0) == [ann]
    assert jams.deadline == float("inf")
    assert not jams.accept(slow, 1500, ann, 16.0)
    assert not ann.paused
    assert jams.drained(slow, 600, 16.0) == []
    assert not jams.accept(slow, 1000, ann, 17.0)
    assert jams.drained(slow, 400, 18.0) == []  # it has read, and gets some time again
    assert jams.accept(slow, 1000, ann, 18.0)


def test_a_sender_waits_for_all_clients_that_it_sent_to() -> None:
    jams, one, other, ann = pressure(), client(b"one"), client(b"other"), client(b"ann")
    assert jams.accept(one, 1000, ann, 10.0)
    assert jams.accept(other, 1000, ann, 11.0)
    assert jams.drained(one, 0, 12.0) == []
    assert jams.due(15.0) == []
    assert jams.due(16.0) == [ann]


def test_clients_that_leave() -> None:
    jams, slow, ann, bob = pressure(), client(b"slow"), client(b"ann"), client(b"bob")
    for sender in (ann, bob):
        assert jams.accept(slow, 2000, sender, 10.0)
    assert jams.closed(ann, 11.0) == []
    assert jams.closed(slow, 11.0) == [bob]
    assert (len(jams), jams.reserved) == (0, 0)
    assert jams.closed(slow, 11.0) == []


def test_the_reserve_is_shared_and_a_message_without_a_sender_has_none() -> None:
    jams, one, other, ann = pressure(reserve=500), client(b"one"), client(b"other"), client(b"ann")
    assert not jams.accept(one, 1000, None, 10.0)
    assert jams.accept(one, 1600, ann, 10.0)
    assert not jams.accept(other, 1000, ann, 10.0)
    assert jams.give_up(other, 10.0) == []
    jams.drained(other, 0, 10.0)
    jams.drained(one, 900, 10.0)
    assert jams.accept(other, 1000, ann, 10.0)


def test_a_client_that_subscribes_to_its_own_messages_waits_for_itself() -> None:
    jams, ann = pressure(), client(b"ann")
    assert jams.accept(ann, 1000, ann, 10.0)
    assert jams.due(15.0) == [ann]
    assert jams.closed(ann, 11.0) == []


def stall(jams: Pressure, slow: Session, sender: Session, seconds: float) -> float:
    """Let the queue of a client be filled and read by turns, for a time; return how long its sender waited.

    It reads half of its queue in two seconds, and that is full again after a tenth of a second.
    """
    waited, now, end = 0.0, 0.0, seconds
    while now < end:
        if not jams.accept(slow, BOUND, sender, now):
            jams.give_up(slow, now)
        freed = min(now + 2.0, jams.deadline)
        if sender.paused:
            waited += freed - now
        jams.due(freed)
        jams.drained(slow, BOUND // 2, now + 2.0)
        assert not sender.paused
        now += 2.1
    return waited


def test_a_client_that_reads_just_fast_enough_cannot_hold_its_senders_for_ever() -> None:
    jams, slow, ann = pressure(), client(b"slow"), client(b"ann")
    assert stall(jams, slow, ann, 60.0) <= 5.0 + 60.0 / REFILL
    assert stall(jams, slow, ann, 600.0) <= 5.0 + 600.0 / REFILL


def test_a_client_that_was_slow_once_has_its_whole_time_again_after_a_minute() -> None:
    jams, slow, ann = pressure(), client(b"slow"), client(b"ann")
    assert jams.accept(slow, 1000, ann, 10.0)
    assert jams.due(15.0) == [ann]
    jams.drained(slow, 0, 15.0)
    assert jams.accept(slow, 1000, ann, 75.0)
    assert jams.deadline == 80.0


def test_many_slow_clients_one_after_the_other_cannot_hold_a_sender_for_ever() -> None:
    """A client that connects again is a new one, with a new allowance; the sender's own is used up."""
    jams, ann = pressure(), client(b"ann")
    waited, now = 0.0, 0.0
    for number in range(100):
        slow = client(b"%d" % number)
        if not jams.accept(slow, 1000, ann, now):
            jams.give_up(slow, now)
        freed = min(now + 5.0, jams.deadline)
        if ann.paused:
            waited += freed - now
        jams.due(freed)
        assert not ann.paused
        now += 5.0
        jams.closed(slow, now)
    assert waited <= 15.0 + now / REFILL


def test_a_client_in_many_short_jams_takes_no_memory_for_them() -> None:
    jams, slow, ann = pressure(), client(b"slow"), client(b"ann")
    for _ in range(1000):
        assert jams.accept(slow, 1000, ann, 10.0)
        assert jams.drained(slow, 0, 10.0) == [ann]
    assert len(jams._times) < 20
