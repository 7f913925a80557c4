"""Parquet that holds each batch once, whoever reads it and whatever was killed.

Spark's own file sink writes where readers look, and keeps a list of the files that count. Readers that know the list
see each row once; a plain glob, or another program, also sees what attempts that were killed have left. Here a file
appears where readers look only when its batch is complete, under a name that only its batch can have:

    ROOT/stream=readings/date=2026-11-15/batch-00000017-0000.parquet     what readers see
    ROOT/.zambezi/staging/17/...                                         a batch that is being written
    ROOT/.zambezi/moving/17.json                                         a batch that is complete, and is being moved
    ROOT/.zambezi/done/17.json                                           a batch that is there

A batch is staged; its moves are written down; the files are moved, one by one, each by a rename; it is noted as done.
If that is cut off before the moves are written down, nothing is to be seen of it, and the batch is staged anew when it
comes again. After that, the moves are taken up where they ended: what was staged is not computed again. So at any time
a row is to be seen at most once, rows that were to be seen never vanish, and when a batch is done all its rows are
there. That the same batch comes again with the same number is Spark's promise to `foreachBatch`.

It needs a file system that renames: any local or network disk, HDFS. Object stores copy instead: a copy that is cut off
leaves no file, so it should hold there too, at a price; nobody has tried. All is done through Hadoop's file systems, by
the driver, and one driver at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from zambezi.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OWN: Final = ".zambezi"  # readers leave out what begins with a dot
KEPT: Final = 100  # notes of batches that are done
ONCE: Final = "once"  # the query of a table that is written as a whole


class DepositError(SparkError):
    """A directory of results that cannot be written to; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Done:
    """What is noted of a batch that is there. `watermark` is in microseconds since 1970."""

    query: str
    batch: int
    rows: int = 0
    late: int = 0
    files: int = 0
    octets: int = 0
    watermark: int = 0
    total: int = 0  # rows of all batches
    window: float = 0.0  # seconds, where rows are sums by window


class Files:
    """A file system, as Hadoop has it: local, HDFS and others by the same calls."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        context: Any = spark.sparkContext
        self._path: Any = context._jvm.org.apache.hadoop.fs.Path
        configuration = context._jsc.hadoopConfiguration()
        given = self._path(root)
        self._system = given.getFileSystem(configuration)
        self.root = str(self._system.makeQualified(given).toString()).rstrip("/")

    def path(self, *parts: str) -> Any:
        return self._path("/".join((self.root, *parts)))

    def exists(self, *parts: str) -> bool:
        return bool(self._system.exists(self.path(*parts)))

    def names(self, *parts: str) -> list[str]:
        """What is in a directory; nothing, if there is none."""
        if not self.exists(*parts):
            return []
        return sorted(str(one.getPath().getName()) for one in self._system.listStatus(self.path(*parts)))

    def files(self, *parts: str) -> Iterator[tuple[str, int]]:
        """All files below a directory, by their path in it, and their sizes."""
        top = str(self.path(*parts).toUri().getPath()).rstrip("/") + "/"
        if not self.exists(*parts):
            return
        found = self._system.listFiles(self.path(*parts), True)
        while found.hasNext():
            one = found.next()
            yield str(one.getPath().toUri().getPath()).removeprefix(top), int(one.getLen())

    def read(self, *parts: str) -> bytes:
        stream = self._system.open(self.path(*parts))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, octets: bytes, *parts: str) -> None:
        """Write a file as a whole: it is there with all its octets, or not at all."""
        fresh = (*parts[:-1], f".{parts[-1]}.new")
        stream = self._system.create(self.path(*fresh), True)
        try:
            stream.write(bytearray(octets))
        finally:
            stream.close()
        self.remove(*parts)
        self.move(fresh, parts)

    def move(self, start: tuple[str, ...], end: tuple[str, ...]) -> None:
        if len(end) > 1:
            self._system.mkdirs(self.path(*end[:-1]))
        if not self._system.rename(self.path(*start), self.path(*end)):
            raise DepositError(f"{'/'.join(start)} could not be moved to {'/'.join(end)} in {self.root}")

    def remove(self, *parts: str) -> None:
        self._system.delete(self.path(*parts), True)


class Deposit:
    """A table in Parquet that grows batch by batch."""

    def __init__(self, spark: SparkSession, root: str, directories: tuple[str, ...]) -> None:
        self._spark = spark
        self._directories = directories
        self._files = Files(spark, root)
        self.root = self._files.root
        self.checkpoint = f"{self.root}/{OWN}/checkpoint"

    def last(self) -> Done | None:
        """The newest batch that is there."""
        numbers = [int(name.removesuffix(".json")) for name in self._files.names(OWN, "done") if name[0].isdigit()]
        if not numbers:
            return None
        return Done(**json.loads(self._files.read(OWN, "done", f"{max(numbers)}.json")))

    def claim(self, query: str) -> Done | None:
        """The newest batch, if this table is the query's own; DepositError, if it is another's."""
        last = self.last()
        if last is not None and last.query != query:
            other = "was written as a whole" if last.query == ONCE else "is of another query, or its checkpoint is lost"
            raise DepositError(f"{self.root} {other}: choose another directory, or remove this one to begin anew")
        return last

    def recover(self) -> None:
        """Take up moves that were cut off."""
        for name in self._files.names(OWN, "moving"):
            if name[0].isdigit():
                self._move(int(name.removesuffix(".json")))

    def stage(self, frame: DataFrame, batch: int) -> list[tuple[str, int]]:
        """Write a batch where nobody looks."""
        frame.write.mode("overwrite").partitionBy(*self._directories).parquet(f"{self.root}/{OWN}/staging/{batch}")
        found = self._files.files(OWN, "staging", str(batch))
        return sorted(one for one in found if one[0].endswith(".parquet"))

    def put(self, staged: list[tuple[str, int]], done: Done, *, alone: bool = False) -> None:
        """Make a staged batch one that is there; `alone`, instead of all others."""
        moves = [
            (path, str(PurePosixPath(path).parent / f"batch-{done.batch:08d}-{number:04d}.parquet"))
            for number, (path, _) in enumerate(staged)
        ]
        note = {"moves": moves, "done": asdict(done), "alone": alone}
        self._files.write(json.dumps(note).encode(), OWN, "moving", f"{done.batch}.json")
        self._move(done.batch)

    def _move(self, batch: int) -> None:
        name = f"{batch}.json"
        note = json.loads(self._files.read(OWN, "moving", name))
        if note["alone"]:
            self._remove_others(batch)
        for start, end in note["moves"]:
            source = (OWN, "staging", str(batch), *start.split("/"))
            if self._files.exists(*source):
                self._files.move(source, tuple(end.split("/")))
        self._files.write(json.dumps(note["done"]).encode(), OWN, "done", name)
        self._files.remove(OWN, "moving", name)
        self._files.remove(OWN, "staging", str(batch))
        if batch >= KEPT:
            self._files.remove(OWN, "done", f"{batch - KEPT}.json")

    def _remove_others(self, batch: int) -> None:
        """Remove the files of other batches, and nothing else: a directory may be somebody's home by mistake."""
        for path, _ in list(self._files.files()):
            name = path.rsplit("/", 1)[-1]
            is_ours = name.startswith("batch-") and not name.startswith(f"batch-{batch:08d}-")
            if is_ours and not path.startswith(f"{OWN}/"):
                self._files.remove(*path.split("/"))

    def is_begun(self) -> bool:
        """Whether a streaming query has been here."""
        return self._files.exists(OWN, "checkpoint")
