"""Parquet that holds each batch once, whoever reads it and whatever was killed.

Spark's own file sink writes where readers look, and keeps a list of the files that count. Readers that know the list
see each row once; a plain glob, or another program, also sees what attempts that were killed have left. Here a file
appears where readers look only when its batch is complete, under a name that only its batch can have:

    ROOT/stream=readings/date=2026-11-15/batch-00000017-0000.parquet     what readers see
    ROOT/.zambezi/staging/17-5f3a09c1/...                                a batch that is being written
    ROOT/.zambezi/moving/17.json                                         a batch that is complete, and is being moved
    ROOT/.zambezi/done/17.json                                           a batch that is there

A batch is staged; its moves are written down; the files are moved, one by one, each by a rename; it is noted as done.
If that is cut off before the moves are written down, nothing is to be seen of it, and the batch is staged anew when it
comes again. After that, the moves are taken up where they ended: what was staged is not computed again. So at any time
a row is to be seen at most once, rows that were to be seen never vanish, and when a batch is done all its rows are
there. That the same batch comes again with the same number is Spark's promise to `foreachBatch`.

Power may fail, too. Each step waits until the disk has the one before it: what is staged, and what Spark has written
down of the batch in its checkpoint, before the moves are noted; the moves before the batch is noted as done.

And two runs may be started by mistake. A run holds a lock from its beginning to its end, and a second one is told who
does. A driver that was killed leaves its Java behind for a moment, which may still be staging: so each attempt stages
in a directory of its own, and what another one leaves is never moved.

It needs a file system that renames: any local or network disk, HDFS. Object stores copy instead: a copy that is cut off
leaves no file, so it should hold there too, at a price; nobody has tried. All is done through Hadoop's file systems, by
the driver. The lock, and waiting for the disk, are for paths that the driver's machine has mounted: elsewhere it is for
the user to start one run at a time, and for the file system to keep what was closed.
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

OWN: Final = ".zambezi"  # readers leave out what begins with a dot
KEPT: Final = 100  # notes of batches that are done
CHECKPOINT: Final = "checkpoint"
STAGING: Final = "staging"
MOVING: Final = "moving"
DONE: Final = "done"
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
        whole = self._system.makeQualified(given)
        self.root = str(whole.toString()).rstrip("/")
        # Where it is for Python, if it is on a disk of this machine.
        self.local = Path(whole.toUri().getPath()) if self._system.getScheme() == "file" else None

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
        """Write a file as a whole: it is there with all its octets, or not at all; and it stays."""
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
        """Wait until the disk has a file, and the checksums that Hadoop keeps beside it."""
        if self.local is None:
            return
        path = self.local.joinpath(*parts)
        checksums = path.with_name(f".{path.name}.crc")
        for one in (path, checksums):
            if one.exists():
                sync(one)

    def sync_directories(self, directories: Iterable[tuple[str, ...]]) -> None:
        """Wait until the disk knows what is in directories, and that they are there."""
        if self.local is None:
            return
        every = {parts[:depth] for parts in directories for depth in range(len(parts) + 1)}
        for parts in sorted(every, key=len, reverse=True):
            sync(self.local.joinpath(*parts))


class Deposit:
    """A table in Parquet that grows batch by batch."""

    def __init__(self, spark: SparkSession, root: str, directories: tuple[str, ...]) -> None:
        self._spark = spark
        self._directories = directories
        self._files = Files(spark, root)
        self.root = self._files.root
        self.checkpoint = f"{self.root}/{OWN}/{CHECKPOINT}"
        self._lock = Lock(self._files.local, OWN) if self._files.local is not None else None

    def hold(self) -> None:
        """Let nobody else write here until `release()`, or the end of this process; InUse, if somebody does."""
        if self._lock is not None:
            self._lock.take()

    def release(self) -> None:
        """Let others write here."""
        if self._lock is not None:
            self._lock.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it for a while."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    def last(self) -> Done | None:
        """The newest batch that is there."""
        numbers = [int(name.removesuffix(".json")) for name in self._files.names(OWN, DONE) if name[0].isdigit()]
        if not numbers:
            return None
        return Done(**json.loads(self._files.read(OWN, DONE, f"{max(numbers)}.json")))

    def claim(self, query: str) -> Done | None:
        """The newest batch, if this table is the query's own; DepositError, if it is another's."""
        last = self.last()
        if last is not None and last.query != query:
            other = "was written as a whole" if last.query == ONCE else "is of another query, or its checkpoint is lost"
            raise DepositError(f"{self.root} {other}: choose another directory, or remove this one to begin anew")
        return last

    def recover(self) -> None:
        """Take up moves that were cut off."""
        for name in self._files.names(OWN, MOVING):
            if name[0].isdigit():
                self._move(int(name.removesuffix(".json")))

    def stage(self, frame: DataFrame, batch: int) -> list[tuple[str, int]]:
        """Write a batch where nobody looks. The files that it has, by their path there, and their sizes."""
        place = f"{batch}-{uuid4().hex[:8]}"
        frame.write.partitionBy(*self._directories).parquet(f"{self.root}/{OWN}/{STAGING}/{place}")
        staged = sorted(
            (f"{place}/{path}", size)
            for path, size in self._files.files(OWN, STAGING, place)
            if path.endswith(".parquet")
        )
        for path, _ in staged:
            self._files.sync_file(OWN, STAGING, *path.split("/"))
        self._files.sync_directories({(OWN, STAGING, *path.split("/")[:-1]) for path, _ in staged})
        return staged

    def put(self, staged: list[tuple[str, int]], done: Done, *, alone: bool = False) -> None:
        """Make a staged batch one that is there; `alone`, instead of all others."""
        moves = [(path, _target(path, done.batch, number)) for number, (path, _) in enumerate(staged)]
        note = {"moves": moves, "done": asdict(done), "alone": alone}
        self._sync_checkpoint(done.batch)
        self._files.write(json.dumps(note).encode(), OWN, MOVING, f"{done.batch}.json")
        self._move(done.batch)

    def _sync_checkpoint(self, batch: int) -> None:
        """Have the disk keep what Spark has written down of a batch: once it is done it must not become another."""
        if not self.is_begun():
            return
        for parts in (("metadata",), ("offsets", str(batch)), ("commits", str(batch - 1))):
            self._files.sync_file(OWN, CHECKPOINT, *parts)
        there = [(OWN, CHECKPOINT, name) for name in ("offsets", "commits")]
        self._files.sync_directories([one for one in there if self._files.exists(*one)])

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
                    f"batch {batch} of {self.root} was complete, and {end} of it is gone: remove what there is of it "
                    f"(batch-{batch:08d}-*.parquet) and {OWN}/{MOVING}/{name}, and it is made again"
                )
            changed.add(target[:-1])
        self._files.sync_directories(changed)
        self._files.write(json.dumps(note["done"]).encode(), OWN, DONE, name)
        self._files.remove(OWN, MOVING, name)
        # If the note came back after a later batch, its moves would be made again, and a table written as a whole lost.
        self._files.sync_directories([(OWN, MOVING)])
        for left in self._files.names(OWN, STAGING):
            self._files.remove(OWN, STAGING, left)
        if batch >= KEPT:
            self._files.remove(OWN, DONE, f"{batch - KEPT}.json")

    def _remove_others(self, batch: int) -> set[tuple[str, ...]]:
        """Remove the files of other batches, and nothing else: a directory may be somebody's home by mistake.

        Where some were.
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
        """Whether a streaming query has been here."""
        return self._files.exists(OWN, CHECKPOINT)


def _target(path: str, batch: int, number: int) -> str:
    """Where a staged file goes.

    >>> _target("17-5f3a09c1/stream=readings/part-00000.snappy.parquet", 17, 3)
    'stream=readings/batch-00000017-0003.parquet'
    """
    _, *directories, _ = path.split("/")
    return "/".join((*directories, f"batch-{batch:08d}-{number:04d}.parquet"))
