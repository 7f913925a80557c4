"""zambezi.zeps.broker.engine: all streams and sessions together, as time passes."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zeps.stage import PLENTY, Client, Stage, never_wait_for_the_disk
from zambezi.zeps.broker import cursor as cursors
from zambezi.zeps.broker import engine as engines
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.errors import BrokerError, JournalError
from zambezi.zeps.journal import Journal, Policy
from zambezi.zeps.journal.reserve import RESERVE
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.messages import LATEST, TIME, Attach, Deliver, Ping, Publish, Subscribe

# Streams


@pytest.mark.spec("ZEP-12", "ZEP-17")
def test_a_restart_keeps_streams_sequences_and_messages(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="never", segment=1000)) as stage:
        for name in ("prices", "news"):
            client = stage.client(name)
            for number in range(30):
                stage.now += 1
                client.publish(f"{name}{number}", b"x" * 50)
        incarnations = {name: stage.stream(name).journal.incarnation for name in stage.engine.names()}
    with Stage(tmp_path) as stage:
        assert {name: stage.stream(name).journal.incarnation for name in stage.engine.names()} == incarnations
        for name in ("prices", "news"):
            client = stage.client(name, credit=PLENTY)
            client.subscribe()
            client.publish("after", b"")
            client.read()
            assert client.sequences == list(range(1, 32))
            assert client.keys == [*(f"{name}{number}" for number in range(30)), "after"]
            late = stage.client(name, credit=PLENTY)
            late.subscribe_since(1_700_000_000 + (11 if name == "prices" else 41))
            assert late.sequences == list(range(11, 32))


def test_the_reserve_of_a_disk_that_was_full_is_made_again(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        (tmp_path / RESERVE).unlink()
        stage.tick()
        assert (tmp_path / RESERVE).exists()


def test_many_streams_are_looked_after_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "STREAMS_PER_TURN", 3)
    with Stage(tmp_path) as stage:
        reader = stage.client("$streams", credit=PLENTY)
        reader.subscribe()
        publishers = [stage.client(f"s{number}") for number in range(8)]
        for publisher in publishers:
            publisher.publish("k")
        stage.now += 1.0
        stage.engine.tick()
        streams = stage.engine.streams
        assert [stream.rate > 0 for stream in streams] == [True] * 3 + [False] * 5  # clients have a turn first
        assert reader.read() == []
        stage.run()
        assert all(stream.rate > 0 for stream in streams)
        reader.read()
        assert len(reader.keys) == 8


def test_streams_can_be_there_from_the_beginning(tmp_path: Path) -> None:
    policies = {"safe": Policy(sync="always")}
    with Stage(tmp_path, streams=["safe", "other"], policies=policies) as stage:
        assert stage.engine.names() == ["other", "safe"]
        assert stage.stream("safe").journal.policy.sync == "always"
        assert stage.stream("other").journal.policy.sync == "never"
        assert [stream.name for stream in stage.engine.streams] == ["other", "safe"]


def test_only_the_client_learns_of_a_stream_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stage(tmp_path) as stage:

        def broken(*_: object, **__: object) -> None:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr("zambezi.zeps.journal.store.Journal", broken)
            client = stage.client("prices")
            assert client.said == ["Invalid"]
            assert "too many open files" in client.reasons[0].lower()
        client.send(Attach("prices"))
        assert client.said == ["Invalid", "AttachOk"]


# Time


def test_the_policy_says_how_often_that_is(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="interval", interval=10.0)) as stage:
        publisher = stage.client("prices")
        synced = 0
        for _ in range(30):
            publisher.publish("k")
            stage.tick()
            synced += len(stage.syncing)
            stage.write_back()
        assert synced == 3


def test_journals_are_synced_about_every_second(tmp_path: Path) -> None:
    policies = {"always": Policy(sync="always"), "never": Policy(sync="never")}
    with Stage(tmp_path, policy=Policy(sync="interval"), policies=policies) as stage:
        for name in ("always", "interval", "never"):
            stage.client(name).publish("k")
        stage.tick()
        assert {stream.name for stream in stage.syncing} == {"always", "interval"}
        stage.write_back()
        assert stage.stream("interval").journal.synced == 1
        for _ in range(100):
            stage.tick()
            stage.write_back()
        stage.tick()
        assert not stage.syncing  # nothing more to sync


def test_closing_leaves_no_stream_behind_though_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    for name in ("a", "b", "c"):
        client = stage.client(name)
        client.publish("k")
        client.session.receive([Publish("k", b"").encode()[0]])
    sync = Journal.sync

    def broken(journal: Journal) -> int:
        if journal.name == "a":
            raise JournalError("the disk is gone")
        return sync(journal)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "sync", broken)
        with pytest.raises(JournalError, match="the disk is gone"):
            stage.close()
    with Stage(tmp_path) as again:
        assert [stream.journal.last for stream in again.engine.streams] == [2, 2, 2]


def test_streams_can_be_kept_by_other_rules(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="never", segment=200)) as stage:
        for name in ("a", "b"):
            client = stage.client(name)
            for _ in range(10):
                client.publish("k", b"x" * 150)
        stage.tick()
        assert [stream.journal.first for stream in stage.engine.streams] == [1, 1]
        stage.engine.set_policies(Policy(sync="never", segment=200), {"b": Policy(sync="never", keep_bytes=500)})
        stage.tick()
        assert [stream.journal.first for stream in stage.engine.streams] == [1, 8]
        stage.client("c")
        assert stage.stream("c").journal.policy.segment == 200


def test_retention_is_by_time_too(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="never", segment=200, keep_seconds=60)) as stage:
        client = stage.client("prices")
        for _ in range(10):
            client.publish("k", b"x" * 150)
            stage.tick(10)
        journal = stage.stream("prices").journal
        assert (journal.first, journal.last) == (5, 10)
        stage.tick(1000)
        assert (journal.first, journal.last) == (10, 10)
        client.publish("k")
        assert journal.last == 11


def test_one_stream_in_trouble_does_not_stop_the_clock_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stage(tmp_path, policy=Policy(sync="interval")) as stage:
        for name in ("a", "b", "c"):
            stage.client(name).publish("k")
        retain = Journal.retain

        def broken(journal: Journal, now: float) -> int:
            if journal.name == "a":
                raise JournalError("the directory is gone")
            return retain(journal, now)

        monkeypatch.setattr(Journal, "retain", broken)
        stage.tick()
        assert {"b", "c"} <= {stream.name for stream in stage.syncing}


def test_the_engine_calls_back_when_the_last_session_ends(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        empty: list[bool] = []
        stage.engine.on_empty = lambda: empty.append(True)
        one, other = stage.client("a"), stage.client()
        one.close()
        assert not empty
        other.detach()
        assert empty == [True]


def test_sessions_have_numbers_of_their_own(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        clients = [stage.client("a") for _ in range(3)]
        clients[0].close()
        clients.append(stage.client("a"))
        assert [client.session.number for client in clients] == [1, 2, 3, 4]


def test_published_messages_are_counted(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.client("a").publish_many(["k"] * 5)
        client = stage.client("b")
        client.publish("k")
        client.send(b"garbage", Attach("b"), Subscribe("regex:(", 0))
        assert stage.engine.counters.published == 6
        assert stage.stream("a").published == 5
        assert stage.engine.counters.invalid == Counter(malformed=1, misplaced=1, subscribe=1)


def test_closing_appends_pending_messages(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        client = stage.client("a")
        client.publish("k")
        client.session.receive([Publish("k", b"").encode()[0]] * 3)
    with Stage(tmp_path) as stage:
        assert stage.stream("a").journal.last == 4


# Everything together


PATTERNS = ["", "a", "ab", "exact:b", "glob:*b", "glob:?", "regex:^a.*a$", "regex:b", "nothing"]
KEYS = ["a", "b", "ab", "ba", "aba", "c", ""]


@dataclass
class Subscriber:
    """A client, and the messages that it must receive."""

    client: Client
    pattern: str
    after: int
    since: int = 0  # microseconds
    seen: list[Deliver] = field(default_factory=list)

    def gather(self) -> None:
        self.client.read()
        self.seen += self.client.delivered
        self.client.heard.clear()

    @property
    def last(self) -> int:
        return self.seen[-1].sequence if self.seen else self.after


@dataclass
class Model:
    """The published messages, and their times."""

    messages: list[tuple[str, bytes, int]] = field(default_factory=list)

    def due(self, subscriber: Subscriber) -> list[Deliver]:
        test = Matchers().parse(subscriber.pattern)
        return [
            Deliver(sequence, key, body)
            for sequence, (key, body, time) in enumerate(self.messages, 1)
            if sequence > subscriber.after and time >= subscriber.since and test(key.encode())
        ]


@pytest.mark.spec("ZEP-03", "ZEP-04", "ZEP-05", "ZEP-10", "ZEP-11", "ZEP-13", "ZEP-17")
@settings(max_examples=cases(37))
@given(st.data())
def test_each_subscriber_sees_its_subset_in_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    draw = data.draw
    path = tmp_path_factory.mktemp("model")
    policy = Policy(sync="never", segment=draw(st.sampled_from([500, 5000, 1 << 20])), batch=1000)
    with pytest.MonkeyPatch.context() as patch:
        never_wait_for_the_disk(patch)
        for name in ("WHOLE", "FILTERED", "FEW"):
            patch.setattr(cursors, name, draw(st.sampled_from([1, 200, 1 << 18])))
        patch.setattr(cursors, "SCANS", draw(st.sampled_from([1, 16])))
        model = _act(data, Stage(path, policy=policy))
        with Stage(path, policy=policy) as again:
            client = again.client("s", credit=PLENTY)
            client.subscribe()
            assert client.delivered == model.due(Subscriber(client, "", 0))


def _act(data: st.DataObject, stage: Stage) -> Model:
    draw = data.draw
    model = Model()
    subscribers: list[Subscriber] = []
    publishers = [stage.client("s") for _ in range(2)]
    waiting: dict[Client, list[tuple[str, bytes]]] = {one: [] for one in publishers}

    def settle() -> None:
        """Update the model from the journal: the appended messages, in order."""
        stage.run()
        reader = stage.stream("s").journal.reader(len(model.messages))
        while (span := reader.peek(1)) is not None:  # one by one, for the time of each
            reader.skip(span)
            for body in span.read().bodies:
                message = Deliver.decode(body)
                model.messages.append((message.key, message.body, span.time))
                # In the order of each publisher, and only published messages.
                sender = next(one for one, sent in waiting.items() if sent and sent[0] == (message.key, message.body))
                waiting[sender].pop(0)

    number = 0
    for step in draw(st.lists(st.sampled_from(["publish"] * 4 + STEPS), max_size=40)):
        if step == "publish":
            one = draw(st.sampled_from(publishers))
            size = draw(st.sampled_from([0, 10, 300]))
            sent = []
            for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=12)):
                number += 1
                sent.append((key, b"%d" % number + b"x" * size))
            waiting[one] += sent
            one.session.receive([Publish(key, body).encode()[0] for key, body in sent])
        elif step == "subscribe":
            settle()
            client = stage.client("s", room=draw(st.sampled_from([1, 50, 1000, PLENTY])))
            client.read()
            pattern = draw(st.sampled_from(PATTERNS))
            last = len(model.messages)
            kind = draw(st.sampled_from(["sequence", "live", "past", "future"]))
            subscriber = Subscriber(client, pattern, last)
            if kind == "sequence":
                latest = subscriber.after = draw(st.integers(0, last))
            elif kind == "live":
                latest = LATEST
            else:
                moment = stage.now + draw(st.integers(-20, 0) if kind == "past" else st.integers(0, 10))
                latest = TIME | int(moment * 1000)
                subscriber.after = 0
                subscriber.since = int(moment * 1_000_000)
            if draw(st.booleans()):
                client.credit(draw(st.sampled_from([1, 500, PLENTY])))
            client.session.receive([Subscribe(pattern, latest).encode()[0]])
            subscribers.append(subscriber)
        elif step == "turn":
            stage.run()
        elif step == "time":
            stage.run()
            stage.tick(draw(st.sampled_from([0.0, 1.0, 7.0])))
        elif not subscribers:
            continue
        elif step == "credit":
            cursor = draw(st.sampled_from(subscribers)).client.session.cursor
            assert cursor is not None
            cursor.add_credit(draw(st.sampled_from([1, 100, 3000, PLENTY])))
        elif step == "read":
            draw(st.sampled_from(subscribers)).gather()
        else:
            # Killed: messages on their way are lost. It comes back with its last sequence.
            one_of = draw(st.sampled_from(subscribers))
            # The broker may notice it by a failed write.
            one_of.client.broken = draw(st.booleans())
            if one_of.client.broken:
                settle()
            one_of.client.close()
            settle()
            latest = TIME | one_of.since // 1000 if one_of.since and not one_of.seen else one_of.last
            one_of.client = stage.client("s", room=draw(st.sampled_from([1, 1000, PLENTY])), credit=PLENTY)
            one_of.client.subscribe(one_of.pattern, latest)
            assert not one_of.client.reasons
    settle()
    for one_of in subscribers:
        one_of.gather()
        one_of.client.credit(PLENTY)
        stage.run()
        one_of.gather()
    assert not any(waiting.values())
    for one_of in subscribers:
        assert one_of.seen == model.due(one_of)
        assert one_of.client.session.cursor is not None
    stage.close()
    return model


STEPS = ["subscribe", "subscribe", "turn", "time", "credit", "read", "killed"]


@pytest.mark.spec("ZEP-06", "ZEP-07", "ZEP-08")
@settings(max_examples=cases(25))
@given(st.data())
def test_nothing_that_clients_say_is_too_much(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """For any commands in any order, each PING is answered, no session is left, and the broker works on."""
    draw = data.draw
    texts = st.sampled_from(["", "a", "$streams", "$clients", "$index/a", "regex:(", "glob:*"])
    numbers = st.sampled_from([0, 1, 5, LATEST, TIME, (1 << 64) - 1])
    frames = st.one_of(
        st.builds(lambda name: Attach(name).encode()[0], texts),
        st.builds(lambda pattern, latest: Subscribe(pattern, latest).encode()[0], texts, numbers),
        st.builds(lambda credit: b"\xaa\xa5\x05" + credit.to_bytes(8), numbers),
        st.builds(lambda key: Publish(key, b"body").encode()[0], texts),
        st.sampled_from(range(1, 13)).map(lambda number: b"\xaa\xa5" + bytes([number])),
        st.binary(max_size=20),
    )
    with pytest.MonkeyPatch.context() as patch, Stage(tmp_path_factory.mktemp("any")) as stage:
        never_wait_for_the_disk(patch)
        clients = [stage.client(draw(st.sampled_from(["", "a", "$clients"]))) for _ in range(3)]
        for _ in range(draw(st.integers(0, 15))):
            client = draw(st.sampled_from(clients))
            client.send(*draw(st.lists(frames, min_size=1, max_size=6)))
            if draw(st.integers(0, 3)) == 0:
                stage.tick()
        witness = stage.client("a", credit=PLENTY)
        witness.subscribe()
        witness.send(Publish("still", b"here"), Ping())
        assert witness.keys[-1] == "still"
        assert witness.confirmed == 1
        assert witness.sequences == list(range(1, len(witness.sequences) + 1))
        for client in [*clients, witness]:
            client.close()
        assert not stage.engine.sessions
        for stream in stage.engine.streams:
            assert (stream.attached, stream.subscribers, stream.waiting_cursors, len(stream.future_selections)) == (
                0,
                0,
                set(),
                0,
            )


# Damaged streams, and quotas


def test_one_bad_stream_does_not_stop_the_others(tmp_path: Path) -> None:
    """The other streams are served; the name of the bad one refuses clients, and the problem is reported."""
    for name in ("bad", "good", "worse"):
        with Stage(tmp_path) as stage:
            stage.client(name).publish("k")
    (tmp_path / "bad" / "00000000000000000001.log").unlink()
    (tmp_path / "bad" / "00000000000000000001.log").mkdir()
    (tmp_path / "worse" / "stream.json").write_text('{"format": 99, "name": "worse"}')
    (tmp_path / os.fsdecode(b"\xff")).mkdir()
    with Stage(tmp_path, streams=["bad", "new"]) as stage:
        engine = stage.engine
        assert engine.names() == ["good", "new"]
        assert list(engine.unusable) == ["bad"]
        assert "not a regular file" in engine.unusable["bad"]
        assert len(engine.problems) == 2
        assert any("unknown format 99" in problem for problem in engine.problems)
        client = stage.client("bad")
        assert client.said == ["Invalid"]
        assert "stream bad cannot be used until the operator has repaired it" in client.reasons[0]
        with pytest.raises(BrokerError, match="stream bad cannot be used"):
            engine.find_or_make("bad")
        assert stage.client("worse").said == ["Invalid"]
        good = stage.client("good", credit=100)
        good.publish("k")
        good.subscribe()
        assert good.sequences == [1, 2]


def test_a_stream_that_was_repaired_at_the_start_is_no_problem(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.client("a").publish("k")
    (tmp_path / "a" / "stream.json").write_text("{")
    with Stage(tmp_path) as stage:
        assert (stage.engine.names(), stage.engine.problems, stage.engine.unusable) == (["a"], [], {})


def test_new_streams_of_a_user_are_limited(tmp_path: Path) -> None:
    with Stage(tmp_path, streams=["config"], limits=Limits(user_streams=2, address_streams=100)) as stage:
        for name in ("a", "b", "a", "config"):
            assert stage.client(name, user="ann").said == ["AttachOk"]
        refused = stage.client("c", user="ann")
        assert refused.reasons == [
            "ann has created 2 streams within an hour, the limit; try again later: c was not created"
        ]
        assert stage.engine.counters.streams_refused == 1
        assert stage.client("c", user="bob").said == ["AttachOk"]
        assert stage.client("c", user="ann").said == ["AttachOk"]  # it exists now
        stage.now += 3600
        assert stage.client("d", user="ann").said == ["AttachOk"]


def test_new_streams_of_an_address_are_limited(tmp_path: Path) -> None:
    """All clients of the stage have one address. The server's own sessions are not counted."""
    with Stage(tmp_path, limits=Limits(user_streams=100, address_streams=3)) as stage:
        for number in range(3):
            assert stage.client(f"{number}", user=f"user-{number}").said == ["AttachOk"]
        refused = stage.client("more", user="another")
        assert "test has created 3 streams within an hour, the limit" in refused.reasons[0]
        own = stage.client()
        own.session.trusted = True
        own.send(Attach("own"))
        assert own.said == ["AttachOk"]


def test_a_storm_of_new_streams_makes_no_more_than_the_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never_wait_for_the_disk(monkeypatch)
    with Stage(tmp_path, limits=Limits(address_streams=50)) as stage:
        client = stage.client()
        for number in range(500):
            client = stage.client(f"{number}")
        assert client.said == ["Invalid"]
        assert len(stage.engine.names()) == 50
        assert stage.engine.counters.streams_refused == 450


def test_the_log_tells_who_created_a_stream(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "zambezi.zeps")
    with Stage(tmp_path) as stage:
        stage.client("prices").publish("k")
    [record] = [one for one in caplog.records if "was created by" in one.getMessage()]
    assert (record.__dict__["stream"], bool(record.__dict__["user"])) == ("prices", True)
