"""zambezi.mcollective.quota: no client, user or address takes the topics of all."""

from __future__ import annotations

from tests.mcollective.stage import Client, E, Stage
from zambezi.mcollective.archive import MemoryArchive
from zambezi.mcollective.bounds import Bounds


def client(stage: Stage, user: str = "", address: str = "10.0.0.1") -> Client:
    made = stage.client(b"client", user)
    made.session.address = address
    return made


def refused(who: Client, *topics: bytes) -> str:
    """Subscribe; return the error, or an empty text."""
    (answer,) = who.say(E, b"SUB", b"ID", b"1", E, *topics)
    return "" if answer[1] == b"OK" else answer[-1].decode()


def names(start: int, count: int) -> list[bytes]:
    return [b"topic %d" % number for number in range(start, start + count)]


def test_one_client_or_address_cannot_take_all_topics() -> None:
    stage = Stage()
    most, taken = 0, 0
    for _ in range(20):  # connections of one stranger
        eve = client(stage)
        for number in range(12):
            taken += not refused(eve, *names(most, 100))
            most += 100 * (number < 11)
    assert len(stage.engine.topics) == 10_000
    assert taken < 240
    assert stage.engine.counters.over_quota == 240 - taken
    lawful = client(stage, address="10.0.0.2")
    assert refused(lawful, *names(1_000_000, 1000)) == ""
    assert refused(lawful, b"more") == "one client can subscribe to 1000 topics at most"
    assert refused(client(stage), b"new") == "the clients at one address can have 10000 topics at most"


def test_one_user_cannot_take_all_topics_from_many_addresses() -> None:
    stage = Stage(bounds=Bounds(topics_of_user=5))
    for number in range(5):
        assert refused(client(stage, "eve", f"10.0.0.{number}"), b"%d" % number) == ""
    assert refused(client(stage, "eve", "10.0.0.9"), b"9") == "the clients of one user can have 5 topics at most"
    assert refused(client(stage, "ann", "10.0.0.9"), b"9") == ""
    assert refused(client(stage, "", "10.0.0.9"), b"10", b"11", b"12", b"13", b"14", b"15") == ""


def test_a_fleet_that_shares_its_topics_pays_for_them_once() -> None:
    stage = Stage(bounds=Bounds(topics_of_address=10, topics_of_user=10))
    fleet = [client(stage, "node") for _ in range(100)]
    for number, node in enumerate(fleet):
        assert refused(node, *names(0, 9)) == ""
        if number:
            fleet[number - 1].leave()  # the next one pays
    assert refused(fleet[-1], b"own") == ""
    assert "10 topics" in refused(fleet[-1], b"own too")
    fleet[-1].leave()
    quota = stage.engine._topics.quota
    assert (quota.topics, dict(quota._users), dict(quota._addresses)) == (0, {}, {})


def test_topics_that_are_replayed_count_and_are_paid_back() -> None:
    stage = Stage(archive=MemoryArchive(), bounds=Bounds(topics_of_address=4))
    eve, ann = client(stage), client(stage)
    for who in (eve, ann):
        assert who.say(E, b"SUB", b"X-SINCE", b"0", b"ID", b"1", E, b"a", b"b")[0][1] == b"OK"
    assert stage.engine.report() == []  # they have no subscribers before the replay has ended
    assert "4 topics" in refused(client(stage), b"c", b"d", b"e")
    stage.engine.feed(eve.session, 1000)
    assert [(report.topic, len(report.subscribers)) for report in stage.engine.report()] == [(b"a", 1), (b"b", 1)]
    eve.leave()
    assert stage.engine.report() == []
    ann.say(E, b"UNSUB", E, b"a")
    assert sorted(stage.engine.topics) == [b"b"]
    ann.say(E, b"DISCONNECT")
    quota = stage.engine._topics.quota
    assert (stage.engine.topics, quota.topics, dict(quota._addresses)) == ({}, 0, {})
    assert refused(client(stage), b"a", b"b", b"c", b"d") == ""
