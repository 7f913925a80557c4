"""zambezi.mcollective.pressure: senders wait for a client with a full queue, for a time."""

from __future__ import annotations

from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.pressure import Pressure
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
    assert jams.drained(slow, 501) == []
    assert jams.reserved == 0
    assert jams.drained(slow, 500) == [ann, bob]
    assert (ann.paused, bob.paused, len(jams), jams.deadline) == (False, False, 0, float("inf"))
    assert jams.drained(slow, 0) == []


def test_a_client_that_does_not_read_in_time_misses_messages_and_no_sender_waits() -> None:
    jams, slow, ann = pressure(), client(b"slow"), client(b"ann")
    assert jams.accept(slow, 1000, ann, 10.0)
    assert jams.due(14.9) == []
    assert jams.due(15.0) == [ann]
    assert jams.deadline == float("inf")
    assert not jams.accept(slow, 1500, ann, 16.0)
    assert not ann.paused
    assert jams.drained(slow, 600) == []
    assert not jams.accept(slow, 1000, ann, 17.0)
    assert jams.drained(slow, 400) == []  # it has read, and gets time again
    assert jams.accept(slow, 1000, ann, 18.0)


def test_a_sender_waits_for_all_clients_that_it_sent_to() -> None:
    jams, one, other, ann = pressure(), client(b"one"), client(b"other"), client(b"ann")
    assert jams.accept(one, 1000, ann, 10.0)
    assert jams.accept(other, 1000, ann, 11.0)
    assert jams.drained(one, 0) == []
    assert jams.due(15.0) == []
    assert jams.due(16.0) == [ann]


def test_clients_that_leave() -> None:
    jams, slow, ann, bob = pressure(), client(b"slow"), client(b"ann"), client(b"bob")
    for sender in (ann, bob):
        assert jams.accept(slow, 2000, sender, 10.0)
    assert jams.closed(ann) == []
    assert jams.closed(slow) == [bob]
    assert (len(jams), jams.reserved) == (0, 0)
    assert jams.closed(slow) == []


def test_the_reserve_is_shared_and_a_message_without_a_sender_has_none() -> None:
    jams, one, other, ann = pressure(reserve=500), client(b"one"), client(b"other"), client(b"ann")
    assert not jams.accept(one, 1000, None, 10.0)
    assert jams.accept(one, 1600, ann, 10.0)
    assert not jams.accept(other, 1000, ann, 10.0)
    assert jams.give_up(other) == []
    jams.drained(other, 0)
    jams.drained(one, 900)
    assert jams.accept(other, 1000, ann, 10.0)


def test_a_client_that_subscribes_to_its_own_messages_waits_for_itself() -> None:
    jams, ann = pressure(), client(b"ann")
    assert jams.accept(ann, 1000, ann, 10.0)
    assert jams.due(15.0) == [ann]
    assert jams.closed(ann) == []
