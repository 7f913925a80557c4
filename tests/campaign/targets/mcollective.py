"""MCollective: messages, the middleware's sessions, and a connector with a hostile middleware."""

from __future__ import annotations

import itertools
from random import Random

from tests.campaign.mutations import Frames
from tests.campaign.target import FramesTarget, SessionTarget
from tests.mcollective.stage import Client, E, Stage
from zambezi.mcollective import messages
from zambezi.mcollective.archive import MemoryArchive
from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.connector_engine import ConnectorEngine, Message, State
from zambezi.mcollective.errors import Malformed
from zambezi.mcollective.messages import quick_topic

COMMANDS: list[Frames] = [
    (E, b"CONNECT", b"VERSION", b"0.2", b"TTL", b"30000", b"ID", b"1"),
    (b"CONNECT", b"VERSION", b"0.1"),
    (E, b"SUB", b"ID", b"2", E, b"topic", b"kept.topic", b"other"),
    (E, b"SUB", b"X-SINCE", b"0", E, b"kept.topic"),
    (E, b"SUB", b"X-SINCE", b"2026-01-01T00:00:00+00:00", E, b"kept.topic"),
    (E, b"UNSUB", b"ID", b"3", E, b"topic"),
    (E, b"PUT", b"TOPIC", b"topic", E, b"body"),
    (E, b"PUT", b"TOPIC", b"kept.topic", b"X-REPLY-TO", b"reply", E, b"body", b"more"),
    (E, b"PUT", b"ID", b"4", b"TOPIC", b"kept.topic", b"X-SEQUENCE", b"7", E, b"body"),
    (E, b"PUT", b"TOPIC", b"$topics", b"X-REPLY-TO", b"reply", E, E),
    (E, b"NOOP", b"ID", b"5"),
    (E, b"DISCONNECT", b"ID", b"6"),
]
ANSWERS: list[Frames] = [
    (E, b"OK", b"ID", b"1"),
    (E, b"OK", b"ID", b"2"),
    (E, b"OK", b"ID", b"3"),
    (E, b"ERROR", b"ID", b"2", b"MESSAGE", b"no"),
    (E, b"ERROR", b"MESSAGE", b"no", b"X-EXPECTED", b"CONNECT"),
    (E, b"ERROR", b"MESSAGE", b"slow", b"X-MISSED", b"7"),
    (E, b"MESSAGE", b"TOPIC", b"topic", E, b"body"),
    (E, b"MESSAGE", b"TOPIC", b"kept.topic", b"X-SEQUENCE", b"7", b"X-REPLY-TO", b"reply", E, b"body"),
    (E, b"NOOP"),
]


def read(frames: Frames) -> None:
    """Parse a message. The fast check of PUT agrees with the grammar."""
    quick = quick_topic(frames)
    try:
        command = messages.decode(frames)
        messages.check(command, "client")
    except Malformed:
        if quick:
            raise AssertionError("the fast check accepts a PUT that is malformed") from None
        return
    if quick and (command.verb != messages.PUT or command.headers[messages.TOPIC] != quick):
        raise AssertionError("the fast check of PUT does not agree with the grammar")
    if command.verb == messages.PUT:
        messages.number(messages.message_of(command), 7)


class Messages(FramesTarget):
    """The messages of both sides."""

    name = "MCollective messages"
    share = 60

    def __init__(self, chance: Random) -> None:
        super().__init__(chance, COMMANDS + ANSWERS, read)


class Middleware(SessionTarget):
    """Sessions of the middleware: after each hostile client, a lawful one gets what another puts."""

    name = "MCollective middleware"
    share = 60
    unchanged = 0.5
    seeds = COMMANDS

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        self.start()

    def start(self) -> None:
        self._archive = MemoryArchive(lambda topic: topic.startswith(b"kept"))
        self._stage = Stage(archive=self._archive, bounds=Bounds(topics=200, topics_of_client=100))
        self._lawful = self._stage.client(b"lawful")
        self._lawful.sub(b"lawful")
        self._sessions = 0

    def begin(self) -> None:
        self._sessions += 1
        if self._sessions % 200 == 0:
            self.start()  # the archive in memory keeps everything
        self._client: Client = self._stage.client(b"mallory")

    def receive(self, frames: Frames) -> None:
        if self._client.session.open:
            self._client.say(*frames)
            self._stage.engine.feed(self._client.session, 1 << 16)
            self._stage.pump()
        self._client.take()

    def end(self) -> None:
        if self._client.session.open:
            self._client.leave()
        self._stage.events.clear()
        self._stage.pass_time(self.mutator.below(100))

    def check(self) -> None:
        self._lawful.take()
        assert self._lawful.say(E, b"PUT", b"TOPIC", b"lawful", b"ID", b"9", E, b"x") == [
            (E, b"OK", b"ID", b"9"),
            (E, b"MESSAGE", b"TOPIC", b"lawful", E, b"x"),
        ]
        assert len(self._stage.engine.sessions) == 1
        assert list(self._stage.engine.topics) == [b"lawful"]


class Connectors(SessionTarget):
    """A connector whose middleware sends anything: afterwards it connects to another one."""

    name = "MCollective connector"
    share = 40
    unchanged = 0.5
    seeds = ANSWERS

    def begin(self) -> None:
        numbers = itertools.count(1)
        self._engine = ConnectorEngine(10.0, lambda: str(next(numbers)))
        self._now = 0.0
        self._engine.up(self._now)
        self._engine.subscribe([b"topic"], None, self._now)
        self._engine.subscribe([b"kept.topic"], 3, self._now)

    def receive(self, frames: Frames) -> None:
        self._now += 0.5
        self._engine.receive([frames], self._now)
        if self._engine.deadline <= self._now:
            self._engine.tick(self._now)
        for output in self._engine.take():
            if isinstance(output, Message):
                assert output.sequence is None or output.sequence >= 0

    def check(self) -> None:
        numbers = itertools.count(1)
        engine = ConnectorEngine(10.0, lambda: str(next(numbers)))
        engine.up(0.0)
        engine.receive([(E, b"OK", b"ID", b"1")], 0.0)
        assert engine.state is State.READY


TARGETS = [Messages, Middleware, Connectors]
