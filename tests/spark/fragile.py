"""The sink, in a worker that waits to be killed: the format `zeps-fragile`.

An attempt of a task comes to its moment, writes the id of its process into a file, and goes no further. `Killer`, in
the process of the test, sees the file and kills that process: nothing is closed, no exception is raised, and what was
on its way to the broker stays half on its way. The last attempt that Spark makes is let through.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

from pyspark import TaskContext

from zambezi.spark import sink
from zambezi.spark.ledger import ChunkNote, Ledger, Task
from zambezi.spark.options import SINK, Options
from zambezi.spark.source import ZepsDataSource
from zambezi.spark.task_connection import TaskConnection

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from zambezi.spark.columns import Numbers, RecordBatch

CHUNK = 50  # rows
PATIENCE = 60.0
# By partition: where its attempts die, one after the other.
MOMENTS = (
    ("within a row", "after a note", "before the end is noted"),
    ("before a note", "within a row", "after the end is noted"),
)


class FragileDataSource(ZepsDataSource):
    """The sink, with one more option: `place`, the directory where tasks say that they can be killed."""

    def __init__(self, options: dict[str, str]) -> None:
        self._place = options.get("place", "")
        super().__init__({name: value for name, value in options.items() if name.lower() != "place"})

    @classmethod
    def name(cls) -> str:
        return "zeps-fragile"

    def writer(self, schema: StructType, overwrite: bool) -> sink.BatchWriter:
        return _BatchWriter(self._place, 0, schema, Options(self.options, SINK), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> sink.StreamWriter:  # noqa: N802 - Spark's name
        return _StreamWriter(self._place, 1, schema, Options(self.options, SINK), overwrite)


class _Fragile(sink.BaseWriter):
    """The fragile part of both: tasks of one batch, the last."""

    def __init__(self, place: str, batch: int, schema: StructType, options: Options, overwrite: bool) -> None:
        super().__init__(schema, options, overwrite)
        self._place = place
        self._batch = batch

    def publish(self, batches: Iterator[RecordBatch], task: Task) -> sink.Published:
        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        moments = MOMENTS[task.partition] if task.batch == self._batch else ()
        with mock.patch.object(sink, "CHUNK_ROWS", CHUNK):
            if attempt >= len(moments):
                return super().publish(batches, task)
            with _fatal(moments[attempt], Path(self._place) / f"{task.partition} {moments[attempt]}"):
                super().publish(batches, task)
            raise AssertionError(f"{moments[attempt]!r} did not come")


class _BatchWriter(_Fragile, sink.BatchWriter):
    pass


class _StreamWriter(_Fragile, sink.StreamWriter):
    pass


@contextmanager
def _fatal(moment: str, told: Path) -> Iterator[None]:
    """Make a task wait at a moment until `Killer` kills its process."""
    send, begin, end = TaskConnection.send_encoded, Ledger.note_chunk, Ledger.note_end
    is_half_way = False

    def wait() -> None:
        fresh = told.with_suffix(".new")
        fresh.write_text(str(os.getpid()))
        fresh.rename(told)
        threading.Event().wait(PATIENCE)
        raise AssertionError("nobody killed this process")

    def half(line: TaskConnection, octets: bytes, starts: Numbers) -> None:
        if not is_half_way:
            send(line, octets, starts)
            return
        send(line, octets[: int(starts[len(starts) // 2]) + 3], starts)  # and three octets of the next row
        wait()

    def noted(ledger: Ledger, begun: ChunkNote) -> ChunkNote:
        nonlocal is_half_way
        is_half_way = begun.chunk > 0
        if is_half_way and moment == "before a note":
            wait()
        found = begin(ledger, begun)
        if is_half_way and moment == "after a note":
            wait()
        return found

    def ended(ledger: Ledger, rows: int) -> None:
        if moment == "after the end is noted":
            end(ledger, rows)
        wait()

    patches: dict[str, tuple[type, str, Callable[..., Any]]] = {
        "within a row": (TaskConnection, "send_encoded", half),
        "before the end is noted": (Ledger, "note_end", ended),
        "after the end is noted": (Ledger, "note_end", ended),
    }
    with mock.patch.object(Ledger, "note_chunk", noted):
        if moment not in patches:
            yield
            return
        owner, name, new = patches[moment]
        with mock.patch.object(owner, name, new):
            yield


class Killer:
    """Kills the processes that say that they wait for it, from a thread."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="killer", daemon=True)
        self.killed: dict[str, int] = {}  # processes, by partition and moment

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            for told in self._place.iterdir():
                if told.name not in self.killed and told.suffix != ".new":
                    self.killed[told.name] = int(told.read_text())
                    os.kill(self.killed[told.name], signal.SIGKILL)

    def __enter__(self) -> Self:
        self._place.mkdir()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(PATIENCE)
