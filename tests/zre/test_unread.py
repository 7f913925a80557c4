"""zambezi.zre.unread: when a node stops reading from its peers, and when it reads again."""

from uuid import UUID

import pytest

from zambezi.zre import unread
from zambezi.zre.events import Enter, Event, Whisper
from zambezi.zre.unread import Unread

BOB = UUID(int=0x0B)


def whisper(size: int) -> Event:
    return Whisper(BOB, "bob", (bytes(size - 1), b"x"))


def test_too_many_bytes_hold_the_peers_back_until_half_is_read() -> None:
    events = Unread(most=1000)
    for _ in range(10):
        events.put(whisper(100))
        assert not events.hold_back()
    events.put(Enter(BOB, "bob", "tcp://10.0.0.2:1", {}))
    events.put(whisper(1))
    assert events.hold_back()
    taken = 0
    while not events.release():
        events.take()
        taken += 1
    assert taken == 6
    assert not events.release()
    assert not events.hold_back()


def test_too_many_events_hold_the_peers_back_until_half_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "EVENTS_WAITING", 10)
    events = Unread(most=1000)
    for _ in range(10):
        assert not events.hold_back()
        events.put(whisper(1))
    assert events.hold_back()
    for _ in range(5):
        assert not events.release()
        events.take()
    assert events.release()
    assert not events.release()


def test_a_message_above_the_bound_is_taken_if_nothing_else_waits() -> None:
    events = Unread(most=1000)
    events.put(whisper(5000))
    assert events.hold_back()
    assert events.take() == whisper(5000)
    assert events.release()
