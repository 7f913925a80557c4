"""zambezi.spark.lake.table: each batch is in the table once, wherever a run is interrupted, and whoever reads it."""

from __future__ import annotations

import os
import socket
from collections import Counter
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from tests.spark.delta import DeltaReader, count
from tests.spark.lake.tables import DAY, add, opened, rows
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.problems import InUse, TableError
from zambezi.spark.lake.table import APP, KEPT, OWN, LakeTable, State
from zambezi.spark.lake.writing import write_files


def seen(root: Path) -> dict[str, Counter[int]]:
    """The sequences in a table, of which deltalake and a replay of the log say the same."""
    found = count(DeltaTable(root).to_pyarrow_table(columns=["stream", "sequence"]))
    assert DeltaReader(str(root)).sequences() == found
    return found


def test_batches_are_added_one_after_another(tmp_path: Path) -> None:
    table = opened(tmp_path)
    assert table.state is None
    add(table, "a", [1, 2], offsets={"a": {"sequence": 2}})
    last = add(table, "a", [3], offsets={"a": {"sequence": 3}}, watermark=7)
    assert seen(tmp_path) == {"a": Counter([1, 2, 3])}
    again = LakeTable(Place(str(tmp_path)), "archive")
    assert again.state == last == State(1, {"a": {"sequence": 3}}, rows=1, watermark=7)
    (first, second) = sorted(again.files(), key=lambda one: one.rows)
    assert (first.lowest["sequence"], second.highest["sequence"], second.lowest["stream"]) == (3, 2, "a")
    assert (first.date, first.rows) == ("2026-01-01", 1)


def test_a_batch_without_rows_moves_the_positions(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.append([], State(0, {"a": {"sequence": 9}}))
    again = LakeTable(Place(str(tmp_path)), "archive").state
    assert again is not None
    assert again.offsets == {"a": {"sequence": 9}}


@pytest.mark.parametrize("step", ["files", "state", "commit"])
def test_an_interrupted_batch_is_repeated_and_in_the_table_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    add(opened(tmp_path), "a", [1, 2])
    table = opened(tmp_path)
    assert table.state is not None
    added = write_files(table.place, [rows("a", [3, 4])])
    if step == "state":
        table.place.write(f"{OWN}/state/{1 << 20}.json", b"{}")
    if step == "commit":  # it was made, and the run did not notice

        def killed(_: LakeTable) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(LakeTable, "_sync", killed)
        with pytest.raises(KeyboardInterrupt):
            table.append(added, State(1))
        monkeypatch.undo()
    table = opened(tmp_path)
    assert table.state is not None
    if table.state.batch == 0:
        add(table, "a", [3, 4])
    assert seen(tmp_path) == {"a": Counter([1, 2, 3, 4])}


def test_of_two_runs_only_one_adds_a_batch(tmp_path: Path) -> None:
    add(opened(tmp_path), "a", [1])
    one, other = opened(tmp_path), opened(tmp_path)
    add(one, "a", [2])
    who = f"process {os.getpid()} on {socket.gethostname()} has added a batch meanwhile, so this run ends"
    for _ in range(2):
        with pytest.raises(InUse, match=who):
            add(other, "a", [2])
        other.refresh()  # even if it has seen the other batch: its own rows are still old
    add(one, "a", [3])
    assert seen(tmp_path) == {"a": Counter([1, 2, 3])}


def test_of_two_first_runs_only_one_adds_a_batch(tmp_path: Path) -> None:
    one, other = (LakeTable(Place(str(tmp_path)), "archive") for _ in range(2))
    one.create(rows("a", []).schema)
    other.create(rows("a", []).schema)
    add(one, "a", [1])
    with pytest.raises(InUse):
        add(other, "a", [1])
    assert seen(tmp_path) == {"a": Counter([1])}


def test_a_commit_whose_answer_was_lost_is_a_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(tmp_path)
    commit = LakeTable._commit

    def forgetful(self: LakeTable, *arguments: object, **others: object) -> None:
        commit(self, *arguments, **others)  # type: ignore[arg-type]
        raise CommitFailedError

    monkeypatch.setattr(LakeTable, "_commit", forgetful)
    add(table, "a", [1])
    assert seen(tmp_path) == {"a": Counter([1])}


def test_old_states_are_removed(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for number in range(1, KEPT + 4):
        add(table, "a", [number])
    states = [path.stem for path in (tmp_path / OWN / "state").iterdir()]
    assert len(states) == KEPT + 1
    assert str(DeltaReader(str(tmp_path)).transactions[APP]) in states


def test_a_table_whose_state_is_missing_is_refused(tmp_path: Path) -> None:
    add(opened(tmp_path), "a", [1])
    for path in (tmp_path / OWN / "state").iterdir():
        path.unlink()
    with pytest.raises(TableError, match=r"state/\d+.json is missing, so nothing can be added to this table"):
        opened(tmp_path)


def test_tables_of_others_are_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "theirs", pa.table({"a": [1]}))
    with pytest.raises(TableError, match=r"is a Delta table of something else \(without a name\): choose another"):
        opened(tmp_path / "theirs")
    opened(tmp_path / "ours", name="traffic")
    with pytest.raises(TableError, match=r"\(zambezi traffic\)"):
        opened(tmp_path / "ours", name="archive")


def test_a_replaced_table(tmp_path: Path) -> None:
    table = LakeTable(Place(str(tmp_path)), "traffic")
    table.create(rows("a", []).schema, replaced=True)
    for sequences in ([1, 2, 3], [7]):
        table.replace(write_files(table.place, [rows("a", sequences)]))
        assert seen(tmp_path) == {"a": Counter(sequences)}
    table.replace([])
    assert seen(tmp_path) == {}
    assert LakeTable(Place(str(tmp_path)), "traffic").is_replaced


def test_a_commit_that_a_power_failure_emptied_is_no_batch(tmp_path: Path) -> None:
    add(opened(tmp_path), "a", [1, 2])
    (tmp_path / "_delta_log" / f"{opened(tmp_path).version + 1:020d}.json").write_bytes(b"")
    table = opened(tmp_path)
    assert table.state is not None
    assert table.state.batch == 0
    add(table, "a", [3])
    assert seen(tmp_path) == {"a": Counter([1, 2, 3])}


def test_everything_is_on_disk_before_the_commit_and_the_commit_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(tmp_path)
    synced: list[Path] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    commit = LakeTable._commit

    def careful(self: LakeTable, *arguments: object, **others: object) -> None:
        for path in (*tmp_path.glob("date=*/*.parquet"), *tmp_path.glob(f"{OWN}/state/*.json")):
            assert {path, path.parent} <= set(synced)
        synced.clear()
        commit(self, *arguments, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(LakeTable, "_commit", careful)
    add(table, "a", [1])
    assert {tmp_path / "_delta_log" / f"{table.version:020d}.json", tmp_path / "_delta_log"} <= set(synced)


def test_rows_without_a_date(tmp_path: Path) -> None:
    table = opened(tmp_path)
    add(table, "a", [1], day=None)
    add(table, "a", [2], day=DAY)
    assert seen(tmp_path) == {"a": Counter([1, 2])}
    assert sorted(one.date for one in table.files()) == ["", "2026-01-01"]
    assert None in DeltaTable(tmp_path).to_pyarrow_table().column("date").to_pylist()
