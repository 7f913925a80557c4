"""zambezi.zeps.broker.session: the rules of the protocol, state by state and command by command, with no sockets."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zeps.stage import ANSWERS, PLENTY, Client, Stage, never_wait_for_the_disk
from zambezi.zeps.block import Block
from zambezi.zeps.broker.client_connection import MULTIPART
from zambezi.zeps.broker.cursor import Cursor
from zambezi.zeps.broker.engine import UNREAD, Limits
from zambezi.zeps.broker.session import FAULTS, Session
from zambezi.zeps.broker.session_state import SessionState
from zambezi.zeps.broker.turns import INLINE
from zambezi.zeps.journal import Policy
from zambezi.zeps.layout import frame_header
from zambezi.zeps.messages import (
    LATEST,
    TIME,
    Attach,
    AttachOk,
    Credit,
    Deliver,
    Detach,
    DetachOk,
    Invalid,
    Ping,
    PingOk,
    Publish,
    Subscribe,
    SubscribeOk,
    Zeps,
)
from zambezi.zmtp.runs import Run, find_run


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as made:
        yield made


def filled(stage: Stage, count: int = 10, stream: str = "prices") -> Client:
    """A client that has published messages 1 to `count`, one in a second, with keys k1, k2, ..."""
    client = stage.client(stream)
    for number in range(1, count + 1):
        stage.now += 1.0
        client.publish(f"k{number}", b"body")
    return client


# ATTACH


@pytest.mark.spec("ZEP-01")
def test_attach_is_answered(stage: Stage) -> None:
    client = stage.client("prices")
    assert client.heard == [AttachOk()]
    assert stage.engine.names() == ["prices"]


@pytest.mark.spec("ZEP-01")
@pytest.mark.parametrize("message", [Subscribe("", 0), Credit(10), Publish("k", b""), Ping(), DetachOk()])
def test_anything_before_attach_is_invalid_and_attach_can_still_come(stage: Stage, message: Zeps) -> None:
    client = stage.client()
    client.send(message)
    assert client.said == ["Invalid"]
    assert not client.parted
    client.send(Attach("prices"))
    assert client.said == ["Invalid", "AttachOk"]
    assert stage.stream("prices").journal.last == 0


@pytest.mark.spec("ZEP-01")
def test_a_second_attach_is_invalid_and_changes_nothing(stage: Stage) -> None:
    client = stage.client("prices")
    client.send(Attach("prices"), Attach("others"))
    assert client.said == ["AttachOk", "Invalid", "Invalid"]
    client.publish("k", b"v")
    assert stage.stream("prices").journal.last == 1
    assert stage.engine.names() == ["prices"]


@pytest.mark.spec("ZEP-01", "ZEP-08")
@pytest.mark.parametrize(
    "octets",
    [
        "aaa501 04 5a455054 0001 0161",
        "aaa501 04 5a455053 0002 0161",
        "aaa501 04 5a455053 0000 0161",
        "aaa501 00 0001 0161",
    ],
)
def test_a_wrong_protocol_or_version_is_invalid_and_a_right_one_can_follow(stage: Stage, octets: str) -> None:
    client = stage.client()
    client.send(bytes.fromhex(octets))
    assert client.said == ["Invalid"]
    assert stage.engine.names() == []
    client.send(Attach("a"))
    assert client.said == ["Invalid", "AttachOk"]


@pytest.mark.spec("ZEP-01")
@pytest.mark.parametrize("name", ["", "$nothing", "$index/nothing", "$", "$index/"])
def test_names_that_are_no_streams(stage: Stage, name: str) -> None:
    client = stage.client()
    client.send(Attach(name))
    assert client.said == ["Invalid"]
    assert stage.engine.names() == []
    client.send(Attach("prices"))
    assert client.said == ["Invalid", "AttachOk"]


def test_streams_are_made_only_where_that_is_allowed(tmp_path: Path) -> None:
    with Stage(tmp_path, create=False, streams=["prices"]) as stage:
        client = stage.client("others")
        assert client.said == ["Invalid"]
        client.send(Attach("prices"))
        assert client.said == ["Invalid", "AttachOk"]
        assert stage.engine.names() == ["prices"]


def test_the_number_of_streams_is_limited(tmp_path: Path) -> None:
    with Stage(tmp_path, limits=Limits(streams=2)) as stage:
        for name in ("a", "b"):
            assert stage.client(name).said == ["AttachOk"]
        client = stage.client("c")
        assert client.said == ["Invalid"]
        assert "limit" in client.reasons[0]
        client.send(Attach("b"))
        assert client.said == ["Invalid", "AttachOk"]
        assert stage.engine.names() == ["a", "b"]


@pytest.mark.spec("ZEP-12")
@pytest.mark.parametrize("name", ["a/b", "../up", ".", "..", "a b", "\udcff", "x" * 255, "%2e", "é", "a\0b", "\n"])
def test_any_name_is_a_stream_of_its_own(tmp_path: Path, name: str) -> None:
    with Stage(tmp_path / "data") as stage:
        client = stage.client(name)
        client.publish("k", b"v")
        assert client.said == ["AttachOk"]
        assert stage.engine.names() == [name]
        assert stage.stream(name).journal.last == 1
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    with Stage(tmp_path / "data") as stage:
        assert stage.engine.names() == [name]
        assert stage.stream(name).journal.last == 1


# SUBSCRIBE


@pytest.mark.spec("ZEP-02", "ZEP-10")
@pytest.mark.parametrize(
    ("latest", "first"),
    [(0, 1), (1, 2), (9, 10), (10, 11), (LATEST, 11)],
)
def test_where_a_subscription_begins(stage: Stage, latest: int, first: int) -> None:
    publisher = filled(stage)
    client = stage.client("prices", credit=PLENTY)
    client.subscribe("", latest)
    publisher.publish("k11", b"body")
    publisher.publish("k12", b"body")
    client.read()
    assert client.said[:2] == ["AttachOk", "SubscribeOk"]
    assert client.delivered == [Deliver(number, f"k{number}", b"body") for number in range(first, 13)]


@pytest.mark.spec("ZEP-02", "ZEP-10")
@pytest.mark.parametrize(
    ("seconds", "first"),
    [(0, 1), (0.5, 1), (1, 1), (1.001, 2), (2, 2), (5.5, 6), (9.999, 10), (10, 10)],
)
def test_a_subscription_from_a_time_that_is_past(stage: Stage, seconds: float, first: int) -> None:
    start = stage.now
    filled(stage)
    client = stage.client("prices", credit=PLENTY)
    client.subscribe_since(start + seconds)
    assert client.sequences == list(range(first, 11))


@pytest.mark.spec("ZEP-10")
def test_a_subscription_from_a_time_to_come(stage: Stage) -> None:
    publisher = filled(stage)
    client = stage.client("prices", credit=PLENTY)
    client.subscribe_since(stage.now + 2.5)
    for number in range(11, 15):
        stage.now += 1.0
        publisher.publish(f"k{number}")
        client.read()
    assert client.said[:2] == ["AttachOk", "SubscribeOk"]
    assert client.sequences == [13, 14]


@pytest.mark.spec("ZEP-10")
def test_a_time_in_the_far_future_never_comes(stage: Stage) -> None:
    publisher = filled(stage)
    client = stage.client("prices", credit=PLENTY)
    client.send(Subscribe("", TIME | ((1 << 63) - 1)))
    publisher.publish("k11")
    assert client.read() == []
    client.follow("k12")
    publisher.publish("k12")
    publisher.publish("k13")
    client.read()
    assert client.said == ["AttachOk", "SubscribeOk", "SubscribeOk", "Deliver"]


@pytest.mark.spec("ZEP-10")
def test_a_time_in_a_stream_that_is_empty(stage: Stage) -> None:
    client = stage.client("prices", credit=PLENTY)
    client.subscribe_since(0.0)
    client.publish("a")
    late = stage.client("prices", credit=PLENTY)
    late.subscribe_since(stage.now + 1)
    client.publish("b")
    stage.now += 1
    client.publish("c")
    client.read()
    late.read()
    assert client.sequences == [1, 2, 3]
    assert late.sequences == [3]


@pytest.mark.spec("ZEP-02", "ZEP-08")
@pytest.mark.parametrize("latest", [11, 12, LATEST - 1])
def test_a_number_past_the_end_is_invalid_and_the_end_is_named(stage: Stage, latest: int) -> None:
    filled(stage)
    client = stage.client("prices", credit=PLENTY)
    client.subscribe("", latest)
    assert client.said == ["AttachOk", "Invalid"]
    assert "10" in client.reasons[0]
    client.subscribe("", 10)
    assert client.said == ["AttachOk", "Invalid", "SubscribeOk"]


@pytest.mark.spec("ZEP-02", "ZEP-13")
def test_a_pattern_that_cannot_be_understood_is_invalid_and_leaves_all_as_it_was(stage: Stage) -> None:
    publisher = filled(stage, 3)
    client = stage.client("prices", credit=PLENTY)
    client.subscribe("k1")
    client.subscribe("regex:(")
    client.subscribe("glob:[b-a]")
    publisher.publish("k12")
    client.read()
    assert client.said == ["AttachOk", "SubscribeOk", "Deliver", "Invalid", "Invalid", "Deliver"]
    assert client.sequences == [1, 4]


def test_the_subscriptions_of_a_connection_are_limited(tmp_path: Path) -> None:
    with Stage(tmp_path, limits=Limits(subscriptions=3)) as stage:
        client = stage.client("prices")
        for number in range(5):
            client.subscribe(f"k{number}")
        assert client.said == ["AttachOk", *["SubscribeOk"] * 3, *["Invalid"] * 2]
        assert stage.engine.counters.invalid["limit"] == 2


@pytest.mark.spec("ZEP-13")
@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("", [1, 2, 3, 4]),
        ("temp.", [1, 2]),
        ("exact:wind", [3]),
        ("glob:*.kitchen", [2, 4]),
        ("regex:^w.*n$", [4]),
        ("prefix:w", [3, 4]),
        ("nothing", []),
    ],
)
@pytest.mark.parametrize("when", ["replayed", "live"])
def test_patterns_filter_replayed_and_live_messages(stage: Stage, pattern: str, wanted: list[int], when: str) -> None:
    publisher = stage.client("prices")
    client = stage.client("prices", credit=PLENTY)
    if when == "live":
        client.subscribe(pattern)
    publisher.publish_many(["temp.attic", "temp.kitchen", "wind", "wind.kitchen"])
    if when == "replayed":
        client.subscribe(pattern)
    client.read()
    assert client.sequences == wanted


# CREDIT


def cost(messages: list[Deliver]) -> int:
    return sum(len(message.encode()[0]) for message in messages)


@pytest.mark.spec("ZEP-03")
@pytest.mark.parametrize("pattern", ["", "k"])
@pytest.mark.parametrize("when", ["replayed", "live"])
def test_without_credit_nothing_is_sent(stage: Stage, pattern: str, when: str) -> None:
    publisher = stage.client("prices")
    client = stage.client("prices")
    if when == "live":
        client.subscribe(pattern)
    publisher.publish_many(["k"] * 20, b"x" * 100)
    if when == "replayed":
        client.subscribe(pattern)
    assert client.said == ["AttachOk", "SubscribeOk"]
    client.credit(0)
    assert client.sequences == []


@pytest.mark.spec("ZEP-03")
@pytest.mark.parametrize("pattern", ["", "k"])
@pytest.mark.parametrize("when", ["replayed", "live"])
def test_the_last_message_may_overdraw_by_itself_alone(stage: Stage, pattern: str, when: str) -> None:
    publisher = stage.client("prices")
    client = stage.client("prices")
    one = len(Deliver(1, "k", b"x" * 100).encode()[0])
    if when == "live":
        client.subscribe(pattern, LATEST)
    publisher.publish_many(["k"] * 20, b"x" * 100)
    if when == "replayed":
        client.subscribe(pattern)
    client.credit(1)
    assert client.sequences == [1]  # for one byte of credit
    client.credit(one - 1)
    assert client.sequences == [1]  # the overdraft is paid, and no credit is left
    client.credit(1)
    assert client.sequences == [1, 2]
    client.credit(one - 1 + 3 * one)
    assert client.sequences == [1, 2, 3, 4, 5]
    client.credit(3 * one + 1)
    assert client.sequences == list(range(1, 10))
    client.credit(PLENTY)
    assert client.sequences == list(range(1, 21))


@pytest.mark.spec("ZEP-03")
def test_a_message_larger_than_the_credit_gets_through(stage: Stage) -> None:
    client = stage.client("prices", credit=10)
    client.subscribe()
    client.publish("k", b"x" * 5_000_000)
    client.publish("k", b"small")
    client.read()
    assert client.sequences == [1]
    client.credit(4_000_000)
    assert client.sequences == [1]
    client.credit(2_000_000)
    assert client.sequences == [1, 2]


@pytest.mark.spec("ZEP-03")
@settings(max_examples=cases(15))
@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=40),
    st.lists(st.integers(0, 900), max_size=40),
    st.sampled_from(["", "k", "exact:k1"]),
    st.data(),
)
def test_credit_is_never_overdrawn_by_more_than_one_message(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], amounts: list[int], pattern: str, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch, Stage(tmp_path_factory.mktemp("credit")) as stage:
        never_wait_for_the_disk(patch)
        publisher = stage.client("prices")
        client = stage.client("prices")
        client.subscribe(pattern)
        steps = data.draw(st.permutations(["publish"] * len(sizes) + ["credit"] * len(amounts)))
        waiting = [(f"k{size % 3}", b"x" * size) for size in sizes]
        published: list[Deliver] = []
        given_ = 0
        for step in steps:
            if step == "publish":
                key, body = waiting.pop()
                publisher.publish(key, body)
                message = Deliver(stage.stream("prices").journal.last, key, body)
                if pattern != "exact:k1" or key == "k1":
                    published.append(message)
            else:
                amount = amounts.pop()
                given_ += amount
                client.credit(amount)
            client.read()
            due: list[Deliver] = []
            for message in published:
                if cost(due) >= given_:
                    break
                due.append(message)
            assert client.delivered == due


@pytest.mark.spec("ZEP-03")
def test_credit_adds_up_before_and_after_the_subscription_and_has_no_end(stage: Stage) -> None:
    client = stage.client("prices")
    for _ in range(4):
        client.credit((1 << 64) - 1)
    client.subscribe()
    client.publish("k")
    client.read()
    assert client.said == ["AttachOk", "SubscribeOk", "Deliver"]
    assert client.session.cursor is not None
    assert client.session.cursor.credit < 1 << 63


# PUBLISH


@pytest.mark.spec("ZEP-04", "ZEP-05", "ZEP-09")
def test_published_messages_are_sequenced_journalled_and_delivered(stage: Stage) -> None:
    publisher = stage.client("prices")
    client = stage.client("prices", credit=PLENTY)
    client.subscribe()
    publisher.publish_many(["gold", "silver"], b"\0\xff")
    publisher.publish("", b"")
    client.read()
    wanted = [Deliver(1, "gold", b"\0\xff"), Deliver(2, "silver", b"\0\xff"), Deliver(3, "", b"")]
    assert client.delivered == wanted
    assert publisher.said == ["AttachOk"]  # no confirmation
    span = stage.stream("prices").journal.reader(0).peek(1 << 20)
    assert span is not None
    assert [Zeps.decode(body) for body in span.read().bodies] == wanted


def run_of(*messages: Zeps) -> Run:
    octets = b"".join([frame_header(len(body)) + body for message in messages for body in message.encode()])
    run = find_run(octets, 0, len(octets))
    assert run is not None
    return run


@pytest.mark.spec("ZEP-04", "ZEP-05")
def test_a_run_of_messages_is_published_as_a_whole(stage: Stage) -> None:
    publisher = stage.client("prices")
    assert publisher.session.receive_run(run_of(*[Publish(f"k{number:02}", b"body") for number in range(20)]))
    publisher.publish("longer", b"body")
    assert publisher.session.receive_run(run_of(*[Publish(f"k{number:02}", b"four") for number in range(20)]))
    client = stage.client("prices", credit=PLENTY)
    client.subscribe(latest=0)
    client.read()
    assert [message.sequence for message in client.delivered] == list(range(1, 42))
    assert [message.key for message in client.delivered][18:23] == ["k18", "k19", "longer", "k00", "k01"]
    assert publisher.session.published == 41


def test_one_message_passes_through_few_functions_before_it_is_sent(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The latency of a message grows with the code that it passes through: after a pause, none of it is in a cache."""
    publisher = stage.client("prices")
    client = stage.client("prices", credit=PLENTY)
    client.subscribe()
    publisher.publish("gold", b"1")  # wakes the journal
    stage.now += 1.0
    frame = Publish("gold", b"2").encode()[0]
    calls: list[str] = []
    sent: list[int] = []

    def note(running: FrameType, event: str, _: object) -> None:
        if event == "call" and str(running.f_globals.get("__name__")).startswith("zambezi."):
            calls.append(running.f_code.co_name)

    def send_live(cursor: Cursor, block: Block) -> None:
        sent.append(len(calls))
        real(cursor, block)

    real = Cursor.send_live
    monkeypatch.setattr(Cursor, "send_live", send_live)
    sys.setprofile(note)
    try:
        publisher.session.receive([frame])
    finally:
        sys.setprofile(None)
    (before,) = sent
    assert before <= 20, calls[:before]


def test_a_run_that_is_not_of_messages_or_must_wait_is_left_alone(stage: Stage) -> None:
    publisher = stage.client("prices")
    messages = run_of(*[Publish("key", b"body")] * 20)
    assert not publisher.session.receive_run(run_of(*[Ping()] * 20))
    new = stage.client()
    assert not new.session.receive_run(messages)
    publisher.session.receive([Ping().encode()[0]] * (2 * INLINE))  # more than one turn: the rest is deferred
    assert not publisher.session.receive_run(messages)


@pytest.mark.spec("ZEP-14")
def test_a_client_subscribes_and_publishes_on_one_connection(stage: Stage) -> None:
    client = stage.client("prices", credit=PLENTY)
    client.send(Subscribe("a", 0), Publish("a", b"1"), Publish("b", b"2"), Ping(), Publish("a", b"3"))
    client.read()
    assert client.delivered == [Deliver(1, "a", b"1"), Deliver(3, "a", b"3")]
    assert client.confirmed == 1


@pytest.mark.spec("ZEP-12")
def test_streams_are_apart(stage: Stage) -> None:
    one, other = stage.client("one", credit=PLENTY), stage.client("other", credit=PLENTY)
    one.subscribe()
    other.subscribe()
    one.publish("a")
    one.publish("b")
    other.publish("c")
    assert one.delivered == [Deliver(1, "a", b""), Deliver(2, "b", b"")]
    assert other.delivered == [Deliver(1, "c", b"")]


@pytest.mark.spec("ZEP-08")
@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xaa",
        b"\xaa\xa5",
        b"\xaa\xa5\x00",
        b"\xaa\xa5\x0d",
        b"\xaa\xa6\x08",
        b"GET / HTTP/1.1",
        b"\xaa\xa5\x08\x00",
        b"\xaa\xa5\x06\x05abc",
        b"\xaa\xa5\x06\x01a\x00\x00\x00\x05abc",
        b"\xaa\xa5\x06\x01a\x00\x00\x00\x01abc",
        b"\xaa\xa5\x03\x00\x00",
        b"\xaa\xa5\x05\x00",
        bytes(1000),
    ],
)
def test_garbage_is_answered_and_later_messages_count(stage: Stage, frame: bytes) -> None:
    client = stage.client("prices")
    client.send(Publish("a", b""), frame, Publish("b", b""), Ping())
    assert client.said == ["AttachOk", "Invalid", "PingOk"]
    assert stage.stream("prices").journal.last == 2
    assert stage.engine.counters.invalid == {"malformed": 1}


@pytest.mark.spec("ZEP-08")
@pytest.mark.parametrize(
    "message", [AttachOk(), SubscribeOk(), Deliver(1, "k", b""), Invalid("so are you"), DetachOk()]
)
def test_messages_of_servers_are_invalid(stage: Stage, message: Zeps) -> None:
    client = stage.client("prices")
    client.send(message)
    assert client.said == ["AttachOk", "Invalid"]
    client.ping()
    assert client.said[-1] == "PingOk"


@pytest.mark.spec("ZEP-08")
def test_a_message_of_several_frames_is_invalid(stage: Stage) -> None:
    client = stage.client("prices")
    client.session.receive([MULTIPART])
    client.ping()
    assert client.said == ["AttachOk", "Invalid", "PingOk"]
    client.detach()
    client.session.receive([MULTIPART])
    client.read()
    assert client.said == ["AttachOk", "Invalid", "PingOk", "DetachOk"]


@pytest.mark.spec("ZEP-08")
@settings(max_examples=cases(50))
@given(st.lists(st.binary(max_size=300) | st.binary(max_size=280).map(lambda rest: b"\xaa\xa5" + rest), max_size=20))
def test_for_any_input_reasons_are_printable_and_short(
    tmp_path_factory: pytest.TempPathFactory, frames: list[bytes]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        never_wait_for_the_disk(patch)
        stage = Stage(tmp_path_factory.mktemp("garbage"), limits=Limits(streams=5))
        for start in ([], [Attach("prices")], [Attach("$streams")]):
            client = stage.client()
            client.send(*start)
            client.send(*frames)
            for frame in frames:
                client.send(frame)
            for reason in client.reasons:
                assert reason.isprintable()
                assert 0 < len(reason.encode()) <= 255
        stage.close()


@pytest.mark.spec("ZEP-08")
@pytest.mark.parametrize(
    "message",
    [
        Attach("$" + "\udcff\n" * 100),
        Attach("$\u00e9" * 80),
        Subscribe("regex:(" + "\udcff\u20ac\n" * 40, 0),
        Subscribe("glob:[b-a]" + "\u00e9" * 110, 0),
    ],
)
def test_reasons_that_quote_odd_names_are_printable_and_short(stage: Stage, message: Zeps) -> None:
    client = stage.client("prices" if isinstance(message, Subscribe) else "")
    client.send(message)
    (reason,) = client.reasons
    assert reason.isprintable()
    assert len(reason.encode()) <= 255


# Permissions


def test_users_do_only_allowed_things(tmp_path: Path) -> None:
    def allow(user: str, action: str, stream: str) -> bool:
        return (user, action) in {("ann", "create"), ("ann", "publish"), ("bob", "subscribe")} and stream != "secret"

    with Stage(tmp_path, allow=allow) as stage:
        bob = stage.client("prices", user="bob", credit=PLENTY)
        assert bob.said[0] == "Invalid"  # he may not create a stream
        ann = stage.client("prices", user="ann", credit=PLENTY)
        bob = stage.client("prices", user="bob", credit=PLENTY)
        ann.publish("a")
        ann.subscribe()
        bob.subscribe()
        bob.publish_many(["b"] * 20)
        bob.read()
        assert ann.said == ["AttachOk", "Invalid"]
        assert bob.said == ["AttachOk", "SubscribeOk", "Deliver", *["Invalid"] * 20]
        assert stage.stream("prices").journal.last == 1
        assert stage.engine.counters.invalid["forbidden"] == 21
        assert stage.client("secret", user="ann").said == ["Invalid"]
        assert stage.client("$index/prices", user="bob").said == ["AttachOk"]
        assert stage.client("$index/prices", user="ann").said == ["Invalid"]


# PING


@pytest.mark.spec("ZEP-06")
@pytest.mark.parametrize("sync", ["never", "interval"])
def test_ping_is_answered_when_all_before_it_is_in_the_journal(tmp_path: Path, sync: str) -> None:
    with Stage(tmp_path, policy=Policy(sync=sync)) as stage:  # type: ignore[arg-type]
        client = stage.client("prices")
        client.ping()
        assert client.said == ["AttachOk", "PingOk"]
        stage.stream("prices").journal.wake()
        client.session.receive([Publish("a", b"").encode()[0], Publish("b", b"").encode()[0], Ping().encode()[0]])
        client.read()
        assert client.confirmed == 2
        assert stage.stream("prices").journal.last == 2  # without a turn of the loop
        assert stage.syncs == 0


@pytest.mark.spec("ZEP-06")
def test_with_sync_always_ping_is_answered_when_the_disk_has_it(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="always")) as stage:
        client, other = stage.client("prices"), stage.client("prices")
        client.ping()
        assert client.confirmed == 1  # there is nothing to sync
        client.send(Publish("a", b""), Ping())
        assert client.confirmed == 1
        other.send(Publish("b", b""), Ping())
        assert stage.stream("prices").journal.last == 2
        stage.write_back()
        client.read()
        other.read()
        assert client.confirmed == 2
        assert other.confirmed == 1
        assert stage.syncs == 1  # one for both
        assert stage.stream("prices").journal.synced == 2


@pytest.mark.spec("ZEP-06")
def test_a_sync_that_began_too_early_confirms_nothing_that_came_later(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="always")) as stage:
        client, other = stage.client("prices"), stage.client("prices")
        client.send(Publish("a", b""), Ping())
        stream = stage.stream("prices")
        stage.syncing.clear()
        stream.journal.sync()  # on its thread; meanwhile another message was published
        other.send(Publish("b", b""), Ping())
        stream.confirm_barriers()
        client.read()
        other.read()
        assert client.confirmed == 1
        assert other.confirmed == 0
        stage.write_back()
        other.read()
        assert other.confirmed == 1


@pytest.mark.spec("ZEP-06")
def test_each_ping_is_answered_in_order_with_the_other_answers(stage: Stage) -> None:
    client = stage.client("prices")
    client.send(Ping(), Subscribe("", 0), Ping(), bytes(3), Ping())
    assert client.said == ["AttachOk", "PingOk", "SubscribeOk", "PingOk", "Invalid", "PingOk"]


@pytest.mark.spec("ZEP-06")
def test_an_answer_to_a_ping_is_no_news(stage: Stage) -> None:
    client = stage.client()
    client.send(PingOk(), Attach("prices"), PingOk())
    assert client.said == ["AttachOk"]


# DETACH


@pytest.mark.spec("ZEP-07")
def test_a_client_detaches(stage: Stage) -> None:
    watcher = stage.client("prices", credit=PLENTY)
    watcher.subscribe()
    client = stage.client("prices", credit=PLENTY)
    client.subscribe()
    stage.stream("prices").journal.wake()
    client.send(Publish("a", b""), Detach(), Publish("b", b""), Ping())
    assert client.said == ["AttachOk", "SubscribeOk", "Deliver", "DetachOk"]
    assert client.parted
    assert client.session.state is SessionState.CLOSED
    watcher.publish("c")
    client.read()
    watcher.read()
    assert watcher.keys == ["a", "c"]
    assert client.sequences == [1]
    assert list(stage.engine.sessions) == [watcher.session]
    assert stage.stream("prices").attached == 1
    assert stage.stream("prices").subscribers == 1


@pytest.mark.spec("ZEP-07")
def test_a_client_that_never_attached_detaches(stage: Stage) -> None:
    client = stage.client()
    client.detach()
    assert client.said == ["DetachOk"]
    assert client.parted
    assert not stage.engine.sessions


@pytest.mark.spec("ZEP-07")
def test_the_broker_detaches(stage: Stage) -> None:
    client = stage.client("prices", credit=PLENTY)
    client.subscribe()
    stage.engine.detach_all()
    client.read()
    assert client.said == ["AttachOk", "SubscribeOk", "Detach"]
    stage.stream("prices").journal.wake()
    # The client's last messages are still handled, but nothing is delivered to it.
    client.send(Publish("a", b""), Ping(), Subscribe("", 0), Credit(10), Attach("x"), DetachOk())
    assert client.said == ["AttachOk", "SubscribeOk", "Detach", "PingOk", "Invalid"]
    assert stage.stream("prices").journal.last == 1
    assert client.parted
    assert not stage.engine.sessions


def test_nothing_is_confirmed_to_a_client_that_is_gone(stage: Stage) -> None:
    """Otherwise any number of barriers of a client that is gone would be answered one by one."""
    client = stage.client("prices")
    client.close()
    client.session.confirm(1 << 60)
    assert client.said == ["AttachOk"]


@pytest.mark.spec("ZEP-07")
def test_both_detach_at_once(stage: Stage) -> None:
    client = stage.client("prices")
    stage.engine.detach_all()
    client.detach()
    assert client.said == ["AttachOk", "Detach", "DetachOk"]
    assert client.parted
    assert not stage.engine.sessions


def test_a_connection_that_is_lost_leaves_nothing_behind(stage: Stage) -> None:
    client = stage.client("prices", credit=PLENTY)
    client.subscribe("a")
    client.follow("b")
    client.subscribe_since(stage.now + 100)
    client.send(Publish("a", b""))
    client.close()
    client.close()
    stream = stage.stream("prices")
    assert not stage.engine.sessions
    assert (stream.attached, stream.subscribers, len(stream.future_selections), stream.waiting_cursors) == (
        0,
        0,
        0,
        set(),
    )
    assert stream.journal.last == 1


@pytest.mark.parametrize("stream", ["prices", "$streams", "$index/prices"])
@pytest.mark.parametrize(
    "messages",
    [
        [Subscribe("", 0)],
        [Subscribe("", LATEST)],
        [Subscribe("regex:(", 0)],
        [Ping(), Ping()],
        [Publish("k", b""), Ping()],
        [Publish("k", b""), Subscribe("", 0)],
        [Publish("k", b""), Detach()],
        [Detach()],
        [b"garbage", Subscribe("k", 0), Ping()],
    ],
)
@pytest.mark.parametrize("subscribed", [False, True])
def test_a_connection_may_be_found_broken_at_any_answer(
    stage: Stage, stream: str, messages: list[Zeps | bytes], subscribed: bool
) -> None:
    filled(stage, 3).close()
    client = stage.client(stream, credit=PLENTY)
    if subscribed:
        client.subscribe("", LATEST)
    client.send(Publish("k", b""))  # so that the next messages are not appended at once
    client.broken = True
    client.send(*messages)
    assert client.gone
    assert not stage.engine.sessions
    prices = stage.stream("prices")
    assert (prices.attached, prices.subscribers, prices.waiting_cursors, len(prices.future_selections)) == (
        0,
        0,
        set(),
        0,
    )
    stage.tick()
    other = stage.client("prices", credit=PLENTY)
    other.subscribe()
    other.publish("k")
    assert other.sequences == list(range(1, prices.journal.last + 1))


# The reserved streams


@pytest.mark.spec("ZEP-08")
@pytest.mark.parametrize("name", ["$streams", "$clients", "$index/prices"])
def test_clients_cannot_publish_to_a_reserved_stream(stage: Stage, name: str) -> None:
    filled(stage, 1)
    client = stage.client(name)
    client.publish_many(["k"] * 20)
    assert client.said == ["AttachOk", *["Invalid"] * 20]
    assert stage.engine.names() == ["prices"]


# Much work


@pytest.mark.parametrize("message", [Ping(), b"nonsense", Subscribe("regex:(", 0)])
def test_a_client_that_sends_very_many_commands_waits_for_its_turns(stage: Stage, message: Zeps | bytes) -> None:
    greedy, lawful = stage.client("prices"), stage.client("news")
    frame = message if isinstance(message, bytes) else message.encode()[0]
    greedy.session.receive([frame] * 900)
    assert len(stage.engine.turns) == 1
    assert greedy.unread < 300 * INLINE  # bytes of answers
    lawful.session.receive([Ping().encode()[0]])
    assert lawful.unread  # its answer came at once
    stage.run()
    greedy.read()
    assert len(greedy.said) == 1 + 900
    assert not stage.engine.turns


def test_messages_stay_in_order_when_they_wait(stage: Stage) -> None:
    client = stage.client("prices")
    many: list[Zeps] = []
    for number in range(200):
        many += [Publish(f"k{number}", b""), Ping()]
    client.session.receive([each.encode()[0] for each in many[:300]])
    client.session.receive([MULTIPART])
    client.session.receive([each.encode()[0] for each in many[300:]])
    stage.run()
    stage.write_back()
    client.read()
    assert client.said == ["AttachOk", *["PingOk"] * 150, "Invalid", *["PingOk"] * 50]
    assert list(stage.stream("prices").journal.reader(0).peek(1 << 20).read().keys) == [  # type: ignore[union-attr]
        f"k{number}".encode() for number in range(200)
    ]


def test_messages_that_wait_count_although_the_connection_is_lost(stage: Stage) -> None:
    client = stage.client("prices")
    client.session.receive([each.encode()[0] for _ in range(500) for each in (Publish("k", b""), Ping())])
    client.close()
    stage.run()
    assert stage.stream("prices").journal.last == 500
    assert not stage.engine.sessions
    assert not stage.engine.turns


def test_messages_that_wait_are_published_once_although_an_answer_finds_the_connection_lost(stage: Stage) -> None:
    client = stage.client("prices")
    client.publish("first")  # the journal is awake now
    client.session.receive([each.encode()[0] for _ in range(500) for each in (Publish("k", b""), Ping())])
    assert len(stage.engine.turns) == 1
    client.broken = True
    stage.run()
    assert client.gone
    assert stage.stream("prices").journal.last == 501
    assert not stage.engine.sessions


def test_a_client_that_reads_is_held_back_and_not_cut_off(stage: Stage) -> None:
    client = stage.client("prices", room=100)
    client.send(*[Ping()] * 20_000)
    assert client.confirmed == 20_000
    assert stage.engine.counters.unread == 0
    assert not stage.engine.unread


def test_a_client_that_does_not_read_is_held_back_and_then_let_go(stage: Stage) -> None:
    client = stage.client("prices", room=100)
    client.session.receive([Subscribe("regex:(", 0).encode()[0]] * 20_000)
    stage.run()
    assert client.queue_length <= ANSWERS + INLINE
    for _ in range(UNREAD):
        stage.tick()
    assert stage.engine.sessions
    stage.tick()
    assert client.gone
    assert not stage.engine.sessions
    assert stage.engine.counters.unread == 1


def test_a_client_that_sends_nothing_but_nonsense_is_let_go(stage: Stage) -> None:
    client = stage.client("prices")
    client.send(*[b"nonsense"] * (FAULTS - 1))
    client.send(Ping())
    assert (client.parted, client.confirmed) == (False, 1)
    client.send(b"nonsense", Ping(), b"nonsense")
    assert (client.parted, client.confirmed) == (True, 1)
    assert f"message {FAULTS} of this connection" in str(client.heard[-1])
    assert stage.engine.counters.expelled == 1
    assert not stage.engine.sessions


def test_a_mistake_of_the_broker_ends_the_connection_and_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unlucky, other = stage.client("prices"), stage.client("prices")

    def fail(*_: object) -> None:
        raise RuntimeError("a mistake")

    with monkeypatch.context() as patch:
        patch.setattr(Session, "_handle", fail)
        unlucky.send(Ping())
    assert "by a mistake of its own: see its log" in unlucky.reasons[0]
    assert unlucky.said[-1] == "Detach"
    assert stage.engine.counters.invalid == {"failed": 1}
    assert "RuntimeError: a mistake" in caplog.text
    other.send(Ping())
    assert other.said[-1] == "PingOk"
