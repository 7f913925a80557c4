"""zambezi.zeps.broker.reports: the content of the reserved streams, and when it is sent."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.zeps.stage import PLENTY, Client, Stage, never_wait_for_the_disk
from zambezi.zeps.broker import reports
from zambezi.zeps.directory import read_clients, read_index, read_streams
from zambezi.zeps.journal import Journal, Policy
from zambezi.zeps.journal.positions import Positions
from zambezi.zeps.messages import LATEST, Claim, Credit, Deliver, Join, Ping, Subscribe


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as made:
        yield made


def told(client: Client, start: int = 0) -> dict[str, Any]:
    """Return the last row of each key; None for a row that was removed."""
    return {message.key: json.loads(message.body) if message.body else None for message in client.delivered[start:]}


# Streams


def test_streams_tells_of_all_streams(stage: Stage) -> None:
    publisher = stage.client("prices")
    publisher.publish_many(["k"] * 5, b"body")
    stage.client("news").subscribe()
    client = stage.client("$streams", credit=PLENTY)
    client.subscribe()
    journal = stage.stream("prices").journal
    assert client.said == ["AttachOk", "SubscribeOk", "Deliver", "Deliver"]
    assert told(client)["prices"] == {
        "stream": "prices",
        "incarnation": str(journal.incarnation),
        "first": 1,
        "last": 5,
        "octets": journal.octets,
        "first_time": int(stage.now * 1_000_000),
        "last_time": int(stage.now * 1_000_000),
        "sync": "never",
        "copied": None,
        "segment": 256 << 20,
        "keep_bytes": None,
        "keep_seconds": None,
        "publishers": 0,
        "max_publishers": 100_000,
        "compact": False,
        "removed": 0,
        "keep_publishers": 7 * 86400.0,
        "readers": 0,
        "groups": 0,
        "reader_lag": 0,
        "subscribers": 0,
        "attached": 1,
        "rate": 0.0,
        "owner": "",
        "held": "",
        "multicast": "",
    }
    assert (told(client)["news"]["first"], told(client)["news"]["last"]) == (1, 0)
    assert told(client)["news"]["subscribers"] == 1
    assert [info.stream for info in read_streams(message.body for message in client.delivered)] == ["news", "prices"]


def test_only_changes_are_sent_as_time_passes(stage: Stage) -> None:
    publisher = stage.client("prices")
    stage.client("news")
    client = stage.client("$streams", credit=PLENTY)
    client.subscribe()
    stage.tick()
    stage.tick()
    assert client.read() == []
    publisher.publish("k")
    assert client.read() == []
    stage.tick()
    client.read()
    assert client.keys == ["news", "prices", "prices"]
    assert told(client)["prices"]["last"] == 1
    assert client.sequences == [1, 2, 3]
    stage.client("weather")
    stage.tick()
    client.read()
    assert "weather" in client.keys[3:]


def test_a_pattern_selects_streams_and_latest_skips_the_existing_rows(stage: Stage) -> None:
    for name in ("a1", "a2", "b1"):
        stage.client(name)
    client = stage.client("$streams", credit=PLENTY)
    client.subscribe("a")
    assert client.keys == ["a1", "a2"]
    live = stage.client("$streams", credit=PLENTY)
    live.follow("glob:b*")
    assert live.said == ["AttachOk", "SubscribeOk"]
    stage.client("b2")
    stage.client("a3")
    stage.tick()
    client.read()
    live.read()
    assert client.keys == ["a1", "a2", "a3"]
    assert live.keys == ["b2"]
    client.subscribe("regex:(")
    assert client.said[-1] == "Invalid"


def test_names_that_are_not_utf_8_are_escaped_in_json(stage: Stage) -> None:
    stage.client("\udcff\n")
    client = stage.client("$streams", credit=PLENTY)
    client.subscribe()
    assert client.keys == ["\udcff\n"]
    assert json.loads(client.delivered[0].body)["stream"] == "\udcff\n"


@pytest.mark.parametrize("name", ["$streams", "$clients"])
def test_changes_are_computed_once_for_all_readers(stage: Stage, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = stage.client("prices")
    stage.client("news")
    readers = [stage.client(name, credit=PLENTY) for _ in range(10)]
    for reader in readers:
        reader.subscribe()
    stage.tick()
    for reader in readers:
        reader.read()
    before = [len(reader.delivered) for reader in readers]
    publisher.publish("k")
    made: list[object] = []
    dumps = json.dumps

    def counted(value: object, **options: Any) -> str:
        made.append(value)
        return dumps(value, **options)

    monkeypatch.setattr(json, "dumps", counted)
    stage.tick()
    assert len(made) == 1
    for reader, count in zip(readers, before, strict=True):
        reader.read()
        assert [json.loads(message.body)["stream"] for message in reader.delivered[count:]] == ["prices"]
    assert len({id(reader.session.delivery.report._source._sent) for reader in readers}) == 1  # type: ignore[union-attr]
    stage.tick()
    assert len(made) == (2 if name == "$streams" else 1)  # the rate falls


def test_nothing_is_encoded_without_a_reader(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.client("prices")
    monkeypatch.setattr(json, "dumps", None)
    stage.client("$streams", credit=PLENTY)  # this one has not subscribed
    stage.client("$streams").subscribe("")  # and this one has no credit
    stage.tick()
    never = stage.client("$streams", credit=PLENTY)
    never.subscribe("no such stream")  # rows that do not match are not encoded
    assert never.said == ["AttachOk", "SubscribeOk"]


def test_a_reader_that_missed_some_ticks_gets_the_missed_changes(stage: Stage) -> None:
    publisher = stage.client("prices")
    news = stage.client("news")
    slow, quick = stage.client("$streams", credit=PLENTY, room=50), stage.client("$streams", credit=PLENTY)
    quick.subscribe()
    slow.session.receive([Subscribe("", 0).encode()[0]])  # it does not read yet
    stage.run()
    for _ in range(3):
        publisher.publish("k")
        stage.tick()
        quick.read()
    news.publish("k")
    stage.client("weather")
    stage.tick()
    for _ in range(30):  # until the rate of messages has fallen to nothing
        stage.tick()
        slow.read()
        quick.read()
    assert told(slow) == told(quick)
    assert told(slow)["prices"]["last"] == 3
    assert told(slow)["news"]["last"] == 1
    assert len(slow.delivered) < len(quick.delivered)


def test_only_readers_of_reports_are_looked_after_as_time_passes(stage: Stage) -> None:
    stage.client("prices")
    stage.client()
    reader = stage.client("$streams")
    assert list(stage.engine.report_readers) == [reader.session]
    reader.close()
    assert not stage.engine.report_readers


# PING


@pytest.mark.spec("ZEP-06")
def test_ping_is_answered_when_the_snapshot_has_gone_out(stage: Stage) -> None:
    for number in range(20):
        stage.client(f"s{number:02}")
    client = stage.client("$streams")
    client.ping()
    assert client.said == ["AttachOk", "PingOk"]  # it has not subscribed
    client.send(Subscribe("", 0), Ping(), Ping())
    assert client.said[2:] == ["SubscribeOk"]
    client.credit(1)
    assert client.said[3:] == ["Deliver"]
    client.credit(1000)
    assert client.confirmed == 1
    client.credit(PLENTY)
    assert client.said[3:] == [*["Deliver"] * 20, "PingOk", "PingOk"]
    client.ping()
    assert client.said[-3:] == ["PingOk"] * 3


@pytest.mark.spec("ZEP-03")
def test_reports_spend_credit(stage: Stage) -> None:
    for number in range(5):
        stage.client(f"s{number}")
    client = stage.client("$streams")
    client.subscribe()
    given = 0
    for number in range(5):
        spent = sum(len(message.encode()[0]) for message in client.delivered)
        client.credit(spent + 1 - given)
        given = spent + 1
        assert len(client.delivered) == number + 1
    client.credit((1 << 64) - 1)
    client.credit((1 << 64) - 1)
    assert len(client.delivered) == 5


def test_a_reader_of_reports_may_stall_and_leave(stage: Stage) -> None:
    for number in range(50):
        stage.client(f"s{number}")
    client = stage.client("$streams", credit=PLENTY, room=100)
    client.session.receive([Subscribe("", 0).encode()[0], Ping().encode()[0]])
    stage.run()
    assert client.held_for_it < 1000
    stage.tick()
    client.read()
    assert len(client.delivered) == 50
    assert client.confirmed == 1
    client.close()
    stage.tick()
    assert client.session not in stage.engine.sessions


# Clients


def test_clients_tells_of_connections_and_of_those_that_are_gone(stage: Stage) -> None:
    publisher = stage.client("prices", user="ann")
    publisher.publish_many(["k"] * 3)
    slow = stage.client("prices", credit=1)
    slow.subscribe("k")
    slow.follow("j")
    client = stage.client("$clients", credit=PLENTY)
    client.subscribe()
    by_number = told(client)
    assert by_number[str(publisher.session.number)] == {
        "client": publisher.session.number,
        "address": "test",
        "user": "ann",
        "stream": "prices",
        "published": 3,
        "gear": "idle",
    }
    assert by_number[str(slow.session.number)] == {
        "client": slow.session.number,
        "address": "test",
        "user": "",
        "stream": "prices",
        "published": 0,
        "gear": "history",
        "patterns": ["j", "k"],
        "position": 1,
        "lag": 2,
        "credit": 1 - len(Deliver(1, "k", b"").encode()[0]),
        "delivered": 1,
        "delivered_bytes": len(Deliver(1, "k", b"").encode()[0]),
        "skipped": 0,
    }
    assert len(read_clients(message.body for message in client.delivered)) == 3
    start = len(client.delivered)
    slow.close()
    stage.tick()
    client.read()
    assert told(client, start) == {str(slow.session.number): None}
    start = len(client.delivered)
    stage.tick()
    client.read()
    assert told(client, start) == {}


# Index


def entries(client: Client, start: int = 0) -> list[tuple[int, int]]:
    return [(entry.first, entry.last) for entry in read_index(message.body for message in client.delivered[start:])]


@pytest.mark.parametrize(("page", "pages"), [(1, 5), (2, 3), (1000, 3)])  # a segment has two entries
def test_the_index_of_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int, pages: int) -> None:
    monkeypatch.setattr(reports, "PAGE", page)
    with Stage(tmp_path, policy=Policy(sync="never", segment=300)) as stage:
        publisher = stage.client("prices")
        for _ in range(5):
            publisher.publish_many(["k"] * 3, b"x" * 20)
        client = stage.client("$index/prices", credit=PLENTY)
        client.send(Subscribe("", 0), Ping())
        assert entries(client) == [(1, 3), (4, 6), (7, 9), (10, 12), (13, 15)]
        assert client.said[-1] == "PingOk"
        assert set(client.keys) == {"prices"}
        assert len(client.delivered) == pages
        # No entry is sent twice, none is removed, and none is missing.
        start = len(client.delivered)
        stage.tick()
        assert client.read() == []
        for _ in range(5):
            publisher.publish_many(["k"] * 3, b"x" * 20)
        stage.tick()
        client.read()
        assert entries(client, start) == [(16, 18), (19, 21), (22, 24), (25, 27), (28, 30)]


def test_the_index_from_a_sequence_and_from_now(stage: Stage) -> None:
    publisher = stage.client("prices")
    for _ in range(4):
        publisher.publish_many(["k"] * 3)
    client = stage.client("$index/prices", credit=PLENTY)
    client.subscribe("", 4)  # in the middle of a batch
    assert entries(client) == [(4, 6), (7, 9), (10, 12)]
    client.subscribe("", 9)
    assert entries(client, 1) == [(10, 12)]
    client.subscribe("", 0)
    assert entries(client, 2) == [(1, 3), (4, 6), (7, 9), (10, 12)]
    live = stage.client("$index/prices", credit=PLENTY)
    live.follow()
    live.ping()
    assert live.said == ["AttachOk", "SubscribeOk", "PingOk"]
    publisher.publish("k")
    stage.tick()
    live.read()
    client.read()
    assert entries(live) == entries(client, 3) == [(13, 13)]


def test_an_index_that_cannot_be_read_is_an_invalid(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.client("prices").publish("k")
    client = stage.client("$index/prices", credit=PLENTY)

    def broken(journal: Journal, after: int, limit: int) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "index_page", broken)
        client.send(Subscribe("", 0), Ping(), Credit(1))
        stage.tick()
    assert sorted(client.said) == ["AttachOk", "Detach", "Invalid", "PingOk", "SubscribeOk"]
    client = stage.client("$index/prices", credit=PLENTY)
    client.subscribe()
    assert entries(client) == [(1, 1)]


def record_waits(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list to which something is added whenever work waits for its turn."""
    waits: list[int] = []
    wait = stage.engine.turns.wait

    def counted(work: Callable[[], int]) -> None:
        waits.append(1)
        wait(work)

    monkeypatch.setattr(stage.engine.turns, "wait", counted)
    return waits


def test_a_question_that_matches_few_of_many_streams_lets_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_wait_for_the_disk(monkeypatch)
    monkeypatch.setattr(reports, "_KEYS", 10)
    with Stage(tmp_path, streams=[f"s{number}" for number in range(100)]) as stage:
        client = stage.client("$streams", credit=PLENTY)
        waits = record_waits(stage, monkeypatch)
        client.send(Subscribe("glob:*s99", 0), Ping())
        assert len(waits) == 9
        assert client.said == ["AttachOk", "SubscribeOk", "Deliver", "PingOk"]


@pytest.mark.parametrize(("pattern", "found"), [("exact:s17", ["s17"]), ("exact:no", [])])
def test_a_question_about_one_of_many_streams_tries_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, found: list[str]
) -> None:
    never_wait_for_the_disk(monkeypatch)
    with Stage(tmp_path, streams=[f"s{number}" for number in range(20)]) as stage:
        client = stage.client("$streams", credit=PLENTY)

        def walk(engine: object) -> list[str]:
            raise AssertionError("all streams are walked")

        with monkeypatch.context() as patch:
            patch.setattr(type(stage.engine), "streams", property(walk))
            client.send(Subscribe(pattern, 0), Ping())
        assert client.keys == found
        assert client.said[-1] == "PingOk"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("exact:r17", ["r17"]), ("exact:no", []), ("exact:shared:g1", ["shared:g1"]), ("exact:shared:no", [])],
)
def test_a_question_about_one_of_many_readers_tries_no_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, pattern: str, found: list[str]
) -> None:
    add_readers(stage, 20)
    client = stage.client("$readers/prices", credit=PLENTY)

    def walk(readers: object) -> list[str]:
        raise AssertionError("all readers are walked")

    with monkeypatch.context() as patch:
        patch.setattr(Positions, "names", walk)
        patch.setattr(Positions, "all", walk)
        client.send(Subscribe(pattern, 0), Ping())
    assert client.keys == found
    assert client.said[-1] == "PingOk"


def add_readers(stage: Stage, count: int) -> None:
    """Give the stream `prices` some named readers, and two groups."""
    for number in range(count):
        stage.client("prices").send(Claim(f"r{number}", b"o" * 16, 0, 0))
    for name in ("g1", "g2"):
        stage.client("prices").send(Join(name, name.encode() * 8, "", 0, 1, 0, 0, ""))


def test_the_changes_of_many_rows_are_found_in_turns(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_ROWS", 10)
    add_readers(stage, 100)
    client, late = stage.client("$readers/prices", credit=PLENTY), stage.client("$readers/prices", credit=PLENTY)
    client.subscribe()
    assert len(client.keys) == 102
    waits = record_waits(stage, monkeypatch)
    late.send(Subscribe("", LATEST), Ping())
    assert len(waits) == 10
    assert late.said[-1] == "PingOk"
    stage.client("prices").publish("k")
    stage.tick()
    client.read()
    late.read()
    assert told(client)["r99"]["lag"] == told(late)["r99"]["lag"] == 1
    assert len(waits) == 20  # the two share the work


def test_a_reader_that_is_gone_while_rows_are_sent(stage: Stage) -> None:
    add_readers(stage, 2)
    holder = stage.client("prices")
    holder.send(Claim("r2", b"o" * 16, 0, 0))
    client = stage.client("$readers/prices", credit=PLENTY, room=1)
    client.session.receive([Subscribe("", 0).encode()[0]])
    stream = stage.engine.find("prices")
    assert stream is not None
    holder.detach()
    stream.readers.remove("r2")
    stage.run()
    for _ in range(9):
        client.read()
        stage.tick()
    assert set(told(client)) >= {"r0", "r1", "shared:g1", "shared:g2"}
    assert not told(client).get("r2")


def test_a_question_about_one_client(stage: Stage) -> None:
    first = stage.client("prices")
    client = stage.client("$clients", credit=PLENTY)
    client.subscribe(f"exact:{first.session.number}")
    assert client.keys == [str(first.session.number)]
