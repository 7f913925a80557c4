"""zambezi.mcollective.connector_engine: alone, and against the middleware's engine, without sockets and clocks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from tests.mcollective.stage import Client, E, Stage
from zambezi.mcollective.archive import MemoryArchive
from zambezi.mcollective.connector_engine import (
    Became,
    Complained,
    ConnectorEngine,
    HangUp,
    Message,
    Output,
    Say,
    Settled,
    State,
)
from zambezi.mcollective.errors import CommandRefused, Unconfirmed
from zambezi.mcollective.rules import Rule, Rules

Frames = tuple[bytes, ...]


class Line:
    """A connector without a middleware: the test reads what it sends, and writes what it receives."""

    def __init__(self, ttl: float | None = 10.0) -> None:
        numbers = itertools.count(1)
        self.engine = ConnectorEngine(ttl, lambda: str(next(numbers)))
        self.now = 100.0
        self.outputs: list[Output] = []

    def said(self) -> list[Frames]:
        """Return the messages that it sent since the last call; other outputs are kept for later."""
        taken = self.engine.take()
        self.outputs += [each for each in taken if not isinstance(each, Say | Settled)]
        return [each.frames for each in taken if isinstance(each, Say)]

    def others(self) -> list[Output]:
        assert self.said() == []
        outputs, self.outputs = self.outputs, []
        return outputs

    def hear(self, *frames: bytes) -> list[Frames]:
        self.engine.receive([frames], self.now)
        return self.said()

    def up(self) -> list[Frames]:
        self.engine.up(self.now)
        return self.said()

    def make_ready(self) -> None:
        (connect,) = self.up()
        for frames in self.hear(E, b"OK", b"ID", connect[3]):
            self.hear(E, b"OK", b"ID", frames[3])
        assert self.engine.state is State.READY
        assert self.others() == [Became(True)]

    def pass_time(self, seconds: float) -> list[Frames]:
        end = self.now + seconds
        said = []
        while self.engine.deadline <= end:
            self.now = max(self.now, self.engine.deadline)
            self.engine.tick(self.now)
            said += self.said()
        self.now = end
        return said


def test_it_says_on_the_wire_what_the_ruby_connector_says() -> None:
    line = Line(30.0)
    ticket = line.engine.subscribe([b"mcollective nodes node3", b"mcollective rpcutil"], None, line.now)
    assert line.up() == [(E, b"CONNECT", b"ID", b"2", b"TTL", b"30000", b"VERSION", b"0.2")]
    assert line.hear(E, b"OK", b"ID", b"2") == [
        (E, b"SUB", b"ID", b"3", E, b"mcollective nodes node3", b"mcollective rpcutil")
    ]
    assert ticket.outcome is None
    assert line.hear(E, b"OK", b"ID", b"3") == []
    assert ticket.settled
    assert line.others() == [Became(True)]
    put = line.engine.put(b"mcollective discovery", {b"X-REPLY-TO": b"mcollective reply c 1"}, (b"body",), line.now)
    assert put == (
        E, b"PUT", b"TOPIC", b"mcollective discovery", b"X-REPLY-TO", b"mcollective reply c 1", E, b"body",
    )  # fmt: skip
    line.engine.unsubscribe([b"mcollective rpcutil"], line.now)
    assert line.said() == [(E, b"UNSUB", b"ID", b"4", E, b"mcollective rpcutil")]
    line.engine.leave(line.now)
    assert line.said() == [(E, b"DISCONNECT")]


def test_messages_may_come_between_a_command_and_its_answer() -> None:
    line = Line()
    line.make_ready()
    ticket = line.engine.subscribe([b"a"], None, line.now)
    ((_, _, _, id_, *_),) = line.said()
    line.hear(E, b"MESSAGE", b"TOPIC", b"b", b"X-REPLY-TO", b"r", E, b"x", b"y")
    line.hear(E, b"NOOP")
    line.hear(E, b"OK", b"ID", b"somebody else's")
    assert ticket.outcome is None
    line.hear(E, b"OK", b"ID", id_)
    assert ticket.settled
    (message,) = line.others()
    assert message == Message("b", (b"x", b"y"), {"X-REPLY-TO": "r"})
    assert isinstance(message, Message)
    assert (message.body, message.reply_to, message.sequence) == (b"x", "r", None)


def test_a_noop_goes_out_85_hundredths_of_the_ttl_after_the_last_word() -> None:
    line = Line(10.0)
    line.make_ready()
    for _ in range(3):
        line.hear(E, b"NOOP")
        assert line.pass_time(8.4) == []
        line.hear(E, b"NOOP")
        assert line.pass_time(0.2) == [(E, b"NOOP")]
        line.now -= 0.1
    line.hear(E, b"NOOP")
    line.engine.put(b"a", {}, (b"x",), line.now)
    assert line.pass_time(8.4) == []


def test_a_middleware_that_is_silent_for_the_ttl_is_left_and_found_again() -> None:
    line = Line(10.0)
    line.engine.subscribe([b"a", b"b"], None, line.now)
    line.make_ready()
    assert line.pass_time(10.1) == [(E, b"NOOP"), (E, b"DISCONNECT")]
    hang_up, became = line.others()
    assert isinstance(hang_up, HangUp)
    assert isinstance(became, Became)
    assert not became.ready
    line.engine.down("closed")
    assert line.others() == []
    assert line.engine.deadline == float("inf")
    ((*_, id_, _ttl, _, _version, _),) = line.up()
    (sub,) = line.hear(E, b"OK", b"ID", id_)
    assert sub[4:] == (E, b"a", b"b")


def test_while_we_do_not_read_the_middleware_is_not_judged() -> None:
    line = Line(10.0)
    line.make_ready()
    line.engine.paused = True
    assert set(line.pass_time(100)) == {(E, b"NOOP")}
    line.engine.resumed(line.now)
    assert (E, b"DISCONNECT") not in line.pass_time(9.9)
    assert (E, b"DISCONNECT") in line.pass_time(0.2)


def test_a_connector_that_was_suspended_does_not_give_up_the_middleware() -> None:
    line = Line(10.0)
    line.make_ready()
    line.now += 3600
    line.engine.tick(line.now)
    assert line.said() == [(E, b"NOOP")]
    line.hear(E, b"NOOP")
    assert line.pass_time(8) == []
    line.now += 3600
    line.engine.tick(line.now)
    assert line.said() == [(E, b"NOOP")]
    assert line.pass_time(1.1) == [(E, b"DISCONNECT")]


def test_a_connect_without_an_answer_is_given_up() -> None:
    line = Line(None)
    line.up()
    assert line.pass_time(9.9) == []
    assert line.pass_time(0.2) == [(E, b"DISCONNECT")]
    assert isinstance(line.others()[0], HangUp)


def test_while_we_do_not_read_an_answer_to_connect_is_not_missed() -> None:
    line = Line(None)
    line.engine.paused = True
    line.up()
    assert line.engine.deadline == float("inf")
    line.engine.tick(line.now + 100)
    assert line.others() == []


def test_a_refused_connect_is_an_event_and_is_tried_again() -> None:
    line = Line()
    ((*_, id_, _ttl, _, _version, _),) = line.up()
    assert line.hear(E, b"ERROR", b"ID", id_, b"MESSAGE", b"too old") == [(E, b"DISCONNECT")]
    complained, hang_up = line.others()
    assert complained == Complained("too old")
    assert isinstance(hang_up, HangUp)


def test_a_request_has_an_outcome() -> None:
    line = Line()
    line.make_ready()
    good = line.engine.request(b"NOOP", {b"X-A": b"b"}, (), line.now)
    bad = line.engine.request(b"FETCH", {}, (b"x",), line.now)
    assert line.said() == [
        (E, b"NOOP", b"ID", good.id, b"X-A", b"b"),
        (E, b"FETCH", b"ID", bad.id, E, b"x"),
    ]
    line.hear(E, b"ERROR", b"ID", bad.id, b"MESSAGE", b"no verb")
    line.hear(E, b"OK", b"ID", good.id, b"X-MORE", b"1")
    assert good.result() == {b"ID": good.id, b"X-MORE": b"1"}
    with pytest.raises(CommandRefused, match="no verb"):
        bad.result()


def test_a_request_whose_answer_was_lost_is_unconfirmed() -> None:
    line = Line()
    line.make_ready()
    ticket = line.engine.request(b"PUT", {b"TOPIC": b"a"}, (b"x",), line.now)
    line.engine.down("the peer closed the connection")
    with pytest.raises(Unconfirmed, match="the peer closed"):
        ticket.result()


def test_subscriptions_without_a_session_are_settled_with_the_next_one() -> None:
    line = Line()
    line.make_ready()
    ticket = line.engine.subscribe([b"a"], None, line.now)
    line.said()
    line.engine.down("gone")
    other = line.engine.subscribe([b"b"], None, line.now)
    gone = line.engine.unsubscribe([b"a"], line.now)
    assert [each.settled for each in (ticket, other, gone)] == [False] * 3
    line.said()
    (connect,) = line.up()
    (sub,) = line.hear(E, b"OK", b"ID", connect[3])
    assert sub[4:] == (E, b"b")
    line.hear(E, b"OK", b"ID", sub[3])
    assert [each.settled for each in (ticket, other, gone)] == [True] * 3


def test_errors_that_answer_nothing_are_events_and_missed_messages_are_counted() -> None:
    line = Line()
    line.make_ready()
    line.hear(E, b"ERROR", b"MESSAGE", b"you missed 3", b"X-MISSED", b"3")
    line.hear(E, b"ERROR", b"MESSAGE", b"hm")
    assert line.others() == [Complained("you missed 3"), Complained("hm")]
    assert line.engine.missed == 3


@pytest.mark.parametrize(
    "frames", [[b""], [b"", b"WHAT"], [b"MESSAGE", b"", b"x"], [b"", b"PUT", b"TOPIC"], [b"OK", b"x"]]
)
def test_garbage_is_counted(frames: list[bytes]) -> None:
    line = Line()
    line.make_ready()
    line.hear(*frames)
    assert line.others() == []
    assert line.engine.malformed == 1


# Against the middleware


class Pair:
    """A connector and the middleware's engine, joined by a connection that can be cut."""

    def __init__(self, stage: Stage, ttl: float | None = 10.0, user: str = "") -> None:
        self.stage = stage
        self.user = user
        numbers = itertools.count(1)
        self.engine = ConnectorEngine(ttl, lambda: str(next(numbers)))
        self.client: Client | None = None
        self.messages: list[Message] = []
        self.told: list[Output] = []

    def join(self) -> None:
        self.client = self.stage.client(b"pair", self.user)
        self.engine.up(self.stage.now)
        self.pump()

    def cut(self) -> None:
        assert self.client is not None
        self.client.leave()
        self.client = None
        self.engine.down("cut")
        self.pump()

    def pump(self) -> None:
        while True:
            outputs = self.engine.take()
            for output in outputs:
                if isinstance(output, Say) and self.client is not None:
                    self.client.stage.engine.receive(self.client.session, [list(output.frames)], self.stage.now)
                elif isinstance(output, Message):
                    self.messages.append(output)
                else:
                    self.told.append(output)
            self.stage.pump()
            heard: list[Frames] = []
            if self.client is not None:
                while self.client.session.replays:
                    self.stage.engine.feed(self.client.session, 100)
                    self.stage.pump()
                heard = self.client.take()
                self.engine.receive(heard, self.stage.now)
            if not outputs and not heard:
                return

    def bodies(self) -> list[bytes]:
        messages, self.messages = self.messages, []
        return [message.body for message in messages]

    def put(self, topic: bytes, body: bytes, headers: Mapping[bytes, bytes] | None = None) -> None:
        assert self.client is not None
        frames = self.engine.put(topic, headers or {}, (body,), self.stage.now)
        self.stage.engine.receive(self.client.session, [frames], self.stage.now)
        self.pump()


def test_a_session_and_what_becomes_of_it() -> None:
    stage = Stage()
    pair = Pair(stage)
    pair.engine.subscribe([b"a", b"b"], None, stage.now)
    pair.join()
    assert pair.engine.state is State.READY
    pair.put(b"a", b"1")
    pair.cut()
    assert not stage.engine.topics
    pair.join()
    assert sorted(stage.engine.topics) == [b"a", b"b"]
    pair.put(b"b", b"2")
    assert pair.bodies() == [b"1", b"2"]


def test_heartbeats_keep_both_sides_content_for_an_hour() -> None:
    stage = Stage()
    pair = Pair(stage, ttl=10.0)
    pair.engine.subscribe([b"a"], None, stage.now)
    pair.join()
    end = stage.now + 3600
    while (due := min(stage.engine.deadline, pair.engine.deadline)) < end:
        stage.now = max(stage.now, due)
        stage.engine.tick(stage.now)
        pair.engine.tick(stage.now)
        pair.pump()
    assert stage.engine.counters.expired == 0
    assert stage.engine.counters.commands < 430
    assert [each for each in pair.told if not isinstance(each, Settled)] == [Became(True)]


def test_a_client_that_was_forgotten_connects_again_on_the_same_line() -> None:
    stage = Stage()
    pair = Pair(stage, ttl=1.0)
    pair.engine.subscribe([b"a"], None, stage.now)
    pair.join()
    stage.pass_time(1.1)  # the connector's clock stood still, because its machine was suspended
    assert not stage.engine.topics
    pair.engine.receive([], stage.now)
    pair.put(b"x", b"wakes up")
    assert pair.engine.state is State.READY
    assert sorted(stage.engine.topics) == [b"a"]
    assert stage.engine.counters.absent == 1


def test_nothing_is_missing_after_a_loss_where_the_topic_is_kept() -> None:
    archive = MemoryArchive(lambda topic: topic == b"kept")
    stage = Stage(archive=archive)
    pair, speaker = Pair(stage), Pair(stage)
    speaker.join()
    speaker.put(b"kept", b"0")
    pair.engine.subscribe([b"kept"], 0, stage.now)
    pair.engine.subscribe([b"live"], None, stage.now)
    pair.join()
    speaker.put(b"kept", b"1")
    speaker.put(b"live", b"2")
    pair.pump()
    pair.cut()
    for body in (b"3", b"4"):
        speaker.put(b"kept", body)
        speaker.put(b"live", b"lost")
    pair.join()
    speaker.put(b"kept", b"5")
    pair.pump()
    assert pair.bodies() == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_topic_is_live_if_the_new_archive_cannot_replay_it() -> None:
    stage = Stage(archive=MemoryArchive())
    pair = Pair(stage)
    pair.engine.subscribe([b"kept"], 0, stage.now)
    pair.join()
    for number in range(3):
        pair.put(b"kept", b"%d" % number)
    pair.cut()
    pair.stage = Stage(archive=MemoryArchive())
    pair.join()
    assert pair.engine.state is State.READY
    assert any(isinstance(each, Complained) and "cannot be replayed" in each.text for each in pair.told)
    pair.bodies()
    pair.put(b"kept", b"new")
    assert pair.bodies() == [b"new"]


def test_a_topic_that_is_not_allowed_is_refused_and_the_others_are_not() -> None:
    stage = Stage(rules=Rules([Rule("ann", sub=("a", "b"))]))
    pair = Pair(stage, user="ann")
    good = pair.engine.subscribe([b"a", b"b"], None, stage.now)
    bad = pair.engine.subscribe([b"secret"], None, stage.now)
    pair.join()
    assert good.settled
    assert pair.engine.state is State.READY
    with pytest.raises(CommandRefused, match="no rule allows ann to SUB 'secret'"):
        bad.result()
    assert sorted(stage.engine.topics) == [b"a", b"b"]
    assert pair.engine.topics() == [b"a", b"b"]
    late = pair.engine.subscribe([b"secret"], None, stage.now)
    pair.pump()
    with pytest.raises(CommandRefused, match="secret"):
        late.result()
    assert pair.engine.topics() == [b"a", b"b"]


def test_a_topic_that_is_no_longer_allowed_is_an_event() -> None:
    stage = Stage()
    pair = Pair(stage)
    pair.engine.subscribe([b"a", b"b"], None, stage.now)
    pair.join()
    pair.cut()
    pair.stage = Stage(rules=Rules([Rule("*", sub=("b",))]))
    pair.join()
    assert pair.engine.state is State.READY
    assert pair.engine.topics() == [b"b"]
    assert any(isinstance(each, Complained) and "no longer subscribed to 'a'" in each.text for each in pair.told)


def test_a_time_to_begin_at() -> None:
    line = Line()
    line.make_ready()
    line.engine.subscribe([b"a"], datetime(2026, 11, 15, 8, tzinfo=UTC), line.now)
    ((*_, since, _, _),) = line.said()
    assert since == b"2026-11-15T08:00:00+00:00"
