"""zambezi.mcollective.middleware_engine: the rules, one by one, without sockets and clocks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mcollective.stage import Client, E, Stage
from zambezi.mcollective.archive import Kept, MemoryArchive, Since
from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.errors import ArchiveError
from zambezi.mcollective.events import CaughtUp, ClientConnected, ClientGone, CommandDenied, SlowSubscriber
from zambezi.mcollective.outputs import Deliver
from zambezi.mcollective.rules import Rule, Rules

Frames = tuple[bytes, ...]


def error_of(frames: Frames) -> str:
    """Return the text of an ERROR."""
    at = 1 if not frames[0] else 0
    assert frames[at] == b"ERROR"
    headers = dict(zip(frames[at + 1 :: 2], frames[at + 2 :: 2], strict=True))
    return headers[b"MESSAGE"].decode()


def message(topic: bytes, *body: bytes) -> Frames:
    return (E, b"MESSAGE", b"TOPIC", topic, E, *body)


# Answers


@pytest.mark.spec("MCO-04")
@pytest.mark.parametrize(
    "command",
    [
        [b"CONNECT", b"ID", b"7", b"VERSION", b"0.1", b"TTL", b"1000"],
        [b"SUB", b"ID", b"7", E, b"a"],
        [b"UNSUB", b"ID", b"7", E, b"a"],
        [b"PUT", b"TOPIC", b"a", b"ID", b"7", E, b"x"],
        [b"NOOP", b"ID", b"7"],
        [b"DISCONNECT", b"ID", b"7"],
    ],
)
def test_a_command_with_an_id_is_answered_ok_with_that_id(command: list[bytes]) -> None:
    assert Stage().client().say(E, *command) == [(E, b"OK", b"ID", b"7")]
    assert Stage().client().say(*command) == [(b"OK", b"ID", b"7")]


@pytest.mark.spec("MCO-04", "MCO-13")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([b"FETCH", b"ID", b"7"], "'FETCH' is no verb"),
        ([b"PUT", b"ID", b"7", E, b"x"], "TOPIC"),
        ([b"SUB", b"ID", b"7", b"odd"], "'odd' has no value"),
        ([b"CONNECT", b"ID", b"7", b"VERSION", b"9"], "VERSION '9'"),
        ([b"CONNECT", b"ID", b"7", b"TTL", b"soon"], "TTL"),
        ([b"SUB", b"ID", b"7", E, b"ok", b"$own"], "middleware's own"),
        ([b"SUB", b"ID", b"7", E, b""], "1 to 4096 bytes"),
        ([b"PUT", b"ID", b"7", b"TOPIC", b"t" * 4097, E, b"x"], "1 to 4096 bytes"),
        ([b"NOOP", b"ID", b"7", b"FOO", b"1"], "reserved"),
    ],
)
def test_a_mistake_with_an_id_is_answered_error_with_that_id_and_a_description(
    command: list[bytes], words: str
) -> None:
    stage = Stage()
    (answer,) = stage.client().say(E, *command)
    assert answer[:4] == (E, b"ERROR", b"ID", b"7")
    assert words in error_of(answer)
    assert stage.engine.counters.malformed == stage.engine.counters.errors == 1


@pytest.mark.spec("MCO-05")
def test_without_an_id_nothing_comes_back_unless_something_is_wrong() -> None:
    client = Stage().client()
    assert client.say(E, b"CONNECT", b"VERSION", b"0.2", b"TTL", b"1000") == []
    assert client.say(E, b"SUB", E, b"a") == []
    assert client.say(E, b"UNSUB", E, b"a") == []
    assert client.say(E, b"PUT", b"TOPIC", b"a", E, b"x") == []
    assert client.say(E, b"NOOP") == []
    (answer,) = client.say(E, b"PUT", E, b"x")
    assert answer[:3] == (E, b"ERROR", b"MESSAGE")
    assert "TOPIC" in error_of(answer)


@pytest.mark.spec("MCO-13")
def test_the_id_of_one_client_is_never_given_to_another() -> None:
    stage = Stage()
    one, other = stage.client(b"one"), stage.client(b"other")
    assert one.say(E, b"NOOP", b"ID", b"mine", b"odd")[0][:4] == (E, b"ERROR", b"ID", b"mine")
    assert other.take() == []
    assert other.say(E, b"NOOP", b"odd")[0][2] == b"MESSAGE"


def test_errors_are_not_answered() -> None:
    """Two sides that did would never stop."""
    stage = Stage()
    client = stage.client()
    assert client.say(E, b"ERROR", b"MESSAGE", b"no") == []
    assert client.say(E, b"ERROR", b"ID", b"7", b"MESSAGE", b"no") == []
    assert client.say(E, b"OK", b"ID", b"7") == []
    assert stage.engine.counters.ignored == 3


def test_a_client_is_answered_in_the_form_that_it_uses() -> None:
    stage = Stage()
    with_it, without = stage.client(b"with"), stage.client(b"without")
    with_it.say(E, b"SUB", E, b"a")
    without.say(b"SUB", E, b"a")
    assert without.say(b"PUT", b"TOPIC", b"a", E, b"x") == [(b"MESSAGE", b"TOPIC", b"a", E, b"x")]
    assert with_it.take() == [message(b"a", b"x")]
    # A client can change its form, and is answered in the new one at once.
    assert without.say(E, b"PUT", b"TOPIC", b"a", E, b"y") == [message(b"a", b"y")]
    assert with_it.take() == [message(b"a", b"y")]
    assert with_it.say(b"NOOP", b"ID", b"1") == [(b"OK", b"ID", b"1")]
    without.say(E, b"PUT", b"TOPIC", b"a", E, b"z")
    assert with_it.take() == [(b"MESSAGE", b"TOPIC", b"a", E, b"z")]


# CONNECT


@pytest.mark.spec("MCO-07")
@pytest.mark.parametrize("version", [b"0.1", b"0.2", b"0.3"])
@pytest.mark.parametrize("order", [1, -1])
def test_connect_takes_version_and_ttl_in_any_order(version: bytes, order: int) -> None:
    stage = Stage()
    pairs = [(b"VERSION", version), (b"TTL", b"30000"), (b"ID", b"7")][::order]
    assert stage.client(b"c").say(E, b"CONNECT", *(frame for pair in pairs for frame in pair)) == [
        (E, b"OK", b"ID", b"7")
    ]
    assert stage.events == [ClientConnected("", b"c", "", version.decode(), 30.0)]


@pytest.mark.spec("MCO-07")
def test_the_ttl_is_in_milliseconds() -> None:
    stage = Stage()
    client = stage.client()
    client.connect(ttl=2000)
    stage.pass_time(1.69)
    assert client.take() == []
    stage.pass_time(0.02)
    assert client.take() == [(E, b"NOOP")]


@pytest.mark.parametrize("ttl", [b"0", b"49", b"-5", b"1e3", b"", b"9" * 11, b"\xff"])
def test_a_malformed_ttl_is_refused_and_changes_nothing(ttl: bytes) -> None:
    stage = Stage()
    client = stage.client()
    client.connect(ttl=1000)
    assert "TTL" in error_of(client.say(E, b"CONNECT", b"TTL", ttl)[0])
    assert client.session.ttl == 1.0


def test_commands_before_connect_are_taken_as_they_are() -> None:
    stage = Stage()
    client = stage.client()
    client.sub(b"a")
    assert client.say(E, b"PUT", b"TOPIC", b"a", E, b"x") == [message(b"a", b"x")]
    stage.pass_time(1e6)
    assert client.say(E, b"PUT", b"TOPIC", b"a", E, b"x") == [message(b"a", b"x")]


def test_a_client_without_a_ttl_never_expires_and_costs_no_timer() -> None:
    stage = Stage()
    client = stage.client()
    client.connect()
    assert stage.engine.deadline == float("inf")
    stage.pass_time(1e6)
    assert client.say(E, b"NOOP", b"ID", b"1") == [(E, b"OK", b"ID", b"1")]


def test_connect_again_keeps_the_subscriptions_of_a_live_session() -> None:
    client = Stage().client()
    client.sub(b"a")
    client.connect(ttl=1000)
    client.connect(ttl=5000)
    assert client.say(E, b"PUT", b"TOPIC", b"a", E, b"x") == [message(b"a", b"x")]


# Silence


@pytest.mark.spec("MCO-06")
def test_noop_from_a_client_keeps_its_session_alive() -> None:
    stage = Stage()
    client = stage.client()
    client.connect(ttl=1000)
    client.sub(b"a")
    for _ in range(10):
        stage.pass_time(0.95)
        client.say(E, b"NOOP")
    client.take()
    assert client.say(E, b"PUT", b"TOPIC", b"a", E, b"x") == [message(b"a", b"x")]
    assert stage.engine.counters.expired == 0


@pytest.mark.spec("MCO-06", "MCO-08")
def test_our_own_silence_is_broken_by_a_noop_at_85_hundredths_of_the_ttl() -> None:
    stage = Stage()
    client = stage.client()
    client.connect(ttl=10_000)
    for _ in range(3):
        stage.pass_time(8.4999)
        assert client.take() == []
        client.say(E, b"NOOP")
        stage.pass_time(0.0002)
        assert client.take() == [(E, b"NOOP")]
        stage.now -= 0.0001


@pytest.mark.parametrize("lateness", [0.0, 0.05, 0.14])
@pytest.mark.spec("MCO-08")
def test_a_noop_that_is_late_by_a_seventh_of_the_ttl_is_in_time(lateness: float) -> None:
    """The Ruby connector reconnects if it heard nothing for 1.0 of the TTL, and its threads run late."""
    stage = Stage()
    client = stage.client()
    client.connect(ttl=10_000)
    heard = stage.now
    for _ in range(20):
        while not client.take():
            stage.now = stage.engine.deadline
            stage.engine.tick(stage.now)
            stage.pump()
        client.say(E, b"NOOP")
        assert stage.now + lateness * 10 < heard + 10.0
        heard = stage.now


@pytest.mark.spec("MCO-08")
def test_whoever_is_sent_something_needs_no_noop() -> None:
    stage = Stage()
    client, speaker = stage.client(b"c"), stage.client(b"s")
    client.connect(ttl=10_000)
    client.sub(b"a")
    heard = []
    for _ in range(5):
        stage.pass_time(8.0)
        heard += client.say(E, b"NOOP")
        speaker.say(E, b"PUT", b"TOPIC", b"a", E, b"x")
    stage.pass_time(8.0)
    assert heard + client.take() == [message(b"a", b"x")] * 5


@pytest.mark.spec("MCO-08")
def test_a_client_that_is_silent_for_longer_than_its_ttl_is_absent() -> None:
    stage = Stage()
    client, speaker = stage.client(b"c"), stage.client(b"s")
    client.connect(ttl=10_000)
    client.sub(b"a")
    stage.pass_time(10.49)
    assert b"a" in stage.engine.topics
    stage.pass_time(0.02)
    assert b"a" not in stage.engine.topics
    assert stage.engine.counters.expired == 1
    assert isinstance(stage.events[-1], ClientGone)
    assert "TTL is 10 s" in stage.events[-1].reason
    client.take()
    speaker.say(E, b"PUT", b"TOPIC", b"a", E, b"x")
    assert client.take() == []


def test_a_middleware_that_was_suspended_forgets_no_client_before_it_has_read_its_messages() -> None:
    stage = Stage()
    client, silent = stage.client(b"c"), stage.client(b"silent")
    for each in (client, silent):
        each.connect(ttl=1000)
        each.sub(each.session.identity)
    stage.now += 3600  # the machine was suspended, and its timers fire late
    stage.engine.tick(stage.now)
    stage.pump()
    assert sorted(stage.engine.topics) == [b"c", b"silent"]
    client.say(E, b"NOOP")
    stage.pass_time(0.2)
    assert sorted(stage.engine.topics) == [b"c"]


def test_a_forgotten_client_is_told_to_connect_again_and_can() -> None:
    stage = Stage()
    client = stage.client()
    client.connect(ttl=1000)
    stage.pass_time(2)
    client.take()
    for command in ([b"NOOP"], [b"SUB", E, b"a"], [b"PUT", b"TOPIC", b"a", E, b"x"]):
        (answer,) = client.say(E, *command)
        assert "CONNECT again" in error_of(answer)
        assert answer[-2:] == (b"X-EXPECTED", b"CONNECT")
    assert client.say(E, b"SUB", b"ID", b"7", E, b"a")[0][:4] == (E, b"ERROR", b"ID", b"7")
    assert b"a" not in stage.engine.topics
    assert stage.engine.counters.absent == 4
    client.connect(ttl=1000)
    client.sub(b"a")
    assert client.say(E, b"PUT", b"TOPIC", b"a", E, b"x") == [message(b"a", b"x")]


def test_the_connection_of_a_client_that_stays_silent_is_closed() -> None:
    stage = Stage(bounds=Bounds(patience=30.0))
    client = stage.client()
    client.connect(ttl=1000)
    stage.pass_time(30)
    assert error_of(client.say(E, b"NOOP")[-1])  # it was forgotten, and sends a command
    stage.pass_time(29)
    assert not client.dropped
    stage.pass_time(2)
    assert "silent" in client.dropped
    assert not stage.engine.sessions


def test_a_thousand_sessions_have_a_thousand_entries_in_the_heap() -> None:
    stage = Stage()
    clients = [stage.client(b"%d" % number) for number in range(1000)]
    for client in clients:
        client.connect(ttl=1000)
    heard: dict[Client, list[Frames]] = {client: [] for client in clients}
    for _ in range(20):
        for client in clients:
            heard[client] += client.say(E, b"NOOP")
        stage.pass_time(0.5)
    assert len(stage.engine.vigil) == 1000
    assert all(heard[client] + client.take() == [(E, b"NOOP")] * 11 for client in clients)


def test_a_client_that_changes_its_ttl_all_the_time_does_not_fill_the_heap() -> None:
    stage = Stage()
    client = stage.client()
    for ttl in range(100_000, 90_000, -1):
        client.connect(ttl=ttl)
        assert len(stage.engine.vigil) < 20
    for ttl in (1000, 100_000) * 100:
        client.connect(ttl=ttl)
    assert len(stage.engine.vigil) < 20
    client.connect(ttl=50)
    stage.pass_time(0.049)
    assert client.take() == [(E, b"NOOP")]


def test_a_client_that_we_do_not_read_is_not_forgotten() -> None:
    stage = Stage()
    client = stage.client()
    client.connect(ttl=1000)
    client.session.paused = True
    stage.pass_time(60)
    assert stage.engine.counters.expired == 0
    client.session.paused = False
    stage.pass_time(2)
    assert stage.engine.counters.expired == 1


# DISCONNECT


@pytest.mark.spec("MCO-09")
def test_disconnect_ends_the_session_and_its_subscriptions() -> None:
    stage = Stage()
    client, speaker = stage.client(b"c"), stage.client(b"s")
    client.connect(ttl=1000)
    client.sub(b"a", b"b")
    assert client.say(E, b"DISCONNECT") == []
    assert not stage.engine.topics
    speaker.say(E, b"PUT", b"TOPIC", b"a", E, b"x")
    assert client.take() == []
    assert stage.events[-1] == ClientGone("", b"c", "", "it said DISCONNECT")
    stage.pass_time(100)
    assert client.take() == []
    assert not client.dropped
    assert "CONNECT again" in error_of(client.say(E, b"SUB", E, b"a")[0])
    client.connect(ttl=1000)
    client.sub(b"a")
    assert client.say(E, b"PUT", b"TOPIC", b"a", E, b"x") == [message(b"a", b"x")]


def test_a_client_that_vanishes_leaves_nothing_behind() -> None:
    stage = Stage()
    client = stage.client(b"c")
    client.connect(ttl=1000)
    client.sub(*(b"%d" % number for number in range(100)))
    client.leave()
    assert not stage.engine.topics
    assert not stage.engine.sessions
    assert stage.events[-1] == ClientGone("", b"c", "", "its connection ended")
    stage.pass_time(10)
    assert client.take() == []
    assert stage.engine.deadline == float("inf")


# Topics


@pytest.mark.spec("MCO-10")
def test_sub_and_unsub_take_any_number_of_topics() -> None:
    stage = Stage()
    client = stage.client()
    assert client.say(E, b"SUB", b"ID", b"1") == [(E, b"OK", b"ID", b"1")]
    assert client.say(E, b"SUB", b"ID", b"2", E) == [(E, b"OK", b"ID", b"2")]
    client.sub(b"one")
    client.sub(b"two", b"with spaces", b"\xff\0")
    assert sorted(stage.engine.topics) == [b"one", b"two", b"with spaces", b"\xff\0"]
    client.say(E, b"UNSUB", E, b"two", b"never subscribed", b"\xff\0")
    assert sorted(stage.engine.topics) == [b"one", b"with spaces"]
    client.say(E, b"UNSUB", E)
    assert sorted(stage.engine.topics) == [b"one", b"with spaces"]


@pytest.mark.spec("MCO-10")
def test_to_subscribe_twice_is_to_subscribe_once() -> None:
    client = Stage().client()
    client.sub(b"a", b"a")
    client.sub(b"a")
    assert client.say(E, b"PUT", b"TOPIC", b"a", E, b"x") == [message(b"a", b"x")]
    client.say(E, b"UNSUB", E, b"a")
    assert client.say(E, b"PUT", b"TOPIC", b"a", E, b"x") == []


@pytest.mark.spec("MCO-11")
def test_put_goes_to_all_subscribers_of_the_topic_and_to_nobody_else() -> None:
    stage = Stage()
    clients = [stage.client(b"%d" % number) for number in range(5)]
    for client in clients[:3]:
        client.sub(b"a")
    clients[3].sub(b"b", b"a b")
    speaker = clients[4]
    speaker.say(E, b"PUT", b"TOPIC", b"a", E, b"body", E, b"more")
    assert [client.take() for client in clients] == [[message(b"a", b"body", E, b"more")]] * 3 + [[], []]
    assert stage.engine.counters.puts == 1
    speaker.say(E, b"PUT", b"TOPIC", b"nobody", E, b"x")
    assert stage.engine.counters.unheard == 1


@pytest.mark.spec("MCO-11")
def test_a_publisher_that_subscribed_gets_its_own_message() -> None:
    client = Stage().client()
    client.sub(b"a")
    assert client.say(E, b"PUT", b"TOPIC", b"a", b"ID", b"1", E, b"x") == [(E, b"OK", b"ID", b"1"), message(b"a", b"x")]


@pytest.mark.spec("MCO-12")
def test_headers_of_applications_pass_through_unchanged_and_in_order() -> None:
    stage = Stage()
    client = stage.client()
    client.sub(b"a")
    headers = [b"X-Z", b"\xff", b"TOPIC", b"a", b"X-REPLY-TO", b"r", b"X-", b"", b"X-a", b"lower"]
    assert client.say(E, b"PUT", *headers, E, b"x") == [(E, b"MESSAGE", *headers, E, b"x")]


@pytest.mark.spec("MCO-12")
def test_all_other_headers_are_reserved() -> None:
    client = Stage().client()
    client.sub(b"a")
    assert "reserved" in error_of(client.say(E, b"PUT", b"TOPIC", b"a", b"COLOUR", b"red", E, b"x")[0])
    assert "reserved" in error_of(client.say(E, b"PUT", b"TOPIC", b"a", b"VERSION", b"0.1", E, b"x")[0])


def test_one_topic_too_many_is_refused_and_none_of_the_command_is_done() -> None:
    stage = Stage(bounds=Bounds(topics=4, topics_of_client=3))
    client, other = stage.client(), stage.client()
    client.sub(b"a", b"b")
    assert "3 topics" in error_of(client.say(E, b"SUB", E, b"c", b"d")[0])
    assert sorted(stage.engine.topics) == [b"a", b"b"]
    client.sub(b"a", b"b", b"c")
    assert "no room" in error_of(other.say(E, b"SUB", E, b"d", b"e")[0])
    other.sub(b"d", b"a")
    assert (stage.engine.counters.over_quota, stage.engine.counters.malformed) == (2, 0)


# Users


def test_a_message_says_which_user_put_it_and_no_client_can_say_so_itself() -> None:
    archive = MemoryArchive(lambda topic: topic == b"kept")
    stage = Stage(archive=archive)
    ann, bob, anonymous = stage.client(b"desk", "ann"), stage.client(b"desk", "bob"), stage.client(b"desk")
    stamp = (b"X-ZAMBEZI-USER", b"ann")
    bob.sub(b"a", b"kept")
    quick = [E, b"PUT", b"TOPIC", b"a", b"X-REPLY-TO", b"r", E, b"1"]
    forged = [E, b"PUT", b"X-ZAMBEZI-USER", b"bob", b"TOPIC", b"a", b"X-COLOUR", b"red", E, b"2"]
    ann.say_all([quick, quick, forged, put(b"kept", b"3")])
    assert bob.take() == [
        (E, b"MESSAGE", *stamp, b"TOPIC", b"a", b"X-REPLY-TO", b"r", E, b"1"),
        (E, b"MESSAGE", *stamp, b"TOPIC", b"a", b"X-REPLY-TO", b"r", E, b"1"),
        (E, b"MESSAGE", *stamp, b"TOPIC", b"a", b"X-COLOUR", b"red", E, b"2"),
        (E, b"MESSAGE", *stamp, b"TOPIC", b"kept", b"X-SEQUENCE", b"1", E, b"3"),
    ]
    anonymous.say_all([forged, put(b"a", b"4")])
    assert bob.take() == [
        (E, b"MESSAGE", b"TOPIC", b"a", b"X-COLOUR", b"red", E, b"2"),
        (E, b"MESSAGE", b"TOPIC", b"a", E, b"4"),
    ]
    # The archive keeps the user, and a replay tells it.
    late = stage.client(b"late")
    late.say(E, b"SUB", b"X-SINCE", b"0", E, b"kept")
    assert play(late) == [(E, b"MESSAGE", *stamp, b"TOPIC", b"kept", b"X-SEQUENCE", b"1", E, b"3")]


# Reads with many messages


def put(topic: bytes, body: bytes) -> list[bytes]:
    return [E, b"PUT", b"TOPIC", topic, E, body]


TOPICS = st.sampled_from([b"a", b"b", b"c"])
COMMANDS = st.one_of(
    st.tuples(TOPICS, st.binary(max_size=3)).map(lambda pair: put(*pair)),
    st.tuples(TOPICS, st.binary(max_size=3)).map(
        lambda pair: [E, b"PUT", b"TOPIC", pair[0], b"X-REPLY-TO", b"r", E, pair[1]]
    ),
    st.tuples(TOPICS, st.binary(max_size=3)).map(lambda pair: [b"PUT", b"X-A", b"1", b"TOPIC", pair[0], E, pair[1]]),
    TOPICS.map(lambda topic: [E, b"SUB", E, topic]),
    TOPICS.map(lambda topic: [E, b"UNSUB", E, topic]),
    TOPICS.map(lambda topic: [E, b"NOOP", b"ID", topic]),
    st.just([E, b"DISCONNECT"]),
    st.just([E, b"CONNECT", b"TTL", b"1000"]),
    st.lists(st.binary(max_size=4), min_size=1, max_size=4),
)


@given(st.lists(COMMANDS, max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_a_read_of_many_means_the_same_as_many_reads(commands: list[list[bytes]], cuts: list[int]) -> None:
    def story(parts: list[list[list[bytes]]]) -> list[list[Frames]]:
        stage = Stage()
        listeners = [stage.client(b"%d" % number) for number in range(3)]
        listeners[0].sub(b"a", b"b", b"c")
        listeners[1].sub(b"a")
        listeners[2].say(b"SUB", E, b"b", b"c")
        speaker = stage.client(b"speaker")
        for part in parts:
            speaker.say_all(part)
        return [listener.take() for listener in listeners]

    edges = sorted({0, *(min(cut, len(commands)) for cut in cuts), len(commands)})
    parts = [commands[start:end] for start, end in itertools.pairwise(edges)]
    assert story(parts) == story([[command] for command in commands])


def test_puts_in_a_row_to_one_topic_are_one_burst() -> None:
    stage = Stage()
    listener, speaker = stage.client(b"l"), stage.client(b"s")
    listener.sub(b"a", b"b")
    stage.engine.receive(speaker.session, [put(b"a", b"1"), put(b"a", b"2"), put(b"b", b"3"), put(b"a", b"4")], 0.0)
    bursts = [output for output in stage.engine.take() if isinstance(output, Deliver)]
    assert [len(output.shared.messages) for output in bursts] == [2, 1, 1]


def test_answers_go_out_before_the_messages_of_the_same_read() -> None:
    """The real connector takes the very next message after SUB for the answer."""
    client = Stage().client()
    client.sub(b"a")
    heard = client.say_all([put(b"a", b"1"), [E, b"SUB", b"ID", b"7", E, b"b"], put(b"b", b"2")])
    assert heard == [(E, b"OK", b"ID", b"7"), message(b"a", b"1"), message(b"b", b"2")]


def test_answers_that_an_archive_allows_at_once_are_no_exception() -> None:
    stage = Stage(archive=MemoryArchive(lambda topic: topic == b"kept"))
    client = stage.client()
    client.sub(b"a")
    confirmed = [E, b"PUT", b"TOPIC", b"kept", b"ID", b"7", E, b"2"]
    heard = client.say_all([put(b"a", b"1"), confirmed, [E, b"SUB", b"ID", b"8", E, b"b"], put(b"b", b"3")])
    assert heard == [(E, b"OK", b"ID", b"7"), (E, b"OK", b"ID", b"8"), message(b"a", b"1"), message(b"b", b"3")]


@given(st.lists(st.lists(st.binary(max_size=8), min_size=1, max_size=8), max_size=20))
def test_garbage_is_answered_and_never_raises(messages: list[list[bytes]]) -> None:
    stage = Stage()
    client = stage.client()
    heard = client.say_all(messages)
    counters = stage.engine.counters
    assert counters.commands == len(messages)
    assert len([frames for frames in heard if b"ERROR" in frames[:2]]) == counters.errors


# Rules


def test_a_command_that_no_rule_allows_gets_an_error_and_is_counted_and_told() -> None:
    stage = Stage(rules=Rules([Rule("ann", put=("news",), sub=("news",)), Rule("*", sub=("news",))]))
    ann, bob = stage.client(b"1", "ann"), stage.client(b"2", "bob")
    bob.sub(b"news")
    assert "no rule allows bob to PUT 'news'" in error_of(bob.say(E, b"PUT", b"TOPIC", b"news", E, b"x")[0])
    assert bob.say(E, b"SUB", b"ID", b"7", E, b"news", b"other")[0][:4] == (E, b"ERROR", b"ID", b"7")
    assert stage.engine.counters.denied == 2
    assert stage.engine.counters.malformed == 0
    assert stage.events[-2:] == [
        CommandDenied("", b"2", "bob", "PUT", b"news"),
        CommandDenied("", b"2", "bob", "SUB", b"other"),
    ]
    ann.say(E, b"PUT", b"TOPIC", b"news", E, b"x")
    assert bob.take() == [(E, b"MESSAGE", b"X-ZAMBEZI-USER", b"ann", *message(b"news", b"x")[2:])]


def test_the_rules_are_checked_for_each_topic_of_a_read() -> None:
    stage = Stage(rules=Rules([Rule("*", put=("a",), sub=("*",))]))
    client = stage.client()
    client.sub(b"a", b"b")
    heard = client.say_all([put(b"a", b"1"), put(b"b", b"2"), put(b"a", b"3"), put(b"b", b"4")])
    assert [frames for frames in heard if frames[1] == b"MESSAGE"] == [message(b"a", b"1"), message(b"a", b"3")]


def test_a_client_that_loses_a_subscription_by_new_rules_is_told() -> None:
    stage = Stage(archive=MemoryArchive(lambda topic: topic == b"kept"))
    ann, bob = stage.client(b"1", "ann"), stage.client(b"2", "bob")
    for client in (ann, bob):
        client.sub(b"a", b"b", b"c")
        client.say(E, b"SUB", b"X-SINCE", b"0", E, b"kept")
    stage.engine.replace_rules(Rules([Rule("ann", put=("*",), sub=("*",)), Rule("bob", sub=("b",))]))
    stage.pump()
    assert ann.take() == []
    (told,) = bob.take()
    assert "no longer subscribed to 'a' and 2 more" in error_of(told)
    ann.say_all([put(b"a", b"1"), put(b"b", b"2"), put(b"kept", b"3")])
    assert bob.take() == [(E, b"MESSAGE", b"X-ZAMBEZI-USER", b"ann", *message(b"b", b"2")[2:])]
    assert play(bob) == []


# Slow subscribers


def test_a_slow_subscriber_misses_messages_and_is_told_and_others_are_not_harmed() -> None:
    stage = Stage()
    slow, quick, speaker = stage.client(b"slow"), stage.client(b"quick"), stage.client(b"s")
    for client in (slow, quick):
        client.sub(b"a")
    stage.full.add(slow)
    speaker.say_all([put(b"a", b"1"), put(b"a", b"2")])
    speaker.say_all([put(b"a", b"3")])
    assert slow.take() == []
    assert len(quick.take()) == 3
    assert stage.engine.counters.missed == 3
    assert stage.events[-1] == SlowSubscriber("", b"slow", "", b"a")
    stage.full.clear()
    speaker.say_all([put(b"a", b"4")])
    complaint, last = slow.take()
    assert "missed 3 messages" in error_of(complaint)
    assert complaint[-2:] == (b"X-MISSED", b"3")
    assert last == message(b"a", b"4")
    assert CaughtUp("", b"slow", "", 3) in stage.events


# Reports


def test_the_middleware_tells_its_topics_to_clients_that_ask() -> None:
    stage = Stage()
    client, other = stage.client(b"c", "ann"), stage.client(b"\xff")
    client.sub(b"a", b"b")
    other.sub(b"a")
    other.say(E, b"PUT", b"TOPIC", b"a", E, b"x")
    client.take()
    other.take()
    ok, answer = client.say(E, b"PUT", b"TOPIC", b"$topics", b"ID", b"7", b"X-REPLY-TO", b"here", E, b"")
    assert ok == (E, b"OK", b"ID", b"7")
    assert answer[:5] == (E, b"MESSAGE", b"TOPIC", b"here", E)
    report = json.loads(answer[5])
    assert (report["part"], report["parts"], report["clients"]) == (1, 1, 2)
    assert report["counters"]["puts"] == 1
    assert report["topics"] == [
        {
            "topic": "a",
            "subscribers": 2,
            "clients": [["c", "ann"], ["\\xff", ""]],
            "messages": 1,
            "deliveries": 0,
            "kept": False,
        },
        {"topic": "b", "subscribers": 1, "clients": [["c", "ann"]], "messages": 0, "deliveries": 0, "kept": False},
    ]
    assert other.take() == []


def test_a_report_is_made_anew_when_it_is_stale() -> None:
    stage = Stage()
    client = stage.client()
    ask = (E, b"PUT", b"TOPIC", b"$topics", b"X-REPLY-TO", b"r", E, b"")
    assert json.loads(client.say(*ask)[0][-1])["topics"] == []
    client.sub(b"a")
    stage.pass_time(1.0)
    assert json.loads(client.say(*ask)[0][-1])["topics"][0]["topic"] == "a"


def test_many_topics_are_told_in_parts() -> None:
    stage = Stage()
    client = stage.client()
    client.sub(*(b"%03d" % number for number in range(600)))
    answers = client.say(b"PUT", b"TOPIC", b"$topics", b"X-REPLY-TO", b"here", E, b"")
    parts = [json.loads(answer[-1]) for answer in answers]
    assert [(part["part"], part["parts"]) for part in parts] == [(1, 3), (2, 3), (3, 3)]
    assert [topic["topic"] for part in parts for topic in part["topics"]] == [f"{number:03}" for number in range(600)]


def test_to_ask_for_the_topics_takes_a_place_to_answer_to_and_a_rule_that_allows_it() -> None:
    client = Stage().client()
    assert "X-REPLY-TO" in error_of(client.say(E, b"PUT", b"TOPIC", b"$topics", E, b"")[0])
    assert "middleware's own" in error_of(client.say(E, b"PUT", b"TOPIC", b"$other", E, b"")[0])
    stage = Stage(rules=Rules([Rule("admin", put=("$topics",))]))
    ask = (E, b"PUT", b"TOPIC", b"$topics", b"X-REPLY-TO", b"r", E, b"")
    assert "no rule" in error_of(stage.client(b"1", "eve").say(*ask)[0])
    assert stage.client(b"2", "admin").say(*ask)[0][1] == b"MESSAGE"


# The archive


class SlowArchive(MemoryArchive):
    """An archive that has stored a message when the test says so."""

    def __init__(self) -> None:
        super().__init__(lambda topic: topic.startswith(b"kept"))
        self.waiting: list[Callable[[str], object]] = []
        self.broken = False

    def append(
        self, topic: bytes, sender: bytes, messages: Sequence[Frames], stored: Callable[[str], object] | None
    ) -> int:
        if self.broken:
            raise ArchiveError("the disk is full")
        sequence = super().append(topic, sender, messages, None)
        if stored is not None:
            self.waiting.append(stored)
        return sequence


def kept_stage() -> Stage:
    return Stage(archive=MemoryArchive(lambda topic: topic.startswith(b"kept")))


def play(client: Client, room: int = 1 << 20) -> list[Frames]:
    """Replay to a client until it is live; return its messages."""
    while client.session.replays:
        client.stage.engine.feed(client.session, room)
        client.stage.pump()
    return client.take()


def numbered(topic: bytes, sequence: int, body: bytes) -> Frames:
    return (E, b"MESSAGE", b"TOPIC", topic, b"X-SEQUENCE", b"%d" % sequence, E, body)


def test_messages_of_kept_topics_carry_their_sequence() -> None:
    stage = kept_stage()
    client = stage.client(b"c")
    client.sub(b"kept", b"other")
    heard = client.say_all([put(b"kept", b"1"), put(b"other", b"x"), put(b"kept", b"2"), put(b"kept", b"3")])
    assert heard == [
        numbered(b"kept", 1, b"1"),
        message(b"other", b"x"),
        numbered(b"kept", 2, b"2"),
        numbered(b"kept", 3, b"3"),
    ]
    assert stage.engine.counters.kept == 3
    assert stage.archive is not None
    assert next(iter(stage.archive.replay({b"kept"}, 0))) == Kept(
        1, b"kept", b"c", (b"MESSAGE", b"TOPIC", b"kept", E, b"1")
    )


def test_a_client_that_was_away_gets_what_it_missed_and_then_what_comes() -> None:
    stage = kept_stage()
    speaker, client = stage.client(b"s"), stage.client(b"c")
    speaker.say_all([put(b"kept a", b"1"), put(b"kept b", b"2"), put(b"kept a", b"3"), put(b"kept a", b"4")])
    heard = client.say(E, b"SUB", b"ID", b"7", b"X-SINCE", b"1", E, b"kept a")
    assert heard == [(E, b"OK", b"ID", b"7")]
    stage.engine.feed(client.session, 1)
    stage.pump()
    assert client.take() == [numbered(b"kept a", 3, b"3")]
    # A message that is PUT during the replay comes in its turn, and once.
    speaker.say_all([put(b"kept a", b"5")])
    assert client.take() == []
    assert play(client, 1) == [numbered(b"kept a", 4, b"4"), numbered(b"kept a", 5, b"5")]
    speaker.say_all([put(b"kept a", b"6")])
    assert client.take() == [numbered(b"kept a", 6, b"6")]
    assert stage.engine.counters.replayed == 3


def test_a_client_that_leaves_a_topic_during_its_replay_gets_no_more_of_it() -> None:
    stage = kept_stage()
    speaker, client = stage.client(b"s"), stage.client(b"c")
    speaker.say_all([put(b"kept a", b"1"), put(b"kept b", b"2")])
    client.say(E, b"SUB", b"X-SINCE", b"0", E, b"kept a", b"kept b")
    client.say(E, b"UNSUB", E, b"kept a")
    assert play(client) == [numbered(b"kept b", 2, b"2")]
    assert sorted(stage.engine.topics) == [b"kept b"]
    client.say(E, b"SUB", b"X-SINCE", b"0", E, b"kept b")
    client.say(E, b"DISCONNECT")
    assert play(client) == []
    assert not stage.engine.topics


def test_a_client_that_asks_for_a_replay_again_and_again_has_one() -> None:
    stage = kept_stage()
    client = stage.client(b"c")
    client.say(E, b"PUT", b"TOPIC", b"kept", E, b"1")
    client.say_all([[E, b"SUB", b"X-SINCE", b"0", E, b"kept a"]] + [[E, b"SUB", b"X-SINCE", b"0", E, b"kept"]] * 1000)
    assert len(client.session.replays) == 2
    assert play(client) == [numbered(b"kept", 1, b"1")]
    assert sorted(stage.engine.topics) == [b"kept", b"kept a"]
    assert not client.session.replaying


def test_a_live_subscriber_can_go_back() -> None:
    stage = kept_stage()
    client = stage.client(b"c")
    client.sub(b"kept")
    client.say_all([put(b"kept", b"1")])
    client.say(E, b"SUB", b"X-SINCE", b"0", E, b"kept")
    client.say(E, b"SUB", E, b"kept")  # it is subscribed already: nothing comes twice
    assert play(client) == [numbered(b"kept", 1, b"1")]
    assert client.say_all([put(b"kept", b"2")]) == [numbered(b"kept", 2, b"2")]


@pytest.mark.parametrize(
    ("since", "topic", "words"),
    [(b"1", b"other", "not kept"), (b"99", b"kept", "the last one is 0"), (b"soon", b"kept", "X-SINCE must be")],
)
def test_a_replay_that_is_not_possible_is_refused(since: bytes, topic: bytes, words: str) -> None:
    stage = kept_stage()
    client = stage.client()
    (answer,) = client.say(E, b"SUB", b"ID", b"7", b"X-SINCE", since, E, topic)
    assert answer[:4] == (E, b"ERROR", b"ID", b"7")
    assert words in error_of(answer)
    assert not stage.engine.topics
    assert not client.session.replays


def test_without_an_archive_nothing_is_kept() -> None:
    assert "not kept" in error_of(Stage().client().say(E, b"SUB", b"X-SINCE", b"0", E, b"a")[0])


def test_a_kept_topic_has_at_most_255_bytes() -> None:
    client = kept_stage().client()
    assert "255 bytes" in error_of(client.say(E, b"PUT", b"TOPIC", b"kept" * 64, E, b"x")[0])
    assert client.say(E, b"PUT", b"TOPIC", b"other" * 64, b"ID", b"1", E, b"x") == [(E, b"OK", b"ID", b"1")]


def test_nothing_goes_out_to_a_client_before_its_pending_answer() -> None:
    archive = SlowArchive()
    stage = Stage(archive=archive)
    client, speaker = stage.client(b"c"), stage.client(b"s")
    client.connect(ttl=1000)
    client.sub(b"a", b"kept")
    assert client.say(E, b"PUT", b"TOPIC", b"kept", b"ID", b"1", E, b"x") == []
    speaker.say(E, b"PUT", b"TOPIC", b"a", E, b"y")
    assert client.say(E, b"NOOP", b"ID", b"2") == []  # in its turn
    assert client.say(E, b"nonsense") == []
    stage.pass_time(0.99)  # no NOOP from us either
    assert client.take() == []
    archive.waiting.pop()("")
    ok_1, ok_2, *rest = client.take()
    assert (ok_1, ok_2) == ((E, b"OK", b"ID", b"1"), (E, b"OK", b"ID", b"2"))
    assert [frames[1] for frames in rest] == [b"MESSAGE", b"MESSAGE", b"ERROR"]
    speaker.say(E, b"PUT", b"TOPIC", b"a", E, b"z")
    assert client.take() == [message(b"a", b"z")]


def test_the_puts_of_a_run_are_kept_together_and_confirmed_in_their_order() -> None:
    archive = SlowArchive()
    stage = Stage(archive=archive)
    client = stage.client(b"c")
    client.sub(b"kept")
    spoofed = [b"PUT", b"X-SEQUENCE", b"99", b"TOPIC", b"kept", b"X-A", b"1", E, b"4"]
    one, two = ([E, b"PUT", b"TOPIC", b"kept", b"ID", id_, E, id_] for id_ in (b"1", b"2"))
    assert client.say_all([one, put(b"kept", b"x"), two, [E, b"NOOP", b"ID", b"3"], [E, *spoofed]]) == []
    assert len(archive.waiting) == 1
    archive.waiting.pop()("")
    heard = client.take()
    assert [frames[3] for frames in heard[:3]] == [b"1", b"2", b"3"]
    assert heard[3:6] == [numbered(b"kept", 1, b"1"), numbered(b"kept", 2, b"x"), numbered(b"kept", 3, b"2")]
    assert heard[6:] == [(E, b"MESSAGE", b"X-SEQUENCE", b"4", b"TOPIC", b"kept", b"X-A", b"1", E, b"4")]


def test_messages_held_for_a_client_are_bounded() -> None:
    archive = SlowArchive()
    stage = Stage(archive=archive, bounds=Bounds(held_bytes=1000))
    client, speaker = stage.client(b"c"), stage.client(b"s")
    client.sub(b"a")
    client.say(E, b"PUT", b"TOPIC", b"kept", b"ID", b"1", E, b"x")
    for _ in range(100):
        speaker.say(*put(b"a", bytes(100)))
    assert client.session.held_bytes < 1200
    archive.waiting.pop()("")
    answer, told, *heard = client.take()
    missed = stage.engine.counters.missed
    assert (answer[1], told[1], told[-1]) == (b"OK", b"ERROR", b"%d" % missed)
    assert len(heard) + missed == 100
    assert 1 < len(heard) < 20


def test_if_the_archive_fails_the_client_is_told_and_nothing_is_delivered() -> None:
    archive = SlowArchive()
    stage = Stage(archive=archive)
    client = stage.client(b"c")
    client.sub(b"kept")
    client.say(E, b"PUT", b"TOPIC", b"kept", b"ID", b"1", E, b"x")
    archive.waiting.pop()("the disk is gone")
    answer, delivered = client.take()
    assert answer[:4] == (E, b"ERROR", b"ID", b"1")
    assert "the disk is gone" in error_of(answer)
    assert delivered[1] == b"MESSAGE"  # it was delivered before the archive failed
    archive.broken = True
    (answer,) = client.say(E, b"PUT", b"TOPIC", b"kept", b"ID", b"2", E, b"x")
    assert "not delivered: the disk is full" in error_of(answer)
    (answer,) = client.say(E, b"PUT", b"TOPIC", b"kept", E, b"x")
    assert answer[2] == b"MESSAGE"
    assert "the disk is full" in error_of(answer)
    assert stage.engine.counters.lost == 2
    answers = client.say_all(
        [put(b"kept", b"1"), [E, b"PUT", b"TOPIC", b"kept", b"ID", b"3", E, b"2"], put(b"kept", b"3")]
    )
    assert [(frames[2], frames[3][:4]) for frames in answers] == [(b"ID", b"3"), (b"MESSAGE", b"2 of")]
    assert stage.engine.counters.lost == 5


def test_a_pending_answer_of_a_client_that_vanished_is_forgotten() -> None:
    archive = SlowArchive()
    stage = Stage(archive=archive)
    client = stage.client(b"c")
    client.say(E, b"PUT", b"TOPIC", b"kept", b"ID", b"1", E, b"x")
    client.leave()
    archive.waiting.pop()("")
    assert client.take() == []
    assert not stage.engine.outbox.holding


def test_foreign_messages_in_the_archive_are_not_replayed() -> None:
    archive = MemoryArchive()
    good = (b"MESSAGE", b"TOPIC", b"kept", E, b"x")
    others = [
        (),
        (b"",),
        (b"NOOP",),
        (b"MESSAGE", b"TOPIC"),
        (b"MESSAGE", b"TOPIC", b"other", E, b"x"),
        (b"PUT", *good[1:]),
    ]
    for frames in (*others, good):
        archive.append(b"kept", b"s", [frames], None)
    stage = Stage(archive=archive)
    client = stage.client(b"c")
    client.say(E, b"SUB", b"X-SINCE", b"0", E, b"kept")
    assert play(client) == [numbered(b"kept", 7, b"x")]
    assert stage.engine.counters.malformed == len(others)


def test_an_archive_that_breaks_in_the_middle_ends_the_replay_with_a_word() -> None:
    class Breaking(MemoryArchive):
        def replay(self, topics: Collection[bytes], since: Since) -> Iterator[Kept | None]:
            yield Kept(1, b"kept", b"s", (b"MESSAGE", b"TOPIC", b"kept", E, b"1"))
            yield None
            raise ArchiveError("a segment is damaged")

    stage = Stage(archive=Breaking())
    client = stage.client(b"c")
    client.say(E, b"SUB", b"X-SINCE", b"0", E, b"kept")
    heard = play(client)
    assert numbered(b"kept", 1, b"1") in heard
    assert any("damaged" in error_of(frames) for frames in heard if frames[1] == b"ERROR")
