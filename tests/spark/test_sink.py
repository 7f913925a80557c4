"""Rows become messages: at least once, or once, whatever dies in between."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from tests.spark.journal import numbered
from tests.spark.test_source import typed
from tests.zeps.serving import serving
from zambezi.spark import ledger as ledgers
from zambezi.spark import sink
from zambezi.spark.backend import Slice
from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.columns import Numbers, bodies_of, keys_of, layout
from zambezi.spark.errors import ConnectionLost, NotRepeatable, OptionError, Refused, Replaced, SchemaError, SparkError
from zambezi.spark.ledger import Begun, Ledger, Task, matched
from zambezi.spark.options import SINK, Options
from zambezi.spark.task_connection import TaskConnection
from zambezi.zeps.journal import Store
from zambezi.zeps.messages import Publish
from zambezi.zmtp.security import Null

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

KEY_BODY = typed("key string, body binary")
TASK = Task("job", 7, 0)
Rows = list[tuple[str, bytes]]


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path) as (_, bound):
        yield bound


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of ten rows, and no patience with brokers that have nothing left to read."""
    monkeypatch.setattr(sink, "CHUNK", 10)
    monkeypatch.setattr(sink, "SETTLE", 0.02)


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
    """An attempt of a task, with a copy of the writer as an executor has it."""
    made: sink.StreamWriter = pickle.loads(pickle.dumps(writer(endpoint, dedup="true", **options)))
    return made.publish(iter(rows), task)


def content(endpoint: str, stream: str = "out") -> Rows:
    origin = BrokerBackend(endpoint, Null(), 20.0)
    try:
        known = origin.streams([stream]).get(stream)
        if known is None or not known.last:
            return []
        found: Rows = []
        for window in origin.windows(Slice(stream, known.incarnation, 0, known.last), "", timed=False):
            places = layout(window.octets)
            found += zip(keys_of(places).to_pylist(), bodies_of(places).to_pylist(), strict=True)
        return found
    finally:
        origin.close()


def publish(endpoint: str, rows: Rows, stream: str = "out") -> None:
    """Somebody else."""
    with TaskConnection(endpoint, Null(), stream, 20.0) as line:
        line.say(*[Publish(key, body).encode()[0] for key, body in rows])
        line.barrier()


class Killed(Exception):
    """What a task feels when it dies."""


def dies(monkeypatch: pytest.MonkeyPatch, chunk: int, rows: int, error: Callable[[], Exception]) -> None:
    """The next task sends so many rows of a chunk, and dies. What it sent arrives."""
    real = TaskConnection.send
    left = chunk

    def send(line: TaskConnection, octets: bytes, starts: Numbers) -> None:
        nonlocal left
        if left:
            left -= 1
            real(line, octets, starts)
            return
        monkeypatch.setattr(TaskConnection, "send", real)
        real(line, octets[: int(starts[rows])], starts[: rows + 1])
        line.barrier()
        raise error()

    monkeypatch.setattr(TaskConnection, "send", send)


# At least once


def test_rows_are_published_in_their_order(endpoint: str) -> None:
    done = writer(endpoint).publish(batches(numbered(100)), TASK)
    assert done == sink.Published(100)
    assert content(endpoint) == numbered(100)


def test_rows_say_where_they_go(endpoint: str) -> None:
    schema = typed("stream string, key string, body string")
    made = writer(endpoint, schema, stream="rest")
    columns = [pa.array(["a", "b", None, "a"]), pa.array(["k1", "k2", "k3", None]), pa.array(["1", "2", "3", "4"])]
    made.publish(iter([pa.record_batch(columns, ["stream", "key", "body"])]), TASK)
    assert content(endpoint, "a") == [("k1", b"1"), ("", b"4")]
    assert content(endpoint, "b") == [("k2", b"2")]
    assert content(endpoint, "rest") == [("k3", b"3")]


def test_a_row_that_goes_nowhere(endpoint: str) -> None:
    schema = typed("stream string, body string")
    made = sink.StreamWriter(schema, Options({"endpoint": endpoint}, SINK), overwrite=False)
    rows = pa.record_batch([pa.array(["a", None]), pa.array(["1", "2"])], ["stream", "body"])
    with pytest.raises(SchemaError, match="column 'stream' is null"):
        made.publish(iter([rows]), TASK)


def test_a_key_is_not_needed(endpoint: str) -> None:
    made = writer(endpoint, typed("body string"))
    made.publish(iter([pa.record_batch([pa.array(["x", None])], ["body"])]), TASK)
    assert content(endpoint) == [("", b"x"), ("", b"")]


def test_what_is_not_confirmed_is_published_again(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(monkeypatch, chunk=2, rows=3, error=lambda: ConnectionLost("the line broke"))
    writer(endpoint).publish(batches(numbered(30)), TASK)
    found = content(endpoint)
    assert set(found) == set(numbered(30))
    assert len(found) == 30 + 14 + 3  # what came before the barrier came twice


@pytest.mark.parametrize("dedup", ["false", "true"])
def test_a_broker_that_restarts_under_a_task(tmp_path: Path, dedup: str) -> None:
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        _, bound = first.enter_context(serving(tmp_path))

        def rows() -> Iterator[Any]:
            yield from batches(numbered(25))
            first.close()
            second.enter_context(serving(tmp_path, endpoint=bound))
            yield from batches(numbered(25, 26))

        writer(bound, dedup=dedup).publish(rows(), TASK)
        found = content(bound)
    assert set(found) == set(numbered(50))
    if dedup == "true":
        assert found == numbered(50)


def test_a_stream_that_nobody_may_publish_to(endpoint: str) -> None:
    with pytest.raises(Refused, match="cannot publish to it"):
        writer(endpoint, stream="$streams").publish(batches(numbered(1)), TASK)


# Once


def test_each_row_once(endpoint: str) -> None:
    assert once(endpoint, batches(numbered(35))) == sink.Published(35)
    assert content(endpoint) == numbered(35)


def test_subscribers_see_no_marker(endpoint: str) -> None:
    once(endpoint, batches(numbered(35)), ledger="notes")
    assert content(endpoint) == numbered(35)
    assert [key for key, _ in content(endpoint, "notes")] == ["job/7/0"] * 5  # four chunks, and the end


def test_a_task_that_was_done_is_not_done_again(endpoint: str) -> None:
    once(endpoint, batches(numbered(35)))
    assert once(endpoint, batches(numbered(35), size=3)) == sink.Published(35, found=35)
    assert content(endpoint) == numbered(35)


@pytest.mark.parametrize("chunk", [0, 1, 3])
@pytest.mark.parametrize("rows", [0, 1, 4])
def test_a_task_that_died_half_way_is_finished(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, chunk: int, rows: int
) -> None:
    dies(monkeypatch, chunk, rows, Killed)
    with pytest.raises(Killed):
        once(endpoint, batches(numbered(35)))
    assert len(content(endpoint)) == 10 * chunk + rows
    assert once(endpoint, batches(numbered(35))) == sink.Published(35, found=10 * chunk + rows)
    assert content(endpoint) == numbered(35)


def test_a_task_that_dies_again_and_again(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        dies(monkeypatch, 1, 2, Killed)
        with pytest.raises(Killed):
            once(endpoint, batches(numbered(95)))
    once(endpoint, batches(numbered(95)))
    assert content(endpoint) == numbered(95)


def test_a_task_that_died_between_note_and_rows(endpoint: str) -> None:
    remote = BrokerBackend(endpoint, Null(), 20.0)
    try:
        made = sink._Once(remote, Options({"endpoint": endpoint, "stream": "out"}, SINK), TASK, 0)
        [rows] = list(batches(numbered(10), size=10))
        messages = list(sink._messages(rows, "out"))
        made._ledger.begin(Begun(0, 10, sink._digest(messages), made._ends(["out"])))
        made._ledger.close()
        for line in made._lines.values():
            line.close()
    finally:
        remote.close()
    once(endpoint, batches(numbered(10)))
    assert content(endpoint) == numbered(10)


def test_others_publish_in_between(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_rows_that_are_alike_are_counted(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    same = [("k", b"same")] * 25
    dies(monkeypatch, 1, 6, Killed)
    with pytest.raises(Killed):
        once(endpoint, batches(same))
    once(endpoint, batches(same))
    assert content(endpoint) == same


def test_a_line_that_breaks_within_an_attempt(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(monkeypatch, 1, 4, lambda: ConnectionLost("the line broke"))
    assert once(endpoint, batches(numbered(35))).rows == 35
    assert content(endpoint) == numbered(35)


def test_rows_to_several_streams(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = typed("stream string, body string")
    made = sink.StreamWriter(schema, Options({"endpoint": endpoint, "dedup": "true"}, SINK), overwrite=False)

    def rows() -> Iterator[Any]:
        numbers = [str(number) for number in range(20)]
        yield pa.record_batch([pa.array(["a", "b"] * 10), pa.array(numbers)], ["stream", "body"])

    dies(monkeypatch, 1, 3, Killed)
    with pytest.raises(Killed):
        made.publish(rows(), TASK)
    made.publish(rows(), TASK)
    assert [body for _, body in content(endpoint, "a")] == [str(number).encode() for number in range(0, 20, 2)]
    assert [body for _, body in content(endpoint, "b")] == [str(number).encode() for number in range(1, 20, 2)]


def test_rows_that_are_others_than_before(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(monkeypatch, 1, 4, Killed)
    with pytest.raises(Killed):
        once(endpoint, batches(numbered(35)))
    for rows in (numbered(35)[::-1], [*numbered(10), ("new", b""), *numbered(24, 11)]):
        with pytest.raises(NotRepeatable, match="partition 0 of batch 7 has other rows in chunk"):
            once(endpoint, batches(rows))
    assert len(content(endpoint)) == 14


def test_fewer_rows_than_before(endpoint: str) -> None:
    once(endpoint, batches(numbered(30)))
    with pytest.raises(NotRepeatable):
        once(endpoint, batches(numbered(20)))


def test_batches_and_partitions_are_told_apart(endpoint: str) -> None:
    for task in (Task("job", 7, 0), Task("job", 7, 1), Task("job", 8, 0), Task("another", 7, 0)):
        assert once(endpoint, batches(numbered(5)), task).found == 0
    assert len(content(endpoint)) == 20


def test_notes_are_found_however_far_back(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "_TAIL", 2)
    once(endpoint, batches(numbered(35)), Task("job", 1, 0))
    publish(endpoint, [("other/1/0", b'{"end": 1}')] * 50, "spark-ledger")
    assert once(endpoint, batches(numbered(35)), Task("job", 1, 0)).found == 35
    assert once(endpoint, batches(numbered(35)), Task("job", 2, 0)).found == 0


def test_a_stream_that_was_replaced_under_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as first:
        _, bound = first.enter_context(serving(tmp_path))
        dies(monkeypatch, 1, 4, Killed)
        with pytest.raises(Killed):
            once(bound, batches(numbered(35)))
    with Store(tmp_path) as store:
        store.delete("out")
    with serving(tmp_path, endpoint=bound), pytest.raises(Replaced, match="write with dedup=false"):
        once(bound, batches(numbered(35)))


def test_a_ledger_that_is_something_else(endpoint: str) -> None:
    publish(endpoint, [("job/7/0", b"21.5 degrees")], "readings")
    with pytest.raises(SparkError, match="Name another one with option 'ledger'"):
        once(endpoint, batches(numbered(5)), ledger="readings")


def test_no_rows_leave_no_notes(endpoint: str) -> None:
    assert once(endpoint, []) == sink.Published(0)
    assert content(endpoint, "spark-ledger") == []


def test_a_batch_write_looks_only_at_its_own_notes(endpoint: str) -> None:
    publish(endpoint, [("x/0/0", b"no note")] * 5, "spark-ledger")
    options = Options({"endpoint": endpoint, "stream": "out", "dedup": "true"}, SINK)
    made = sink.BatchWriter(KEY_BODY, options, overwrite=False)
    assert made.floor == 5
    made.write(batches(numbered(15)))
    made.write(batches(numbered(15)))  # the same task once more
    assert content(endpoint) == numbered(15)
    made.commit([sink.Published(15)])
    made.abort([sink.Published(15), None])


def test_matched_rows() -> None:
    rows = [b"a", b"b", b"a"]
    assert matched(rows, []) == 0
    assert matched(rows, [b"b", b"a"]) == 1  # a prefix, in order
    assert matched(rows, [b"a", b"x", b"b", b"a", b"a"]) == 3
    assert matched(rows, [b"a"], start=2) == 3


def test_what_a_ledger_knows(endpoint: str) -> None:
    remote = BrokerBackend(endpoint, Null(), 20.0)
    try:
        notes = Ledger(remote, "notes", TASK)
        assert not notes.is_complete(0, 10)
        notes.begin(Begun(0, 10, "d0", {"out": (5, "i")}))
        notes.begin(Begun(1, 3, "d1", {"out": (15, "i")}))
        notes.begin(Begun(1, 7, "d2", {"out": (99, "i"), "more": (7, "j")}))
        notes.close()
        again = Ledger(remote, "notes", TASK)
        assert [again.is_complete(0, 10), again.is_complete(1, 17)] == [True, False]
        assert again.begun[1] == Begun(1, 7, "d2", {"out": (15, "i"), "more": (7, "j")})
        again.end(17)
        again.close()
        third = Ledger(remote, "notes", TASK)
        assert [third.ended, third.is_complete(1, 17), third.is_complete(1, 18)] == [17, True, False]
    finally:
        remote.close()


@pytest.mark.parametrize("came", [4, 10, 14, 20, 34])
def test_rows_that_ended_too_early(endpoint: str, came: int) -> None:
    """What made the rows failed, and the sink took what came for all: the next attempt has more."""
    assert once(endpoint, batches(numbered(came))) == sink.Published(came)
    assert once(endpoint, batches(numbered(35))) == sink.Published(35, found=came)
    assert content(endpoint) == numbered(35)
    assert once(endpoint, batches(numbered(35))) == sink.Published(35, found=35)


def test_rows_that_ended_too_early_again_and_again(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for came in (3, 7, 9, 16, 28, 28):
        dies(monkeypatch, chunk=1, rows=1, error=Killed)
        with contextlib.suppress(Killed):
            once(endpoint, batches(numbered(came)))
    once(endpoint, batches(numbered(35)))
    assert content(endpoint) == numbered(35)


def test_rows_that_ended_before_some_went_elsewhere(endpoint: str) -> None:
    schema = typed("stream string, body string")
    made = sink.StreamWriter(schema, Options({"endpoint": endpoint, "dedup": "true"}, SINK), overwrite=False)
    targets, numbers = ["a", "a", "b", "a", "b"], ["1", "2", "3", "4", "5"]
    for came in (2, 4, 5):
        columns = [pa.array(targets[:came]), pa.array(numbers[:came])]
        made.publish(iter([pa.record_batch(columns, ["stream", "body"])]), TASK)
    assert [body for _, body in content(endpoint, "a")] == [b"1", b"2", b"4"]
    assert [body for _, body in content(endpoint, "b")] == [b"3", b"5"]


# What cannot be


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("key string", "needs a column 'body'"),
        ("key string, body long", "column 'body' must be binary or string, not bigint"),
        ("key string, body binary, sequence long", "has no column 'sequence'"),
    ],
)
def test_schemas_that_cannot_be(ddl: str, told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        writer("tcp://127.0.0.1:1", typed(ddl))


def test_a_stream_cannot_be_overwritten() -> None:
    with pytest.raises(OptionError, match="can only grow"):
        sink.StreamWriter(KEY_BODY, Options({"endpoint": "tcp://127.0.0.1:1", "stream": "s"}, SINK), overwrite=True)


def test_where_the_rows_go_must_be_told() -> None:
    with pytest.raises(OptionError, match="Set option 'stream'"):
        sink.StreamWriter(KEY_BODY, Options({"endpoint": "tcp://127.0.0.1:1"}, SINK), overwrite=False)
