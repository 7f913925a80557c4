"""zambezi.mcollective.register: records of sessions that outlive their connection, within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zambezi.mcollective import register as module
from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.register import RETURN_TIME, Record, Register
from zambezi.mcollective.session import Session
from zambezi.mcollective.vigil import EXPIRY

if TYPE_CHECKING:
    import pytest

RUBY = b"node3 21840 #<Thread:0x000055d0c1f0a1b8 run>"
AGAIN = b"node3 21840 #<Thread:0x000055d0c1f0ffff run>"


def client(register: Register, identity: bytes = b"me", user: str = "", now: float = 100.0) -> Session:
    session = Session(None, identity, user, "", now)
    register.begin(session, 10.0)
    return session


def test_a_client_that_lost_its_connection_is_absent_until_its_ttl_is_over() -> None:
    register = Register(Bounds())
    session = client(register)
    register.subscribed(session, {b"a": 0, b"b": 7})
    register.unsubscribed(session, [b"a", b"unknown"])
    assert (len(register), register.absent) == (1, 0)
    register.connection_lost(session)
    assert (len(register), register.absent, session.record) == (1, 1, None)
    record = register.find("", b"me", 100.0 + EXPIRY * 10 - 0.1)
    assert record is not None
    assert (record.topics, record.ttl, record.user) == ({b"b": 7}, 10.0, "")
    assert register.find("", b"me", 100.0 + EXPIRY * 10) is None
    assert (len(register), register.absent, register.bytes) == (0, 0, 0)


def test_an_identity_belongs_to_its_user() -> None:
    register = Register(Bounds())
    session = client(register, user="ann")
    register.subscribed(session, {b"a": 0})
    register.connection_lost(session)
    assert register.find("", b"me", 101.0) is None
    assert register.find("bob", b"me", 101.0) is None
    assert register.find("ann", b"me", 101.0) is not None


def test_a_client_without_topics_or_with_an_identity_of_ours_cannot_come_back() -> None:
    register = Register(Bounds())
    for session in (client(register), client(register, b"\0\1\2\3\4"), client(register, b"")):
        register.connection_lost(session)
    assert len(register) == register.absent == 0


def test_a_session_that_goes_on_has_the_record_again() -> None:
    register = Register(Bounds())
    session = client(register)
    register.subscribed(session, {b"a": 0})
    session.sequence = 5
    register.advance(session)
    register.connection_lost(session)
    record = register.find("", b"me", 101.0)
    assert record is not None
    assert record.position == 5
    back = Session(None, b"me", "", "", 101.0)
    register.revive(record, back)
    assert back.record is record
    assert register.find("", b"me", 101.0) is None
    register.end(back)
    assert len(register) == register.bytes == 0


def test_the_ruby_connector_comes_back_under_another_identity() -> None:
    register = Register(Bounds())
    session = client(register, RUBY)
    register.subscribed(session, {b"a": 3, b"b": 9})
    session.sequence = 5
    register.advance(session)
    register.connection_lost(session)
    for stranger in (b"node3 21840 other", b"node3 1 #<Thread:0x0 run>", b"node4 21840 #<Thread:0x0 run>"):
        assert register.find_predecessor(Session(None, stranger, "", "", 101.0), 101.0) is None
    successor = Session(None, AGAIN, "", "", 101.0)
    record = register.find_predecessor(successor, 101.0)
    assert record is not None
    assert register.take_over(record, (b"a", b"c")) == {b"a": 5}
    assert register.take_over(record, (b"a", b"b")) == {b"b": 9}
    assert len(register) == register.bytes == 0
    assert register.find_predecessor(successor, 101.0) is None


def test_after_disconnect_a_ruby_connector_has_an_heir_for_some_seconds_and_others_have_none() -> None:
    register = Register(Bounds())
    for identity in (RUBY, b"me"):
        session = client(register, identity)
        register.subscribed(session, {b"a": 0})
        register.disconnected(session, 200.0)
    assert register.absent == 1
    assert register.find("", RUBY, 201.0) is None  # it does not go on without CONNECT
    successor = Session(None, AGAIN, "", "", 201.0)
    assert register.find_predecessor(successor, 200.0 + RETURN_TIME - 0.1) is not None
    assert register.find_predecessor(successor, 200.0 + RETURN_TIME) is None


def test_the_register_is_bounded_in_bytes_and_the_oldest_absent_client_is_forgotten() -> None:
    register = Register(Bounds(register_bytes=10_000))
    for number in range(1000):
        session = client(register, b"%d" % number)
        register.subscribed(session, {b"topic": 0})
        register.connection_lost(session)
        assert register.bytes < 11_000
    assert 0 < register.absent < 100
    assert register.find("", b"0", 100.0) is None
    assert register.find("", b"999", 100.0) is not None
    live = [client(register, b"live %d" % number) for number in range(1000)]
    assert register.unregistered > 0
    assert register.bytes < 11_000
    for session in live:
        register.end(session)


def test_a_client_with_too_many_topics_has_no_record() -> None:
    register = Register(Bounds(register_bytes=10_000))
    session = client(register)
    register.subscribed(session, {b"%d" % number: 0 for number in range(1000)})
    assert (session.record, len(register), register.bytes, register.unregistered) == (None, 0, 0, 1)
    register.subscribed(session, {b"a": 0})
    register.unsubscribed(session, [b"a"])
    register.advance(session)
    register.connection_lost(session)


def test_slots_are_used_again_and_there_are_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOTS", 3)
    register = Register(Bounds())
    sessions = [client(register, b"%d" % number) for number in range(5)]
    assert [session.record.slot if session.record else None for session in sessions] == [0, 1, 2, None, None]
    register.end(sessions[1])
    again = client(register, b"again")
    assert again.record is not None
    assert again.record.slot == 1


def test_restored_records_are_absent_and_expire() -> None:
    register = Register(Bounds())
    records = [Record(9, "", b"%d" % number, True, 10.0) for number in range(3)]
    for record in records:
        record.join({b"a": 0})
        record.until = 100.0
    records[2].until = 50.0
    register.restore(records)
    assert (register.absent, sorted(register.records)) == (3, [0, 1, 2])
    register.expire(50.0)
    assert register.absent == 2
    register.expire(100.0)
    assert len(register) == register.bytes == 0
