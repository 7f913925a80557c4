"""zambezi.zre.unread: when a node stops reading from its peers, and when it reads again."""

from uuid import UUID

import pytest

from zambezi.zre import unread
from zambezi.zre.events import Event, Whisper
from zambezi.zre.unread import Unread

BOB = UUID(int=0x0B)


def whisper(size: int) -> Event:
    return Whisper(BOB, "bob", (bytes(size - 1), b"x"))


def test_too_many_bytes_hold_the_peers_back_until_all_is_read() -> None:
    events = Unread(most=1000)
    for _ in range(10):
        events.note(100)
        events.append(whisper(100))
        assert not events.hold_back()
    events.note(1)
    events.append(whisper(1))
    assert events.hold_back()
    for _ in range(11):
        assert not events.release()
        events.popleft()
    assert events.release()
    assert not events.held_back
    assert not events.hold_back()


def test_too_many_events_hold_the_peers_back_until_half_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "EVENTS_WAITING", 10)
    events = Unread(most=1000)
    for _ in range(10):
        assert not events.hold_back()
        events.append(whisper(1))
    assert events.hold_back()
    for _ in range(5):
        assert not events.release()
        events.popleft()
    assert events.release()


def test_bytes_that_were_no_events_for_the_program_do_not_hold_the_peers_back() -> None:
    events = Unread(most=1000)
    events.note(5000)  # PINGs and their answers
    assert not events.hold_back()
