"""zambezi.spark.store_backend: streams in an object store, read with no broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.spark.backends import read_sequences
from tests.spark.journal import BEGINNING, numbered, write
from zambezi.spark.backend import Request, SequenceRange
from zambezi.spark.base_reader import open_backend
from zambezi.spark.columns import BareMessages
from zambezi.spark.errors import DamagedLog, DataLoss, OptionError, Replaced, SparkError, Trimmed, Vanished
from zambezi.spark.options import BATCH, Options
from zambezi.spark.store_backend import StoreBackend, is_store
from zambezi.zeps.journal import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

from zambezi.zeps.store.catalog import check_format, find_stream
from zambezi.zeps.store.copying import copy_stream, settle, take_log
from zambezi.zeps.store.merging import sweep
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings, StreamLog


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with the stream `s`: 95 messages in segments and chunks, ten to a batch."""
    path = str(tmp_path / "store")
    fill(path, tmp_path / "data", 95)
    return path


def fill(url: str, data: Path, count: int, settings: LogSettings | None = None) -> None:
    """Write messages to a stream, and copy them to a store."""
    write(data, "s", numbered(count))
    store = ObjectStore(url)
    store.run(check_format(create=True))
    with Store(data, write=False) as source, pytest.MonkeyPatch.context() as patch:
        small = settings or LogSettings(commit=0.0, chunk=600, chunks=3, segment=2000)
        patch.setattr("zambezi.zeps.store.copying._SETTINGS", small)
        copy_stream(store, source.open("s"))


def whole_stream(backend: StoreBackend, name: str = "s") -> SequenceRange:
    state = backend.streams([name])[name]
    return SequenceRange(name, state.incarnation, state.first - 1, state.last)


def test_streams_are_listed(url: str) -> None:
    backend = StoreBackend(url, {})
    (state,) = backend.streams().values()
    assert (state.name, state.first, state.last, state.last_time) == ("s", 1, 95, (BEGINNING + 9) * 10**6)
    assert state.size > 95 * 20
    assert backend.streams(["no"]) == {}
    assert backend.streams(None, "exact:no") == {}
    assert backend.last_before({"s": (BEGINNING + 4) * 10**6, "no": 0}) == {"s": 40, "no": 0}
    assert [backend.times_after({"s": after})["s"] for after in (0, 10, 94, 95)] == [
        BEGINNING * 10**6,
        (BEGINNING + 1) * 10**6,
        (BEGINNING + 9) * 10**6,
        0,
    ]
    assert backend.times_after({"no": 0}) == {"no": 0}
    backend.close()


@pytest.mark.parametrize(("after", "last"), [(0, 95), (0, 1), (94, 95), (9, 10), (10, 20), (13, 67)])
def test_a_range_is_read(url: str, after: int, last: int) -> None:
    backend = StoreBackend(url, {}, verify=True)
    wanted = whole_stream(backend)
    found = read_sequences(backend, SequenceRange("s", wanted.incarnation, after, last))
    assert found == list(range(found[0], found[-1] + 1))
    assert after - 10 < found[0] <= after + 1
    assert last <= found[-1] < last + 10


def test_times_come_from_the_index(url: str) -> None:
    backend = StoreBackend(url, {})
    wanted = [(BEGINNING + number) * 10**6 for number in range(10)]
    for request in (Request(), Request(bare=True)):
        found = [one for _, one in backend.read([whole_stream(backend)], request) if not isinstance(one, DataLoss)]
        assert [time for one in found for time in one.batches.times] == wanted
        assert isinstance(found[0], BareMessages) == request.bare


def test_the_plan_comes_from_the_names_of_segments(url: str) -> None:
    backend = StoreBackend(url, {})
    (sizes,) = backend.size_indexes([whole_stream(backend)], 1)
    assert sizes is not None
    assert sizes.sequences[0] == 1
    assert sizes.sequences[-1] == 96
    assert len(sizes.sequences) > 3
    assert 30 < sizes.sequences_at([sizes.size / 2])[0] < 66


def test_a_stream_that_was_trimmed_replaced_or_deleted_is_told(url: str) -> None:
    backend = StoreBackend(url, {})
    wanted = whole_stream(backend)
    store = ObjectStore(url)
    stream = store.run(find_stream("s"))
    assert stream is not None
    store.run(sweep(stream.place, 0, None))
    found = [one for _, one in backend.read([wanted], Request())]
    assert isinstance(found[0], Trimmed)
    assert found[0].oldest == backend.streams()["s"].first > 1
    assert not any(isinstance(one, Trimmed) for one in found[1:])
    gone = SequenceRange("s", str(uuid4()), 0, 9)
    assert backend.size_indexes([wanted, gone], 1)[1] is None
    with pytest.raises(Replaced):
        read_sequences(backend, gone)
    log = StreamLog(stream.place, uuid4().bytes, stream.incarnation.bytes)
    log.take(0.0)
    settle(store, log)
    log.delete()
    settle(store, log)
    assert backend.streams() == {}
    with pytest.raises(Vanished):
        read_sequences(backend, wanted)


def test_a_task_reads_what_was_planned_before_the_stream_was_trimmed(url: str) -> None:
    store = ObjectStore(url)
    stream = store.run(find_stream("s"))
    assert stream is not None
    log = StreamLog(stream.place, b"t" * 16, stream.incarnation.bytes, LogSettings(commit=0.0, grace=60.0))
    take_log(store, log)
    driver = StoreBackend(url, {})
    planned = whole_stream(driver)
    log.trim(44, lambda _: None)
    settle(store, log)
    log.sweep(None, None)
    settle(store, log)
    task = StoreBackend(url, {})
    assert read_sequences(task, planned) == list(range(1, 96))
    assert whole_stream(task).after == 43  # for a query that is planned now
    (index,) = task.size_indexes([whole_stream(task)], 1000)
    assert index is not None
    assert task.times_after({"s": 0}) == task.times_after({"s": 43})


def test_damage_is_told(url: str) -> None:
    segment = max(Path(url).glob("streams/s/*/segments/*"))
    octets = bytearray(segment.read_bytes())
    octets[30] ^= 1
    segment.write_bytes(octets)
    backend = StoreBackend(url, {}, verify=True)
    with pytest.raises(DamagedLog, match="CRC"):
        read_sequences(backend, whole_stream(backend))
    segment.write_bytes(b"x" * len(octets))
    with pytest.raises(DamagedLog, match="zambezi store verify"):
        read_sequences(StoreBackend(url, {}), whole_stream(backend))


def test_paths_and_options(url: str, tmp_path: Path) -> None:
    assert is_store("s3://bucket/prefix")
    assert is_store(url)
    assert not is_store(str(tmp_path / "data"))
    assert isinstance(open_backend(Options({"path": url, "stream": "s"}, BATCH)), StoreBackend)
    with pytest.raises(SparkError, match=r"option 'path'.*there is no such directory"):
        StoreBackend(f"file://{tmp_path}/nothing", {})
    with pytest.raises(OptionError, match="'storeOptions' is not JSON"):
        Options({"path": url, "stream": "s", "storeOptions": "secret"}, BATCH)
    with pytest.raises(OptionError, match="needs option 'path'"):
        Options({"endpoint": "tcp://h:1", "stream": "s", "storeOptions": "{}"}, BATCH)
    options = Options({"path": url, "stream": "s", "storeOptions": '{"region": "r"}'}, BATCH)
    assert options["storeOptions"] == {"region": "r"}


def test_a_store_is_read_in_batch_and_streaming_queries(spark: SparkSession, url: str, tmp_path: Path) -> None:
    options = {"path": url, "stream": "s"}
    frame = spark.read.format("zeps").options(**options, minPartitions="3").load()
    assert sorted(row.sequence for row in frame.select("sequence").collect()) == list(range(1, 96))

    fill(url, tmp_path / "data", 20)
    stream = spark.readStream.format("zeps").options(**options, startingSequence="earliest").load()
    query = (
        stream.select("sequence")
        .writeStream.format("memory")
        .queryName("from_a_store")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    rows = spark.table("from_a_store").collect()
    assert sorted(row.sequence for row in rows) == list(range(1, 116))
