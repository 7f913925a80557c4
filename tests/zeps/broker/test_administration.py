"""zambezi.zeps.broker.administration: orders about streams, who may give them, and the clients of the streams."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.zeps.stage import Client, Stage
from zambezi.zeps.broker.administration import WAITING
from zambezi.zeps.directory import ORDERS
from zambezi.zeps.journal import Policy
from zambezi.zeps.messages import Detach, Ping, Publish, Subscribe


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def order(client: Client, key: str, **content: object) -> list[str]:
    """Give an order, wait until it is executed, and return the reasons why it was not."""
    client.heard.clear()
    client.send(Publish(key, json.dumps(content).encode()), Ping())
    assert client.confirmed == 1
    return client.reasons


def filled(stage: Stage, name: str = "s", count: int = 10) -> Client:
    client = stage.client(name)
    client.send(*[Publish("k", b"%d" % number) for number in range(1, count + 1)], Ping())
    return client


def test_a_stream_is_created_with_its_settings(stage: Stage, tmp_path: Path) -> None:
    admin = stage.client(ORDERS)
    assert order(admin, "create", stream="s", settings={"keep_seconds": 60, "sync": "interval"}) == []
    assert stage.stream("s").journal.policy == Policy(sync="interval", keep_seconds=60)
    assert order(admin, "create", stream="s") == ["there is a stream s already"]
    stage.close()
    with Stage(tmp_path) as again:
        assert again.stream("s").journal.policy == Policy(sync="interval", keep_seconds=60)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"stream": ""}, "the order needs 'stream'"),
        ({"stream": 7}, "the order needs 'stream'"),
        ({"stream": "$s"}, "reserved name"),
        ({"stream": "s", "settings": {"keep": 1}}, "a stream has no setting 'keep'"),
        ({"stream": "s", "settings": {"keep_bytes": "1G"}}, "keep_bytes is '1G': it must be a number"),
        ({"stream": "s", "settings": {"sync": "often"}}, "must be always, interval or never"),
        ({"stream": "s", "settings": []}, "settings must be an object"),
    ],
)
def test_an_order_that_is_not_valid(stage: Stage, content: dict[str, object], reason: str) -> None:
    (found,) = order(stage.client(ORDERS), "create", **content)
    assert reason in found
    assert stage.engine.names() == []


def test_orders_that_are_none(stage: Stage) -> None:
    admin = stage.client(ORDERS)
    assert "there is no order 'burn': there are create, edit" in order(admin, "burn", stream="s")[0]
    admin.send(Publish("create", b"["), Publish("create", b"[" * 100_000), Subscribe("", 0), Ping())
    assert [reason for reason in admin.reasons if "JSON object" in reason]
    assert "takes orders" in admin.reasons[-1]


def test_settings_are_changed_and_forgotten(stage: Stage, tmp_path: Path) -> None:
    admin = stage.client(ORDERS)
    filled(stage)
    assert order(admin, "edit", stream="s", settings={"keep_bytes": 1000, "publishers": 5}) == []
    assert stage.stream("s").journal.policy == Policy(sync="never", keep_bytes=1000, publishers=5)
    assert order(admin, "edit", stream="s", settings={"keep_bytes": None}) == []
    stage.engine.set_policies(Policy(sync="always"), {})
    assert stage.stream("s").journal.policy == Policy(sync="always", publishers=5)
    stage.engine.set_policies(Policy(), {"s": Policy(keep_seconds=9)})
    assert stage.stream("s").journal.policy == Policy(keep_seconds=9)
    assert "are in the server's configuration" in order(admin, "edit", stream="s", settings={})[0]


def test_a_stream_is_trimmed_while_it_is_used(stage: Stage) -> None:
    client = filled(stage)
    assert order(stage.client(ORDERS), "trim", stream="s", before=6) == []
    assert stage.stream("s").journal.first == 6
    client.send(Publish("k", b"11"), Ping())
    assert client.confirmed == 2
    assert "cannot begin at 99" in order(stage.client(ORDERS), "trim", stream="s", before=99)[0]


def test_a_stream_is_truncated_and_its_clients_are_told(stage: Stage) -> None:
    client = filled(stage)
    reader = stage.client("s", credit=1000)
    reader.subscribe()
    before = stage.stream("s").journal.incarnation
    assert order(stage.client(ORDERS), "truncate", stream="s", after=6) == []
    for told in (client, reader):
        told.read()
        assert told.reasons == ["an operator has cut off the messages after 6"]
        assert len(told.of(Detach)) == 1
    journal = stage.stream("s").journal
    assert (journal.last, journal.incarnation != before) == (6, True)
    client.send(Publish("k", b"too late"), Ping())
    assert journal.last == 6
    filled(stage, count=1)
    assert journal.last == 7


def test_a_stream_is_deleted_and_leaves_nothing_behind(stage: Stage, tmp_path: Path) -> None:
    client = filled(stage)
    before = stage.stream("s").journal.incarnation
    assert order(stage.client(ORDERS), "delete", stream="s") == []
    client.read()
    assert client.reasons == ["an operator has deleted the stream"]
    assert stage.engine.names() == []
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    assert order(stage.client(ORDERS), "delete", stream="s") == ["there is no stream s"]
    filled(stage, count=1)
    assert stage.stream("s").journal.incarnation != before
    assert stage.stream("s").journal.last == 1


def test_clients_that_attach_during_the_change_wait(stage: Stage) -> None:
    filled(stage)
    stage.slow = True
    admin = stage.client(ORDERS)
    admin.send(Publish("truncate", b'{"stream": "s", "after": 3}'))
    late = stage.client("s")
    late.send(Publish("k", b"4"), Ping())
    assert late.confirmed == 0
    stage.let_disk_work()
    late.read()
    assert late.confirmed == 1
    assert stage.stream("s").journal.last == 4
    admin.send(Publish("delete", b'{"stream": "s"}'))
    latest = stage.client("s")
    stage.let_disk_work()
    latest.read()
    assert "attach again" in latest.reasons[0]


def test_a_stream_is_copied_with_its_times(stage: Stage) -> None:
    filled(stage)
    stage.now += 100
    filled(stage, count=3)
    admin = stage.client(ORDERS)
    order(admin, "trim", stream="s", before=3)
    assert order(admin, "copy", stream="s", to="t") == []
    source, target = stage.stream("s").journal, stage.stream("t").journal
    assert (target.first, target.last) == (1, 11)
    assert (target.first_time, target.last_time) == (source.first_time, source.last_time)
    reader = stage.client("t", credit=10_000)
    reader.subscribe()
    assert [message.body for message in reader.delivered] == [b"%d" % number for number in [*range(3, 11), 1, 2, 3]]
    assert order(admin, "copy", stream="s", to="t") == ["there is a stream t already"]
    assert order(admin, "copy", stream="no", to="u") == ["there is no stream no"]


def test_rules_decide(tmp_path: Path) -> None:
    allowed: set[str] = set()
    with Stage(tmp_path, allow=lambda user, action, stream: action in allowed, own=["logs"]) as stage:
        allowed |= {"create", "publish"}
        filled(stage)
        allowed.clear()
        admin = stage.client(ORDERS, user="ann")
        for key, action, content in (
            ("create", "create", {"stream": "t"}),
            ("edit", "edit", {"stream": "s", "settings": {}}),
            ("trim", "delete", {"stream": "s", "before": 2}),
            ("truncate", "delete", {"stream": "s", "after": 2}),
            ("delete", "delete", {"stream": "s"}),
            ("copy", "subscribe", {"stream": "s", "to": "t"}),
        ):
            assert f"ann may not {action} the stream" in order(admin, key, **content)[0]
            allowed.add(action)
            allowed.add("create")
            assert order(admin, key, **content) in ([], ["there is a stream t already"])
            allowed.clear()
            if key == "delete":
                allowed |= {"create", "publish"}
                filled(stage)
                allowed.clear()


def test_the_servers_own_streams_are_not_deleted(tmp_path: Path) -> None:
    with Stage(tmp_path, streams=["logs"], own=["logs"]) as stage:
        assert "may not delete" in order(stage.client(ORDERS), "delete", stream="logs")[0]
        assert stage.engine.names() == ["logs"]


def test_orders_that_wait_are_bounded(stage: Stage) -> None:
    stage.slow = True
    admin = stage.client(ORDERS)
    admin.send(*[Publish("create", b'{"stream": "%d"}' % number) for number in range(WAITING + 20)])
    while stage.engine.turns and len(admin.heard) < 20 and admin.read() is None:
        stage.run()
    assert "orders of this connection wait already" in admin.reasons[0]


def test_a_connection_that_ends_before_its_order_is_executed(stage: Stage) -> None:
    stage.slow = True
    admin = stage.client(ORDERS)
    admin.send(Publish("create", b'{"stream": "s"}'), Ping())
    admin.close()
    stage.let_disk_work()
    assert stage.engine.names() == ["s"]
