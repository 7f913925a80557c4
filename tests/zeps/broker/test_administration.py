"""zambezi.zeps.broker.administration: orders about streams, who may give them, and the clients of the streams."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.zeps.stage import Client, Stage
from zambezi.zeps.broker.administration import LARGEST
from zambezi.zeps.directory import ORDERS, STREAMS, read_streams
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


def test_a_setting_that_is_null_is_the_default(stage: Stage) -> None:
    assert order(stage.client(ORDERS), "create", stream="s", settings={"keep_seconds": None, "publishers": 5}) == []
    assert stage.stream("s").journal.settings == {"publishers": 5}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"stream": ""}, "the order needs 'stream'"),
        ({"stream": 7}, "the order needs 'stream'"),
        ({"stream": "$s"}, "reserved name"),
        ({"stream": "s", "settings": {"keep": 1}}, "a stream has no setting 'keep'"),
        ({"stream": "s", "settings": {"keep_bytes": "1G"}}, "keep_bytes is '1G': it must be a whole number from 65536"),
        ({"stream": "s", "settings": {"segment": 1}}, "segment is 1: it must be a whole number from 65536"),
        ({"stream": "s", "settings": {"segment": 1e6}}, "segment is 1000000.0: it must be a whole number"),
        ({"stream": "s", "settings": {"segment": True}}, "segment is True: it must be a whole number"),
        ({"stream": "s", "settings": {"publishers": 10**400}}, "publishers is 1000"),
        ({"stream": "s", "settings": {"keep_seconds": math.inf}}, "keep_seconds is inf: it must be a number from 1 to"),
        ({"stream": "s", "settings": {"keep_seconds": math.nan}}, "keep_seconds is nan"),
        ({"stream": "s", "settings": {"keep_publishers": 10**400}}, "keep_publishers is 1000"),
        ({"stream": "s", "settings": {"sync": 1}}, "sync is 1: it must be text"),
        ({"stream": "s" * 256}, "the name of a stream has at most 255 bytes, and this one has 256"),
        ({"stream": "\ud800"}, "a lone surrogate"),
        ({"stream": "s", "settings": {"sync": "often"}}, "must be always, interval, never or store"),
        ({"stream": "s", "settings": {"sync": "store"}}, "the broker has no object store"),
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
    assert order(admin, "edit", stream="s", settings={"keep_bytes": 100_000, "publishers": 5}) == []
    assert stage.stream("s").journal.policy == Policy(sync="never", keep_bytes=100_000, publishers=5)
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
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".reserve"]
    assert order(stage.client(ORDERS), "delete", stream="s") == ["there is no stream s"]
    filled(stage, count=1)
    assert stage.stream("s").journal.incarnation != before
    assert stage.stream("s").journal.last == 1


@pytest.mark.parametrize(("key", "more"), [("delete", {}), ("truncate", {"after": 3})])
def test_readers_of_the_index_are_told(stage: Stage, key: str, more: dict[str, object]) -> None:
    filled(stage)
    reader = stage.client("$index/s", credit=100_000)
    reader.subscribe()
    assert order(stage.client(ORDERS), key, stream="s", **more) == []
    filled(stage)
    stage.tick()
    reader.read()
    assert reader.said == ["AttachOk", "SubscribeOk", "Deliver", "Invalid", "Detach"]
    assert "an operator has" in reader.reasons[0]


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
    journal = stage.stream("s").journal
    assert journal.last == 4
    admin.send(Publish("delete", b'{"stream": "s"}'))
    latest = stage.client("s")
    latest.send(Publish("k", b"1"), Ping())
    before = journal.incarnation
    stage.let_disk_work()
    latest.read()
    assert (latest.reasons, latest.confirmed) == ([], 1)
    assert stage.stream("s").journal.incarnation != before
    assert stage.stream("s").journal.last == 1


def test_a_stream_that_is_being_changed_or_cannot_be_used(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        filled(stage)
        filled(stage, "t")
    (tmp_path / "s" / "00000000000000000001.log").unlink()
    (tmp_path / "s" / "00000000000000000001.log").mkdir()
    with Stage(tmp_path) as stage:
        admin = stage.client(ORDERS)
        assert "cannot be used until the operator has repaired it" in order(admin, "delete", stream="s")[0]
        stage.slow = True
        admin.send(Publish("truncate", b'{"stream": "t", "after": 3}'))
        (reason,) = order(stage.client(ORDERS), "trim", stream="t", before=2)
        assert reason == "stream t is being created, cut or deleted at this moment: try again"


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
            verb = "subscribe to" if action == "subscribe" else action
            assert f"ann may not {verb} the stream" in order(admin, key, **content)[0]
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


def test_a_name_of_any_bytes_is_listed(stage: Stage) -> None:
    admin = stage.client(ORDERS)
    names = ["../x", ".", "\0", "a\nb", "\udcff", "\u00e9" * 127]
    for name in names:
        assert order(admin, "create", stream=name) == []
    reader = stage.client(STREAMS, credit=100_000)
    reader.subscribe()
    assert {info.stream for info in read_streams([one.body for one in reader.delivered])} == set(names)


def test_an_order_waits_until_the_one_before_is_executed(stage: Stage) -> None:
    """It waits with the client: the broker holds only what it has read from the connection."""
    stage.slow = True
    admin = stage.client(ORDERS)
    admin.send(*[Publish("create", b'{"stream": "%d"}' % number) for number in range(3)], Ping())
    assert admin.paused
    for count in range(3):
        assert (stage.engine.names(), admin.confirmed) == ([str(number) for number in range(count)], 0)
        stage.let_disk_work(1)
    admin.read()
    assert (stage.engine.names(), admin.confirmed, admin.paused) == (["0", "1", "2"], 1, False)


def test_many_orders_that_fail_wait_for_one_that_is_slow(stage: Stage) -> None:
    stage.slow = True
    admin = stage.client(ORDERS)
    admin.send(Publish("create", b'{"stream": "s"}'), *[Publish("create", b"?")] * 5000, Ping())
    stage.let_disk_work()
    admin.read()
    assert (len(admin.reasons), admin.confirmed) == (5000, 1)


def test_orders_of_a_connection_that_is_lost_are_not_executed(stage: Stage) -> None:
    stage.slow = True
    admin = stage.client(ORDERS)
    admin.send(*[Publish("create", b'{"stream": "%d"}' % number) for number in range(3)])
    admin.close()
    stage.let_disk_work()
    assert stage.engine.names() == ["0"]


def test_the_size_of_an_order_is_bounded(stage: Stage) -> None:
    (reason,) = order(stage.client(ORDERS), "create", stream="s", settings={"x": "x" * LARGEST})
    assert f"an order has at most {LARGEST} bytes" in reason


def test_two_administrators_change_different_settings_at_once(stage: Stage) -> None:
    filled(stage)
    stage.slow = True
    ann, bob = stage.client(ORDERS), stage.client(ORDERS)
    ann.send(Publish("edit", b'{"stream": "s", "settings": {"keep_bytes": 100000}}'))
    bob.send(Publish("edit", b'{"stream": "s", "settings": {"keep_seconds": 60}}'))
    stage.let_disk_work()
    assert stage.stream("s").journal.settings == {"keep_bytes": 100_000, "keep_seconds": 60}


def test_the_name_of_a_setting_is_checked_if_it_becomes_the_default(stage: Stage) -> None:
    filled(stage)
    (reason,) = order(stage.client(ORDERS), "edit", stream="s", settings={"keep": None})
    assert "a stream has no setting 'keep'" in reason


def test_a_stream_that_could_not_be_cut_is_served_on(stage: Stage) -> None:
    filled(stage)
    stage.slow = True
    admin = stage.client(ORDERS)
    admin.send(Publish("truncate", b'{"stream": "s", "after": 3}'), Ping())
    stage.store.open("s").trim(8)
    stage.let_disk_work()
    admin.read()
    assert "sequences 8 to 10: it cannot be cut after 3" in admin.reasons[0]
    assert stage.engine.names() == ["s"]


@pytest.mark.parametrize(("key", "more"), [("trim", {"before": 5}), ("copy", {"to": "t"})])
def test_an_order_that_takes_long_delays_no_other(stage: Stage, key: str, more: dict[str, object]) -> None:
    filled(stage)
    stage.slow = True
    admin = stage.client(ORDERS)
    admin.send(Publish(key, json.dumps({"stream": "s", **more}).encode()), Ping())
    stage.client("new")
    stage.let_disk_work(1)
    assert stage.engine.names() == ["new", "s"]
    stage.engine.detach_all()
    stage.let_disk_work()
    admin.read()
    assert "the broker closes" in admin.reasons[0]
    assert (stage.engine.names(), stage.stream("s").journal.first) == (["new", "s"], 1)


def test_a_stream_that_is_truncated_while_it_is_copied(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(stage)
    filled(stage)
    source = stage.stream("s").journal
    monkeypatch.setattr(stage.engine, "check_open", lambda: source.truncate(10))
    (reason,) = order(stage.client(ORDERS), "copy", stream="s", to="t")
    assert "was truncated while it was" in reason
    assert stage.engine.names() == ["s"]
