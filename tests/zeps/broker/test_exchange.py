"""Request and reply in the broker, without sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

from tests.zeps.stage import PLENTY, Client, Stage, replace_method
from zambezi.zeps.broker import exchange
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.broker.exchange import INBOX
from zambezi.zeps.broker.stream import BrokerStream
from zambezi.zeps.directory import STREAMS, read_streams
from zambezi.zeps.errors import JournalFull
from zambezi.zeps.messages import LATEST, Detach, DetachOk, Join, Publish, Subscribe, Zeps
from zambezi.zeps.requests.envelope import CLOCK, Asked, Stored, encode_reply, group_of, read_stored

ID = b"12345678"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as made:
        made.client("s").detach()
        yield made


def asking(stage: Stage, user: str = "", room: int = PLENTY, credit: int = 1 << 20) -> Client:
    return stage.client("$requests/s", user=user, room=room, credit=credit)


def serving(stage: Stage, pattern: str = "", user: str = "") -> Client:
    server = stage.client("$replies/s", user=user, credit=1 << 20)
    server.subscribe(pattern)
    return server


def ask(client: Client, key: str = "k", content: bytes = b"?", timeout: int = 1000, number: bytes = ID) -> None:
    client.send(Publish(key, Asked(number, timeout, content).encode()))


def answers(client: Client) -> list[tuple[str, bytes]]:
    return [(message.key, message.body) for message in client.delivered]


def stored(stage: Stage) -> list[Stored]:
    reader = stage.client("s", credit=PLENTY)
    reader.subscribe()
    found = [read_stored(message.body) for message in reader.delivered]
    reader.detach()
    return [one for one in found if one is not None]


def test_a_request_is_a_message_and_the_reply_finds_its_client(stage: Stage) -> None:
    server, client, other = serving(stage), asking(stage), asking(stage)
    ask(client, "square", b"7")
    (request,) = stored(stage)
    assert (request.id, request.content) == (ID, b"7")
    assert request.deadline == (1_700_000_000 + 1) * 1_000_000
    server.send(Publish("ok", encode_reply(request, b"49")))
    client.read()
    assert answers(client) == [("ok", ID + b"49")]
    assert answers(other) == []
    server.send(Publish("error", encode_reply(request, b"too late")))
    client.read()
    assert answers(client)[1:] == [("error", ID + b"too late")]


def test_a_request_that_no_server_wants_is_answered_at_once_and_not_stored(stage: Stage) -> None:
    client = asking(stage)
    ask(client)
    assert answers(client) == [("nobody", ID)]
    server = serving(stage, "exact:square")
    ask(client, "cube")
    assert answers(client)[1:] == [("nobody", ID)]
    ask(client, "square")
    assert len(stored(stage)) == 1
    server.close()
    ask(client, "square")
    assert answers(client)[2:] == [("nobody", ID)]
    assert len(stored(stage)) == 1
    assert (stage.engine.counters.requests, stage.engine.counters.unserved) == (4, 3)


def test_nothing_remains_of_clients_and_servers_that_are_gone(stage: Stage) -> None:
    server, client = serving(stage), asking(stage)
    ask(client)
    (request,) = stored(stage)
    client.close()
    server.send(Publish("ok", encode_reply(request, b"49")))
    assert server.reasons == []
    assert stage.engine.counters.unclaimed == 1
    server.close()
    assert not stage.engine.exchange.inboxes
    assert not stage.engine.exchange._servers
    reader = stage.client(STREAMS, credit=PLENTY)
    reader.send(Subscribe("", 0))
    assert [info.stream for info in read_streams([message.body for message in reader.delivered])] == ["s"]


def test_addresses_are_random_and_belong_to_one_stream(stage: Stage) -> None:
    server, client, second = serving(stage), asking(stage), asking(stage)
    ask(client)
    ask(second)
    one, two = stored(stage)
    assert one.address != two.address
    stage.client("t").detach()
    stranger = stage.client("$replies/t", credit=1000)
    stranger.send(Publish("ok", encode_reply(one, b"forged")))
    server.send(Publish("ok", bytes(16) + one.id + b"guessed"))
    client.read()
    assert answers(client) == []
    assert stage.engine.counters.unclaimed == 2


def test_a_server_learns_the_clock_and_the_limit_of_the_broker(stage: Stage) -> None:
    (message,) = serving(stage).delivered
    limit = stage.engine.limits.message
    assert (message.key, CLOCK.unpack(message.body)) == ("time", (1_700_000_000_000_000, limit))


def test_rules_decide_who_asks_and_who_serves(tmp_path: Path) -> None:
    rights = {("ann", "publish"), ("bob", "serve"), ("ann", "create")}
    with Stage(tmp_path, allow=lambda user, action, _stream: (user, action) in rights) as stage:
        stage.client("s", user="ann").detach()
        client, server = asking(stage, "ann"), serving(stage, user="bob")
        ask(client)
        assert answers(client) == []
        bob = asking(stage, "bob")
        ask(bob)
        assert answers(bob) == [("error", ID + b"bob may not publish to the stream s")]
        ann = serving(stage, user="ann")
        assert ann.reasons == ["ann may not serve the stream s"]
        rights.remove(("bob", "serve"))
        stage.engine.apply_rules()
        server.send(Publish("ok", bytes(24)))
        assert server.reasons == ["bob may not serve the stream s"]
        ask(client)
        assert answers(client) == [("nobody", ID)]


def test_a_request_that_crosses_the_farewell_of_the_broker_is_not_called_out_of_place(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.client("s").detach()
        client, server = asking(stage), serving(stage)
        stage.engine.detach_all()
        ask(client)
        server.send(Publish("ok", bytes(24)))
        assert client.reasons == server.reasons == []


def test_servers_of_different_users_share_requests_and_others_do_not_join_them(tmp_path: Path) -> None:
    rights = {("ann", "serve"), ("bob", "serve"), ("ann", "create")}
    with Stage(tmp_path, allow=lambda user, action, _: action == "subscribe" or (user, action) in rights) as stage:
        said = {}
        for number, user in enumerate(("ann", "bob", "eve"), 1):
            server = stage.client("s", user=user)
            server.send(Join(group_of(""), bytes([number]) * 16, "", LATEST, 10, 0, 0, ""))
            said[user] = server.said[1:] or server.reasons
        assert said == {"ann": ["JoinOk"], "bob": ["JoinOk"], "eve": ["Invalid"]}


@pytest.mark.parametrize("body", [b"", bytes(11)])
def test_a_request_that_is_too_short_is_invalid(body: bytes, stage: Stage) -> None:
    client = asking(stage)
    client.send(Publish("k", body))
    assert client.reasons == ["a request is too short: it begins with 12 bytes"]


@pytest.mark.parametrize(("key", "body"), [("ok", bytes(23)), ("no", bytes(24)), ("nobody", bytes(24))])
def test_a_reply_that_is_not_valid_is_refused(key: str, body: bytes, stage: Stage) -> None:
    server = serving(stage)
    server.send(Publish(key, body))
    assert "a reply has the key 'ok' or 'error'" in server.reasons[0]


def test_a_request_over_the_limit_is_answered_with_an_error(tmp_path: Path) -> None:
    with Stage(tmp_path, limits=Limits(message=1000)) as stage:
        stage.client("s").detach()
        serving(stage)
        client = asking(stage)
        ask(client, content=bytes(970))
        ((status, text),) = answers(client)
        assert status == "error"
        assert b"over the limit" in text


def test_a_client_that_does_not_read_loses_replies_and_costs_no_memory(stage: Stage) -> None:
    server, client = serving(stage), asking(stage, credit=10)
    ask(client)
    (request,) = stored(stage)
    for _ in range(40):
        server.send(Publish("ok", encode_reply(request, bytes(100_000))))
    client.read()
    assert len(client.delivered) == 1  # the last one may overdraw the credit
    assert stage.engine.counters.unclaimed == 40 - 1 - (INBOX // 100_000 + 1)
    client.credit(1 << 30)
    assert len(client.delivered) == 40 - stage.engine.counters.unclaimed


def test_small_answers_that_nobody_reads_are_bounded_for_each_client_and_for_all(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [asking(stage, credit=0) for _ in range(3)]
    for client in clients:
        for _ in range(5000):
            ask(client)  # no server: each has a small answer
    assert stage.engine.exchange.waiting <= 3 * (INBOX + 1000)
    assert stage.engine.counters.unclaimed > 3000
    monkeypatch.setattr(exchange, "INBOXES", stage.engine.exchange.waiting)
    another = asking(stage)
    ask(another)
    assert answers(another) == []
    for client in clients:
        client.close()
    assert stage.engine.exchange.waiting == 0
    ask(another)
    assert len(answers(another)) == 1


def test_patterns_of_a_server_are_bounded_and_checked(stage: Stage) -> None:
    server = serving(stage, "regex:(")
    assert server.reasons
    server = serving(stage)
    for number in range(110):
        server.subscribe(f"k{number}")
    assert server.reasons[0] == "a connection serves at most 100 patterns"


def test_the_slow_patterns_of_all_servers_of_a_stream_are_bounded(stage: Stage) -> None:
    servers = [serving(stage, f"glob:*{number}") for number in range(201)]
    assert [bool(server.reasons) for server in servers] == [False] * 200 + [True]
    assert "200 glob and regex patterns, the limit: use a prefix" in servers[-1].reasons[0]
    assert not serving(stage, "prefix").reasons
    servers[0].detach()
    assert not serving(stage, "glob:*x").reasons


def test_a_new_key_that_must_be_tried_on_many_patterns_is_much_work(stage: Stage) -> None:
    for number in range(100):
        serving(stage, f"glob:*{number}")
    client = asking(stage)
    frames = [Publish(key, Asked(ID, 1000, b"?").encode()).encode()[0] for key in ("a1", "a2", "a2", "a2")]
    client.session.receive(frames)
    assert stage.engine.counters.requests == 1  # the others wait for their turn
    stage.run()
    assert len(stored(stage)) == 4


def test_requests_wait_with_a_full_disk_and_a_client_that_leaves_meanwhile_is_forgotten(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise JournalFull("no room")

    serving(stage)
    client = asking(stage)
    with monkeypatch.context() as patch:
        replace_method(patch, stage.stream("s").journal, "append", full)
        ask(client)
        assert client.paused
        client.close()
    stage.tick()
    assert len(stored(stage)) == 1


@pytest.mark.parametrize("name", ["$requests/s", "$replies/s", "$requests/", "$replies/none"])
def test_every_command_gets_an_answer_or_none_and_breaks_nothing(name: str, stage: Stage) -> None:
    """Send every command of the grammar, in two orders, with empty and with full fields."""
    kinds = [kind for kind in Zeps.__subclasses__() if kind._id is not None]
    for order in (kinds, kinds[::-1]):
        client = stage.client(name, credit=1000)
        for kind in order:
            if kind is Detach or kind is DetachOk:
                continue
            for value in (0, 1):
                given = {str: "k" * value, bytes: bytes(16 * value), int: value}
                hints = get_type_hints(kind)
                fields = {step.name: given[hints[step.name]] for step in kind._steps if step.name in hints}
                constant = {"protocol", "version"}
                client.send(kind(**{field: one for field, one in fields.items() if field not in constant}))
        before = client.confirmed
        client.ping()
        assert client.confirmed == before + 1
        client.detach()
        client.close()
    assert not stage.engine.exchange.inboxes
    assert not stage.engine.exchange._servers


def test_a_client_has_the_same_address_by_its_token(stage: Stage) -> None:
    server, client = serving(stage), asking(stage)
    client.subscribe("ab" * 16)
    ask(client)
    (request,) = stored(stage)
    again = asking(stage)
    again.subscribe("ab" * 16)
    client.close()  # the older connection of the same client
    server.send(Publish("ok", encode_reply(request, b"!")))
    again.read()
    assert answers(again) == [("ok", ID + b"!")]
    thief = asking(stage)
    for text in (request.address.hex(), "ab" * 15, "no token", "xy" * 16):
        thief.subscribe(text)
    server.send(Publish("ok", encode_reply(request, b"2")))
    thief.read()
    assert answers(thief) == []


def test_after_a_move_servers_are_expected_and_replies_are_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    client, token = asking(stage), "cd" * 16
    client.subscribe(token)
    member = stage.client("s")
    member.send(Join(group_of("k"), b"m" * 16, "k", LATEST, 1, 0, 0, ""))
    monkeypatch.setattr(BrokerStream, "is_settling", True)
    ask(client, "k")
    ask(client, "other")
    assert answers(client) == [("nobody", ID)]
    (request,) = stored(stage)
    client.close()
    server = serving(stage)
    server.send(Publish("ok", encode_reply(request, b"kept")))
    server.send(Publish("ok", encode_reply(request, bytes(INBOX))))  # no room
    assert stage.engine.counters.unclaimed == 1
    again = asking(stage)
    again.subscribe(token)
    again.read()
    assert answers(again) == [("ok", ID + b"kept")]
    again.close()
    server.send(Publish("ok", encode_reply(request, b"kept again")))
    monkeypatch.undo()
    server.send(Publish("ok", encode_reply(request, b"dropped")))
    assert stage.engine.counters.unclaimed == 2
    last = asking(stage)
    last.subscribe(token)
    last.read()
    assert answers(last) == []
