"""zambezi.zeps.broker.last_messages: the last message of a key; and how a compacted stream is delivered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.zeps.journal.test_compaction import compact
from tests.zeps.stage import PLENTY, Client, Stage
from zambezi.zeps.journal import Policy, lookup
from zambezi.zeps.messages import Credit, Deliver, Invalid, Ping, PingOk, Publish, Times
from zambezi.zeps.ranges import read_block_head, request

POLICY = Policy(sync="never", segment=400, compact=True)
COUNT = 60


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path, policy=POLICY) as made:
        yield made


def fill(stage: Stage) -> list[int]:
    """Publish, compact, and return the sequences that are left."""
    publisher = stage.client("prices")
    for number in range(COUNT):
        publisher.publish(f"k{number % 7 if number < 40 else number % 3}", b"%d" % number)
        stage.now += 1
    journal = stage.stream("prices").journal
    compact(journal, stage.now)
    kept = [message.sequence for message in replay(stage)]
    assert journal.messages == len(kept) < COUNT
    assert journal.removed == COUNT - len(kept)
    return kept


def replay(stage: Stage, pattern: str = "", latest: int = 0) -> list[Deliver]:
    client = stage.client("prices", credit=PLENTY)
    client.subscribe(pattern, latest)
    found = client.delivered
    client.close()
    return found


def test_a_subscription_can_begin_in_a_gap(stage: Stage) -> None:
    kept = fill(stage)
    for after in range(1, COUNT + 1):
        assert [one.sequence for one in replay(stage, latest=after)] == [at for at in kept if at > after]


def test_a_pattern_selects_the_messages_that_are_left(stage: Stage) -> None:
    fill(stage)
    everything = replay(stage)
    for key in ("k1", "k6", "exact:k0"):
        wanted = [one for one in everything if one.key == key.removeprefix("exact:")]
        assert replay(stage, key) == wanted
        assert wanted


def test_little_credit_and_several_subscriptions_miss_nothing(stage: Stage) -> None:
    kept = fill(stage)
    client = stage.client("prices")
    client.subscribe("k1", 30)
    client.subscribe("", 50)
    client.subscribe("k6", 0)
    for _ in range(200):
        client.credit(20)
    found = [one.sequence for one in client.delivered]
    keys = {one.sequence: one.key for one in replay(stage)}
    assert sorted(found) == [at for at in kept if at > 50 or (at > 30 and keys[at] == "k1") or keys[at] == "k6"]


def test_times_are_those_of_the_messages(stage: Stage) -> None:
    fill(stage)
    client = stage.client("prices")
    client.send(Times(b""))
    client.subscribe("", 0)
    client.credit(PLENTY)
    began = stage.now - COUNT
    known: dict[int, int] = {}
    for times in client.of(Times):
        numbers = [int.from_bytes(times.times[at : at + 8]) for at in range(0, len(times.times), 8)]
        known |= dict(zip(numbers[::2], numbers[1::2], strict=True))
    for one in client.delivered:
        time = known[max(at for at in known if at <= one.sequence)]
        assert round(time / 1e6 - began) == one.sequence - 1


@pytest.mark.parametrize("bare", [True, False])
def test_a_range_has_the_messages_that_are_left(bare: bool, stage: Stage) -> None:
    kept = fill(stage)
    client = stage.client("$ranges", credit=PLENTY)
    client.send(request("read", stream="prices", after=0, last=COUNT, bare=bare), Ping())
    blocks = [one for one in client.delivered if one.key in ("block", "sparse")]
    assert {one.key for one in blocks} == {"block", "sparse"}
    total = 0
    for one in blocks:
        head = read_block_head(one.body)
        inside = [at for at in kept if head.first <= at <= head.last]
        total += len(inside)
        assert (one.key == "sparse") == (len(inside) < head.last - head.first + 1)
        assert bool(one.body[head.messages :]) == (not bare or one.key == "sparse")
    assert total == len(kept)


def ask(stage: Stage, key: str, stream: str = "prices", user: str = "", credit: int = PLENTY) -> Client:
    client = stage.client("$last", user=user, credit=credit)
    client.send(Publish(key, stream.encode()), Ping())
    return client


@pytest.mark.parametrize("is_compacted", [True, False])
def test_the_last_message_of_a_key_is_found(is_compacted: bool, stage: Stage) -> None:
    if is_compacted:
        fill(stage)
    else:
        publisher = stage.client("prices")
        for number in range(COUNT):
            publisher.publish(f"k{number % 7}", b"%d" % number)
    last = {one.key: one for one in replay(stage)}
    for key in ("k0", "k1", "k6"):
        client = ask(stage, key)
        (found,) = client.delivered
        assert (found.sequence, found.key, found.body[8:]) == (last[key].sequence, key, last[key].body)
        assert len(client.of(PingOk)) == 1
        time = int.from_bytes(found.body[:8])
        assert 0 <= stage.now - time / 1e6 <= COUNT
    client = ask(stage, "none")
    assert (client.delivered, len(client.of(PingOk))) == ([], 1)


def test_a_message_that_was_just_published_is_found(stage: Stage) -> None:
    stage.client("prices").publish("k", b"new")
    assert ask(stage, "k").delivered[0].body[8:] == b"new"


def test_questions_are_answered_in_order_and_for_credit(stage: Stage) -> None:
    fill(stage)
    client = ask(stage, "k1", credit=0)
    client.send(Publish("k2", b"prices"), Ping())
    assert (client.delivered, client.of(PingOk)) == ([], [])
    client.send(Credit(1))
    assert client.delivered == []  # the client's messages wait until the question is answered
    client.close()
    client = stage.client("$last", credit=PLENTY)
    client.send(Publish("k1", b"prices"), Publish("k2", b"prices"), Publish("none", b"prices"), Ping())
    assert [one.key for one in client.delivered] == ["k1", "k2"]
    assert len(client.of(PingOk)) == 1


def test_a_question_about_a_stream_that_is_missing_or_forbidden_fails(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=POLICY, allow=lambda user, action, _: user == "ann" or action != "subscribe") as stage:
        stage.client("prices").publish("k", b"1")
        assert len(ask(stage, "k", user="ann").delivered) == 1
        assert "bob may not subscribe to the stream prices" in ask(stage, "k", user="bob").of(Invalid)[0].reason
        assert "there is no stream other" in ask(stage, "k", "other").of(Invalid)[0].reason


def test_a_search_of_a_whole_stream_does_not_keep_the_others_waiting(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "_AT_ONCE", 1)
    publisher = stage.client("prices")
    for number in range(COUNT):
        publisher.publish(f"k{number % 7}", b"%d" % number)
    stage.slow = True
    patient = [ask(stage, "none") for _ in range(3)]
    quick = ask(stage, "k1")
    stage.let_disk_work(4)
    stage.run()
    quick.read()
    assert [one.key for one in quick.delivered] == ["k1"]
    assert not any(client.of(PingOk) for client in patient)
    stage.let_disk_work()
    for client in patient:
        client.read()
    assert [len(client.of(PingOk)) for client in patient] == [1, 1, 1]


def test_a_client_that_leaves_ends_its_search(stage: Stage) -> None:
    fill(stage)
    stage.slow = True
    client = ask(stage, "none")
    client.close()
    stage.let_disk_work()
    assert client.delivered == []
    assert len(ask(stage, "k1").delivered) == 0
    stage.let_disk_work()
