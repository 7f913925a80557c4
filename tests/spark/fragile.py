"""The sink, in a worker that waits to be killed: the format `zeps-fragile`.

An attempt of a task comes to its moment, writes the id of its process into a file, and goes no further. `Killer`, in
the process of the test, sees the file and kills that process: nothing is closed, no exception is raised, and what was
on its way to the broker stays half on its way. The last attempt that Spark makes is let through.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from unittest import mock

from pyspark import TaskContext

from zambezi.spark import sink
from zambezi.spark.options import SINK, Options
from zambezi.spark.source import ZepsDataSource
from zambezi.spark.task_connection import TaskConnection
from zambezi.spark.task_publisher import Task, TaskPublisher

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from zambezi.spark.columns import Numbers, RecordBatch

BATCH = 50  # rows that a task publishes at once
PATIENCE = 60.0
# By partition: where its attempts die, one after the other.
MOMENTS = (
    ("within a row", "after a mark", "before the end"),
    ("before a mark", "within a row", "after the end"),
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
        small = (batch.slice(start, BATCH) for batch in batches for start in range(0, batch.num_rows, BATCH))
        if attempt >= len(moments):
            return super().publish(small, task)
        with _fatal(moments[attempt], Path(self._place) / f"{task.partition} {moments[attempt]}"):
            super().publish(small, task)
        raise AssertionError(f"{moments[attempt]!r} did not come")


class _BatchWriter(_Fragile, sink.BatchWriter):
    pass


class _StreamWriter(_Fragile, sink.StreamWriter):
    pass


@contextmanager
def _fatal(moment: str, told: Path) -> Iterator[None]:
    """Make a task wait at a moment until `Killer` kills its process."""
    publish, finish = TaskConnection.publish, TaskPublisher.finish
    batches = 0

    def wait() -> None:
        fresh = told.with_suffix(".new")
        fresh.write_text(str(os.getpid()))
        fresh.rename(told)
        threading.Event().wait(PATIENCE)
        raise AssertionError("nobody killed this process")

    def published(line: TaskConnection, octets: memoryview, starts: Numbers, mark: bytes) -> None:
        nonlocal batches
        batches += 1
        if batches > 1 and moment == "before a mark":
            wait()
        elif batches > 1 and moment == "after a mark":
            publish(line, memoryview(b""), starts[:1], mark)
            wait()
        elif batches > 1 and moment == "within a row":
            publish(line, octets[: int(starts[len(starts) // 2]) + 3], starts, mark)  # and three bytes of the next row
            wait()
        publish(line, octets, starts, mark)

    def finished(publisher: TaskPublisher) -> None:
        if moment == "after the end":
            finish(publisher)
        if moment in ("before the end", "after the end"):
            wait()
        finish(publisher)

    with (
        mock.patch.object(TaskConnection, "publish", published),
        mock.patch.object(TaskPublisher, "finish", finished),
    ):
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
