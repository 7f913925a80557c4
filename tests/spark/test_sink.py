"""zambezi.spark.sink and task_publisher: each row becomes a message once, even if tasks die."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.backends import read_messages
from tests.spark.journal import numbered
from tests.spark.schemas import schema_of
from tests.zeps.serving import serving
from zambezi.spark import sink
from zambezi.spark.backend import SequenceRange
from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.columns import Numbers, bodies_of, find_messages, keys_of
from zambezi.spark.errors import ConnectionLost, NotRepeatable, OptionError, Refused, SchemaError, Superseded
from zambezi.spark.options import SINK, Options
from zambezi.spark.task_connection import TaskConnection
from zambezi.spark.task_publisher import Digest, Task
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.journal import Store
from zambezi.zeps.messages import Publish
from zambezi.zmtp.security import Null

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

KEY_BODY = schema_of("key string, body binary")
TASK = Task("job", 7, 0)
Rows = list[tuple[str, bytes]]


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path) as (_, bound):
        yield bound


def batches(rows: Rows, size: int = 7, schema: StructType = KEY_BODY) -> Iterator[Any]:
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        yield pa.record_batch(
            [pa.array([key for key, _ in part]), pa.array([body for _, body in part])], ["key", "body"]
        )


def writer(endpoint: str, /, schema: StructType = KEY_BODY, **options: Any) -> sink.StreamWriter:
    given = {"endpoint": endpoint, "stream": "out", "timeout": "20s", **options}
    return sink.StreamWriter(schema, Options(given, SINK), overwrite=False)


def once(endpoint: str, rows: Iterable[Any], task: Task = TASK, **options: Any) -> sink.Published:
    """Run an attempt of a task, with a copy of the writer as on an executor."""
    made: sink.StreamWriter = pickle.loads(pickle.dumps(writer(endpoint, **options)))
    return made.publish(iter(rows), task)


def content(endpoint: str, stream: str = "out") -> Rows:
    backend = BrokerBackend(endpoint, Null(), 20.0)
    try:
        state = backend.streams([stream]).get(stream)
        if state is None or not state.last:
            return []
        found: Rows = []
        for messages in read_messages(backend, SequenceRange(stream, state.incarnation, 0, state.last)):
            layout = find_messages(messages.octets)
            found += zip(keys_of(layout).to_pylist(), bodies_of(layout).to_pylist(), strict=True)
        return found
    finally:
        backend.close()


def publish(endpoint: str, rows: Rows, stream: str = "out") -> None:
    """Publish as another client."""
    with TaskConnection(endpoint, Null(), stream, 20.0) as connection:
        connection.send(*[Publish(key, body).encode()[0] for key, body in rows])
        connection.barrier()


class Killed(Exception):
    """The death of a task."""


def dies(monkeypatch: pytest.MonkeyPatch, batch: int, rows: int, error: Callable[[], Exception]) -> None:
    """Let the next task die after it has sent some rows of a batch. The rows that it sent arrive."""
    real = TaskConnection.send_encoded
    left = batch

    def send(connection: TaskConnection, octets: memoryview, starts: Numbers) -> None:
        nonlocal left
        if left:
            left -= 1
            real(connection, octets, starts)
            return
        monkeypatch.setattr(TaskConnection, "send_encoded", real)
        real(connection, octets[: int(starts[rows])], starts[: rows + 1])
        connection.barrier()
        raise error()

    monkeypatch.setattr(TaskConnection, "send_encoded", send)


def test_rows_are_published_in_order(endpoint: str) -> None:
    done = writer(endpoint).publish(batches(numbered(100)), TASK)
    assert done == sink.Published(100)
    assert content(endpoint) == numbered(100)


def test_a_column_names_the_target_of_each_row(endpoint: str) -> None:
    schema = schema_of("stream string, key string, body string")
    made = writer(endpoint, schema, stream="rest")
    columns = [pa.array(["a", "b", None, "a"]), pa.array(["k1", "k2", "k3", None]), pa.array(["1", "2", "3", "4"])]
    made.publish(iter([pa.record_batch(columns, ["stream", "key", "body"])]), TASK)
    assert content(endpoint, "a") == [("k1", b"1"), ("", b"4")]
    assert content(endpoint, "b") == [("k2", b"2")]
    assert content(endpoint, "rest") == [("k3", b"3")]


def test_a_row_without_a_target(endpoint: str) -> None:
    schema = schema_of("stream string, body string")
    made = sink.StreamWriter(schema, Options({"endpoint": endpoint}, SINK), overwrite=False)
    rows = pa.record_batch([pa.array(["a", None]), pa.array(["1", "2"])], ["stream", "body"])
    with pytest.raises(SchemaError, match="column 'stream' is null"):
        made.publish(iter([rows]), TASK)


def test_the_key_is_optional(endpoint: str) -> None:
    made = writer(endpoint, schema_of("body string"))
    made.publish(iter([pa.record_batch([pa.array(["x", None])], ["body"])]), TASK)
    assert content(endpoint) == [("", b"x"), ("", b"")]


def test_a_broker_that_restarts_during_a_task(tmp_path: Path) -> None:
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        _, bound = first.enter_context(serving(tmp_path))

        def rows() -> Iterator[Any]:
            yield from batches(numbered(25))
            first.close()
            second.enter_context(serving(tmp_path, endpoint=bound))
            yield from batches(numbered(25, 26))

        writer(bound).publish(rows(), TASK)
        assert content(bound) == numbered(50)


def test_a_stream_that_refuses_messages(endpoint: str) -> None:
    with pytest.raises(Refused, match="cannot publish to it"):
        writer(endpoint, stream="$streams").publish(batches(numbered(1)), TASK)


# Exactly once


def test_each_row_is_published_once(endpoint: str) -> None:
    assert once(endpoint, batches(numbered(35))) == sink.Published(35)
    assert content(endpoint) == numbered(35)


def test_a_finished_task_publishes_nothing_again(endpoint: str) -> None:
    once(endpoint, batches(numbered(35)))
    assert once(endpoint, batches(numbered(35), size=3)) == sink.Published(35, already=35)
    assert content(endpoint) == numbered(35)


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("rows", [0, 1, 4])
@pytest.mark.parametrize("size", [3, 7, 100])
def test_a_retried_task_publishes_the_missing_rows(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, batch: int, rows: int, size: int
) -> None:
    """Its batches need not have the sizes of those of the attempt before."""
    dies(monkeypatch, batch, rows, Killed)
    with pytest.raises(Killed):
        once(endpoint, batches(numbered(35)))
    assert len(content(endpoint)) == 7 * batch + rows
    assert once(endpoint, batches(numbered(35), size)) == sink.Published(35, already=7 * batch + rows)
    assert content(endpoint) == numbered(35)


def test_a_task_that_dies_several_times(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        dies(monkeypatch, 1, 2, Killed)
        with pytest.raises(Killed):
            once(endpoint, batches(numbered(95)))
    once(endpoint, batches(numbered(95)))
    assert content(endpoint) == numbered(95)


def test_other_clients_publish_between_attempts(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [("other", str(number).encode()) for number in range(20)]
    publish(endpoint, others)
    dies(monkeypatch, 1, 4, Killed)
    with pytest.raises(Killed):
        once(endpoint, batches(numbered(35)))
    publish(endpoint, others)
    once(endpoint, batches(numbered(35)))
    found = content(endpoint)
    assert [row for row in found if row[0] != "other"] == numbered(35)
    assert len(found) == 75


def test_equal_rows_are_counted(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    same = [("k", b"same")] * 25
    dies(monkeypatch, 1, 6, Killed)
    with pytest.raises(Killed):
        once(endpoint, batches(same))
    once(endpoint, batches(same))
    assert content(endpoint) == same


def test_a_connection_that_breaks_within_an_attempt(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(monkeypatch, 1, 4, lambda: ConnectionLost("the connection broke"))
    assert once(endpoint, batches(numbered(35))).rows == 35
    assert content(endpoint) == numbered(35)


def test_rows_to_several_streams(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of("stream string, body string")
    made = sink.StreamWriter(schema, Options({"endpoint": endpoint}, SINK), overwrite=False)

    def rows() -> Iterator[Any]:
        numbers = [str(number) for number in range(20)]
        yield pa.record_batch([pa.array(["a", "b"] * 10), pa.array(numbers)], ["stream", "body"])

    dies(monkeypatch, 1, 3, Killed)
    with pytest.raises(Killed):
        made.publish(rows(), TASK)
    made.publish(rows(), TASK)
    assert [body for _, body in content(endpoint, "a")] == [str(number).encode() for number in range(0, 20, 2)]
    assert [body for _, body in content(endpoint, "b")] == [str(number).encode() for number in range(1, 20, 2)]


@pytest.mark.parametrize("size", [3, 7, 100])
def test_different_rows_are_refused(endpoint: str, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    dies(monkeypatch, 1, 4, Killed)
    with pytest.raises(Killed):
        once(endpoint, batches(numbered(35)))
    swapped = numbered(35)
    swapped[12], swapped[13] = swapped[13], swapped[12]  # the attempt before has marked them, and not published them
    for rows in (numbered(35)[::-1], [*numbered(10), ("new", b""), *numbered(24, 11)], swapped):
        with pytest.raises(NotRepeatable, match="partition 0 of batch 7 has other rows, or the same in another order"):
            once(endpoint, batches(rows, size))
    assert content(endpoint) == numbered(11)
    once(endpoint, batches(numbered(35), size))
    assert content(endpoint) == numbered(35)


@pytest.mark.parametrize("size", [3, 7, 100])
def test_fewer_rows_are_refused(endpoint: str, size: int) -> None:
    once(endpoint, batches(numbered(30)))
    with pytest.raises(NotRepeatable, match="fewer rows"):
        once(endpoint, batches(numbered(20), size))


def test_a_task_that_was_thought_dead_is_fenced(endpoint: str) -> None:
    """Another attempt begins and ends while the first one waits; what the first one publishes then does not arrive."""

    def rows() -> Iterator[Any]:
        yield from batches(numbered(14))
        assert once(endpoint, batches(numbered(35))).rows == 35
        yield from batches(numbered(21, 15))

    with pytest.raises(Superseded, match="another attempt of this task"):
        once(endpoint, rows())
    assert content(endpoint) == numbered(35)


def test_a_row_that_the_broker_refuses_fails_every_attempt(tmp_path: Path) -> None:
    rows = numbered(10)
    rows[5] = ("k", b"x" * 30_000)
    with serving(tmp_path, lambda path: BrokerService(path, limits=Limits(message=20_000))) as (_, bound):
        for _ in range(3):
            with pytest.raises(Refused):
                once(bound, batches(rows))
        assert content(bound) == [*numbered(5), *numbered(4, 7)]
        once(bound, batches(rows), failOnRefusal="false")
        assert content(bound) == [*numbered(5), *numbered(4, 7)]
        once(bound, batches(rows), Task("job", 8, 0), failOnRefusal="false")
        assert content(bound) == [*numbered(5), *numbered(4, 7)] * 2


def test_a_broker_that_does_not_count_gets_rows_at_least_once(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.spark.task_connection.extensions_of", lambda _: [])
    dies(monkeypatch, batch=2, rows=3, error=lambda: ConnectionLost("the connection broke"))
    writer(endpoint).publish(batches(numbered(30)), TASK)
    found = content(endpoint)
    assert set(found) == set(numbered(30))
    assert len(found) == 30 + 14 + 3  # the rows before the barrier are published twice


def test_tasks_of_other_batches_and_partitions_are_separate(endpoint: str) -> None:
    for task in (Task("job", 7, 0), Task("job", 7, 1), Task("job", 8, 0), Task("another", 7, 0)):
        assert once(endpoint, batches(numbered(5)), task).already == 0
    assert len(content(endpoint)) == 20


def test_a_stream_that_was_replaced_between_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new stream has none of the rows, so it gets all of them."""
    with contextlib.ExitStack() as first:
        _, bound = first.enter_context(serving(tmp_path))
        dies(monkeypatch, 1, 4, Killed)
        with pytest.raises(Killed):
            once(bound, batches(numbered(35)))
    with Store(tmp_path) as store:
        store.delete("out")
    with serving(tmp_path, endpoint=bound):
        once(bound, batches(numbered(35)))
        assert content(bound) == numbered(35)


def test_no_rows_make_no_stream(endpoint: str) -> None:
    assert once(endpoint, []) == sink.Published(0)
    assert content(endpoint) == []


def test_a_batch_write_has_its_own_publisher_or_one_with_a_name(endpoint: str) -> None:
    made = sink.BatchWriter(KEY_BODY, Options({"endpoint": endpoint, "stream": "out"}, SINK), overwrite=False)
    made.write(batches(numbered(15)))
    made.write(batches(numbered(15)))  # a second attempt of the same task
    assert content(endpoint) == numbered(15)
    named = Options({"endpoint": endpoint, "stream": "export", "publisher": "export"}, SINK)
    for _ in range(2):
        sink.BatchWriter(KEY_BODY, named, overwrite=False).write(batches(numbered(15)))
    assert content(endpoint, "export") == numbered(15)
    made.commit([sink.Published(15)])
    made.abort([sink.Published(15), None])


@pytest.mark.parametrize("came", [4, 10, 14, 20, 34])
def test_an_attempt_that_received_too_few_rows(endpoint: str, came: int) -> None:
    """The code that produces the rows failed, and the sink published what it received. The next attempt has more."""
    assert once(endpoint, batches(numbered(came))) == sink.Published(came)
    assert once(endpoint, batches(numbered(35))) == sink.Published(35, already=came)
    assert content(endpoint) == numbered(35)
    assert once(endpoint, batches(numbered(35))) == sink.Published(35, already=35)


def test_several_attempts_that_received_too_few_rows(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for came in (3, 7, 9, 16, 28, 28):
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            dies(patch, batch=1, rows=1, error=Killed)
            once(endpoint, batches(numbered(came)))
    once(endpoint, batches(numbered(35)))
    assert content(endpoint) == numbered(35)


def test_a_later_attempt_has_rows_for_another_stream(endpoint: str) -> None:
    schema = schema_of("stream string, body string")
    made = sink.StreamWriter(schema, Options({"endpoint": endpoint}, SINK), overwrite=False)
    targets, numbers = ["a", "a", "b", "a", "b"], ["1", "2", "3", "4", "5"]
    for came in (2, 4, 5):
        columns = [pa.array(targets[:came]), pa.array(numbers[:came])]
        made.publish(iter([pa.record_batch(columns, ["stream", "body"])]), TASK)
    assert [body for _, body in content(endpoint, "a")] == [b"1", b"2", b"4"]
    assert [body for _, body in content(endpoint, "b")] == [b"3", b"5"]


# Errors


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("key string", "needs a column 'body'"),
        ("key string, body long", "column 'body' must be binary or string, not bigint"),
        ("key string, body binary, sequence long", "has no column 'sequence'"),
    ],
)
def test_a_schema_that_the_sink_cannot_write(ddl: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        writer("tcp://127.0.0.1:1", schema_of(ddl))


def test_a_stream_cannot_be_overwritten() -> None:
    with pytest.raises(OptionError, match="can only grow"):
        sink.StreamWriter(KEY_BODY, Options({"endpoint": "tcp://127.0.0.1:1", "stream": "s"}, SINK), overwrite=True)


def test_the_target_stream_is_required() -> None:
    with pytest.raises(OptionError, match="needs a target stream: set option 'stream'"):
        sink.StreamWriter(KEY_BODY, Options({"endpoint": "tcp://127.0.0.1:1"}, SINK), overwrite=False)


@given(st.lists(st.binary(min_size=4, max_size=4), min_size=2, max_size=20, unique=True), st.data())
def test_the_digest_depends_on_the_order_of_rows_and_not_on_batches(rows: list[bytes], data: st.DataObject) -> None:
    whole = Digest().after(memoryview(b"".join(rows)))
    cut = data.draw(st.integers(0, 4 * len(rows)))
    octets = memoryview(b"".join(rows))
    assert Digest().after(octets[:cut]).after(octets[cut:]) == whole
    one, other = data.draw(st.sampled_from([(a, b) for a in range(len(rows)) for b in range(a)]))
    rows[one], rows[other] = rows[other], rows[one]
    assert Digest().after(memoryview(b"".join(rows))) != whole
    assert Digest().after(octets[:-1]) != whole


def test_the_digest_counts_bytes_of_a_long_task() -> None:
    assert Digest(0, 0xFFFFFFFF).after(memoryview(b"ab")).size == 1
