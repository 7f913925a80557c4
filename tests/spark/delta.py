"""A reader of Delta tables that shares no code with the one that writes them: it replays the log of commits."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyarrow import fs

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


class DeltaReader:
    """The current version of a table, below a root in a file system of pyarrow."""

    def __init__(self, root: str, files: Any = None) -> None:
        self._files = files or fs.LocalFileSystem()
        self._root = root.rstrip("/")
        self.active: dict[str, dict[str, Any]] = {}  # the files, by path
        self.transactions: dict[str, int] = {}
        self.version = -1
        names = [one.base_name for one in self._files.get_file_info(fs.FileSelector(f"{self._root}/_delta_log"))]
        summaries = [int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))]
        if summaries:
            self.version = max(summaries)
            summary = self._log(f"{self.version:020d}.checkpoint.parquet")
            self._replay(pq.read_table(summary, filesystem=self._files).to_pylist())
        for name in sorted(names):
            found = _COMMIT.fullmatch(name)
            if found is not None and int(found[1]) > self.version:
                assert int(found[1]) == self.version + 1, f"version {self.version + 1} is missing"
                self.version += 1
                with self._files.open_input_stream(self._log(name)) as file:
                    self._replay([json.loads(line) for line in bytes(file.read()).splitlines()])

    def _log(self, name: str) -> str:
        return f"{self._root}/_delta_log/{name}"

    def _replay(self, actions: list[dict[str, Any]]) -> None:
        for action in actions:
            if action.get("remove"):
                self.active.pop(action["remove"]["path"], None)
        for action in actions:
            if action.get("add"):
                self.active[action["add"]["path"]] = action["add"]
            if action.get("txn"):
                self.transactions[action["txn"]["appId"]] = action["txn"]["version"]

    def table(self, *columns: str) -> Any:
        """Return columns of all rows; without a name, all columns."""
        names = list(columns) or None
        parts = [
            pq.read_table(f"{self._root}/{path}", filesystem=self._files, columns=names, partitioning=None)
            for path in self.active
        ]
        # A file may say that a column has no nulls, and another one not: the table's own schema counts.
        return pa.concat_tables(parts, promote_options="default") if parts else pa.table({name: [] for name in columns})

    def sequences(self) -> dict[str, Counter[int]]:
        """Return how often the table has each sequence, by stream."""
        return count(self.table("stream", "sequence"))


def count(table: Any) -> dict[str, Counter[int]]:
    """Return how often a table has each sequence, by stream."""
    found: dict[str, Counter[int]] = {}
    rows = zip(table.column("stream").to_pylist(), table.column("sequence").to_pylist(), strict=True)
    for stream, sequence in rows:
        found.setdefault(stream, Counter())[sequence] += 1
    return found
