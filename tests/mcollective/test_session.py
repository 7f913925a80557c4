"""zambezi.mcollective.session: a client is new until it says CONNECT, and small."""

from __future__ import annotations

from zambezi.mcollective.outputs import Send
from zambezi.mcollective.session import PendingAnswer, Session, State, Topic


def test_a_new_client_is_present_and_has_nothing() -> None:
    session = Session("connection", b"me", "ann", "10.0.0.1", 5.0)
    assert (session.state, session.present, session.open, session.ttl) == (State.NEW, True, True, None)
    assert (session.heard, session.said, session.scheduled) == (5.0, 5.0, float("inf"))
    assert not any((session.topics, session.replays, session.pending, session.held))
    assert repr(session) == "<Session b'me' new, 0 topics>"


def test_held_messages_can_be_dropped() -> None:
    session = Session(None, b"me", "", "", 0.0)
    session.held.append(Send(session, (b"x",)))
    session.held_bytes = 1
    session.drop_held()
    assert (session.held, session.held_bytes) == ([], 0)


def test_there_can_be_many_of_them() -> None:
    for each in (
        Session(None, b"", "", "", 0.0),
        Topic(b"a", False, Session(None, b"", "", "", 0.0)),
        PendingAnswer(b"1"),
    ):
        assert not hasattr(each, "__dict__")


def test_a_pending_answer_has_no_frames() -> None:
    answer = PendingAnswer(b"7")
    assert (answer.id, answer.frames) == (b"7", ())
