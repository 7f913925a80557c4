"""zambezi.spark.broker_backend: streams of a broker, read through broken connections, with patterns and encryption."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.backends import read_messages, read_sequences
from tests.spark.journal import BEGINNING, numbered, write
from tests.spark.schemas import COLUMNS, schema_of
from tests.zeps.serving import serving
from zambezi.spark import broker_backend as broker_backend_module
from zambezi.spark.backend import SequenceRange
from zambezi.spark.batch_reader import BatchReader
from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.columns import find_messages
from zambezi.spark.errors import ConnectionLost, Refused, Replaced, Trimmed, Vanished
from zambezi.spark.options import BATCH, STREAM, Options
from zambezi.spark.stream_reader import StreamReader
from zambezi.spark.task_connection import TaskConnection
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.messages import Publish
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.security import CurveClient, CurveServer, Null, Security

SERVER = KeyPair.generate(bytes(32))


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    write(tmp_path, "s", numbered(95, size=30))
    write(tmp_path, "t", numbered(3))
    with serving(tmp_path) as (_, bound):
        yield bound
        close_backends()  # a broker that is closed first waits for its clients


_opened: list[BrokerBackend] = []


def broker_backend(endpoint: str, timeout: float = 20.0, security: Security | None = None) -> BrokerBackend:
    made = BrokerBackend(endpoint, security or Null(), timeout)
    _opened.append(made)
    return made


def close_backends() -> None:
    while _opened:
        _opened.pop().close()


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_backends()


def whole_stream(backend: BrokerBackend, name: str = "s") -> SequenceRange:
    state = backend.streams([name])[name]
    return SequenceRange(name, state.incarnation, state.first - 1, state.last)


def sequences(backend: BrokerBackend, wanted: SequenceRange, pattern: str = "") -> list[int]:
    return [number for number in read_sequences(backend, wanted, pattern) if wanted.after < number <= wanted.last]


def test_streams_are_listed(endpoint: str) -> None:
    backend = broker_backend(endpoint)
    streams = backend.streams()
    assert list(streams) == ["s", "t"]
    assert (streams["s"].first, streams["s"].last, streams["s"].last_time) == (1, 95, (BEGINNING + 9) * 10**6)
    assert list(backend.streams(["t"])) == ["t"]
    assert list(backend.streams(["no"])) == []
    assert list(backend.streams(["t", "no"])) == ["t"]
    backend.close()


@pytest.mark.parametrize(("after", "last"), [(0, 95), (0, 1), (94, 95), (13, 67)])
def test_a_range_is_read(endpoint: str, after: int, last: int) -> None:
    backend = broker_backend(endpoint)
    wanted = whole_stream(backend)
    assert sequences(backend, SequenceRange("s", wanted.incarnation, after, last)) == list(range(after + 1, last + 1))


def test_patterns_at_the_broker(endpoint: str) -> None:
    backend = broker_backend(endpoint)
    wanted = whole_stream(backend)
    assert sequences(backend, SequenceRange("s", wanted.incarnation, 10, 50), "exact:k3") == [13, 23, 33, 43]


def test_times_and_sizes_come_from_the_index(endpoint: str, tmp_path: Path) -> None:
    backend = broker_backend(endpoint)
    wanted = whole_stream(backend)
    [sizes] = backend.size_indexes([wanted], 100)
    assert sizes is not None
    assert sizes.size == backend.streams(["s"])["s"].size
    assert len(sizes.sequences) == 11  # the index has ten entries
    found = [messages.batches for messages in read_messages(backend, SequenceRange("s", wanted.incarnation, 5, 25))]
    assert [first for batches in found for first in batches.firsts.tolist()] == [1, 11, 21]
    assert [time for batches in found for time in batches.times.tolist()] == [
        (BEGINNING + second) * 10**6 for second in range(3)
    ]
    times = [0, BEGINNING * 10**6, BEGINNING * 10**6 + 1, (BEGINNING + 9) * 10**6, (BEGINNING + 9) * 10**6 + 1]
    assert [backend.last_before({"s": time})["s"] for time in times] == [0, 0, 10, 90, 95]
    assert backend.last_before({"no": 0, "t": 1}) == {"no": 0, "t": 0}
    gone = [SequenceRange("no", "i", 0, 5), SequenceRange("s", "another", 0, 5), wanted]
    assert [index is None for index in backend.size_indexes(gone, 100)] == [True, True, False]


def test_streams_by_pattern(endpoint: str) -> None:
    backend = broker_backend(endpoint)
    assert list(backend.streams(pattern="glob:*t")) == ["t"]
    assert list(backend.streams(pattern="exact:s")) == ["s"]


def test_many_ranges_of_many_streams_need_one_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are more of them than requests that the broker has at a time."""
    monkeypatch.setattr(broker_backend_module, "_AT_ONCE", 4)
    monkeypatch.setattr(broker_backend_module, "_NAMES", 3)
    for number in range(11):
        write(tmp_path, f"s{number}", numbered(20))
    with serving(tmp_path) as (broker, bound):
        reader = BatchReader(COLUMNS, Options({"endpoint": bound, "streamPattern": "s"}, BATCH))
        [part] = reader.partitions()
        before = broker.engine._numbers
        batches = list(reader.read(part))
        assert sum(batch.num_rows for batch in batches) == 220
        assert len(batches) == 1  # small ones are joined
        assert broker.engine._numbers == before + 1
        backend = broker_backend(bound)
        names = [f"s{number}" for number in range(11)]
        assert list(backend.streams(names)) == names
        assert broker.engine._numbers == before + 2
        assert backend.last_before(dict.fromkeys(names, BEGINNING * 10**6 + 1)) == dict.fromkeys(names, 10)
        assert broker.engine._numbers == before + 2


def test_columns_of_the_index_come_without_the_log(endpoint: str, tmp_path: Path) -> None:
    schema = schema_of("sequence long not null, stream string not null, timestamp timestamp not null")
    bare = BatchReader(schema, Options({"endpoint": endpoint, "stream": "s"}, BATCH))
    for log in tmp_path.glob("*/*.log"):
        log.write_bytes(bytes(log.stat().st_size))
    found = [row for part in bare.partitions() for one in bare.read(part) for row in one.to_pylist()]
    assert [row["sequence"] for row in found] == list(range(1, 96))
    assert [row["timestamp"].timestamp() for row in found[9:11]] == [BEGINNING, BEGINNING + 1]


def test_a_generator_that_is_not_finished_leaves_no_answers_behind(endpoint: str) -> None:
    backend = broker_backend(endpoint)
    wanted = whole_stream(backend)
    reading = read_messages(backend, wanted)
    next(reading)
    reading.close()
    assert sequences(backend, wanted) == list(range(1, 96))


def test_a_client_that_may_not_read_is_told(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(5))

    def strict(path: Path) -> BrokerService:
        return BrokerService(path, allow=lambda user, action, stream: action != "subscribe")

    with serving(tmp_path, make=strict) as (_, bound):
        backend = broker_backend(bound)
        with pytest.raises(Refused, match="stream 's': forbidden: this client may not read the stream"):
            sequences(backend, whole_stream(backend))


def test_messages_of_all_sizes(tmp_path: Path) -> None:
    messages = [(f"k{size}", bytes(size)) for size in (0, 3_000_000, 1, 70_000, 5_000_000, 255)]
    write(tmp_path, "s", messages, batch=2)
    with serving(tmp_path) as (_, bound):
        reader = BatchReader(COLUMNS, Options({"endpoint": bound, "stream": "s"}, BATCH))
        [part] = reader.partitions()
        found = [row for one in reader.read(part) for row in one.to_pylist()]
        assert [(row["key"], row["body"]) for row in found] == messages


@pytest.mark.parametrize("at", ["executor", "broker"])
def test_a_reader_of_a_broker(endpoint: str, at: str) -> None:
    options = {"endpoint": endpoint, "stream": "s", "pattern": "glob:*7", "filterAt": at, "minPartitions": "3"}
    reader = BatchReader(COLUMNS, Options(options, BATCH))
    parts = reader.partitions()
    assert len(parts) == 3
    found = [row["sequence"] for part in parts for one in reader.read(part) for row in one.to_pylist()]
    assert found == list(range(7, 96, 10))


def test_messages_that_do_not_exist_raise(tmp_path: Path) -> None:
    small = Policy(segment=400, keep_bytes=800)
    write(tmp_path, "s", numbered(95), policy=small)
    with Store(tmp_path, policy=small) as store:
        assert store.open("s").retain(BEGINNING) > 0
    with serving(tmp_path) as (_, bound):
        backend = broker_backend(bound)
        state = backend.streams()["s"]
        with pytest.raises(Trimmed) as caught:
            sequences(backend, SequenceRange("s", state.incarnation, 0, 95))
        assert caught.value.oldest == state.first
        with pytest.raises(Replaced):
            sequences(backend, SequenceRange("s", "another", 0, 95))
        with pytest.raises(Vanished):
            sequences(backend, SequenceRange("no", "another", 0, 95))
        assert list(backend.streams()) == ["s"]  # asking for a stream does not make it


def test_a_backend_waits_for_a_broker_that_is_down(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(5))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(ConnectionLost, match=r"refused \(tried for 0.2 seconds: option 'timeout'\)"):
        broker_backend(f"tcp://127.0.0.1:{port}", 0.2).streams()
    found: list[int] = []
    backend = broker_backend(f"tcp://127.0.0.1:{port}")
    reading = threading.Thread(target=lambda: found.extend(sequences(backend, whole_stream(backend))))
    reading.start()
    with serving(tmp_path, endpoint=f"tcp://127.0.0.1:{port}"):
        reading.join(60)
    assert found == [1, 2, 3, 4, 5]


def test_reading_continues_after_the_broker_restarts(tmp_path: Path) -> None:
    """No message is missing or repeated. The connection for the list of streams is also made again."""
    write(tmp_path, "s", numbered(20_000, size=1000), batch=500)
    with contextlib.ExitStack() as first:
        _, bound = first.enter_context(serving(tmp_path))
        backend = broker_backend(bound)
        reading = read_messages(backend, whole_stream(backend))
        messages = next(reading)
        found = find_messages(messages.octets).sequences().tolist()
    with serving(tmp_path, endpoint=bound):
        for messages in reading:
            found += find_messages(messages.octets).sequences().tolist()
        assert list(backend.streams()) == ["s"]
        backend.close()
    assert found == list(range(1, 20_001))


def test_a_stream_that_is_replaced_while_the_broker_is_down(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(20_000, size=1000), batch=500)
    with contextlib.ExitStack() as first:
        _, bound = first.enter_context(serving(tmp_path))
        backend = broker_backend(bound)
        reading = read_messages(backend, whole_stream(backend))
        next(reading)
    with Store(tmp_path) as store:
        store.delete("s")
    write(tmp_path, "s", numbered(20_000, size=1000), batch=500)
    with serving(tmp_path, endpoint=bound), pytest.raises(Replaced):
        list(reading)


def test_an_encrypted_connection(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(95, size=300))

    def secure(path: Path) -> BrokerService:
        return BrokerService(path, security=CurveServer(SERVER))

    with serving(tmp_path, make=secure) as (_, bound):
        backend = broker_backend(bound, security=CurveClient(SERVER.public))
        assert sequences(backend, whole_stream(backend)) == list(range(1, 96))
        with TaskConnection(bound, CurveClient(SERVER.public), "out", 20.0) as connection:
            connection.send(*[Publish("k", bytes(5)).encode()[0]] * 3)
            connection.barrier()
        assert backend.streams(["out"])["out"].last == 3
        with pytest.raises((Refused, ConnectionLost)):
            broker_backend(bound, 1.0, CurveClient(KeyPair.generate().public)).streams()


def test_an_ipc_endpoint(tmp_path: Path) -> None:
    write(tmp_path / "data", "s", numbered(5))
    with serving(tmp_path / "data", endpoint=f"ipc://{tmp_path}/socket") as (_, bound):
        backend = broker_backend(bound)
        assert sequences(backend, whole_stream(backend)) == [1, 2, 3, 4, 5]


def test_a_query_continues_after_the_broker_was_down(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(5))
    with contextlib.ExitStack() as first:
        _, bound = first.enter_context(serving(tmp_path))
        options = Options({"endpoint": bound, "stream": "s", "startingSequence": "earliest"}, STREAM)
        reader = StreamReader(COLUMNS, options)
        start = reader.initialOffset()
    write(tmp_path, "s", numbered(5, 6))
    with serving(tmp_path, endpoint=bound):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        found = [
            row["sequence"]
            for part in reader.partitions(start, end)
            for one in reader.read(part)
            for row in one.to_pylist()
        ]
        reader.stop()
    assert found == list(range(1, 11))
