"""Parquet that holds each batch once, cut off wherever it may be."""

from __future__ import annotations

import contextlib
import glob
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from zambezi.spark.pipelines.deposit import ONCE, Deposit, DepositError, Done, Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class CutOff(Exception):
    """Somebody pulled the plug."""


def frame(spark: SparkSession, first: int, last: int) -> DataFrame:
    rows = [(number, f"s{number % 2}") for number in range(first, last + 1)]
    return spark.createDataFrame(rows, "sequence long, stream string").coalesce(1)


def seen(root: Path) -> Counter[int]:
    """What a program sees that reads all Parquet files there are, and knows nothing of us."""
    found: Counter[int] = Counter()
    for path in glob.glob(f"{root}/**/*.parquet", recursive=True):  # noqa: PTH207 - it does not look into .zambezi
        found.update(pq.ParquetFile(path).read().column("sequence").to_pylist())
    return found


def put(deposit: Deposit, data: DataFrame, batch: int, query: str = "q") -> None:
    """What a run does with a batch."""
    deposit.recover()
    last = deposit.claim(query)
    if last is None or batch > last.batch:
        deposit.put(deposit.stage(data, batch), Done(query, batch, rows=data.count()))


def test_batches_come_one_after_another(spark: SparkSession, tmp_path: Path) -> None:
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
def test_a_batch_that_was_cut_off_is_there_once_when_it_comes_again(
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


def test_what_is_another_querys_is_not_touched(spark: SparkSession, tmp_path: Path) -> None:
    deposit = Deposit(spark, str(tmp_path), ("stream",))
    put(deposit, frame(spark, 1, 2), 0)
    with pytest.raises(DepositError, match="is of another query, or its checkpoint is lost: choose another directory"):
        put(deposit, frame(spark, 1, 2), 0, "another")


@pytest.mark.parametrize("moves", range(5))
def test_a_table_that_is_written_as_a_whole_is_replaced(
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
    with pytest.raises(DepositError, match="was written as a whole"):
        deposit.claim("q")
