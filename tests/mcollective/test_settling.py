"""zambezi.mcollective.settling: messages wait for a client of the Ruby connector that is about to subscribe to more."""

from __future__ import annotations

from tests.mcollective.stage import Client, E, Stage
from zambezi.mcollective.archive import MemoryArchive
from zambezi.mcollective.settling import LONGEST, QUIET

RUBY = b"node3 21840 #<Thread:0x000055d0c1f0a1b8 run>"
AGAIN = b"node3 21840 #<Thread:0x000055d0c1f0ffff run>"


def daemon(stage: Stage, identity: bytes = RUBY) -> Client:
    client = stage.client(identity)
    assert client.say(E, b"CONNECT", b"ID", b"0", b"TTL", b"30000") == [(E, b"OK", b"ID", b"0")]
    return client


def subscribe(client: Client, topic: bytes) -> list[tuple[bytes, ...]]:
    """Subscribe as the Ruby connector does: the very next message must be the answer."""
    answer, *rest = client.say(E, b"SUB", b"ID", b"7", E, topic)
    assert answer == (E, b"OK", b"ID", b"7")
    return rest


def put(stage: Stage, topic: bytes, body: bytes) -> None:
    stage.client(b"speaker").say(E, b"PUT", b"TOPIC", topic, E, body)


def bodies(client: Client) -> list[bytes]:
    return [frames[-1] for frames in client.take() if frames[1] == b"MESSAGE"]


def test_a_message_between_two_subs_waits_until_the_client_has_been_quiet() -> None:
    stage = Stage()
    client = daemon(stage)
    for number in range(5):
        assert subscribe(client, b"agent %d" % number) == []
        put(stage, b"agent 0", b"%d" % number)
        stage.pass_time(QUIET / 2)
        assert client.take() == []
    stage.pass_time(QUIET / 2)
    assert bodies(client) == [b"0", b"1", b"2", b"3", b"4"]
    put(stage, b"agent 4", b"5")
    assert bodies(client) == [b"5"]


def test_a_client_that_puts_after_its_sub_waits_for_nothing() -> None:
    """The client of an operator subscribes to its replies, then asks."""
    stage = Stage()
    client = daemon(stage)
    subscribe(client, b"reply")
    put(stage, b"reply", b"0")
    client.say_all([[E, b"NOOP"]])
    assert bodies(client) == []
    answers = client.say(E, b"PUT", b"TOPIC", b"reply", E, b"1")
    assert [frames[-1] for frames in answers] == [b"0", b"1"]
    put(stage, b"reply", b"2")
    assert bodies(client) == [b"2"]


def test_other_clients_and_subs_without_an_answer_do_not_wait() -> None:
    stage = Stage()
    ruby, other, bare = daemon(stage), stage.client(b"other"), stage.client(RUBY + b"2")
    ruby.sub(b"a")
    subscribe(other, b"a")
    assert bare.say(b"SUB", b"ID", b"1", E, b"a") == [(b"OK", b"ID", b"1")]
    put(stage, b"a", b"1")
    for client in (ruby, other):
        assert bodies(client) == [b"1"]
    assert bare.take() == [(b"MESSAGE", b"TOPIC", b"a", E, b"1")]


def test_a_client_that_subscribes_all_the_time_gets_its_messages_nevertheless() -> None:
    stage = Stage()
    client = daemon(stage)
    got: list[bytes] = []
    for number in range(100):
        subscribe(client, b"a")
        put(stage, b"a", b"%d" % number)
        stage.pass_time(LONGEST / 40)
        got += bodies(client)
    assert got == [b"%d" % number for number in range(len(got))]
    assert len(got) >= 80


def test_stored_messages_wait_too() -> None:
    stage = Stage(archive=MemoryArchive())
    client = daemon(stage)
    for name in (b"a", b"b"):
        subscribe(client, name)
    client.leave()
    put(stage, b"a", b"missed")
    back = daemon(stage, AGAIN)
    for name in (b"a", b"b"):
        assert subscribe(back, name) == []
    stage.pass_time(QUIET)
    assert bodies(back) == [b"missed"]


def test_a_client_that_leaves_is_forgotten() -> None:
    stage = Stage()
    for goodbye in (True, False):
        client = daemon(stage)
        subscribe(client, b"a")
        put(stage, b"a", b"1")
        if goodbye:
            client.say(E, b"DISCONNECT")
        client.leave()
    assert (len(stage.engine._settling), stage.engine.outbox.holding) == (0, 0)
