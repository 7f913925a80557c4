"""zambezi.mcollective.comeback: clients come back, their sessions go on, and they get what they missed."""

from __future__ import annotations

from tests.mcollective.stage import Client, E, Stage
from zambezi.mcollective.archive import MemoryArchive
from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.comeback import PAUSE
from zambezi.mcollective.events import ClientReturned
from zambezi.mcollective.rules import Rules
from zambezi.mcollective.settling import QUIET

RUBY = b"node3 21840 #<Thread:0x000055d0c1f0a1b8 run>"
AGAIN = b"node3 21840 #<Thread:0x000055d0c1f0ffff run>"


def stage_with_kept_topics(**options: object) -> Stage:
    return Stage(archive=MemoryArchive(lambda topic: topic.startswith(b"kept")), **options)  # type: ignore[arg-type]


def put(stage: Stage, topic: bytes, *bodies: bytes) -> None:
    speaker = stage.client(b"speaker")
    for body in bodies:
        speaker.say(E, b"PUT", b"TOPIC", topic, E, body)
    speaker.leave()


def bodies(client: Client) -> list[bytes]:
    return [frames[-1] for frames in client.take() if frames[1] == b"MESSAGE"]


def daemon(stage: Stage, name: bytes = RUBY) -> Client:
    """Return a client that has connected, subscribed, and got one message of a kept topic."""
    client = stage.client(name)
    client.connect(ttl=10_000)
    client.sub(b"a", b"kept", b"kept too")
    put(stage, b"kept", b"1")
    assert bodies(client) == [b"1"]
    return client


def test_a_client_whose_connection_was_cut_goes_on_without_noticing() -> None:
    stage = stage_with_kept_topics()
    daemon(stage).leave()
    put(stage, b"kept", b"2", b"3")
    put(stage, b"a", b"it waits, but is not kept")
    stage.pass_time(5)
    back = stage.client(RUBY)
    put(stage, b"a", b"it might say CONNECT now")
    assert back.take() == []
    stage.pass_time(10 * PAUSE)
    noop, *messages = back.take()
    assert noop == (E, b"NOOP")
    assert [frames[-1] for frames in messages] == [
        b"it waits, but is not kept",
        b"it might say CONNECT now",
        b"2",
        b"3",
    ]
    assert stage.engine.counters.unheard == 2  # those that the archive has
    put(stage, b"a", b"4")
    put(stage, b"kept", b"5")
    put(stage, b"kept too", b"6")
    assert bodies(back) == [b"4", b"5", b"6"]
    assert isinstance(stage.events[-1], ClientReturned)
    assert (stage.events[-1].ttl, stage.events[-1].topics) == (10.0, 3)
    assert (stage.engine.counters.resumed, stage.engine.counters.errors) == (1, 0)
    stage.pass_time(8.5)
    assert back.take() == [(E, b"NOOP")]  # it has its TTL again
    stage.pass_time(5)
    assert stage.engine.counters.expired == 1


def test_any_command_but_connect_goes_on_with_the_session_and_is_answered_first() -> None:
    """The Ruby connector takes the next message after SUB for the answer."""
    stage = stage_with_kept_topics()
    daemon(stage).leave()
    put(stage, b"kept", b"2")
    back = stage.client(RUBY)
    (answer,) = [frames for frames in back.say(E, b"SUB", b"ID", b"7", E, b"b") if frames[1] != b"NOOP"]
    assert answer == (E, b"OK", b"ID", b"7")
    stage.pass_time(QUIET)
    assert bodies(back) == [b"2"]
    put(stage, b"a", b"3")
    put(stage, b"b", b"4")
    assert bodies(back) == [b"3", b"4"]


def test_a_client_that_says_connect_subscribes_itself_and_gets_what_it_missed() -> None:
    for identity in (RUBY, AGAIN):
        stage = stage_with_kept_topics()
        daemon(stage).leave()
        put(stage, b"kept", b"2")
        back = stage.client(identity)
        assert back.say(E, b"CONNECT", b"ID", b"1", b"TTL", b"10000", b"VERSION", b"0.2") == [(E, b"OK", b"ID", b"1")]
        stage.pass_time(1)
        assert back.take() == []  # no topic before it says so
        assert back.say(E, b"SUB", b"ID", b"2", E, b"a", b"kept") == [(E, b"OK", b"ID", b"2")]
        stage.pass_time(QUIET)
        assert bodies(back) == [b"2"]
        put(stage, b"kept too", b"3")
        put(stage, b"kept", b"4")
        put(stage, b"a", b"5")
        assert bodies(back) == [b"4", b"5"]
        assert stage.engine.counters.resumed == 0


def test_a_client_does_not_get_messages_from_before_its_subscription() -> None:
    stage = stage_with_kept_topics()
    put(stage, b"kept too", b"before")
    client = stage.client(RUBY)
    client.connect(ttl=10_000)
    client.sub(b"kept")
    put(stage, b"kept too", b"between")
    client.sub(b"kept too")
    client.leave()
    put(stage, b"kept too", b"after")
    back = stage.client(RUBY)
    stage.pass_time(1)
    assert bodies(back) == [b"after"]


def test_after_its_ttl_a_client_is_new() -> None:
    stage = stage_with_kept_topics()
    daemon(stage).leave()
    put(stage, b"kept", b"2")
    stage.pass_time(10.6)
    back = stage.client(RUBY)
    stage.pass_time(1)
    put(stage, b"a", b"3")
    assert back.take() == []
    back.connect(ttl=10_000)
    back.sub(b"kept")
    assert bodies(back) == []


def test_after_disconnect_a_client_is_new() -> None:
    stage = stage_with_kept_topics()
    client = daemon(stage, b"me")
    client.say(E, b"DISCONNECT")
    client.leave()
    put(stage, b"kept", b"2")
    back = stage.client(b"me")
    stage.pass_time(1)
    assert back.take() == []
    back.connect(ttl=10_000)
    back.sub(b"kept")
    assert bodies(back) == []


def test_a_ruby_connector_that_gives_up_misses_no_kept_message() -> None:
    """It says DISCONNECT, makes a new connection under another identity, and says CONNECT and SUB."""
    stage = stage_with_kept_topics()
    client = daemon(stage)
    client.say(E, b"DISCONNECT")
    client.leave()
    put(stage, b"kept", b"2")
    stage.pass_time(1.5)
    back = stage.client(AGAIN)
    back.connect(ttl=10_000)
    assert back.say(E, b"SUB", b"ID", b"2", E, b"a", b"kept", b"kept too") == [(E, b"OK", b"ID", b"2")]
    stage.pass_time(QUIET)
    assert bodies(back) == [b"2"]


def test_topics_that_the_rules_do_not_allow_any_more_are_gone() -> None:
    stage = stage_with_kept_topics()
    daemon(stage).leave()
    stage.engine.replace_rules(Rules.of([{"sub": ["a"], "put": ["*"]}]))
    put(stage, b"kept", b"2")
    back = stage.client(RUBY)
    stage.pass_time(1)
    _, complaint = back.take()
    assert (complaint[1], b"no longer subscribed to 'kept' and 1 more" in complaint[3]) == (b"ERROR", True)
    put(stage, b"a", b"3")
    assert bodies(back) == [b"3"]
    assert back.session.record is not None
    assert list(back.session.record.topics) == [b"a"]


def test_messages_that_the_archive_has_removed_are_lost_and_the_others_are_not() -> None:
    stage = Stage(archive=MemoryArchive(lambda topic: topic.startswith(b"kept"), most=2))
    daemon(stage).leave()
    put(stage, b"kept", b"2", b"3", b"4")
    back = stage.client(RUBY)
    stage.pass_time(1)
    assert bodies(back) == [b"3", b"4"]


def test_a_client_that_is_bare_gets_no_empty_frame_when_it_comes_back() -> None:
    stage = Stage()
    client = stage.client(b"me")
    client.say(b"CONNECT", b"TTL", b"10000")
    client.say(b"SUB", E, b"a")
    client.leave()
    back = stage.client(b"me")
    stage.pass_time(1)
    put(stage, b"a", b"x")
    assert back.take() == [(b"NOOP",), (b"MESSAGE", b"TOPIC", b"a", E, b"x")]


def test_a_client_over_its_quota_comes_back_without_topics() -> None:
    stage = Stage(bounds=Bounds(topics=2))
    client = stage.client(b"me")
    client.connect(ttl=10_000)
    client.sub(b"a", b"b")
    client.leave()
    other = stage.client(b"other")
    other.sub(b"c")
    back = stage.client(b"me")
    stage.pass_time(1)
    put(stage, b"a", b"x")
    assert [frames[1] for frames in back.take()] == [b"NOOP", b"ERROR"]


def test_messages_above_the_bound_of_the_backlog_are_missed_and_the_client_is_told() -> None:
    stage = Stage(bounds=Bounds(held_bytes=1000))
    client = stage.client(b"me")
    client.connect(ttl=10_000)
    client.sub(b"a")
    client.leave()
    put(stage, b"a", *(b"%d" % number + bytes(300) for number in range(10)))
    back = stage.client(b"me")
    stage.pass_time(1)
    noop, complaint, *messages = back.take()
    assert (noop[1], complaint[1], complaint[-2:]) == (b"NOOP", b"ERROR", (b"X-MISSED", b"8"))
    assert [frames[-1][:1] for frames in messages] == [b"8", b"9"]
    assert stage.engine.counters.missed == 8


def test_messages_wait_for_an_absent_client_until_its_ttl_is_over() -> None:
    stage = Stage()
    client = stage.client(b"me")
    client.connect(ttl=10_000)
    client.sub(b"a")
    client.leave()
    put(stage, b"a", b"1")
    assert stage.engine.register.backlog.bytes > 0
    stage.engine.register.expire(stage.now + 10.6)
    assert stage.engine.register.backlog.bytes == 0


def test_a_client_that_says_connect_begins_anew_without_the_messages_of_topics_that_are_not_kept() -> None:
    stage = stage_with_kept_topics()
    daemon(stage).leave()
    put(stage, b"a", b"2")
    back = stage.client(RUBY)
    back.connect(ttl=10_000)
    back.sub(b"a")
    put(stage, b"a", b"3")
    assert bodies(back) == [b"3"]
    assert len(stage.engine.register.backlog) == 0
