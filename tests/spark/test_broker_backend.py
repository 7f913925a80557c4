"""Streams of a broker, through lines that break, patterns that leave things out, and boxes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.spark.journal import BEGINNING, numbered, write
from tests.spark.test_source import typed
from tests.zeps.serving import serving
from zambezi.spark.backend import Slice
from zambezi.spark.batch_reader import BatchReader
from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.columns import layout
from zambezi.spark.errors import ConnectionLost, Refused, Replaced, Trimmed, Vanished
from zambezi.spark.options import BATCH, STREAM, Options
from zambezi.spark.source import SCHEMA
from zambezi.spark.stream_reader import StreamReader
from zambezi.spark.task_connection import TaskConnection
from zambezi.zeps.broker import Broker
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.messages import Publish
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.security import CurveClient, CurveServer, Null, Security

SERVER = KeyPair.generate(bytes(32))
COLUMNS = typed(SCHEMA)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    write(tmp_path, "s", numbered(95, size=30))
    write(tmp_path, "t", numbered(3))
    with serving(tmp_path) as (_, bound):
        yield bound


_opened: list[BrokerBackend] = []


def remote(endpoint: str, timeout: float = 20.0, security: Security | None = None) -> BrokerBackend:
    made = BrokerBackend(endpoint, security or Null(), timeout)
    _opened.append(made)
    return made


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def whole_stream(origin: BrokerBackend, name: str = "s") -> Slice:
    known = origin.streams([name])[name]
    return Slice(name, known.incarnation, known.first - 1, known.last)


def sequences(origin: BrokerBackend, piece: Slice, pattern: str = "") -> list[int]:
    found: list[int] = []
    for window in origin.windows(piece, pattern, timed=False):
        found += [number for number in layout(window.octets).sequences().tolist() if piece.after < number <= piece.last]
    return found


def test_streams_are_told(endpoint: str) -> None:
    origin = remote(endpoint)
    streams = origin.streams()
    assert list(streams) == ["s", "t"]
    assert (streams["s"].first, streams["s"].last, streams["s"].last_time) == (1, 95, (BEGINNING + 9) * 10**6)
    assert list(origin.streams(["t"])) == ["t"]
    assert list(origin.streams(["no"])) == []
    assert list(origin.streams(["t", "no"])) == ["t"]
    origin.close()


@pytest.mark.parametrize(("after", "last"), [(0, 95), (0, 1), (94, 95), (13, 67)])
def test_a_slice_is_read(endpoint: str, after: int, last: int) -> None:
    origin = remote(endpoint)
    piece = whole_stream(origin)
    assert sequences(origin, Slice("s", piece.incarnation, after, last)) == list(range(after + 1, last + 1))


def test_patterns_at_the_broker(endpoint: str) -> None:
    origin = remote(endpoint)
    piece = whole_stream(origin)
    found = sequences(origin, Slice("s", piece.incarnation, 10, 50), "exact:k3")
    assert set(found) <= {13, 23, 33, 43, 50}  # the last one comes in any case
    assert {13, 23, 33, 43} <= set(found)


def test_the_index_is_asked_for(endpoint: str, tmp_path: Path) -> None:
    origin = remote(endpoint)
    piece = whole_stream(origin)
    assert origin.marks(piece).size == origin.streams(["s"])["s"].octets
    [window] = origin.windows(Slice("s", piece.incarnation, 5, 25), "", timed=True)
    assert window.firsts[:3].tolist() == [1, 11, 21]
    assert window.times[:2].tolist() == [BEGINNING * 10**6, (BEGINNING + 1) * 10**6]
    times = [0, BEGINNING * 10**6, BEGINNING * 10**6 + 1, (BEGINNING + 9) * 10**6, (BEGINNING + 9) * 10**6 + 1]
    assert [origin.before("s", time) for time in times] == [0, 0, 10, 90, 95]
    assert origin.before("no", 0) == 0


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


def test_what_is_not_there(tmp_path: Path) -> None:
    small = Policy(segment=400, keep_bytes=800)
    write(tmp_path, "s", numbered(95), policy=small)
    with Store(tmp_path, policy=small) as store:
        assert store.open("s").retain(BEGINNING) > 0
    with serving(tmp_path) as (_, bound):
        origin = remote(bound)
        known = origin.streams()["s"]
        with pytest.raises(Trimmed) as caught:
            sequences(origin, Slice("s", known.incarnation, 0, 95))
        assert caught.value.oldest == known.first
        with pytest.raises(Replaced):
            sequences(origin, Slice("s", "another", 0, 95))
        with pytest.raises(Vanished):
            sequences(origin, Slice("no", "another", 0, 95))
        assert list(origin.streams()) == ["s"]  # to ask for a stream does not make it


def test_a_broker_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(5))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(ConnectionLost, match=r"refused \(tried for 0.2 seconds: option 'timeout'\)"):
        remote(f"tcp://127.0.0.1:{port}", 0.2).streams()
    found: list[int] = []
    origin = remote(f"tcp://127.0.0.1:{port}")
    reading = threading.Thread(target=lambda: found.extend(sequences(origin, whole_stream(origin))))
    reading.start()
    with serving(tmp_path, endpoint=f"tcp://127.0.0.1:{port}"):
        reading.join(20)
    assert found == [1, 2, 3, 4, 5]


def test_a_broker_that_restarts_is_read_on(tmp_path: Path) -> None:
    """Nothing is missed and nothing comes twice; the connection for questions is made anew, too."""
    write(tmp_path, "s", numbered(20_000, size=1000), batch=500)
    with contextlib.ExitStack() as first:
        _, bound = first.enter_context(serving(tmp_path))
        origin = remote(bound)
        windows = origin.windows(whole_stream(origin), "", timed=False)
        window = next(windows)
        found = layout(window.octets).sequences().tolist()
    with serving(tmp_path, endpoint=bound):
        for window in windows:
            found += layout(window.octets).sequences().tolist()
        assert list(origin.streams()) == ["s"]
        origin.close()
    assert found == list(range(1, 20_001))


def test_a_stream_that_is_replaced_while_the_line_is_down(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(20_000, size=1000), batch=500)
    with contextlib.ExitStack() as first:
        _, bound = first.enter_context(serving(tmp_path))
        origin = remote(bound)
        windows = origin.windows(whole_stream(origin), "", timed=False)
        next(windows)
    with Store(tmp_path) as store:
        store.delete("s")
    write(tmp_path, "s", numbered(20_000, size=1000), batch=500)
    with serving(tmp_path, endpoint=bound), pytest.raises(Replaced):
        list(windows)


def test_a_line_in_boxes(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(95, size=300))

    def secure(path: Path) -> Broker:
        return Broker(path, security=CurveServer(SERVER))

    with serving(tmp_path, make=secure) as (_, bound):
        origin = remote(bound, security=CurveClient(SERVER.public))
        assert sequences(origin, whole_stream(origin)) == list(range(1, 96))
        with origin.line("out") as line:
            line.say(*[Publish("k", bytes(5)).encode()[0]] * 3)
            line.barrier()
        assert origin.streams(["out"])["out"].last == 3
        with pytest.raises((Refused, ConnectionLost)):
            remote(bound, 1.0, CurveClient(KeyPair.generate().public)).streams()


def test_what_the_broker_refuses_is_told(endpoint: str) -> None:
    with pytest.raises(Refused, match="there is no reserved stream"):
        TaskConnection(endpoint, Null(), "$nothing", 20.0)
    with TaskConnection(endpoint, Null(), "$streams", 20.0) as line:
        line.say(Publish("k", b"").encode()[0])
        with pytest.raises(Refused, match="cannot publish to it"):
            line.barrier()


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(64), b""])
def test_a_stranger_at_the_other_end(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                connection.recv(100)
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises((ConnectionLost, Refused)):
            TaskConnection(f"tcp://127.0.0.1:{server.getsockname()[1]}", Null(), "s", 5.0)
        thread.join(20)


def test_an_ipc_endpoint(tmp_path: Path) -> None:
    write(tmp_path / "data", "s", numbered(5))
    with serving(tmp_path / "data", endpoint=f"ipc://{tmp_path}/socket") as (_, bound):
        origin = remote(bound)
        assert sequences(origin, whole_stream(origin)) == [1, 2, 3, 4, 5]


def test_a_query_goes_on_after_the_broker_was_away(tmp_path: Path) -> None:
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


def test_a_buffer_that_is_handed_out_is_not_written_to(endpoint: str) -> None:
    with TaskConnection(endpoint, Null(), "s", 20.0) as line:
        line.subscribe("", 0)
        line.credit(200)
        first = line.read()
        while not len(first):
            first = line.read()
        before = first.copy()
        line.credit(1 << 20)
        line.read()
        assert np.array_equal(first, before)
