"""A broker whose disk is a cache of streams in an object store: all readers work across what is not on the disk.

A directory is the store. Pieces and limits are small, so that a few kilobytes are ten times as large as the cache.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.zeps.serving import serving
from tests.zeps.stage import replace_method
from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi.zeps.broker import fetching
from zambezi.zeps.broker.depot import Depot, StoreOptions
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.errors import BrokerError, JournalError, JournalFull
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.loaded import write_segment
from zambezi.zeps.journal.segment import Segment
from zambezi.zeps.journal.verify import Checked, verify
from zambezi.zeps.sync import Client

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

from zambezi.zeps.store import backing
from zambezi.zeps.store.catalog import find_stream
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings
from zambezi.zeps.store.view import look

COUNT = 400
WANTED = [b"%05d" % number * 20 for number in range(1, COUNT + 1)]
SIZE = COUNT * 120
LIMIT = SIZE // 10
LOG = LogSettings(commit=0.0, chunk=2500, segment=12_000, chunks=8)


@contextmanager
def caching(data: Path, url: Path, limit: int | None = LIMIT) -> Iterator[tuple[BrokerService, Client]]:
    """Run a broker whose disk is a cache, and yield it with a client."""
    options = StoreOptions(url=str(url), log=LOG, period=0.1, cache=limit, piece=1000)
    policy = Policy(sync="store", segment=1500)
    make = partial(BrokerService, policy=policy, store=options, scrub=0)
    with serving(data, make) as (broker, endpoint), Client(endpoint) as client:
        yield broker, client


def depot_of(broker: BrokerService) -> Depot:
    depot = broker.engine.store
    assert isinstance(depot, Depot)
    return depot


def journal_of(broker: BrokerService) -> Journal:
    stream = broker.engine.find("prices")
    assert stream is not None
    return stream.journal


def empty(broker: BrokerService) -> None:
    """Remove everything from the disk that is stored; also what is being loaded ahead meanwhile."""
    journal = journal_of(broker)

    def is_empty() -> bool:
        depot_of(broker).cache.free(1 << 40)
        return journal.last == COUNT and not any(segment.entries for segment in journal.segments)

    wait_until(is_empty)


def key_of(number: int) -> str:
    return f"k.{number % 7}"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a stream."""
    path = tmp_path_factory.mktemp("filled")
    with caching(path / "data", path / "store") as (_, client):
        stream = client.stream("prices")
        for number, body in enumerate(WANTED, 1):
            stream.publish(key_of(number), body)
            if not number % 10:
                stream.flush(PATIENCE)
    return path


@pytest.fixture
def url(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled / "store", tmp_path / "store")
    return tmp_path / "store"


def bodies(client: Client, **options: object) -> list[bytes]:
    subscription = client.stream("prices").subscribe(**{"since": "earliest", "until": "now", **options})  # type: ignore[arg-type]
    return [message.body for message in subscription]


def test_a_stream_ten_times_as_large_as_the_cache_is_right(url: Path, tmp_path: Path) -> None:
    with caching(tmp_path / "data", url) as (broker, client):
        depot, journal = depot_of(broker), journal_of(broker)
        assert (journal.first, journal.last) == (1, COUNT)
        assert journal.octets == pytest.approx(SIZE, rel=0.1)
        assert depot.loads.octets == 0  # nothing is downloaded before somebody wants it
        for _ in range(2):
            assert bodies(client) == WANTED
        depot.cache.step()
        assert depot.cache.used == journal.local_octets <= LIMIT
        assert depot.loads.octets > 15 * LIMIT
        assert depot.cache.counters.octets > 10 * LIMIT
        client.stream("prices").publish("new", b"new")
        client.stream("prices").flush(PATIENCE)
        assert bodies(client) == [*WANTED, b"new"]


def test_what_is_published_is_evicted_when_it_is_stored(tmp_path: Path) -> None:
    with caching(tmp_path / "data", tmp_path / "store") as (broker, client):
        stream = client.stream("prices")
        with stream.subscribe(since="earliest") as live:
            for number, body in enumerate(WANTED, 1):
                stream.publish(key_of(number), body)
            stream.flush(PATIENCE)
            assert [live.recv(PATIENCE).body for _ in WANTED] == WANTED
        depot_of(broker).cache.step()
        assert journal_of(broker).local_octets <= LIMIT
        assert bodies(client) == WANTED


def test_the_cache_survives_a_restart(url: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with caching(data, url, None) as (broker, client):
        assert bodies(client, since=100, until=300) == WANTED[100:300]
        kept = journal_of(broker).local_octets
        assert kept > 200 * 120
    with caching(data, url, None) as (broker, client):
        assert journal_of(broker).local_octets > 0.9 * kept  # pieces that were loaded ahead may have been added
        assert bodies(client, since=100, until=300) == WANTED[100:300]
        assert depot_of(broker).loads.pieces == 0
        assert bodies(client) == WANTED
    (data / "prices" / "cached").write_text("another start of the system\n")
    with caching(data, url, None) as (broker, client):
        assert journal_of(broker).local_octets < 1000  # what was not synced to the disk does not count
        assert bodies(client) == WANTED


def test_readers_by_sequence_pattern_and_time(url: Path, tmp_path: Path) -> None:
    with caching(tmp_path / "data", url) as (broker, client):
        assert bodies(client, since=150, until=260) == WANTED[150:260]
        expected = [body for number, body in enumerate(WANTED, 1) if key_of(number) == "k.3"]
        assert bodies(client, pattern="k.3") == expected
        with client.stream("prices").subscribe(since="earliest", until="now", times=True) as timed:
            messages = list(timed)
        times = [message.time for message in messages]
        assert [message.body for message in messages] == WANTED
        assert all(one is not None and other is not None and one <= other for one, other in pairwise(times))
        empty(broker)
        for index in (0, 57, 200, COUNT - 1):
            since = times[index]
            assert since is not None
            first = next(number for number, time in enumerate(times) if _milliseconds(time) >= _milliseconds(since))
            assert bodies(client, since=since) == WANTED[first:]
        assert bodies(client, since=datetime.now(UTC) - timedelta(days=1)) == WANTED


def _milliseconds(time: datetime | None) -> int:
    assert time is not None
    return int(time.timestamp() * 1000)


def test_named_and_shared_readers(url: Path, tmp_path: Path) -> None:
    with caching(tmp_path / "data", url) as (broker, client):
        stream = client.stream("prices")
        with stream.subscribe(name="n", since="earliest") as named:
            assert [named.recv(PATIENCE).body for _ in range(250)] == WANTED[:250]
        empty(broker)
        with stream.subscribe(name="n") as named:
            assert [named.recv(PATIENCE).body for _ in range(COUNT - 250)] == WANTED[250:]
        empty(broker)
        with stream.subscribe(shared="g", since="earliest", ack="manual", times=True) as member:
            found = []
            for number in range(COUNT):
                message = member.recv(PATIENCE)
                assert message.time is not None
                found.append(message.body)
                member.ack(message)
                if not number % 50:
                    depot_of(broker).cache.free(1 << 40)
        assert sorted(found) == WANTED


def test_the_index_of_an_evicted_stream_loads_no_messages(url: Path, tmp_path: Path) -> None:
    with caching(tmp_path / "data", url) as (broker, client):
        empty(broker)
        loaded = depot_of(broker).loads.octets
        index = client.index("prices", timeout=PATIENCE)
        assert (index[0].first, index[-1].last) == (1, COUNT)
        assert all(one.last + 1 == other.first for one, other in pairwise(index))
        assert depot_of(broker).loads.octets == loaded


def test_questions_about_a_stream(url: Path, tmp_path: Path) -> None:
    with caching(tmp_path / "data", url) as (broker, client):
        stream = client.stream("prices")
        index = client.index("prices", timeout=PATIENCE)
        assert (index[0].first, index[-1].last) == (1, COUNT)
        assert all(one.last + 1 == other.first for one, other in pairwise(index))
        empty(broker)
        found = client.last("prices", key_of(3), timeout=PATIENCE)
        assert found is not None
        assert found.body == WANTED[max(n for n in range(1, COUNT + 1) if key_of(n) == key_of(3)) - 1]
        assert client.last("prices", "nothing", timeout=PATIENCE) is None
        assert journal_of(broker).local_octets < 1000  # a search does not fill the cache
        client.copy("prices", "copy", timeout=PATIENCE)
        copied = [one.body for one in client.stream("copy").subscribe(since="earliest", until="now")]
        assert copied == WANTED
        stream.publish("end", b"end")
        stream.flush(PATIENCE)


def test_spark_reads_by_endpoint(url: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow missing: pip install 'zambezi[spark]'")
    from tests.spark.backends import read_messages, read_sequences
    from zambezi.spark.backend import SequenceRange
    from zambezi.spark.broker_backend import BrokerBackend
    from zambezi.zmtp.security import Null

    options = StoreOptions(url=str(url), log=LOG, period=0.1, cache=LIMIT, piece=1000)
    make = partial(BrokerService, policy=Policy(sync="store", segment=1500), store=options, scrub=0)
    with serving(tmp_path / "data", make) as (broker, endpoint), ExitStack() as closing:
        backend = BrokerBackend(endpoint, Null(), PATIENCE)
        closing.callback(backend.close)
        state = backend.streams()["prices"]
        assert (state.first, state.last) == (1, COUNT)
        assert state.size == pytest.approx(SIZE, rel=0.1)
        whole = SequenceRange("prices", state.incarnation, 0, COUNT)
        (sizes,) = backend.size_indexes([whole], 5000)
        assert sizes is not None
        assert depot_of(broker).loads.octets == 0  # planning reads no messages
        assert read_sequences(backend, whole) == list(range(1, COUNT + 1))
        assert b"".join(bytes(found.octets) for found in read_messages(backend, whole)).count(WANTED[7]) == 1
        assert backend.last_before({"prices": 1})["prices"] == 0


def test_a_store_that_is_down_keeps_only_its_reader_waiting(
    url: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backing, "PATIENCE", 0.0)
    monkeypatch.setattr(fetching, "PAUSE", 0.01)
    with caching(tmp_path / "data", url, None) as (broker, client):
        stream = client.stream("prices")
        assert bodies(client, since=300) == WANTED[300:]
        execute = ObjectStore._execute
        monkeypatch.setattr(ObjectStore, "_execute", _fail)
        with stream.subscribe(since="earliest") as waiting:
            wait_until(lambda: broker.fetcher.counters.failed > 0 and broker.fetcher.waiting == 1)
            wait_until(lambda: any("readers wait for messages of the store" in one for one in broker.problems))
            assert bodies(client, since=300) == WANTED[300:]  # another reader finds all on the disk
            monkeypatch.setattr(ObjectStore, "_execute", execute)
            assert [waiting.recv(PATIENCE).body for _ in WANTED] == WANTED
        wait_until(lambda: (broker.fetcher.waiting, broker.fetcher.problem) == (0, ""))


def _fail(_store: ObjectStore, _request: object) -> None:
    raise OSError("down")


def test_a_damaged_object_is_an_error_for_its_readers(url: Path, tmp_path: Path) -> None:
    with ExitStack() as closing:
        store = ObjectStore(str(url))
        closing.callback(store.close)
        stream = store.run(find_stream("prices"))
        assert stream is not None
        first = url / stream.place.segment(store.run(look(stream.place)).readable[0].name)
    content = bytearray(first.read_bytes())
    content[100] ^= 1
    first.write_bytes(content)
    with caching(tmp_path / "data", url) as (broker, client):
        with pytest.raises(BrokerError, match="does not match its CRC"):
            bodies(client, until=10)
        assert broker.fetcher.counters.damaged == 1
        assert bodies(client, since=200) == WANTED[200:]


def test_a_cache_is_not_used_without_its_store(url: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with caching(data, url, None) as (_, client):
        assert bodies(client, until=100) == WANTED[:100]
        assert bodies(client, since=300) == WANTED[300:]
    with Store(data, write=False) as store:
        journal = store.open("prices")
        assert journal.problems == []
        assert all(isinstance(found, Checked) for found in verify(journal))
        with pytest.raises(JournalError, match="is a cache of a stream in an object store"):
            journal.index_page(250, 10)
    with serving(data, partial(BrokerService, scrub=0)) as (broker, _):
        assert "is a cache of a stream in an object store" in broker.engine.unusable["prices"]


def test_the_scrub_repairs_a_damaged_segment(url: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caching(tmp_path / "data", url, None) as (broker, client):
        assert bodies(client) == WANTED
        journal = journal_of(broker)
        for segment in (journal.segments[1], journal.segments[3]):
            path = Path(segment.path + ".log")
            path.write_bytes(b"x" + path.read_bytes()[1:])
        broker.scrub.step(1 << 30, 0.0)
        assert (broker.scrub.counters.repaired, broker.scrub.problems) == (2, [])
        assert caplog.text.count("the object store has its messages") == 2
        assert bodies(client) == WANTED


def test_the_scrub_keeps_a_damaged_segment_that_the_store_does_not_have(
    url: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caching(tmp_path / "data", url, None) as (broker, client):
        assert bodies(client, until=100) == WANTED[:100]
        path = Path(journal_of(broker).segments[1].path + ".log")
        path.write_bytes(b"x" + path.read_bytes()[1:])
        monkeypatch.setattr(ObjectStore, "_execute", _fail)
        monkeypatch.setattr(backing, "PATIENCE", 0.0)
        broker.scrub.step(1 << 30, 0.0)
        assert (broker.scrub.counters.repaired, len(broker.scrub.problems)) == (0, 1)
        assert path.exists()


def test_a_reader_waits_while_the_disk_is_full(url: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[object] = []

    def full(*arguments: Any) -> Segment:
        if len(refused) < 5:
            refused.append(arguments)
            raise JournalFull("no room")
        return write_segment(*arguments)

    monkeypatch.setattr(fetching, "PAUSE", 0.01)
    monkeypatch.setattr(backing, "write_segment", full)
    with caching(tmp_path / "data", url) as (broker, client):
        assert bodies(client) == WANTED
        assert broker.fetcher.counters.failed > 0
        assert broker.problems == []


def test_a_full_disk_makes_room_for_what_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with caching(tmp_path / "data", tmp_path / "store", None) as (broker, client):
        stream = client.stream("prices")
        for number, body in enumerate(WANTED, 1):
            stream.publish(key_of(number), body)
        stream.flush(PATIENCE)
        journal = journal_of(broker)
        append = journal.append

        def full(*arguments: Any) -> None:
            if journal.local_octets > 1000:
                raise JournalFull("no room")
            append(*arguments)

        replace_method(monkeypatch, journal, "append", full)
        stream.publish("k", b"new")
        stream.flush(PATIENCE)
        assert journal.local_octets < 1000
        assert bodies(client) == [*WANTED, b"new"]
