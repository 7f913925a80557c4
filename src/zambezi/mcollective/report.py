"""Reports of a middleware on its topics: for programs, and as JSON for clients that ask."""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Final

from zambezi.mcollective.bounds import Counters
from zambezi.mcollective.errors import Malformed
from zambezi.mcollective.messages import MESSAGE, REPLY_TO, TOPIC, Command, Frames
from zambezi.mcollective.session import Topic
from zambezi.wire.text import printable

REPORTED_TOPICS: Final = 250  # in one MESSAGE
REPORTED_CLIENTS: Final = 100  # by name, of one topic
STALE: Final = 0.2  # seconds for which the same report answers all clients that ask


@dataclass(frozen=True, slots=True)
class TopicReport:
    """A topic that has subscribers."""

    topic: bytes
    subscribers: tuple[tuple[bytes, str], ...] = field(repr=False)  # identity and user of the first ones
    count: int  # of all subscribers
    messages: int
    deliveries: int
    kept: bool


def report(topics: Mapping[bytes, Topic], most: int | None = None) -> list[TopicReport]:
    """Return the reports on all topics, or on the first `most` of them, sorted by name."""
    used = [name for name, topic in topics.items() if topic.subscribers]
    names = sorted(used) if most is None else heapq.nsmallest(most, used)
    return [_report(name, topics[name]) for name in names]


def _report(name: bytes, topic: Topic) -> TopicReport:
    some = islice(topic.subscribers, REPORTED_CLIENTS)
    clients = tuple([(session.identity, session.user) for session in some])
    return TopicReport(name, clients, len(topic.subscribers), topic.messages, topic.deliveries, topic.kept)


class Reporter:
    """Makes reports as JSON, in parts, and reuses them for a moment: clients can ask very often."""

    __slots__ = ("_made", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._made = 0.0

    def answer(
        self, command: Command, topics: Mapping[bytes, Topic], clients: int, counters: Counters, now: float
    ) -> list[Frames]:
        """Return the MESSAGEs that answer a PUT to $topics, on the topic that it names in X-REPLY-TO."""
        reply_to = command.headers.get(REPLY_TO)
        if not reply_to:
            raise Malformed("PUT to $topics needs X-REPLY-TO, the topic of the answer", command.id)
        return [
            Command(MESSAGE, {TOPIC: reply_to}, (body,), command.delimited).encode()
            for body in self._bodies(topics, clients, counters, now)
        ]

    def _bodies(self, topics: Mapping[bytes, Topic], clients: int, counters: Counters, now: float) -> list[bytes]:
        if not self._parts or now - self._made >= STALE:
            reports = report(topics)
            parts = [reports[at : at + REPORTED_TOPICS] for at in range(0, len(reports), REPORTED_TOPICS)] or [[]]
            counted = {each.name: getattr(counters, each.name) for each in fields(counters)}
            self._made = now
            self._parts = [
                json.dumps(
                    {
                        "part": number,
                        "parts": len(parts),
                        "clients": clients,
                        "counters": counted,
                        "topics": [_as_json(each) for each in part],
                    }
                ).encode()
                for number, part in enumerate(parts, 1)
            ]
        return self._parts


def _as_json(topic: TopicReport) -> dict[str, object]:
    return {
        "topic": printable(topic.topic),
        "subscribers": topic.count,
        "clients": [[printable(identity), user] for identity, user in topic.subscribers],
        "messages": topic.messages,
        "deliveries": topic.deliveries,
        "kept": topic.kept,
    }
