"""zambezi.mcollective.events: values, among the events of all sockets."""

import pytest

from zambezi.mcollective.events import (
    CaughtUp,
    ClientConnected,
    ClientEvent,
    ClientGone,
    CommandDenied,
    Complaint,
    SessionLost,
    SessionReady,
    SlowSubscriber,
)
from zambezi.zmtp.events import SocketEvent

WHERE = "tcp://127.0.0.1:1"
OF_CLIENTS: list[ClientEvent] = [
    ClientConnected(WHERE, b"me", "ann", "0.2", 30.0),
    ClientGone(WHERE, b"me", "ann", "it said DISCONNECT"),
    CommandDenied(WHERE, b"me", "ann", "PUT", b"a"),
    SlowSubscriber(WHERE, b"me", "ann", b"a"),
    CaughtUp(WHERE, b"me", "ann", 3),
]
ALL: list[SocketEvent] = [*OF_CLIENTS, SessionReady(WHERE, False), SessionLost(WHERE, "x"), Complaint(WHERE, "x")]


@pytest.mark.parametrize("event", ALL, ids=lambda event: type(event).__name__)
def test_an_event_has_an_endpoint_and_is_a_value(event: SocketEvent) -> None:
    assert event.endpoint == WHERE
    assert [other for other in ALL if other == event] == [event]
    assert len({*ALL, event}) == len(ALL)


@pytest.mark.parametrize("event", OF_CLIENTS, ids=lambda event: type(event).__name__)
def test_an_event_about_a_client_says_which_one_it_is(event: ClientEvent) -> None:
    assert (event.identity, event.user) == (b"me", "ann")
