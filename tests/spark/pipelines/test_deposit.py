"""zambezi.spark.pipelines.deposit: each batch is in the table once, wherever a run is interrupted."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from tests.spark.journal import numbered, write
from tests.zmtp.waiting import wait_until
from zambezi.spark.errors import SparkError
from zambezi.spark.pipelines import PIPELINES, Run
from zambezi.spark.pipelines.deposit import ONCE, Deposit, DepositError, Done, Files
from zambezi.spark.pipelines.disk import InUse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class CutOff(Exception):
    """A simulated power failure."""


def frame(spark: SparkSession, first: int, last: int) -> DataFrame:
    rows = [(number, f"s{number % 2}") for number in range(first, last + 1)]
    return spark.createDataFrame(rows, "sequence long, stream string").coalesce(1)


def seen(root: Path) -> Counter[int]:
    """Return the sequences in all Parquet files, as a program that knows nothing of the table sees them."""
    found: Counter[int] = Counter()
    for path in glob.glob(f"{root}/**/*.parquet", recursive=True):  # noqa: PTH207 - it does not look into .zambezi
        found.update(pq.ParquetFile(path).read().column("sequence").to_pylist())
    return found


def put(deposit: Deposit, data: DataFrame | Small, batch: int, query: str = "q") -> None:
    """Add a batch in the same steps as a run."""
    deposit.recover()
    last = deposit.claim(query)
    if last is None or batch > last.batch:
        deposit.put(deposit.stage(cast("DataFrame", data), batch), Done(query, batch, rows=data.count()))


def test_batches_are_added_one_after_another(spark: SparkSession, tmp_path: Path) -> None:
    deposit = Deposit(spark, str(tmp_path), ("stream",))
    assert deposit.last() is None
    put(deposit, frame(spark, 1, 4), 0)
    put(deposit, frame(spark, 5, 6), 1)
    put(deposit, frame(spark, 5, 6), 1)  # Spark repeats what it does not know to be done
    assert deposit.last() == Done("q", 1, rows=2)
    assert seen(tmp_path) == Counter(range(1, 7))
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*.parquet"))
    assert names == [f"stream=s{side}/batch-0000000{batch}-000{side}.parquet" for side in (0, 1) for batch in (0, 1)]
    assert spark.read.parquet(str(tmp_path)).count() == 6
    assert pq.ParquetDataset(tmp_path).read().num_rows == 6


def cut_off_after(moves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let so many files be moved, and no more."""
    left = moves
    move = Files.move

    def some(self: Files, start: tuple[str, ...], end: tuple[str, ...]) -> None:
        nonlocal left
        if left == 0:
            raise CutOff
        left -= 1
        move(self, start, end)

    monkeypatch.setattr(Files, "move", some)


@pytest.mark.parametrize("moves", range(5))
def test_a_repeated_batch_is_in_the_table_once_after_an_interruption(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    deposit = Deposit(spark, str(tmp_path), ("stream",))
    put(deposit, frame(spark, 1, 2), 0)
    cut_off_after(moves, monkeypatch)
    # The note of the moves, two files, the note that it is done: cut off before each of them, or after all.
    if moves < 4:
        with pytest.raises(CutOff):
            put(deposit, frame(spark, 3, 4), 1)
        assert max(seen(tmp_path).values()) == 1
    else:
        put(deposit, frame(spark, 3, 4), 1)
    monkeypatch.undo()
    put(Deposit(spark, str(tmp_path), ("stream",)), frame(spark, 3, 4), 1)
    assert seen(tmp_path) == Counter(range(1, 5))
    assert list((tmp_path / ".zambezi" / "staging").iterdir()) == []


def test_a_table_of_another_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    deposit = Deposit(spark, str(tmp_path), ("stream",))
    put(deposit, frame(spark, 1, 2), 0)
    with pytest.raises(
        DepositError, match="belongs to another query, or its checkpoint is lost: choose another directory"
    ):
        put(deposit, frame(spark, 1, 2), 0, "another")


@pytest.mark.parametrize("moves", range(5))
def test_a_run_over_all_messages_replaces_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    (tmp_path / "mine.txt").write_text("not yours")
    deposit = Deposit(spark, str(tmp_path), ("stream",))
    deposit.put(deposit.stage(frame(spark, 1, 6), 0), Done(ONCE, 0), alone=True)
    staged = deposit.stage(frame(spark, 1, 2), 1)
    cut_off_after(moves, monkeypatch)
    with contextlib.suppress(CutOff):
        deposit.put(staged, Done(ONCE, 1), alone=True)
    monkeypatch.undo()
    deposit.recover()
    assert seen(tmp_path) == Counter([1, 2] if moves else range(1, 7))
    assert (tmp_path / "mine.txt").exists()
    with pytest.raises(DepositError, match="was written by a run over all messages"):
        deposit.claim("q")


def test_a_missing_staged_file_raises(spark: SparkSession, tmp_path: Path) -> None:
    deposit = Deposit(spark, str(tmp_path), ("stream",))
    staged = deposit.stage(frame(spark, 1, 2), 0)
    (tmp_path / ".zambezi" / "staging" / staged[0][0]).unlink()
    told = r"is missing: remove its other files \(batch-00000000-\*.parquet\)"
    with pytest.raises(DepositError, match=told):
        deposit.put(staged, Done("q", 0))
    with pytest.raises(DepositError, match=told):
        deposit.recover()
    assert deposit.last() is None


def test_files_staged_by_a_dead_driver_are_not_moved(spark: SparkSession, tmp_path: Path) -> None:
    """Its Java goes on for a moment, with the same batch."""
    deposit = Deposit(spark, str(tmp_path), ("stream",))
    staged = deposit.stage(frame(spark, 1, 2), 0)
    Deposit(spark, str(tmp_path), ("stream",)).stage(frame(spark, 1, 2), 0)
    deposit.put(staged, Done("q", 0))
    assert seen(tmp_path) == Counter([1, 2])
    assert list((tmp_path / ".zambezi" / "staging").iterdir()) == []


# Two runs at once


def test_a_second_run_fails_and_names_the_first(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "data", "s", numbered(30))
    out, options = str(tmp_path / "out"), {"path": str(tmp_path / "data")}
    first, second = (Run(spark, PIPELINES["archive"], out, options) for _ in range(2))
    query = first.start(follow=True)
    try:
        wait_until(lambda: first.progress().rows == 30)
        for way in (second.catch_up, second.once, lambda: second.start(follow=True)):
            with pytest.raises(InUse, match=f"is being written to by process {os.getpid()} on .*: wait until"):
                way()
        second.stop()  # which holds nothing
        with pytest.raises(InUse):
            second.catch_up()
        assert query.isActive
    finally:
        first.stop()
    write(tmp_path / "data", "s", numbered(5))
    assert second.catch_up().rows == 5
    assert first.catch_up().rows == 30  # nothing but what it had
    assert seen(tmp_path / "out") == Counter(range(1, 36))


def test_a_run_that_failed_leaves_no_lock(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "data", "s", numbered(3))
    out = str(tmp_path / "out")
    absent = Run(spark, PIPELINES["archive"], out, {"path": str(tmp_path / "data"), "streams": "s,t"})
    with pytest.raises(SparkError, match="there is no stream 't'"):
        absent.once()
    wrong = Run(spark, PIPELINES["archive"], out, {"path": str(tmp_path / "data"), "maxMessagesPerTrigger": "few"})
    with pytest.raises(SparkError, match="option 'maxMessagesPerTrigger' is 'few'"):
        wrong.catch_up()
    assert Run(spark, PIPELINES["archive"], out, {"path": str(tmp_path / "data")}).catch_up().rows == 3


# Power fails


class Disk:
    """A disk that loses what it was not asked to keep.

    It knows which files were synced and are the same since, and which entries of directories were.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._real = os.fsync
        self._kept: dict[int, tuple[int, int]] = {}
        self._listed: dict[Path, set[str]] = {}
        self.syncs = 0
        self.left = -1  # so many until power fails
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, descriptor: int) -> None:
        if self.left == 0:
            raise CutOff
        self.left -= 1
        self.syncs += 1
        self._real(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self._listed[path] = set(os.listdir(path))  # noqa: PTH208
        else:
            self._kept[path.stat().st_ino] = _state(path)

    def keep(self) -> None:
        """Mark all present files and directories as synced."""
        for path in (self._root, *self._root.rglob("*")):
            if path.is_dir():
                self._listed[path] = set(os.listdir(path))  # noqa: PTH208
            else:
                self._kept[path.stat().st_ino] = _state(path)

    def is_kept(self, path: Path) -> bool:
        """Whether a file, its checksums and all its directories survive."""
        for one in (path, path.with_name(f".{path.name}.crc")):
            if one.exists() and self._kept.get(one.stat().st_ino) != _state(one):
                return False
        parents = [one for one in (path, *path.parents) if one.is_relative_to(self._root) and one != self._root]
        return all(one.name in self._listed.get(one.parent, ()) for one in parents)

    def fail(self) -> None:
        """The files that were not kept are empty, as they are on most disks."""
        for path in self._root.rglob("*"):
            if path.is_file() and self._kept.get(path.stat().st_ino) != _state(path):
                path.write_bytes(b"")


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


class Small:
    """The methods of a frame that a deposit uses, without Spark: a file for each of two streams."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    @property
    def write(self) -> Self:
        return self

    def partitionBy(self, _: str) -> Self:  # noqa: N802 - Spark's name
        return self

    def parquet(self, url: str) -> None:
        for number in self._numbers:
            place = Path(url.removeprefix("file:")) / f"stream=s{number % 2}"
            place.mkdir(parents=True)
            pq.write_table(pa.table({"sequence": [number]}), place / "part-00000.parquet")
            (place / ".part-00000.parquet.crc").write_bytes(b"crc")  # of no known kind, so nobody minds it

    def count(self) -> int:
        return len(self._numbers)


def test_a_power_failure_at_any_fsync_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Small(1, 2), Small(3, 4)
    fails = 0
    while True:
        root = tmp_path / str(fails)
        put(Deposit(spark, str(root), ("stream",)), one, 0)
        with monkeypatch.context() as patched:
            disk = Disk(root, patched)
            disk.keep()
            disk.left = fails
            with contextlib.suppress(CutOff):
                put(Deposit(spark, str(root), ("stream",)), two, 1)
            disk.fail()
        is_through = disk.left > 0
        assert max(seen(root).values()) == 1
        assert seen(root).keys() >= {1, 2}
        put(Deposit(spark, str(root), ("stream",)), two, 1)
        assert seen(root) == Counter(range(1, 5)), f"after {fails} times"
        if is_through:
            break
        fails += 1
    assert fails > 10  # files, checksums, notes and directories


def test_each_step_waits_until_the_step_before_is_on_disk(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data", "s", numbered(20))
    out = tmp_path / "out"
    disk = Disk(out, monkeypatch)
    move, steps = Files.move, []

    def careful(self: Files, start: tuple[str, ...], end: tuple[str, ...]) -> None:
        own = out / ".zambezi"
        source = out.joinpath(*start)
        steps.append(end[1] if end[0] == ".zambezi" else "visible")
        # What is moved, be it data or a note, has all its octets and its checksums on the disk.
        assert disk._kept[source.stat().st_ino] == _state(source)
        staged = [path for path in own.glob("staging/**/*.parquet") if "_temporary" not in path.parts]
        visible = list(out.glob("stream=*/date=*/*.parquet"))
        if steps[-1] == "moving":
            assert all(disk.is_kept(path) for path in staged)
            assert disk.is_kept(own / "checkpoint" / "metadata")
            assert disk.is_kept(own / "checkpoint" / "offsets" / Path(end[-1]).stem)
        elif steps[-1] == "visible":
            assert [disk.is_kept(path) for path in (own / "moving").glob("[0-9]*.json")] == [True]
            assert disk.is_kept(source)
        else:
            assert visible
            assert not staged
            assert all(disk.is_kept(path) for path in visible)
        move(self, start, end)

    monkeypatch.setattr(Files, "move", careful)
    options = {"path": str(tmp_path / "data"), "maxMessagesPerTrigger": "10"}
    assert Run(spark, PIPELINES["archive"], str(out), options).catch_up().batch == 1
    assert steps == ["moving", "visible", "done"] * 2
    assert all(disk.is_kept(path) for path in (out / ".zambezi" / "done").glob("[0-9]*.json"))
    assert ".zambezi" in disk._listed[out]
    assert disk._listed[tmp_path] >= {"out"}


def test_a_failed_fsync_stops_the_run_and_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data", "s", numbered(20))
    run = Run(spark, PIPELINES["archive"], str(tmp_path / "out"), {"path": str(tmp_path / "data")})

    def broken(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".parquet":
            raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken)
        with pytest.raises(SparkError, match="fsync failed, so its content may not be on disk: Input/output error"):
            run.catch_up()
    assert seen(tmp_path / "out") == Counter()
    assert run.catch_up().rows == 20
    assert seen(tmp_path / "out") == Counter(range(1, 21))
