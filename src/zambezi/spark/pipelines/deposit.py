"""A Parquet table that contains each batch exactly once, for every reader, even if runs are killed.

Spark's own file sink writes files into the directory that readers use, and keeps a list of the valid files. A reader
that knows the list sees each row once. A plain glob, or another program, also sees the files of killed attempts. Here a
file appears in the directory of readers only when its batch is complete, under a name that is unique to its batch:

    ROOT/stream=readings/date=2026-11-15/batch-00000017-0000.parquet     a file for readers
    ROOT/.zambezi/staging/17-5f3a09c1/...                                a batch that is being written
    ROOT/.zambezi/moving/17.json                                         a complete batch that is being moved
    ROOT/.zambezi/done/17.json                                           a finished batch

A batch takes four steps: its files are staged; a note lists the moves; the files are moved one by one, each by a
rename; a second note marks the batch as done. If the run is killed before the first note, readers see nothing of the
batch, and it is staged again when Spark repeats it. After the first note, the next run continues the moves, and does
not compute the batch again. So at any time readers see a row at most once, rows never disappear, and when a batch is
done readers see all its rows. Spark promises to `foreachBatch` that a repeated batch has the same rows and the same
number.

This also holds if the power fails. Each step waits until the results of the step before are on disk: the staged files,
and Spark's checkpoint of the batch, before the note of the moves; the moves before the note that the batch is done.

Two runs can be started by mistake. So a run holds a lock from its beginning to its end, and a second run fails with an
error that names the first. The Java process of a killed driver can live for a moment and still be staging: so each
attempt stages in its own directory, and files of another attempt are never moved.

The table needs a file system with atomic renames: any local or network disk, or HDFS. Object stores copy instead of
renaming. An interrupted copy leaves no file, so the guarantees should hold there too, but more slowly; this has not
been tested. The driver does all of this through Hadoop's file systems. The lock and the waits for the disk work only
for paths that are mounted on the driver's machine. Elsewhere the user must start one run at a time, and the file system
must keep closed files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from zambezi.spark.errors import SparkError
from zambezi.spark.pipelines.disk import Lock, sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OWN: Final = ".zambezi"  # readers ignore names that begin with a dot
KEPT: Final = 100  # notes of finished batches
CHECKPOINT: Final = "checkpoint"
STAGING: Final = "staging"
MOVING: Final = "moving"
DONE: Final = "done"
ONCE: Final = "once"  # in place of a query id: the table is replaced as a whole


class DepositError(SparkError):
    """An output directory that cannot be written to. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Done:
    """The note of a finished batch. `watermark` is in microseconds since 1970."""

    query: str
    batch: int
    rows: int = 0
    late: int = 0
    files: int = 0
    octets: int = 0
    watermark: int = 0
    total: int = 0  # rows of all batches
    window: float = 0.0  # seconds, if rows are sums by window


class Files:
    """A file system of Hadoop: local disks, HDFS and others, with the same calls."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        context: Any = spark.sparkContext
        self._path: Any = context._jvm.org.apache.hadoop.fs.Path
        configuration = context._jsc.hadoopConfiguration()
        relative = self._path(root)
        self._system = relative.getFileSystem(configuration)
        qualified = self._system.makeQualified(relative)
        self.root = str(qualified.toString()).rstrip("/")
        # The path for Python, if it is on a disk of this machine.
        self.local = Path(qualified.toUri().getPath()) if self._system.getScheme() == "file" else None

    def path(self, *parts: str) -> Any:
        return self._path("/".join((self.root, *parts)))

    def exists(self, *parts: str) -> bool:
        return bool(self._system.exists(self.path(*parts)))

    def names(self, *parts: str) -> list[str]:
        """Return the names in a directory; none if it does not exist."""
        if not self.exists(*parts):
            return []
        return sorted(str(one.getPath().getName()) for one in self._system.listStatus(self.path(*parts)))

    def files(self, *parts: str) -> Iterator[tuple[str, int]]:
        """Yield the relative path and the size of all files below a directory."""
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
        """Write a file atomically: readers see the whole file or none. It is on disk when this returns."""
        fresh = (*parts[:-1], f".{parts[-1]}.new")
        stream = self._system.create(self.path(*fresh), True)
        try:
            stream.write(bytearray(octets))
        finally:
            stream.close()
        self.sync_file(*fresh)
        self.remove(*parts)
        self.move(fresh, parts)
        self.sync_directories([parts[:-1]])

    def move(self, start: tuple[str, ...], end: tuple[str, ...]) -> None:
        if len(end) > 1:
            self._system.mkdirs(self.path(*end[:-1]))
        if not self._system.rename(self.path(*start), self.path(*end)):
            raise DepositError(f"{'/'.join(start)} could not be moved to {'/'.join(end)} in {self.root}")

    def remove(self, *parts: str) -> None:
        self._system.delete(self.path(*parts), True)

    def sync_file(self, *parts: str) -> None:
        """Wait until a file, and the checksums that Hadoop keeps beside it, are on disk."""
        if self.local is None:
            return
        path = self.local.joinpath(*parts)
        checksums = path.with_name(f".{path.name}.crc")
        for one in (path, checksums):
            if one.exists():
                sync(one)

    def sync_directories(self, directories: Iterable[tuple[str, ...]]) -> None:
        """Wait until directories and their parents are on disk, with the names in them."""
        if self.local is None:
            return
        every = {parts[:depth] for parts in directories for depth in range(len(parts) + 1)}
        for parts in sorted(every, key=len, reverse=True):
            sync(self.local.joinpath(*parts))


class Deposit:
    """A Parquet table that grows batch by batch."""

    def __init__(self, spark: SparkSession, root: str, directories: tuple[str, ...]) -> None:
        self._spark = spark
        self._directories = directories
        self._files = Files(spark, root)
        self.root = self._files.root
        self.checkpoint = f"{self.root}/{OWN}/{CHECKPOINT}"
        self._lock = Lock(self._files.local, OWN) if self._files.local is not None else None

    def hold(self) -> None:
        """Lock the directory until `release()` or the end of this process. Raise InUse if another run has locked it."""
        if self._lock is not None:
            self._lock.take()

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock during a `with` block."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    def last(self) -> Done | None:
        """Return the note of the last finished batch; None if there is none."""
        numbers = [int(name.removesuffix(".json")) for name in self._files.names(OWN, DONE) if name[0].isdigit()]
        if not numbers:
            return None
        return Done(**json.loads(self._files.read(OWN, DONE, f"{max(numbers)}.json")))

    def claim(self, query: str) -> Done | None:
        """Return the last finished batch. Raise DepositError if the table belongs to another query."""
        last = self.last()
        if last is not None and last.query != query:
            problem = (
                "was written by a run over all messages"
                if last.query == ONCE
                else "belongs to another query, or its checkpoint is lost"
            )
            raise DepositError(f"{self.root} {problem}: choose another directory, or remove this one to start again")
        return last

    def recover(self) -> None:
        """Finish moves that were interrupted."""
        for name in self._files.names(OWN, MOVING):
            if name[0].isdigit():
                self._move(int(name.removesuffix(".json")))

    def stage(self, frame: DataFrame, batch: int) -> list[tuple[str, int]]:
        """Write a batch to the staging directory. Return the path there and the size of each file."""
        directory = f"{batch}-{uuid4().hex[:8]}"
        frame.write.partitionBy(*self._directories).parquet(f"{self.root}/{OWN}/{STAGING}/{directory}")
        staged = sorted(
            (f"{directory}/{path}", size)
            for path, size in self._files.files(OWN, STAGING, directory)
            if path.endswith(".parquet")
        )
        for path, _ in staged:
            self._files.sync_file(OWN, STAGING, *path.split("/"))
        self._files.sync_directories({(OWN, STAGING, *path.split("/")[:-1]) for path, _ in staged})
        return staged

    def put(self, staged: list[tuple[str, int]], done: Done, *, alone: bool = False) -> None:
        """Move a staged batch into the table. With `alone`, it replaces all other batches."""
        moves = [(path, _target(path, done.batch, number)) for number, (path, _) in enumerate(staged)]
        note = {"moves": moves, "done": asdict(done), "alone": alone}
        self._sync_checkpoint(done.batch)
        self._files.write(json.dumps(note).encode(), OWN, MOVING, f"{done.batch}.json")
        self._move(done.batch)

    def _sync_checkpoint(self, batch: int) -> None:
        """Wait until Spark's checkpoint of a batch is on disk: a finished batch must not get other rows later."""
        if not self.is_begun():
            return
        for parts in (("metadata",), ("offsets", str(batch)), ("commits", str(batch - 1))):
            self._files.sync_file(OWN, CHECKPOINT, *parts)
        directories = [(OWN, CHECKPOINT, name) for name in ("offsets", "commits")]
        self._files.sync_directories([one for one in directories if self._files.exists(*one)])

    def _move(self, batch: int) -> None:
        name = f"{batch}.json"
        note = json.loads(self._files.read(OWN, MOVING, name))
        changed = self._remove_others(batch) if note["alone"] else set()
        for start, end in note["moves"]:
            source, target = (OWN, STAGING, *start.split("/")), tuple(end.split("/"))
            if self._files.exists(*source):
                self._files.move(source, target)
            elif not self._files.exists(*target):
                raise DepositError(
                    f"batch {batch} of {self.root} was complete, but its file {end} is missing: remove its other files "
                    f"(batch-{batch:08d}-*.parquet) and {OWN}/{MOVING}/{name}, and the batch is computed again"
                )
            changed.add(target[:-1])
        self._files.sync_directories(changed)
        self._files.write(json.dumps(note["done"]).encode(), OWN, DONE, name)
        self._files.remove(OWN, MOVING, name)
        # If a crash brought this note back after a later batch, its moves would be repeated, and a replaced table lost.
        self._files.sync_directories([(OWN, MOVING)])
        for left in self._files.names(OWN, STAGING):
            self._files.remove(OWN, STAGING, left)
        if batch >= KEPT:
            self._files.remove(OWN, DONE, f"{batch - KEPT}.json")

    def _remove_others(self, batch: int) -> set[tuple[str, ...]]:
        """Remove the files of other batches, and return their directories.

        Other files stay: the user may have named a home directory by mistake.
        """
        changed = set()
        for path, _ in list(self._files.files()):
            parts = tuple(path.split("/"))
            is_ours = parts[-1].startswith("batch-") and not parts[-1].startswith(f"batch-{batch:08d}-")
            if is_ours and parts[0] != OWN:
                self._files.remove(*parts)
                changed.add(parts[:-1])
        return changed

    def is_begun(self) -> bool:
        """Return whether a streaming query has begun to write to this table."""
        return self._files.exists(OWN, CHECKPOINT)


def _target(path: str, batch: int, number: int) -> str:
    """Return the path of a staged file in the table.

    >>> _target("17-5f3a09c1/stream=readings/part-00000.snappy.parquet", 17, 3)
    'stream=readings/batch-00000017-0003.parquet'
    """
    _, *directories, _ = path.split("/")
    return "/".join((*directories, f"batch-{batch:08d}-{number:04d}.parquet"))
