"""zambezi.zre.events: values that a program can compare, store and match."""

from uuid import UUID

import pytest

from zambezi.zre.events import Enter, Evasive, Event, Exit, Join, Leave, Shout, Silent, Whisper

BOB = UUID(int=0x0B)
ALL: list[Event] = [
    Enter(BOB, "bob", "tcp://10.0.0.2:1", {"X-A": "1"}),
    Exit(BOB, "bob", "it left"),
    Join(BOB, "bob", "A"),
    Leave(BOB, "bob", "A"),
    Whisper(BOB, "bob", (b"x",)),
    Shout(BOB, "bob", "A", (b"x",)),
    Evasive(BOB, "bob"),
    Silent(BOB, "bob"),
]


@pytest.mark.parametrize("event", ALL, ids=lambda event: type(event).__name__)
def test_an_event_says_which_peer_it_is_about_and_is_a_value(event: Event) -> None:
    assert (event.peer, event.name) == (BOB, "bob")
    assert [other for other in ALL if other == event] == [event]
    assert len({*ALL, event}) == len(ALL)  # also with headers, which cannot be hashed
    with pytest.raises(AttributeError):
        event.name = "eve"  # type: ignore[misc]


@pytest.mark.parametrize(("frames", "data"), [((), b""), ((b"one",), b"one"), ((b"one", b"two"), b"onetwo")])
def test_the_frames_of_a_message_can_be_read_as_one(frames: tuple[bytes, ...], data: bytes) -> None:
    assert Whisper(BOB, "bob", frames).data == Shout(BOB, "bob", "A", frames).data == data
