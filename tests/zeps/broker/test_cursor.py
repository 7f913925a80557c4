"""zambezi.zeps.broker.cursor: the two gears, several subscriptions as one flow, and retention."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zeps.stage import PLENTY, Client, Stage, never_wait_for_the_disk
from zambezi.zeps.broker import cursor as cursors
from zambezi.zeps.broker.cursor import Cursor, Outgoing
from zambezi.zeps.broker.group_source import GroupSource
from zambezi.zeps.broker.turns import keys_in_slice
from zambezi.zeps.errors import JournalError, OutOfRange
from zambezi.zeps.filters import Filter
from zambezi.zeps.journal import Policy, Span
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.messages import LATEST, Credit, Deliver, DetachOk, Publish, Subscribe

SMALL = Policy(sync="never", segment=4000, batch=1000)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as made:
        yield made


def cursor_of(client: Client) -> Cursor:
    assert client.session.cursor is not None
    return client.session.cursor


# The gears


@pytest.mark.spec("ZEP-10", "ZEP-11")
@pytest.mark.parametrize("pattern", ["", "k"])
def test_replay_then_live_without_a_gap_or_a_repeat(stage: Stage, pattern: str) -> None:
    publisher = stage.client("prices")
    publisher.publish_many(["k"] * 100)
    client = stage.client("prices", credit=PLENTY)
    client.subscribe(pattern)
    assert cursor_of(client).gear == "live"
    publisher.publish_many(["k"] * 100)
    client.read()
    assert client.sequences == list(range(1, 201))
    assert cursor_of(client).gear == "live"


@pytest.mark.spec("ZEP-11")
@pytest.mark.parametrize("pattern", ["", "k", "glob:*"])
def test_a_full_socket_puts_a_client_into_low_gear_and_reading_puts_it_back(stage: Stage, pattern: str) -> None:
    publisher = stage.client("prices")
    client = stage.client("prices", credit=PLENTY, room=1000)
    client.subscribe(pattern)
    assert cursor_of(client).gear == "live"
    for _ in range(50):
        publisher.publish_many(["k"] * 20, b"x" * 100)
    assert cursor_of(client).gear == "history"
    assert cursor_of(client).lag > 900
    client.read()
    assert client.sequences == list(range(1, 1001))
    assert cursor_of(client).gear == "live"
    assert cursor_of(client).lag == 0
    publisher.publish("k")
    client.read()
    assert client.sequences[-1] == 1001


@pytest.mark.spec("ZEP-11")
def test_a_client_without_credit_is_in_low_gear_until_it_has_some(stage: Stage) -> None:
    publisher = stage.client("prices")
    client = stage.client("prices", credit=1)
    client.subscribe()
    assert cursor_of(client).gear == "live"
    publisher.publish("a")
    publisher.publish("b")
    client.read()
    assert (client.sequences, cursor_of(client).gear) == ([1], "history")
    client.credit(PLENTY)
    assert (client.sequences, cursor_of(client).gear) == ([1, 2], "live")


@pytest.mark.spec("ZEP-11")
@pytest.mark.parametrize("pattern", ["", "k"])
def test_memory_held_for_a_client_does_not_grow_with_its_lag(tmp_path: Path, pattern: str) -> None:
    with Stage(tmp_path, policy=Policy(sync="never", segment=1 << 20)) as stage:
        publisher = stage.client("prices")
        client = stage.client("prices", credit=PLENTY, room=10_000)
        client.subscribe(pattern)
        held = []
        for _ in range(40):
            publisher.publish_many(["k"] * 100, b"x" * 1000)
            held.append(client.held_for_it)
        assert max(held) <= cursors.WHOLE + 2000
        assert held[-1] == held[5]
        client.read()
        assert client.sequences == list(range(1, 4001))


@pytest.mark.spec("ZEP-11")
def test_a_slow_client_costs_the_others_nothing(stage: Stage) -> None:
    publisher = stage.client("prices")
    slow = stage.client("prices", credit=PLENTY, room=10)
    poor = stage.client("prices", credit=10)
    fast = stage.client("prices", credit=PLENTY)
    for client in (slow, poor, fast):
        client.subscribe()
    for _ in range(20):
        publisher.publish_many(["k"] * 10)
        fast.read()
        assert cursor_of(fast).gear == "live"
    assert fast.sequences == list(range(1, 201))
    slow.read()
    poor.credit(PLENTY)
    assert slow.sequences == poor.sequences == fast.sequences


def test_pages_that_are_not_in_memory_are_fetched_by_others(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = stage.client("prices")
    publisher.publish_many(["k"] * 100, b"x" * 100)
    cold = [True]
    monkeypatch.setattr(Span, "is_resident", lambda span: not cold[0])
    client, other = stage.client("prices", credit=PLENTY), stage.client("prices", credit=PLENTY)
    client.subscribe()
    other.subscribe("k")
    publisher.publish("k")
    client.credit(1)
    assert len(stage.warming) == 2  # once for each client
    assert client.sequences == other.sequences == []
    cold[0] = False
    stage.warm_up()
    client.read()
    other.read()
    assert client.sequences == other.sequences == list(range(1, 102))


def test_a_client_that_leaves_while_the_disk_is_read(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = stage.client("prices")
    publisher.publish("k")
    monkeypatch.setattr(Span, "is_resident", lambda span: False)
    client = stage.client("prices", credit=PLENTY)
    client.subscribe()
    client.close()
    stage.warm_up()
    assert client.sequences == []
    assert stage.stream("prices").subscribers == 0


def test_a_pattern_that_matches_little_leaves_the_others_their_turn(stage: Stage) -> None:
    publisher = stage.client("prices")
    for _ in range(30):
        publisher.publish_many(["k"] * 10, b"x" * 30_000)
    publisher.publish("rare")
    client = stage.client("prices")
    client.subscribe("rare")
    cursor_of(client).add_credit(PLENTY)
    assert client.session.pull() is None  # a part of the journal was filtered, not all of it
    assert 0 < cursor_of(client).position < 300
    stage.run()
    client.read()
    assert client.sequences == [301]


def test_only_its_reader_learns_of_a_journal_that_cannot_be_read(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    client = stage.client("prices", credit=PLENTY)
    client.publish_many(["k"] * 3)

    def broken(span: Span) -> bool:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Span, "is_resident", broken)
        client.subscribe()
        assert client.said == ["AttachOk", "SubscribeOk", "Invalid", "Detach"]
        assert "nput/output error" in client.reasons[0]
        client.publish("k")
        client.ping()
        assert client.confirmed == 1
        client.send(DetachOk())
        assert client.parted
    client = stage.client("prices", credit=PLENTY)
    client.subscribe()
    assert client.sequences == [1, 2, 3, 4]


def test_a_damaged_journal_is_an_invalid(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    client = stage.client("prices", credit=PLENTY)
    client.publish_many(["k"] * 3)

    def damaged(span: Span) -> None:
        raise JournalError("the log is damaged")

    monkeypatch.setattr(Span, "read", damaged)
    client.subscribe("k")
    assert client.said == ["AttachOk", "SubscribeOk", "Invalid", "Detach"]
    assert "the log is damaged" in client.reasons[0]


# Damage


def cut_segment(tmp_path: Path, behind: str) -> Stage:
    """Return a broker whose stream has lost messages from the middle: a closed log is shorter than its index."""
    policy = Policy(sync="never", segment=500, batch=100)
    with Stage(tmp_path, policy=policy) as stage:
        publisher = stage.client("prices")
        for _ in range(12):
            publisher.publish("k", b"x" * 100)
        second = stage.stream("prices").journal.segments[1]
        assert (second.first, second.last) == (5, 8)
    os.truncate(f"{second.path}.log", second.size // 2)
    return Stage(tmp_path, policy=policy, behind=behind)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["", "k"])
def test_a_subscriber_gets_the_messages_before_missing_ones_and_then_the_reason(tmp_path: Path, pattern: str) -> None:
    with cut_segment(tmp_path, "invalid") as stage:
        client = stage.client("prices", credit=PLENTY)
        client.subscribe(pattern)
        assert client.sequences == [1, 2, 3, 4, 5, 6]
        assert client.said[-1] == "Invalid"
        assert "messages 7 to 8 are missing, because the journal is damaged" in client.reasons[0]
        client.subscribe(pattern, 8)
        assert client.sequences == [1, 2, 3, 4, 5, 6, 9, 10, 11, 12]
        (gap,) = stage.stream("prices").journal.gaps
        assert "sequences 7 to 8 are missing" in gap


@pytest.mark.parametrize("pattern", ["", "k"])
def test_a_subscriber_can_go_on_after_missing_messages(tmp_path: Path, pattern: str) -> None:
    with cut_segment(tmp_path, "oldest") as stage:
        client = stage.client("prices", credit=PLENTY)
        client.subscribe(pattern)
        assert client.sequences == [1, 2, 3, 4, 5, 6, 9, 10, 11, 12]
        assert cursor_of(client).skipped == 2
        assert "Invalid" not in client.said


def test_a_group_is_told_about_missing_messages(tmp_path: Path) -> None:
    with cut_segment(tmp_path, "invalid") as stage:
        lane = GroupSource(stage.stream("prices"), "").reader(6)
        with pytest.raises(OutOfRange, match="messages 7 to 8 are missing") as raised:
            lane.read(1)
        lane.position = raised.value.oldest - 1
        block = lane.read(1)
        assert block is not None
        assert block.first == 9


# Retention


def retained(tmp_path: Path, behind: str) -> Stage:
    policy = Policy(sync="never", segment=2000, batch=1000, keep_bytes=4000)
    return Stage(tmp_path, policy=policy, behind=behind)  # type: ignore[arg-type]


@pytest.mark.spec("ZEP-10", "ZEP-11")
@pytest.mark.parametrize("pattern", ["", "k"])
def test_a_subscriber_that_retention_passes_gets_invalid(tmp_path: Path, pattern: str) -> None:
    with retained(tmp_path, "invalid") as stage:
        publisher = stage.client("prices")
        client = stage.client("prices", credit=1)
        client.subscribe(pattern)
        for _ in range(20):
            publisher.publish_many(["k"] * 5, b"x" * 100)
        stage.tick()
        oldest = stage.stream("prices").journal.first
        assert oldest > 2
        client.credit(PLENTY)
        assert client.said == ["AttachOk", "SubscribeOk", "Deliver", "Invalid"]
        assert str(oldest) in client.reasons[0]
        assert "2" in client.reasons[0]
        assert stage.engine.counters.fell_behind == 1
        # It can subscribe again, with the credit that it has.
        publisher.publish("k")
        assert client.read() == []
        client.subscribe(pattern, oldest - 1)
        assert client.sequences == [1, *range(oldest, 102)]


@pytest.mark.spec("ZEP-10", "ZEP-11")
@pytest.mark.parametrize("pattern", ["", "k"])
def test_a_subscriber_that_retention_passes_continues_at_the_oldest(tmp_path: Path, pattern: str) -> None:
    with retained(tmp_path, "oldest") as stage:
        publisher = stage.client("prices")
        client = stage.client("prices", credit=1)
        client.subscribe(pattern)
        for _ in range(20):
            publisher.publish_many(["k"] * 5, b"x" * 100)
        stage.tick()
        oldest = stage.stream("prices").journal.first
        client.credit(PLENTY)
        assert client.said == ["AttachOk", "SubscribeOk", *["Deliver"] * (1 + 101 - oldest)]
        assert client.sequences == [1, *range(oldest, 101)]
        assert cursor_of(client).skipped == oldest - 2
        assert stage.engine.counters.fell_behind == 1


@pytest.mark.spec("ZEP-10")
@pytest.mark.parametrize("behind", ["invalid", "oldest"])
def test_a_subscription_to_messages_that_are_not_kept_any_more(tmp_path: Path, behind: str) -> None:
    with retained(tmp_path, behind) as stage:
        publisher = stage.client("prices")
        for _ in range(20):
            publisher.publish_many(["k"] * 5, b"x" * 100)
        stage.tick()
        oldest = stage.stream("prices").journal.first
        client = stage.client("prices", credit=PLENTY)
        client.subscribe("", 1)
        if behind == "invalid":
            assert client.said == ["AttachOk", "Invalid"]
            assert str(oldest) in client.reasons[0]
            client.subscribe("", 0)  # from the first one that exists
        else:
            assert cursor_of(client).skipped == oldest - 2
            assert stage.engine.counters.fell_behind == 1
        assert client.sequences == list(range(oldest, 101))


def test_retention_passes_a_second_subscription_that_is_replayed(tmp_path: Path) -> None:
    with retained(tmp_path, "invalid") as stage:
        publisher = stage.client("prices")
        client = stage.client("prices", credit=PLENTY)
        client.follow("live")
        publisher.publish_many(["k"] * 5, b"x" * 100)
        cursor_of(client).credit = 0
        client.subscribe("k", 0)
        for _ in range(20):
            publisher.publish_many(["k"] * 5, b"x" * 100)
        stage.tick()
        oldest = stage.stream("prices").journal.first
        client.credit(PLENTY)
        (reason,) = client.reasons
        assert reason.startswith(f"messages 1 to {oldest - 1} are not kept any more; the oldest is {oldest}:")


def test_a_span_on_its_way_outlives_retention(tmp_path: Path) -> None:
    with retained(tmp_path, "invalid") as stage:
        publisher = stage.client("prices")
        for _ in range(4):
            publisher.publish_many(["k"] * 5, b"x" * 100)
        client = stage.client("prices")
        client.subscribe()
        cursor_of(client).add_credit(PLENTY)
        span = client.session.pull()
        assert isinstance(span, Span)
        for _ in range(20):
            publisher.publish_many(["k"] * 5, b"x" * 100)
        stage.tick()
        assert stage.stream("prices").journal.first > span.last
        assert span.read().keys == [b"k"] * span.count


# Several subscriptions


@pytest.mark.spec("ZEP-02", "ZEP-10")
def test_a_second_subscription_replays_what_the_first_did_not_want(stage: Stage) -> None:
    publisher = stage.client("prices")
    publisher.publish_many(["a1", "b2", "c3", "a4", "b5"])
    client = stage.client("prices", credit=PLENTY)
    client.subscribe("a", 0)
    assert client.sequences == [1, 4]
    client.subscribe("b", 0)
    assert client.sequences == [1, 4, 2, 5]
    client.subscribe("", 2)
    assert client.sequences == [1, 4, 2, 5, 3]
    publisher.publish_many(["a6", "b7", "c8"])
    client.read()
    assert client.sequences == [1, 4, 2, 5, 3, 6, 7, 8]


@pytest.mark.spec("ZEP-10")
@pytest.mark.parametrize("after", range(6))
def test_a_second_subscription_can_begin_before_the_first(stage: Stage, after: int) -> None:
    publisher = stage.client("prices")
    publisher.publish_many(["a"] * 5)
    client = stage.client("prices", credit=PLENTY)
    client.subscribe("a", after)
    client.subscribe("", 0)
    assert client.sequences == [*range(after + 1, 6), *range(1, after + 1)]


@pytest.mark.spec("ZEP-10")
def test_the_flow_stops_for_a_second_subscription_and_goes_on_from_there(stage: Stage) -> None:
    publisher = stage.client("prices")
    publisher.publish_many(["a", "b"] * 10)
    client = stage.client("prices", credit=1)
    client.subscribe("a", 0)  # one message uses up the credit
    assert client.sequences == [1]
    client.subscribe("b", 0)
    client.credit(PLENTY)
    # No message b was before the cursor's position: nothing is replayed.
    assert client.sequences == list(range(1, 21))
    client.subscribe("a", 5)
    publisher.publish("a")
    client.read()
    assert client.sequences == list(range(1, 22))


def test_the_same_subscription_twice_is_one(stage: Stage) -> None:
    publisher = stage.client("prices")
    publisher.publish_many(["a"] * 3)
    client = stage.client("prices", credit=PLENTY)
    for _ in range(3):
        client.subscribe("a", 0)
    client.subscribe("prefix:a", 0)
    publisher.publish("a")
    client.read()
    assert client.sequences == [1, 2, 3, 4]
    client.close()
    assert stage.stream("prices").subscribers == 0


class Asked(NamedTuple):
    pattern: str
    after: int


PATTERNS = ["", "a", "b", "exact:ab", "glob:*b", "regex:a.*a", "prefix:a", "ba"]
KEYS = ["a", "b", "ab", "ba", "aba", "c"]


@pytest.mark.spec("ZEP-02", "ZEP-10")
@settings(max_examples=cases(30))
@given(st.data())
def test_each_message_that_is_due_comes_once(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    draw = data.draw
    with (
        Stage(tmp_path_factory.mktemp("several"), policy=SMALL) as stage,
        pytest.MonkeyPatch.context() as patch,
    ):
        never_wait_for_the_disk(patch)
        for name in ("WHOLE", "FILTERED", "FEW", "MESSAGES"):
            patch.setattr(cursors, name, draw(st.sampled_from([1, 300, 3000])))
        publisher = stage.client("prices")
        client = stage.client("prices", room=draw(st.sampled_from([1, 100, PLENTY])))
        published: list[str] = []
        asked: list[Asked] = []
        for step in draw(st.lists(st.sampled_from("ppscrt"), max_size=25)):
            if step == "p":
                keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=20))
                publisher.publish_many(keys, b"x" * draw(st.sampled_from([0, 50, 300])))
                published += keys
            elif step == "s" and len(asked) < 6:
                latest = draw(st.integers(0, len(published)) | st.just(LATEST))
                pattern = draw(st.sampled_from(PATTERNS))
                asked.append(Asked(pattern, min(latest, len(published))))
                # Not by `send`, which also reads.
                client.session.receive([Subscribe(pattern, latest).encode()[0]])
            elif step == "c":
                client.session.receive([Credit(draw(st.integers(0, 2000))).encode()[0]])
            elif step == "r":
                client.read()
            else:
                stage.run()
        client.credit(PLENTY)
        stage.run()
        client.read()
        matchers = Matchers()
        tests = [(one.after, matchers.parse(one.pattern)) for one in asked]
        due = [
            number
            for number, key in enumerate(published, 1)
            if any(number > after and test(key.encode()) for after, test in tests)
        ]
        assert sorted(client.sequences) == due
        assert [published[number - 1] for number in client.sequences] == client.keys
        # Sequences go back only after a new subscription.
        backwards = sum(later < sooner for sooner, later in zip(client.sequences, client.sequences[1:], strict=False))
        assert backwards <= 2 * max(0, len(asked) - 1)
        assert client.reasons == []


def test_credit_is_shared_by_all_subscriptions(stage: Stage) -> None:
    publisher = stage.client("prices")
    publisher.publish_many(["a", "b"] * 5)
    client = stage.client("prices")
    client.subscribe("a", 0)
    client.subscribe("b", 0)
    one = len(Deliver(1, "a", b"").encode()[0])
    for number in range(1, 11):
        client.credit(one)
        assert len(client.sequences) == number
    client.send(Publish("a", b""))
    assert len(client.sequences) == 10


# Patterns that are much work


class Tries:
    """The number of keys that patterns are tried on, each time that a connection asks for messages."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0
        self.most = 0
        tries = self

        def counted(self: Filter, key: bytes) -> bool:
            tries.now += self.weight > 0
            return matches(self, key)

        def pulled(self: Cursor) -> Outgoing | None:
            tries.now = 0
            more = pull(self)
            tries.most = max(tries.most, tries.now)
            return more

        matches, pull = Filter._matches, Cursor.pull
        patch.setattr(Filter, "_matches", counted)
        patch.setattr(Cursor, "pull", pulled)


HEAVY = r"regex:^k\pL*[0-9]+$"


@pytest.mark.spec("ZEP-13")
def test_a_replay_through_heavy_patterns_is_cut_into_slices(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"k{number}" for number in range(1000)]
    publisher = stage.client("prices")
    publisher.publish_many([*keys, "other"])
    tries = Tries(monkeypatch)
    client = stage.client("prices", credit=PLENTY)
    client.subscribe(HEAVY)
    assert client.sequences == list(range(1, 1001))
    assert 0 < tries.most <= keys_in_slice(1000)
    assert cursor_of(client).gear == "live"
    publisher.publish("k0")
    client.read()
    assert client.sequences[-1] == 1002


@pytest.mark.spec("ZEP-11", "ZEP-13")
def test_live_messages_that_are_much_work_to_filter_come_in_slices(stage: Stage) -> None:
    publisher = stage.client("prices")
    publisher.publish("first")  # the journal is awake now
    clients = [stage.client("prices", credit=PLENTY) for _ in range(5)]
    for client, pattern in zip(clients, [HEAVY, HEAVY, "k", "", r"regex:^k\pN*7$"], strict=True):
        client.subscribe(pattern, LATEST)
        assert cursor_of(client).gear == "live"
    publisher.session.receive([Publish(f"k{number}", b"").encode()[0] for number in range(1000)])
    stage.stream("prices").flush()
    assert cursor_of(clients[0]).gear == "history"
    stage.run()
    for client in clients:
        client.read()
        assert cursor_of(client).gear == "live"
    assert [len(client.sequences) for client in clients] == [1000, 1000, 1000, 1000, 100]
    assert clients[0].sequences == list(range(2, 1002))


def test_several_heavy_subscriptions_from_different_points(stage: Stage) -> None:
    publisher = stage.client("prices")
    publisher.publish_many([f"k{number}" for number in range(600)])
    client = stage.client("prices", credit=PLENTY)
    client.subscribe(r"regex:^k\pN*3$", 300)
    client.subscribe(HEAVY, 0)
    publisher.publish_many([f"k{number}" for number in range(100)])
    client.read()
    assert sorted(client.sequences) == list(range(1, 701))
    assert len(client.sequences) == 700


def test_a_reader_inside_a_segment_that_is_trimmed_goes_on_at_the_oldest_message(tmp_path: Path) -> None:
    with Stage(tmp_path, behind="oldest") as stage:
        stage.client("s").publish_many(["k"] * 10)
        client = stage.client("s", credit=1)
        client.subscribe()
        assert client.sequences == [1]
        stage.stream("s").journal.trim(8)
        client.credit(1000)
        assert client.sequences == [1, 8, 9, 10]
