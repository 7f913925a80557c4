"""zambezi.mcollective.report: what a middleware tells of its topics."""

from __future__ import annotations

import json

import pytest

from zambezi.mcollective.bounds import Counters
from zambezi.mcollective.errors import Malformed
from zambezi.mcollective.messages import Command
from zambezi.mcollective.report import REPORTED_CLIENTS, REPORTED_TOPICS, STALE, Reporter, TopicReport, report
from zambezi.mcollective.session import Session, Topic

ASK = Command(b"PUT", {b"TOPIC": b"$topics", b"X-REPLY-TO": b"reply"})


def topics(*names: bytes, clients: int = 1) -> dict[bytes, Topic]:
    made = {name: Topic(name, name == b"kept", Session(None, b"", "", "", 0.0)) for name in names}
    for topic in made.values():
        topic.subscribers = {Session(None, b"c%d" % number, "ann", "", 0.0): None for number in range(clients)}
        topic.messages, topic.deliveries = 2, 3
    return made


def bodies(reporter: Reporter, made: dict[bytes, Topic], now: float) -> list[dict[str, object]]:
    return [json.loads(frames[-1]) for frames in reporter.answer(ASK, made, 7, Counters(puts=5), now)]


def test_topics_are_reported_by_name() -> None:
    assert report(topics(b"b", b"kept")) == [
        TopicReport(b"b", ((b"c0", "ann"),), 1, 2, 3, kept=False),
        TopicReport(b"kept", ((b"c0", "ann"),), 1, 2, 3, kept=True),
    ]


def test_the_answer_is_a_message_on_the_topic_that_was_asked_for() -> None:
    (frames,) = Reporter().answer(ASK, topics(b"a\xff"), 7, Counters(puts=5), 0.0)
    assert frames[:-1] == (b"", b"MESSAGE", b"TOPIC", b"reply", b"")
    told = json.loads(frames[-1])
    assert (told["part"], told["parts"], told["clients"], told["counters"]["puts"]) == (1, 1, 7, 5)
    assert told["topics"] == [
        {
            "topic": "a\\xff",
            "subscribers": 1,
            "clients": [["c0", "ann"]],
            "messages": 2,
            "deliveries": 3,
            "kept": False,
        }
    ]
    with pytest.raises(Malformed, match="X-REPLY-TO"):
        Reporter().answer(Command(b"PUT", {b"TOPIC": b"$topics"}), {}, 0, Counters(), 0.0)


def test_the_same_report_answers_all_that_ask_within_a_moment() -> None:
    reporter = Reporter()
    before = bodies(reporter, topics(b"a"), 100.0)
    assert bodies(reporter, topics(b"b"), 100.0 + STALE / 2) == before
    assert bodies(reporter, topics(b"b"), 100.0 + STALE) != before


def test_a_long_report_has_parts_and_not_all_clients_are_named() -> None:
    names = [b"%05d" % number for number in range(2 * REPORTED_TOPICS + 1)]
    parts = bodies(Reporter(), topics(*names, clients=REPORTED_CLIENTS + 1), 0.0)
    assert [(part["part"], part["parts"]) for part in parts] == [(1, 3), (2, 3), (3, 3)]
    told = [topic for part in parts for topic in part["topics"]]  # type: ignore[attr-defined]
    assert [topic["topic"] for topic in told] == [name.decode() for name in names]
    assert (told[0]["subscribers"], len(told[0]["clients"])) == (REPORTED_CLIENTS + 1, REPORTED_CLIENTS)
    assert bodies(Reporter(), {}, 0.0)[0]["topics"] == []
