"""What a middleware tells of its topics: to programs, and as JSON to clients that ask."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from zambezi.mcollective.bounds import Counters
from zambezi.mcollective.errors import Malformed
from zambezi.mcollective.messages import MESSAGE, REPLY_TO, TOPIC, Command, Frames
from zambezi.mcollective.session import Topic
from zambezi.wire.text import printable

REPORTED_TOPICS: Final = 250  # in one MESSAGE
REPORTED_CLIENTS: Final = 100  # by name, of one topic
STALE: Final = 0.2  # seconds that a report is told again before another is made


@dataclass(frozen=True, slots=True)
class TopicReport:
    """What is told of a topic."""

    topic: bytes
    subscribers: tuple[tuple[bytes, str], ...] = field(repr=False)  # identity and user of each
    messages: int
    deliveries: int
    kept: bool


def report(topics: Mapping[bytes, Topic]) -> list[TopicReport]:
    """Topics by name."""
    return [
        TopicReport(
            name,
            tuple([(session.identity, session.user) for session in topic.subscribers]),
            topic.messages,
            topic.deliveries,
            topic.kept,
        )
        for name, topic in sorted(topics.items())
    ]


class Reporter:
    """Makes reports as JSON, in parts. Whoever asks all the time is told the same for a moment."""

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
            raise Malformed("PUT to $topics needs X-REPLY-TO: the topic of the answer", command.id)
        return [
            Command(MESSAGE, {TOPIC: reply_to}, (body,), command.delimited).encode()
            for body in self._bodies(topics, clients, counters, now)
        ]

    def _bodies(self, topics: Mapping[bytes, Topic], clients: int, counters: Counters, now: float) -> list[bytes]:
        if not self._parts or now - self._made >= STALE:
            told = report(topics)
            parts = [told[at : at + REPORTED_TOPICS] for at in range(0, len(told), REPORTED_TOPICS)] or [[]]
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


def _as_json(told: TopicReport) -> dict[str, object]:
    return {
        "topic": printable(told.topic),
        "subscribers": len(told.subscribers),
        "clients": [[printable(identity), user] for identity, user in told.subscribers[:REPORTED_CLIENTS]],
        "messages": told.messages,
        "deliveries": told.deliveries,
        "kept": told.kept,
    }
