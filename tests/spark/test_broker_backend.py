"""zambezi.spark.broker_backend: streams of a broker, read through broken connections, with patterns and encryption."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.journal import BEGINNING, numbered, write
from tests.spark.schemas import COLUMNS
from tests.zeps.serving import serving
from zambezi.spark.backend import SequenceRange
from zambezi.spark.batch_reader import BatchReader
from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.columns import find_messages
from zambezi.spark.errors import ConnectionLost, Refused, Replaced, Trimmed, Vanished
from zambezi.spark.options import BATCH, STREAM, Options
from zambezi.spark.stream_reader import StreamReader
from zambezi.zeps.broker import Broker
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
    found: list[int] = []
    for messages in backend.read(wanted, pattern, with_times=False):
        numbers = find_messages(messages.octets).sequences().tolist()
        found += [number for number in numbers if wanted.after < number <= wanted.last]
    return found


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
    found = sequences(backend, SequenceRange("s", wanted.incarnation, 10, 50), "exact:k3")
    assert set(found) <= {13, 23, 33, 43, 50}  # the last message comes whatever its key
    assert {13, 23, 33, 43} <= set(found)


def test_times_and_sizes_come_from_the_index(endpoint: str, tmp_path: Path) -> None:
    backend = broker_backend(endpoint)
    wanted = whole_stream(backend)
    assert backend.size_index(wanted).size == backend.streams(["s"])["s"].size
    [messages] = backend.read(SequenceRange("s", wanted.incarnation, 5, 25), "", with_times=True)
    assert messages.batch_firsts[:3].tolist() == [1, 11, 21]
    assert messages.batch_times[:2].tolist() == [BEGINNING * 10**6, (BEGINNING + 1) * 10**6]
    times = [0, BEGINNING * 10**6, BEGINNING * 10**6 + 1, (BEGINNING + 9) * 10**6, (BEGINNING + 9) * 10**6 + 1]
    assert [backend.last_before("s", time) for time in times] == [0, 0, 10, 90, 95]
    assert backend.last_before("no", 0) == 0


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
        reading = backend.read(whole_stream(backend), "", with_times=False)
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
        reading = backend.read(whole_stream(backend), "", with_times=False)
        next(reading)
    with Store(tmp_path) as store:
        store.delete("s")
    write(tmp_path, "s", numbered(20_000, size=1000), batch=500)
    with serving(tmp_path, endpoint=bound), pytest.raises(Replaced):
        list(reading)


def test_an_encrypted_connection(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(95, size=300))

    def secure(path: Path) -> Broker:
        return Broker(path, security=CurveServer(SERVER))

    with serving(tmp_path, make=secure) as (_, bound):
        backend = broker_backend(bound, security=CurveClient(SERVER.public))
        assert sequences(backend, whole_stream(backend)) == list(range(1, 96))
        with backend.connect("out") as connection:
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
