"""zambezi.spark.ledger: the notes of a task, which the next attempt reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.journal import Message
from tests.zeps.serving import serving
from zambezi.spark import ledger as ledger_module
from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.errors import SparkError
from zambezi.spark.ledger import ChunkNote, Ledger, Task, count_published
from zambezi.spark.task_connection import TaskConnection
from zambezi.zeps.messages import Publish
from zambezi.zmtp.security import Null

TASK = Task("job", 7, 0)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path) as (_, bound):
        yield bound


@pytest.fixture
def backend(endpoint: str) -> Iterator[BrokerBackend]:
    backend = BrokerBackend(endpoint, Null(), 20.0)
    yield backend
    backend.close()


def publish(endpoint: str, messages: list[Message], stream: str) -> None:
    with TaskConnection(endpoint, Null(), stream, 20.0) as connection:
        connection.send(*[Publish(key, body).encode()[0] for key, body in messages])
        connection.barrier()


def test_rows_are_counted_from_the_first_and_in_order() -> None:
    rows = [b"a", b"b", b"a"]
    assert count_published(rows, []) == 0
    assert count_published(rows, [b"b", b"a"]) == 1
    assert count_published(rows, [b"a", b"x", b"b", b"a", b"a"]) == 3
    assert count_published(rows, [b"a"], already=2) == 3


def test_the_next_attempt_reads_the_notes(backend: BrokerBackend) -> None:
    first = Ledger(backend, "notes", TASK)
    assert not first.is_complete(0, 10)
    first.note_chunk(ChunkNote(0, 10, "d0", {"out": (5, "i")}))
    first.note_chunk(ChunkNote(1, 3, "d1", {"out": (15, "i")}))
    first.note_chunk(ChunkNote(1, 7, "d2", {"out": (99, "i"), "more": (7, "j")}))
    first.close()
    second = Ledger(backend, "notes", TASK)
    assert [second.is_complete(0, 10), second.is_complete(1, 17)] == [True, False]
    assert second.chunks[1] == ChunkNote(1, 7, "d2", {"out": (15, "i"), "more": (7, "j")})
    second.note_end(17)
    second.close()
    third = Ledger(backend, "notes", TASK)
    assert [third.finished_rows, third.is_complete(1, 17), third.is_complete(1, 18)] == [17, True, False]


def test_notes_of_other_tasks_are_ignored(backend: BrokerBackend) -> None:
    ledger = Ledger(backend, "notes", TASK)
    ledger.note_end(17)
    ledger.close()
    for other in (Task("job", 7, 1), Task("job", 8, 0), Task("another", 7, 0)):
        assert Ledger(backend, "notes", other).finished_rows == 0


def test_notes_are_found_far_from_the_end(
    endpoint: str, backend: BrokerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_FIRST_SEARCH", 2)
    ledger = Ledger(backend, "notes", TASK)
    ledger.note_end(17)
    ledger.close()
    publish(endpoint, [("other/1/0", b'{"end": 1}')] * 50, "notes")
    assert Ledger(backend, "notes", TASK).finished_rows == 17
    assert Ledger(backend, "notes", TASK, search_after=1).finished_rows == 0


def test_a_stream_with_other_messages_is_refused(endpoint: str, backend: BrokerBackend) -> None:
    publish(endpoint, [(TASK.key, b"21.5 degrees")], "readings")
    with pytest.raises(SparkError, match=r"not a note of the sink: .* Name another one with option 'ledger'"):
        Ledger(backend, "readings", TASK)
