"""zambezi.zeps.broker.readers and claims: CLAIM, ACK, TAKEN, and what the file of positions knows of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.zeps.journal.streams import kill
from tests.zeps.stage import Client, Stage, replace_method
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.broker.reports import describe_stream
from zambezi.zeps.directory import ReaderInfo, read_readers
from zambezi.zeps.journal import Policy
from zambezi.zeps.journal.positions import FILE, NO_OWNER, READER, Position
from zambezi.zeps.messages import (
    AGAIN,
    LATEST,
    REFUSE,
    TAKE,
    TIME,
    Ack,
    Claim,
    ClaimOk,
    Credit,
    Deliver,
    Detach,
    Ping,
    PingOk,
    Publish,
    Subscribe,
    Taken,
    Zeps,
)

ANN, BEN = b"ann-------------", b"ben-------------"
TEN = [Publish("k", b"%d" % number) for number in range(10)]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path, limits=Limits(message=1000))
    stage.client("s").send(*TEN)
    return stage


def claim(
    stage: Stage, owner: bytes = ANN, *, latest: int = 0, mode: int = TAKE, name: str = "billing", user: str = ""
) -> Client:
    client = stage.client("s", user=user)
    client.send(Claim(name, owner, latest, mode))
    return client


def answers(client: Client) -> list[Zeps]:
    """Return the messages after ATTACH-OK."""
    return client.heard[1:]


def position(stage: Stage, name: str = "billing") -> int | None:
    """Return the position in the file."""
    state = stage.stream("s").journal.positions.get(READER, name)
    return state.position if state is not None else None


def test_a_new_reader_begins_where_it_wants(stage: Stage) -> None:
    assert answers(claim(stage, name="all")) == [ClaimOk(0, 0)]
    assert answers(claim(stage, name="live", latest=LATEST)) == [ClaimOk(10, 0)]
    assert answers(claim(stage, name="after", latest=4)) == [ClaimOk(4, 0)]
    assert answers(claim(stage, name="time", latest=TIME | int(stage.now * 1000 - 5))) == [ClaimOk(0, 0)]
    assert len(stage.stream("s").readers) == 4


def test_a_reader_goes_on_after_its_last_position(stage: Stage) -> None:
    client = claim(stage)
    client.send(Subscribe("", 0), Credit(1000))
    assert client.sequences == list(range(1, 11))
    client.send(Ack(3), Ack(7))
    client.close()
    assert position(stage) == 7
    assert answers(claim(stage, BEN, latest=LATEST)) == [ClaimOk(7, 0)]


def test_all_acknowledgements_of_a_turn_are_one_write(stage: Stage) -> None:
    client = claim(stage)
    written = stage.stream("s").journal.positions.written
    client.send(*[Ack(sequence) for sequence in range(1, 9)])
    assert stage.stream("s").journal.positions.written == written + 1
    assert position(stage) == 8


def test_a_ping_confirms_acknowledgements_when_they_are_written(stage: Stage) -> None:
    client = claim(stage)
    client.send(Ack(5), Ping(), Ack(6), Ping())
    assert client.confirmed == 2
    kill(stage.store)
    with Stage(stage.store.path) as again:
        assert answers(claim(again)) == [ClaimOk(6, 0)]


def test_with_sync_always_the_disk_has_what_is_confirmed(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="always")) as stage:
        stage.client("s").send(*TEN)
        client = claim(stage)
        assert answers(client) == []
        stage.write_back()
        client.read()
        assert answers(client) == [ClaimOk(0, 0)]
        client.send(Ack(5), Ping())
        assert client.confirmed == 0
        positions = stage.stream("s").journal.positions
        assert positions.synced < positions.written
        stage.write_back()
        client.read()
        assert client.confirmed == 1
        assert positions.synced == positions.written


def test_acknowledgements_do_not_delay_the_confirmation_of_publishers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stage(tmp_path, policy=Policy(sync="always")) as stage:
        reader, publisher = claim(stage), stage.client("s")
        stage.write_back()
        journal = stage.stream("s").journal
        sync = journal.sync

        def acknowledge_meanwhile() -> int:
            last = sync()
            reader.send(Ack(last))
            return last

        replace_method(monkeypatch, journal, "sync", acknowledge_meanwhile)
        for number in range(1, 4):
            publisher.send(TEN[0], Ping())
            stage.write_back()
            publisher.read()
            assert publisher.confirmed == number


@pytest.mark.parametrize("sync", ["always", "never"])
def test_many_confirmations_at_once(tmp_path: Path, sync: Literal["always", "never"]) -> None:
    with Stage(tmp_path, policy=Policy(sync=sync)) as stage:
        stage.client("s").send(*TEN)
        one = claim(stage)
        clients = [claim(stage, name=f"reader-{number}") for number in range(1500)]
        stage.write_back()
        for client in clients:
            client.send(Ack(5), Ping())
        one.send(*[Ping()] * 500)
        stage.write_back()
        for client in (*clients, one):
            client.read()
        assert [client.confirmed for client in clients] == [1] * 1500
        assert one.confirmed == 500


def test_acknowledgements_before_the_position_change_nothing(stage: Stage) -> None:
    client = claim(stage)
    client.send(Ack(7), Ack(3), Ack(0), Ping())
    assert position(stage) == 7
    assert client.reasons == []


def test_acknowledgements_after_the_end_are_refused(stage: Stage) -> None:
    client = claim(stage)
    for wrong in (11, 1 << 63, (1 << 64) - 1):
        client.send(Ack(wrong), Ping())
        assert "the last sequence of this stream is 10" in client.reasons[-1]
    assert position(stage) == 0
    client.send(Ack(10), Ping())
    assert position(stage) == 10


def test_acknowledgements_without_a_name_are_refused(stage: Stage) -> None:
    client = stage.client("s")
    client.send(Ack(1))
    assert "it comes after CLAIM" in client.reasons[0]
    reserved = stage.client("$streams")
    reserved.send(Claim("billing", ANN, 0, TAKE), Ack(1))
    assert "no named readers" in reserved.reasons[0]
    assert stage.engine.counters.invalid["misplaced"] == 2


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (Claim("", ANN, 0, TAKE), "is empty"),
        (Claim("billing", ANN[:15], 0, TAKE), "has 16 bytes"),
        (Claim("billing", ANN * 2, 0, TAKE), "has 16 bytes"),
        (Claim("billing", NO_OWNER, 0, TAKE), "not all of them are zero"),
        (Claim("billing", ANN, 0, 3), "no mode 3"),
        (Claim("billing", ANN, 11, TAKE), "the last sequence of this stream is 10"),
        (Claim("billing", ANN, TIME | (1 << 62), TAKE), "cannot begin in the future"),
    ],
)
def test_a_claim_that_is_not_valid_is_refused(stage: Stage, wrong: Claim, reason: str) -> None:
    client = stage.client("s")
    client.send(wrong)
    assert reason in client.reasons[0]
    assert len(stage.stream("s").readers) == 0
    client.send(Claim("billing", ANN, 0, TAKE))
    assert client.of(ClaimOk) == [ClaimOk(0, 0)]


@pytest.mark.parametrize("length", [0, 1, 10, 27, 28])
def test_bytes_that_are_no_claim_are_refused(stage: Stage, length: int) -> None:
    client = stage.client("s")
    octets = Claim("billing", ANN, 0, TAKE).encode()[0]
    client.send(octets[: 3 + length], Ack(1).encode()[0][:7], octets + b"x", Taken("x"), ClaimOk(1, 2))
    assert len(client.reasons) == 5
    assert client.reasons[-1] == "only servers send ClaimOk"
    client.send(Ping())
    assert client.confirmed == 1


def test_a_name_can_have_255_bytes_of_any_kind(stage: Stage) -> None:
    name = bytes(range(1, 256)).decode("utf-8", "surrogateescape")
    client = claim(stage, name=name)
    assert answers(client) == [ClaimOk(0, 0)]
    client.send(Ack(4), Ping())
    client.close()
    assert answers(claim(stage, name=name)) == [ClaimOk(4, 0)]


def test_the_newest_client_takes_the_name_away(stage: Stage) -> None:
    old = claim(stage)
    old.send(Ack(4))
    new = claim(stage, BEN)
    old.read()
    assert answers(new) == [ClaimOk(4, 0)]
    assert old.of(Taken) == [Taken("test")]
    assert old.parted
    old.session.receive([Ack(9).encode()[0]])
    stage.run()
    assert position(stage) == 4
    new.send(Ack(5), Ping())
    assert position(stage) == 5
    assert stage.engine.counters.readers_taken == 1


def test_a_client_can_ask_not_to_take_a_name_away(stage: Stage) -> None:
    old = claim(stage)
    new = claim(stage, BEN, mode=REFUSE)
    assert answers(new) == [Taken("test")]
    assert not new.parted
    old.close()
    new.send(Claim("billing", BEN, 0, REFUSE))
    assert answers(new)[1:] == [ClaimOk(0, 0)]


@pytest.mark.parametrize("mode", [REFUSE, TAKE, AGAIN])
def test_the_same_client_replaces_its_old_connection(stage: Stage, mode: int) -> None:
    old = claim(stage)
    old.send(Ack(4))
    new = claim(stage, mode=mode)
    assert answers(new) == [ClaimOk(4, 0)]
    assert old.gone
    assert old.of(Taken) == []
    new.send(Ack(6), Ping())
    assert position(stage) == 6


def test_a_client_that_comes_back_late_learns_that_another_one_had_the_name(stage: Stage) -> None:
    claim(stage).close()
    other = claim(stage, BEN)
    other.send(Ack(8))
    other.close()
    assert answers(claim(stage, mode=AGAIN)) == [Taken("")]
    kill(stage.store)
    with Stage(stage.store.path) as again:
        assert answers(claim(again, mode=AGAIN)) == [Taken("")]
        assert answers(claim(again, BEN, mode=AGAIN)) == [ClaimOk(8, 0)]


def test_a_client_whose_reader_was_removed_learns_it(stage: Stage) -> None:
    claim(stage).close()
    stage.stream("s").readers.remove("billing")
    assert answers(claim(stage, mode=AGAIN)) == [Taken("")]
    assert len(stage.stream("s").readers) == 0


def test_a_connection_has_one_name(stage: Stage) -> None:
    client = claim(stage)
    client.send(Claim("other", ANN, 0, TAKE))
    assert "a connection has one name" in client.reasons[0]


def test_a_reader_belongs_to_its_user(stage: Stage) -> None:
    claim(stage, user="ann").close()
    thief = claim(stage, BEN, user="ben")
    assert "belongs to another user" in thief.reasons[0]
    assert answers(claim(stage, BEN, user="ann")) == [ClaimOk(0, 0)]


def test_a_reader_of_an_operator_is_for_all_users(stage: Stage) -> None:
    stage.stream("s").readers.set(Position(READER, "billing", 3, owner=BEN))
    assert answers(claim(stage, user="ann")) == [ClaimOk(3, 0)]
    stage.stream("s").readers.flush()
    assert answers(claim(stage, BEN, user="ben")) == [ClaimOk(3, 0)]


def test_a_reader_needs_the_right_to_subscribe(tmp_path: Path) -> None:
    allowed = True
    with Stage(tmp_path, allow=lambda user, action, stream: allowed or action != "subscribe") as stage:
        stage.client("s").send(*TEN)
        client = claim(stage)
        client.send(Subscribe("", 0), Ack(2), Ping())
        allowed = False
        stage.engine.apply_rules()
        client.send(Ack(5))
        assert "it comes after CLAIM" in client.reasons[-1]
        assert position(stage) == 2
        assert "may not subscribe" in claim(stage).reasons[0]


def test_the_number_of_names_is_bounded(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="never", readers=2)) as stage:
        first = claim(stage, name="one")
        claim(stage, name="two")
        third = claim(stage, name="three")
        assert "2 named readers already" in third.reasons[0]
        assert stage.engine.counters.readers_refused == 1
        assert answers(claim(stage, BEN, name="two")) == [ClaimOk(0, 0)]
        first.close()
        stage.stream("s").readers.remove("one")
        third.send(Claim("three", ANN, 0, TAKE))
        assert third.of(ClaimOk) == [ClaimOk(0, 0)]


def test_a_position_that_is_not_kept_any_more_goes_on_at_the_oldest_message(stage: Stage) -> None:
    claim(stage).close()
    stage.stream("s").journal.trim(6)
    client = claim(stage)
    assert answers(client) == [ClaimOk(5, 5)]
    assert stage.engine.counters.fell_behind == 1
    stage.stream("s").journal.trim(8)
    client.send(Subscribe("", 5), Credit(1000))
    assert client.sequences == [8, 9, 10]
    assert client.reasons == []


def test_a_reader_that_falls_behind_goes_on_at_the_oldest_message(stage: Stage) -> None:
    client = claim(stage)
    client.send(Subscribe("", 0), Credit(1))
    assert client.sequences == [1]
    stage.stream("s").journal.trim(8)
    client.send(Credit(1000))
    assert client.sequences == [1, 8, 9, 10]
    assert client.reasons == []


def test_patterns_and_acknowledgements(stage: Stage) -> None:
    client = claim(stage)
    client.send(Subscribe("exact:other", 0), Credit(1000), Ack(10), Ping())
    assert client.sequences == []
    assert position(stage) == 10


def test_a_full_disk_keeps_positions_in_memory(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    client = claim(stage)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda descriptor, octets, offset: 0)
        client.send(Ack(5), Ping())
        assert client.confirmed == 0
        assert "No space left" in stage.stream("s").readers.problem
        assert position(stage) == 0
        # The same client can come back, and goes on after what it has acknowledged.
        client.close()
        client = claim(stage, mode=AGAIN)
        client.send(Ping())
        assert client.confirmed == 0
        other = claim(stage, BEN)
        assert "No space left" in other.reasons[0]
    stage.tick()
    client.read()
    assert client.confirmed == 1
    assert client.of(ClaimOk) == [ClaimOk(5, 0)]
    assert position(stage) == 5
    assert stage.stream("s").readers.problem == ""


def test_detach_waits_for_the_confirmation_of_acknowledgements(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="always")) as stage:
        stage.client("s").send(*TEN)
        client = claim(stage)
        stage.write_back()
        client.send(Ack(5), Ping(), Detach())
        assert "DetachOk" not in client.said
        stage.write_back()
        client.read()
        assert client.said[-2:] == ["PingOk", "DetachOk"]


def test_acknowledgements_count_while_the_broker_closes(stage: Stage) -> None:
    client = claim(stage)
    stage.engine.detach_all()
    client.send(Ack(5), Ping())
    assert isinstance(client.heard[-1], PingOk)
    assert position(stage) == 5


def test_a_stopped_stream_refuses_claims_and_confirmations(tmp_path: Path) -> None:
    stage = Stage(tmp_path, policy=Policy(sync="always"))
    stage.client("s").send(*TEN)
    client = claim(stage)
    stage.write_back()
    client.send(Ack(5), Ping())
    stage.stream("s").journal.failed = "the disk is broken"
    stage.stream("s").stop()
    client.read()
    assert "the disk is broken" in client.reasons[0]
    assert client.confirmed == 0
    assert "the disk is broken" in claim(stage).reasons[0]
    kill(stage.store)


def test_old_records_are_removed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = stage.stream("s").journal.positions
    monkeypatch.setattr(positions, "_compact_from", 500)
    client = claim(stage)
    for sequence in range(1, 11):
        client.send(Ack(sequence))
    path = stage.stream("s").journal.directory / FILE
    before = path.stat().st_size
    stage.tick()
    assert path.stat().st_size < before // 5
    assert position(stage) == 10


def test_the_lag_of_readers(stage: Stage) -> None:
    readers = stage.stream("s").readers
    assert readers.largest_lag == 0
    claim(stage, name="fast", latest=LATEST)
    assert readers.largest_lag == 0
    slow = claim(stage, name="slow", latest=4)
    assert readers.largest_lag == 6
    slow.send(Ack(9))
    assert readers.largest_lag == 1
    stage.client("s").send(*TEN)
    assert [(state.name, readers.lag_of(state.position)) for state in readers.all()] == [("fast", 10), ("slow", 11)]


def test_a_client_without_names_notices_nothing(stage: Stage) -> None:
    client = stage.client("s", credit=1000)
    client.subscribe()
    client.ping()
    assert set(client.said) == {"AttachOk", "SubscribeOk", "Deliver", "PingOk"}
    assert not (stage.stream("s").journal.directory / FILE).exists()
    assert all(isinstance(message, Deliver) for message in client.delivered)


# Orders and the list


def order(stage: Stage, key: str, user: str = "", **content: Any) -> list[str]:
    """Give an order, and return the reasons why it failed."""
    client = stage.client("$admin", user=user)
    client.send(Publish(key, json.dumps(content).encode()), Ping())
    assert client.confirmed == 1
    return client.reasons


def listed(stage: Stage, pattern: str = "") -> list[ReaderInfo]:
    client = stage.client("$readers/s", credit=1 << 20)
    client.subscribe(pattern)
    return read_readers([message.body for message in client.delivered])


def test_an_operator_sets_and_removes_readers(stage: Stage) -> None:
    assert order(stage, "set_reader", stream="s", reader="billing", latest=7) == []
    assert answers(claim(stage)) == [ClaimOk(7, 0)]
    assert "in use by test" in order(stage, "set_reader", stream="s", reader="billing", latest=3)[0]
    assert "in use by test" in order(stage, "remove_reader", stream="s", reader="billing")[0]
    claim(stage, BEN).close()
    assert order(stage, "set_reader", stream="s", reader="billing", latest=3) == []
    assert answers(claim(stage, BEN, mode=AGAIN)) == [Taken("")]
    claim(stage).close()
    assert order(stage, "remove_reader", stream="s", reader="billing") == []
    assert "has no reader billing" in order(stage, "remove_reader", stream="s", reader="billing")[0]
    assert listed(stage) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"reader": "r", "latest": 11}, "the last sequence of this stream is 10"),
        ({"reader": "r", "latest": TIME | 1 << 62}, "in the future"),
        ({"reader": "r"}, "'latest'"),
        ({"reader": "", "latest": 0}, "'reader'"),
        ({"reader": "r" * 256, "latest": 0}, "1 to 255 bytes"),
        ({"reader": "\ud800", "latest": 0}, "surrogate"),
        ({"reader": "r", "latest": -1}, "'latest'"),
    ],
)
def test_orders_that_are_not_valid_are_refused(stage: Stage, content: dict[str, Any], reason: str) -> None:
    assert reason in order(stage, "set_reader", stream="s", **content)[0]
    assert len(stage.stream("s").readers) == 0


def test_orders_about_readers_need_the_right_to_edit(tmp_path: Path) -> None:
    with Stage(tmp_path, allow=lambda user, action, stream: action != "edit" or user == "root") as stage:
        stage.client("s").send(*TEN)
        assert "may not edit" in order(stage, "set_reader", stream="s", reader="billing", latest=7)[0]
        assert order(stage, "set_reader", "root", stream="s", reader="billing", latest=7) == []
        assert "may not edit" in order(stage, "remove_reader", stream="s", reader="billing")[0]
        assert order(stage, "remove_reader", "root", stream="s", reader="billing") == []


def test_an_order_waits_for_the_disk(stage: Stage) -> None:
    admin = stage.client("$admin")
    stage.slow = True
    admin.send(Publish("set_reader", b'{"stream": "s", "reader": "r", "latest": 3}'), Ping())
    assert admin.confirmed == 0
    stage.let_disk_work()
    admin.read()
    assert admin.confirmed == 1
    positions = stage.stream("s").journal.positions
    assert positions.synced == positions.written


def test_the_list_of_readers(stage: Stage) -> None:
    client = claim(stage, name="billing", user="ann")
    client.send(Ack(4))
    order(stage, "set_reader", stream="s", reader="audit", latest=0)
    audit, billing = listed(stage)
    now = int(stage.now * 1_000_000)
    assert audit == ReaderInfo(reader="audit", position=0, lag=10, time=now)
    assert billing == ReaderInfo(reader="billing", position=4, lag=6, time=now, user="ann", holder="ann at test")
    assert [one.reader for one in listed(stage, "exact:billing")] == ["billing"]
    stage.stream("s").journal.trim(6)
    assert [one.lag for one in listed(stage)] == [5, 5]


def test_changes_of_readers_follow_the_list(stage: Stage) -> None:
    client = claim(stage)
    watcher = stage.client("$readers/s", credit=1 << 20)
    watcher.subscribe()
    stage.tick()
    client.send(Ack(4))
    stage.tick()
    watcher.read()
    assert [one.position for one in read_readers([message.body for message in watcher.delivered])][-1] == 4
    order(stage, "delete", stream="s")
    stage.tick()
    assert not stage.engine.reports._readers


def test_the_list_needs_the_right_to_subscribe(tmp_path: Path) -> None:
    with Stage(tmp_path, allow=lambda user, action, stream: action != "subscribe") as stage:
        stage.client("s").send(*TEN)
        assert "may not subscribe" in stage.client("$readers/s").reasons[0]


def test_truncate_moves_readers_back_and_delete_removes_them(stage: Stage) -> None:
    client = claim(stage)
    client.send(Ack(9), Ping())
    assert order(stage, "truncate", stream="s", after=6) == []
    client.read()
    assert "cut off" in client.reasons[0]
    stage.client("s").send(*TEN)
    assert answers(claim(stage)) == [ClaimOk(6, 0)]
    assert order(stage, "copy", stream="s", to="t") == []
    assert len(stage.stream("t").readers) == 0
    assert order(stage, "delete", stream="s") == []
    stage.client("s").send(*TEN)
    assert answers(claim(stage)) == [ClaimOk(0, 0)]


def test_acknowledgements_of_a_stream_that_was_taken_away_change_nothing(stage: Stage) -> None:
    client = claim(stage)
    client._inbox.append([Ack(9).encode()[0]])
    order(stage, "truncate", stream="s", after=2)
    client._drain()
    client.close()
    stage.run()
    assert position(stage) == 0


def test_the_description_of_a_stream_counts_its_readers(stage: Stage) -> None:
    claim(stage, latest=3)
    row = describe_stream(stage.stream("s"))
    assert (row["readers"], row["reader_lag"]) == (1, 7)
