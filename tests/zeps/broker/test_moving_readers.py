"""Named readers and groups move with their stream: two brokers on one store, clients that know both.

See zambezi.zeps.broker.stored_stream, and tests/zeps/store/positions_simulation.py for many more cases in virtual time.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.zeps.broker.test_depot import stored, taken_by_another
from tests.zeps.broker.test_shared_streams import Pair, publish
from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi.zeps.broker.group_member import Member
from zambezi.zeps.broker.letterbox import Letterbox
from zambezi.zeps.broker.stored_stream import StoredStream
from zambezi.zeps.errors import BrokerError, TimedOut
from zambezi.zeps.journal.positions import READER, Content, Position
from zambezi.zeps.letters import Letter
from zambezi.zeps.sync import Client, Subscription

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

from zambezi.zeps.store.shell import ObjectStore

BODIES = [b"%d" % number for number in range(1, 7)]


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr("zambezi.zeps.client.connection.DIAL_PATIENCE", 0.3)
    with ExitStack() as stack:
        yield Pair(tmp_path, stack, limit=1.5)  # a busy machine is not a dead broker


def named(client: Client) -> Subscription:
    return client.stream("prices").subscribe(since="earliest", name="reader", ack="manual")


def shared(client: Client) -> Subscription:
    return client.stream("prices").subscribe(since="earliest", shared="workers", ack="manual")


def test_a_reader_goes_on_at_the_next_broker_after_what_was_confirmed(pair: Pair) -> None:
    publish(pair.client, "prices", *BODIES)
    lost = pair.owner("prices")
    subscription = named(pair.client)
    for _ in range(3):
        last = subscription.recv(PATIENCE)
    subscription.ack(last)
    subscription.flush(PATIENCE)
    with pair.paused(lost):
        wait_until(lambda: "prices" in pair.brokers[1 - lost].engine.names())
        with Client.connect(pair.endpoints[1 - lost]) as operator:
            (info,) = operator.readers("prices", PATIENCE)
        assert (info.reader, info.position) == ("reader", 3)
        publish(pair.client, "prices", b"7")
        assert [subscription.recv(PATIENCE).sequence for _ in range(4)] == [4, 5, 6, 7]
        subscription.ack(7)
        subscription.flush(PATIENCE)
    with named(pair.client) as again:
        publish(pair.client, "prices", b"8")
        assert again.recv(PATIENCE).sequence == 8


def test_a_group_goes_on_at_the_next_broker(pair: Pair) -> None:
    publish(pair.client, "prices", *BODIES)
    lost = pair.owner("prices")
    with shared(pair.client) as worker:
        got = [worker.recv(PATIENCE) for _ in BODIES]
        for message in got[::2]:
            worker.ack(message)
        worker.nack(got[1])
        worker.flush(PATIENCE)
        assert worker.recv(PATIENCE).deliveries == 2
        with pair.paused(lost):
            wait_until(lambda: "prices" in pair.brokers[1 - lost].engine.names())
            # What was acknowledged and confirmed does not come again; what was not does.
            again = sorted([worker.recv(PATIENCE) for _ in range(3)])
            assert [message.sequence for message in again] == [2, 4, 6]
            assert again[0].deliveries >= 2
            for message in again:
                worker.ack(message)
            worker.flush(PATIENCE)
            publish(pair.client, "prices", b"7")
            assert worker.recv(PATIENCE).sequence == 7


def test_a_broker_that_ends_hands_over_what_it_was_told(pair: Pair) -> None:
    publish(pair.client, "prices", *BODIES)
    ended = pair.owner("prices")
    with shared(pair.client) as worker, named(pair.client) as reader:
        for message in [worker.recv(PATIENCE) for _ in BODIES][:5]:
            worker.ack(message)
        for message in [reader.recv(PATIENCE) for _ in BODIES][:2]:
            reader.ack(message)
        positions = pair.brokers[ended].engine.streams[0].journal.positions
        wait_until(lambda: getattr(positions.get(READER, "reader"), "position", 0) == 2)
        pair.stacks[ended].close()
        publish(pair.client, "prices", b"7")
        assert sorted(worker.recv(PATIENCE).sequence for _ in range(2)) == [6, 7]
        assert [reader.recv(PATIENCE).sequence for _ in range(1)] == [7]
    (group, info) = sorted(pair.client.readers("prices", PATIENCE), key=lambda one: one.position, reverse=True)
    assert (group.reader, info.position) == ("workers", 2)


def test_positions_survive_the_loss_of_the_disk(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (_, client):
        publish(client, "prices", *BODIES)
        with named(client) as reader, shared(client) as worker:
            reader.ack([reader.recv(PATIENCE) for _ in range(4)][-1])
            reader.flush(PATIENCE)
            for _ in range(20):  # merged into segments in between
                worker.nack(worker.recv(PATIENCE))
                worker.flush(PATIENCE)
            worker.ack(worker.recv(PATIENCE))
            worker.flush(PATIENCE)
        client.set_reader("prices", "other", 5)
        client.set_reader("prices", "gone", 5)
        client.remove_reader("prices", "gone")
        known = [replace(one, behind=0.0) for one in client.readers("prices")]  # it depends on the time
        assert [one.reader for one in known] == ["other", "reader", "workers"]
        assert known[-1].returned
    shutil.rmtree(data)
    with stored(data, url) as (_, client):
        assert [replace(one, behind=0.0) for one in client.readers("prices")] == known
        with named(client) as reader:
            assert reader.recv(PATIENCE).sequence == 5


def test_a_position_that_was_not_confirmed_is_not_in_the_cache_of_the_next_owner(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (broker, client):
        publish(client, "prices", *BODIES)
        with named(client) as reader:
            reader.ack(reader.recv(PATIENCE))
            reader.flush(PATIENCE)
    with stored(data, url) as (broker, client):
        positions = broker.engine.streams[0].journal.positions
        positions.on_write = lambda _: None  # the disk has it, and the broker is killed before the store has it
        positions.write([Position(READER, "reader", 5)])
    with stored(data, url) as (broker, client), named(client) as reader:
        assert reader.recv(PATIENCE).sequence == 2


def test_settings_that_a_client_has_changed_survive_the_loss_of_the_disk(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (broker, client):
        client.create("prices", keep_bytes=1 << 30)
        client.edit("prices", keep_bytes=1 << 20, readers=5)
    shutil.rmtree(data)
    with stored(data, url) as (broker, client):
        journal = broker.engine.streams[0].journal
        assert journal.settings == {"keep_bytes": 1 << 20, "readers": 5}
        assert (journal.policy.keep_bytes, journal.policy.readers, journal.policy.sync) == (1 << 20, 5, "store")
        client.edit("prices", keep_bytes=None, readers=None)
    with stored(data, url) as (broker, client):
        assert broker.engine.streams[0].journal.settings == {}


def test_a_broker_that_was_paused_delivers_nothing_to_new_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stored(tmp_path / "data", tmp_path / "store") as (broker, client):
        publish(client, "prices", *BODIES)
        with suppress(BrokerError), shared(client) as first:  # what it has is in doubt
            first.recv(PATIENCE)
            taken_by_another(ObjectStore(str(tmp_path / "store")))
            stream = broker.engine.streams[0]
            asked: list[Member] = []  # members that the old owner gives messages
            monkeypatch.setattr(stream.groups, "pull", asked.append)
            late = shared(client)
            wait_until(lambda: broker.engine.find("prices") is not stream)
        with suppress(BrokerError):
            late.close()
        assert len(set(asked)) <= 1


def test_acknowledgements_cost_few_puts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.zeps.broker.stored_stream.PATIENCE", 3600.0)
    with stored(tmp_path / "data", tmp_path / "store") as (broker, client):
        publish(client, "prices", *BODIES)
        stream = broker.engine.streams[0]
        assert isinstance(stream, StoredStream)
        with named(client) as reader:
            wait_until(lambda: stream.safe_write == stream.journal.positions.written)
            before = stream.log._next_number
            for message in (reader.recv(PATIENCE) for _ in BODIES):
                reader.ack(message)
                wait_until(partial(has_position, stream, message.sequence))
            assert stream.log._next_number == before
            assert stream.safe_write < stream.journal.positions.written
            reader.flush(PATIENCE)
            assert stream.log._next_number == before + 1
            publish(client, "prices", b"7")
            reader.ack(reader.recv(PATIENCE))
            wait_until(partial(has_position, stream, 7))
            publish(client, "prices", b"8")  # it takes the position along
            assert stream.log._next_number == before + 3
            assert Content(stream.log.positions.octets).states[READER, "reader"].position == 7


def has_position(stream: StoredStream, position: int) -> bool:
    """Return whether the file has this position of the reader."""
    found = stream.journal.positions.get(READER, "reader")
    return found is not None and found.position == position


def working(client: Client, name: str) -> Subscription:
    """Return a worker whose messages become dead letters when they are given back twice."""
    return client.stream(name).subscribe(since="earliest", shared="workers", ack="manual", limit=2, dead="dead")


def letters(client: Client, count: int) -> list[tuple[str, int]]:
    """Wait for so many dead letters, and return their streams and sequences."""
    with client.stream("dead").subscribe(since="earliest") as subscription:
        found = [Letter.parse(subscription.recv(PATIENCE).body)[0] for _ in range(count)]
    return [(letter.stream, letter.sequence) for letter in found]


def has_letters(client: Client, name: str, count: int) -> bool:
    """Return whether the group of a stream has this number of letters."""
    return any(one.letters == count for one in client.readers(name, PATIENCE))


def test_dead_letters_of_streams_at_different_brokers_go_to_one_stream(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zambezi.zeps.broker.depot.TAKE_AGAIN", 0.5)
    names = [f"orders {number}" for number in range(20)]
    for name in names:
        publish(pair.client, name, b"1")
        if all(set(broker.engine.names()) & set(names) for broker in pair.brokers):
            break
    last = name
    for name in (names[0], last):
        with working(pair.client, name) as worker:
            while not has_letters(pair.client, name, 1):
                with suppress(TimedOut):
                    worker.nack(worker.recv(0.1))
    assert sorted(letters(pair.client, 2)) == sorted([(names[0], 1), (last, 1)])


def test_a_letter_that_was_published_before_the_broker_died_is_not_published_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (_, client):
        publish(client, "prices", b"1")
        confirmed: list[int] = []
        with monkeypatch.context() as patch:
            # The letter is stored, and the broker dies before it notes that.
            patch.setattr(Letterbox, "confirm", lambda _, barriers: confirmed.append(barriers))
            with working(client, "prices") as worker:
                for _ in range(2):
                    worker.nack(worker.recv(PATIENCE))
                worker.flush(PATIENCE)
            assert letters(client, 1) == [("prices", 1)]
            wait_until(lambda: confirmed == [1])
    shutil.rmtree(data)
    with stored(data, url) as (_, client):
        publish(client, "prices", b"2")
        with client.stream("prices").subscribe(shared="workers", ack="manual") as worker:
            assert worker.recv(PATIENCE).sequence == 2
        wait_until(partial(has_letters, client, "prices", 1))
        assert [one.body[-1:] for one in client.stream("dead").subscribe(since="earliest", until="now")] == [b"1"]


def test_a_reply_finds_its_client_at_the_next_broker(pair: Pair) -> None:
    publish(pair.client, "questions", b"not a request")
    ended = pair.owner("questions")
    answers: list[bytes] = []
    stream = pair.client.stream("questions")
    with stream.serve() as serving:
        asking = threading.Thread(target=lambda: answers.append(stream.request("key", b"?", PATIENCE)))
        asking.start()
        request = serving.recv(PATIENCE)
        requester = stream._requester
        assert requester is not None
        wait_until(lambda: all(pending.is_stored for pending in requester.connection._pending.values()))
        pair.stacks[ended].close()
        request.reply(b"!")
        asking.join(PATIENCE)
        assert answers == [b"!"]
        assert "questions" in pair.brokers[1 - ended].engine.names()
