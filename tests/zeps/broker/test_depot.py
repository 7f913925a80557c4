"""zambezi.zeps.broker.depot: a broker whose streams are in an object store. A directory is the store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from tests.zeps.journal.streams import append
from tests.zeps.serving import serving
from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi.zeps.broker import depot
from zambezi.zeps.broker.depot import IDENTITY, Depot, StoreOptions
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.broker.stored_stream import StoredStream
from zambezi.zeps.errors import BrokerError, StoreSilent, TimedOut
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.journal.identity import is_cached
from zambezi.zeps.sync import Client

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

from zambezi.zeps.store.catalog import StoredStream as StreamInStore
from zambezi.zeps.store.catalog import find_stream, list_streams, make_stream
from zambezi.zeps.store.checking import check_stream
from zambezi.zeps.store.cluster import Cluster, Located
from zambezi.zeps.store.commands import Answer, Failed, List, Procedure, Put, Request, Wait
from zambezi.zeps.store.copying import end_of, restore_stream, settle, take_log
from zambezi.zeps.store.members import beat
from zambezi.zeps.store.names import StreamPlace
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings, StreamLog
from zambezi.zeps.store.view import View, look

OTHER = b"other broker...."
QUICK = LogSettings(commit=0.001, chunks=4)


@contextmanager
def stored(data: Path, url: Path) -> Iterator[tuple[BrokerService, Client]]:
    """Run a broker whose streams are in a store, and yield it with a client."""
    make = partial(
        BrokerService, policy=Policy(sync="store"), store=StoreOptions(url=str(url), log=QUICK, period=0.1), scrub=0
    )
    with serving(data, make) as (broker, endpoint), Client(endpoint) as client:
        yield broker, client


def publish(client: Client, *bodies: bytes) -> None:
    stream = client.stream("prices")
    for body in bodies:
        stream.publish("gold", body)
    stream.flush(PATIENCE)


def endpoint_of(broker: BrokerService) -> str:
    store = broker.engine.store
    assert isinstance(store, Depot)
    return store.cluster.endpoints[0]


def bodies(client: Client) -> list[bytes]:
    return [message.body for message in client.stream("prices").subscribe(since="earliest", until="now")]


@pytest.mark.parametrize("full", ["", "streams/"])
def test_a_broker_starts_on_a_full_store_and_serves_its_streams_when_there_is_room(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (_, client):
        publish(client, b"1")
    ask = ObjectStore._ask
    has_room = False

    def execute(store: ObjectStore, request: Request) -> Answer:
        if isinstance(request, Put) and request.key.startswith(full) and not has_room:
            return Failed("no space left", is_full=True)
        return ask(store, request)

    monkeypatch.setattr(ObjectStore, "_ask", execute)
    monkeypatch.setattr("zambezi.zeps.store.shell.FULL", 0.01)
    monkeypatch.setattr("zambezi.zeps.broker.shared_streams.AGAIN", 0.0)
    with stored(data, url) as (broker, client):
        assert f"1 streams are not served: {url} has no room: no space left" in caplog.text
        problem = f"streams are not served until the object store has room: {url} has no room: no space left"
        assert problem in broker.problems
        [found] = client.streams(PATIENCE)
        assert (found.stream, found.is_described) == ("prices", False)
        has_room = True
        assert bodies(client) == [b"1"]
        assert problem not in broker.problems
        publish(client, b"2")
    assert "could not be taken" not in caplog.text


def test_messages_survive_the_loss_of_the_disk(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    wanted = [b"%d" % number for number in range(12)]
    with stored(data, url) as (broker, client):
        for body in wanted:
            publish(client, body)
        assert bodies(client) == wanted
        incarnation = broker.engine.streams[0].journal.incarnation
    assert is_cached(data / "prices")
    shutil.rmtree(data)
    with stored(data, url) as (broker, client):
        assert bodies(client) == wanted
        publish(client, b"new")
        assert bodies(client) == [*wanted, b"new"]
        assert broker.engine.streams[0].journal.incarnation == incarnation


def test_a_restart_goes_on_with_the_cache_and_the_counts(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (broker, client):
        publish(client, b"1", b"2")
        counts = list(broker.engine.streams[0].journal.counts.states())
        assert [count.count for count in counts] == [2]
    with stored(data, url) as (broker, client):
        assert list(broker.engine.streams[0].journal.counts.states()) == counts
        publish(client, b"3")
        assert bodies(client) == [b"1", b"2", b"3"]
    store = ObjectStore(str(url))
    stream = store.run(find_stream("prices"))
    assert stream is not None
    end = end_of(store, stream)
    assert (end.last, end.is_released) == (3, True)


def taken_by_another(store: ObjectStore) -> StreamInStore:
    """Take the stream as another broker."""
    stream = store.run(find_stream("prices"))
    assert stream is not None
    other = StreamLog(stream.place, OTHER, stream.incarnation.bytes)
    other.take(0.0)
    settle(store, other)
    assert other.is_owner
    return stream


def test_a_broker_that_loses_a_stream_confirms_nothing_and_sends_clients_away(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (broker, client):
        publish(client, b"1")
        store = ObjectStore(str(url))
        store.run(beat(OTHER, ["tcp://127.0.0.1:1"]))
        depot = broker.engine.store
        assert isinstance(depot, Depot)
        wait_until(lambda: depot.cluster.roll.member(OTHER) is not None)
        stream = taken_by_another(store)
        prices = client.stream("prices")
        prices.publish("gold", b"lost")
        wait_until(lambda: broker.engine.names() == [])
        assert prices.counters.confirmed == 1
        assert not broker.problems
        with pytest.raises(TimedOut, match="not confirmed"):
            client.close(linger=0)
    assert end_of(store, stream).last == 1


def test_a_broker_takes_a_stream_again_if_the_other_broker_is_gone(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (_, client):
        publish(client, b"1")
        taken_by_another(ObjectStore(str(url)))
        publish(client, b"2")
        assert bodies(client) == [b"1", b"2"]


def test_an_idle_broker_that_did_not_run_for_a_while_finds_out(tmp_path: Path) -> None:
    url = tmp_path / "store"
    with stored(tmp_path / "data", url) as (broker, client):
        publish(client, b"1")
        taken_by_another(ObjectStore(str(url)))
        before = broker.engine.find("prices")
        broker._ticked -= 60  # as after SIGSTOP
        wait_until(lambda: broker.engine.find("prices") is not before)
        publish(client, b"2")


def test_a_broker_that_was_killed_has_its_streams_at_once_again(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (_, client):
        publish(client, b"1")
    store = ObjectStore(str(url))
    (data / IDENTITY).write_text(OTHER.hex())  # as if the last run of the broker had been the other one
    store.run(beat(OTHER, ["tcp://127.0.0.1:1"]))
    taken_by_another(store)
    with stored(data, url) as (_, client):
        assert bodies(client) == [b"1"]


@pytest.mark.parametrize("before", [4, 7, 10])
def test_a_stream_is_trimmed_in_the_store(tmp_path: Path, before: int) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    wanted = [b"%d" % number for number in range(before, 10)]
    with stored(data, url) as (broker, client):
        for number in range(1, 10, 3):
            publish(client, *[b"%d" % one for one in range(number, number + 3)])
        client.trim("prices", before=before, timeout=PATIENCE)
        assert bodies(client) == wanted
        with pytest.raises(BrokerError, match="cannot begin at 99"):
            client.trim("prices", before=99, timeout=PATIENCE)
        last = client.last("prices", "gold", timeout=PATIENCE)
        assert (last is not None and last.body) == (bool(wanted) and wanted[-1])
        journal = broker.engine.streams[0].journal
        assert (journal.first, journal.last) == (before, 9)
    with stored(data, url) as (_, client):
        assert bodies(client) == wanted
    shutil.rmtree(data)
    with stored(data, url) as (_, client):
        assert bodies(client) == wanted
        publish(client, b"new")
        assert bodies(client) == [*wanted, b"new"]
    store = ObjectStore(str(url))
    stream = store.run(find_stream("prices"))
    assert stream is not None
    assert check_stream(store, stream).messages == len(wanted) + 1
    with Store(tmp_path / "restored") as local:
        assert restore_stream(store, stream, local) == len(wanted) + 1
        assert local.open("prices").first == before


@pytest.mark.parametrize("first", [3, 7])
def test_a_disk_that_has_messages_which_another_broker_removed(tmp_path: Path, first: int) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (_, client):
        publish(client, b"1", b"2", b"3", b"4", b"5", b"6")
    store = ObjectStore(str(url))
    stream = store.run(find_stream("prices"))
    assert stream is not None
    log = StreamLog(stream.place, OTHER, stream.incarnation.bytes)
    take_log(store, log)
    log.trim(first, lambda _: None)
    settle(store, log)
    log.release()
    settle(store, log)
    with stored(data, url) as (broker, client):
        assert bodies(client) == [b"%d" % one for one in range(first, 7)]
        assert (client.last("prices", "gold", timeout=PATIENCE) is None) == (first == 7)
        journal = broker.engine.streams[0].journal
        assert (journal.first, journal.segments[0].first >= first) == (first, True)


def test_an_order_to_trim_goes_on_if_another_broker_takes_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = tmp_path / "store"
    trim = StreamLog.trim
    lost: list[int] = []

    def lose_first(log: StreamLog, first: int, done: Callable[[str], object]) -> None:
        """Let the store never answer the first time."""
        if lost:
            trim(log, first, done)
        else:
            lost.append(first)
            taken_by_another(ObjectStore(str(url)))
            broker._ticked -= 60  # so that the broker finds out

    with stored(tmp_path / "data", url) as (broker, client):
        publish(client, b"1", b"2")
        monkeypatch.setattr(StreamLog, "trim", lose_first)
        client.trim("prices", before=2, timeout=PATIENCE)  # the client repeats the order: the stream has moved
        assert bodies(client) == [b"2"]


@pytest.mark.parametrize("after", [0, 4, 6, 9])
def test_a_stream_is_truncated_in_the_store(tmp_path: Path, after: int) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    wanted = [b"%d" % number for number in range(1, after + 1)]
    with stored(data, url) as (broker, client):
        for number in range(1, 10, 3):
            publish(client, *[b"%d" % one for one in range(number, number + 3)])
        before = broker.engine.streams[0].journal.incarnation
        client.truncate("prices", after, timeout=PATIENCE)
        with Client(endpoint_of(broker)) as another:
            assert bodies(another) == wanted
            incarnation = broker.engine.streams[0].journal.incarnation
            assert (incarnation == before) == (after == 9)
            publish(another, b"new")
            assert bodies(another) == [*wanted, b"new"]
            with pytest.raises(BrokerError, match="cannot be cut after 99"):
                another.truncate("prices", 99, timeout=PATIENCE)
    shutil.rmtree(data)
    with stored(data, url) as (broker, client):
        assert bodies(client) == [*wanted, b"new"]
        assert broker.engine.streams[0].journal.incarnation == incarnation
    store = ObjectStore(str(url))
    (stream,) = store.run(list_streams())
    assert stream.incarnation == incarnation
    assert check_stream(store, stream).messages == after + 1
    old = store.run(look(StreamPlace.of("prices"))) if after < 9 else View((), ())
    assert not [chunk for chunk in old.chunks if not chunk.is_fence]


def test_a_stream_whose_truncation_fails_is_served_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StoreSilent("the store does not answer")

    with stored(tmp_path / "data", tmp_path / "store") as (broker, client):
        publish(client, b"1", b"2")
        with monkeypatch.context() as patch:
            patch.setattr(depot, "truncate_stream", fail)
            with pytest.raises(BrokerError, match="was not truncated: the store does not answer"):
                client.truncate("prices", 1, timeout=PATIENCE)
        with Client(endpoint_of(broker)) as another:
            assert bodies(another) == [b"1", b"2"]


def test_a_stream_is_deleted_while_a_put_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stored(tmp_path / "data", tmp_path / "store") as (broker, client):
        publish(client, b"1")
        stream = broker.engine.find("prices")
        assert isinstance(stream, StoredStream)
        stream.log._is_putting = True  # and its answer never comes
        client.delete("prices", timeout=PATIENCE)
        assert broker.engine.names() == []


def test_a_deleted_stream_is_deleted_in_the_store(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (_, client):
        publish(client, b"1")
        client.delete("prices", timeout=PATIENCE)
    shutil.rmtree(data)
    with stored(data, url) as (broker, client):
        assert broker.engine.names() == []
        publish(client, b"2")
        assert bodies(client) == [b"2"]
    store = ObjectStore(str(url))
    stream = store.run(find_stream("prices"))
    assert stream is not None
    assert stream.place.generation == 2


def test_a_stream_on_the_disk_moves_into_the_store(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with Store(data) as local:
        append(local.open("prices"), b"1", b"2")
    with stored(data, url) as (_, client):
        assert bodies(client) == [b"1", b"2"]
        publish(client, b"3")
    shutil.rmtree(data)
    with stored(data, url) as (_, client):
        assert bodies(client) == [b"1", b"2", b"3"]


def test_another_stream_of_the_same_name_is_not_touched(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (_, client):
        publish(client, b"1")
    shutil.rmtree(data)
    with Store(data) as local:
        append(local.open("prices"), b"precious")
    with stored(data, url) as (broker, _):
        assert "is another stream of this name" in broker.engine.unusable["prices"]
    with Store(data) as local:
        assert local.open("prices").last == 1


def test_a_stream_that_another_broker_makes_at_the_same_time_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = tmp_path / "store"
    incarnation = uuid4()
    upload = Depot._upload

    def be_late(depot: Depot, name: str, directory: Path, settings: Mapping[str, object]) -> StreamInStore:
        depot.remote.run(make_stream(name, incarnation, {}))
        return upload(depot, name, directory, settings)

    monkeypatch.setattr(Depot, "_upload", be_late)
    with stored(tmp_path / "data", url) as (broker, client):
        publish(client, b"1")
        assert bodies(client) == [b"1"]
        assert broker.engine.streams[0].journal.incarnation == incarnation


def test_a_cache_that_lost_its_end_is_made_again(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (_, client):
        publish(client, b"1", b"2")
    with Store(data) as local:
        local.open("prices").truncate(1)  # it has another incarnation now, as after a crash of the system
    with stored(data, url) as (_, client):
        assert bodies(client) == [b"1", b"2"]


def test_a_store_that_fails_is_a_problem_and_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stored(tmp_path / "data", tmp_path / "store") as (broker, client):
        publish(client, b"1")
        execute = ObjectStore._execute
        monkeypatch.setattr(ObjectStore, "_execute", _fail)
        stream = client.stream("prices")
        stream.publish("gold", b"2")
        wait_until(lambda: any("the object store does not answer" in problem for problem in broker.problems))
        assert stream.counters.confirmed == 1
        monkeypatch.setattr(ObjectStore, "_execute", execute)
        stream.flush(PATIENCE)
        assert bodies(client) == [b"1", b"2"]
        assert broker.problems == []


def _fail(_store: ObjectStore, _request: object) -> None:
    raise OSError("down")


def test_a_client_that_asks_for_a_stream_waits_while_the_store_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stored(tmp_path / "data", tmp_path / "store") as (_, client):
        publish(client, b"1")
    located = Cluster.locate
    failures = iter([StoreSilent("the store is down")])

    def locate(cluster: Cluster, name: str) -> Procedure[Located]:
        yield Wait(0.01)
        for failure in failures:
            raise failure
        return (yield from located(cluster, name))

    monkeypatch.setattr(Cluster, "locate", locate)
    with stored(tmp_path / "data", tmp_path / "store") as (_, client):
        other = client.stream("other")
        other.publish("key", b"1")
        other.flush(PATIENCE)  # the client has asked again
    assert next(failures, None) is None


def test_settings_do_not_move_a_stream_while_the_broker_runs(tmp_path: Path) -> None:
    with stored(tmp_path / "data", tmp_path / "store") as (broker, client):
        publish(client, b"1")
        with pytest.raises(BrokerError, match="cannot be moved"):
            client.edit("prices", sync="always", timeout=PATIENCE)
        client.edit("prices", keep_bytes=10**6, timeout=PATIENCE)
        policy = broker.engine.streams[0].journal.policy
        assert (policy.sync, policy.keep_bytes) == ("store", 10**6)


def test_without_a_store_the_policy_is_an_error(tmp_path: Path) -> None:
    with serving(tmp_path, partial(BrokerService, policies={"prices": Policy(sync="store")}, streams=["prices"])) as (
        broker,
        _,
    ):
        assert "the broker has no store" in broker.engine.unusable["prices"]


def test_a_broker_that_was_killed_and_is_started_again_has_its_streams_at_once(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "store"
    with stored(data, url) as (_, client):
        publish(client, b"1")
    store = ObjectStore(str(url))
    taken_by_another(store)
    (data / IDENTITY).write_text(OTHER.hex())  # as if the other broker had been the last run of this one
    store.run(beat(OTHER, ["tcp://127.0.0.1:1"]))
    for number in range(9):  # other brokers live, and are the homes of most streams
        store.run(beat(bytes([number]) * 16, [f"tcp://127.0.0.1:{number + 2}"]))
    with stored(data, url) as (broker, _):
        assert broker.engine.names() == ["prices"]
        assert not [one for one in store.execute(List("brokers")) if OTHER.hex() in one.key]
