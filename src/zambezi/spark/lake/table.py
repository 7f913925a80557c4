"""A Delta table that contains each batch exactly once, wherever a run is killed.

    ROOT/_delta_log/00000000000000000017.json     a commit: the files that it adds and removes
    ROOT/date=2026-11-15/9f3b....parquet          a file
    ROOT/_zambezi/state/18087936.json             how far the streams are read, after a batch

A batch takes three steps: executors write its files, the driver writes its state, and one commit adds the files to the
table and names the state. The commit is the only step that readers see. It names the state by an application
transaction of Delta: `zambezi` and a number. So the messages in the table and the positions in the streams change
together, and the next run goes on from there: on the same machine or on another one, with no checkpoint of Spark. A run
that is killed before its commit leaves files that no reader sees.

Two runs can be started by mistake. Delta refuses the commit of a run if another run has committed the same application
transaction since the first one has read the table. So the second commit fails with an error that names the other run.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from secrets import randbits
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from zambezi.spark.lake.place import Place
from zambezi.spark.lake.problems import InUse, TableError, explained
from zambezi.spark.lake.writing import DATE, AddedFile, is_data_file

OWN: Final = "_zambezi"  # readers of Delta and of Parquet ignore names that begin with an underscore
STATE: Final = f"{OWN}/state"
APP: Final = "zambezi"
COMPACTION: Final = "zambezi-compaction"
GROWING: Final = "each batch adds to this table"
REPLACED: Final = "each run replaces this table"
KEPT: Final = 10  # states before the present one; more than one only for people
_RANDOM_BITS: Final = 20  # of the number of a transaction; the others are the number of the batch
_CONFIGURATION: Final = {
    "delta.checkpointInterval": "50",  # commits between two summaries of the log
    "delta.logRetentionDuration": "interval 1 days",  # each commit lists the log; `vacuum` shortens it
    "delta.deletedFileRetentionDuration": "interval 7 days",
}
# To look for old commits after each commit would take longer than the commit itself, if there are thousands.
_HOOKS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)


@dataclass(frozen=True, slots=True)
class State:
    """The state of a table after a batch. Times are in microseconds since 1970."""

    batch: int
    offsets: Mapping[str, Any] = field(default_factory=dict)  # of the streams, as the source has them
    rows: int = 0
    late: int = 0
    files: int = 0
    octets: int = 0
    watermark: int = 0
    total: int = 0  # rows of all batches
    total_late: int = 0
    seconds: float = 0.0  # that the batch took
    read_up_to: float = 0.0  # all messages before this time (seconds since 1970) have been read; 0 if unknown
    fixed: Mapping[str, str] = field(default_factory=dict)  # settings that all rows have in common
    pattern: str = ""  # of the keys, if only some messages are read
    vacuumed: int = 0


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of the table, with the bounds of its columns if they are known."""

    path: str
    size: int
    date: str
    rows: int
    lowest: Mapping[str, Any]
    highest: Mapping[str, Any]


class LakeTable:
    """A Delta table that pipelines write. It shows the version that was current when it was opened or committed."""

    def __init__(self, place: Place, name: str) -> None:
        """Open a table. `name` is that of the pipeline; empty: a table of any pipeline."""
        self.place = place
        self._name = name
        self._table: Any = None
        self._number: int | None = None  # of the transaction after which this run adds its next batch
        self._state: State | None = None
        self._open()

    def _open(self) -> None:
        with explained(self.place.uri):
            try:
                self._table = DeltaTable(self.place.uri, storage_options=self.place.options or None)
            except TableNotFoundError as error:
                self._check_access(error)
                return
        self._check_owner()
        self._number = self._table.transaction_version(APP)
        self._state = None if self._number is None else self._read_state(self._number)

    def look(self) -> State | None:
        """Read the current version, and return the state after its last batch."""
        if not self.exists:
            self._open()
            return self._state
        self.refresh()
        number = self._table.transaction_version(APP)
        if number is not None and number != self._number:
            self._state, self._number = self._read_state(number), number
        return self._state

    def refresh(self) -> None:
        """Read the current version. The state stays that of the last batch that this run has seen or added."""
        with explained(self.place.uri):
            self._table.update_incremental()

    def _check_access(self, error: Exception) -> None:
        """Raise the error if the directory cannot be read: deltalake takes it for a missing one."""
        local = self.place.local
        if local is not None and local.exists() and not os.access(local, os.R_OK | os.X_OK):
            raise TableError(
                f"{self.place}: no permission to read or write there: change the rights, or choose another place"
            ) from error

    def _check_owner(self) -> None:
        found = self._table.metadata()
        if not (found.name or "").startswith("zambezi ") or (self._name and found.name != f"zambezi {self._name}"):
            raise TableError(
                f"{self.place} is a Delta table of something else ({found.name or 'without a name'}): choose another "
                "directory"
            )

    @property
    def exists(self) -> bool:
        return self._table is not None

    @property
    def pipeline(self) -> str:
        """The name of the pipeline that writes the table."""
        return str(self._table.metadata().name).removeprefix("zambezi ")

    @property
    def version(self) -> int:
        return int(self._table.version())

    @property
    def is_replaced(self) -> bool:
        """Whether each run replaces the whole table."""
        return self.exists and self._table.metadata().description == REPLACED

    @property
    def state(self) -> State | None:
        """The state after the last batch; None if there was none."""
        return self._state

    @property
    def schema(self) -> Any:
        """The schema of pyarrow, with the column `date`."""
        return pa.schema(self._table.schema().to_arrow())

    def _read_state(self, number: int) -> State:
        path = f"{STATE}/{number}.json"
        octets = self.place.read(path)
        if octets is None:
            raise TableError(
                f"{self.place}/{path} is missing, so nothing can be added to this table: it says how far the streams "
                "are read; copy it from where the table came from, or choose another directory"
            )
        return State(**json.loads(octets))

    def create(self, schema: Any, *, replaced: bool = False) -> None:
        """Make the table if it does not exist. `schema` is one of pyarrow."""
        if self.exists:
            return
        with explained(self.place.uri):
            DeltaTable.create(
                self.place.uri,
                schema,
                mode="ignore",
                partition_by=[DATE],
                name=f"zambezi {self._name}",
                description=REPLACED if replaced else GROWING,
                configuration=_CONFIGURATION,
                storage_options=self.place.options or None,
            )
        self._open()
        self._sync()

    def append(self, added: Iterable[AddedFile], state: State) -> None:
        """Add the files of a batch. Raise InUse if another run has added a batch meanwhile."""
        number = state.batch << _RANDOM_BITS | randbits(_RANDOM_BITS)
        self.place.write(f"{STATE}/{number}.json", json.dumps(asdict(state)).encode())
        try:
            if self._table.transaction_version(APP) != self._number:
                raise CommitFailedError
            self._commit([_add(one) for one in added], Transaction(APP, number))
        except CommitFailedError as error:
            self.refresh()
            if self._table.transaction_version(APP) != number:  # otherwise only the answer of the store was lost
                raise InUse(
                    f"{self.place}: {self._writer()} has added a batch meanwhile, so this run ends: let only one run "
                    "at a time write there"
                ) from error
        self._sync()
        self._number, self._state = number, state
        self._forget_states(number)

    def _writer(self) -> str:
        """Return who made the last commit."""
        last = self._table.history(1)
        return str(last[0].get(APP, "another program")) if last else "another program"

    def _forget_states(self, number: int) -> None:
        """Remove old states, and those of runs that were killed."""
        oldest = (number >> _RANDOM_BITS) - KEPT
        for name in self.place.names(STATE):
            one = name.removesuffix(".json")
            if one.isdigit() and int(one) >> _RANDOM_BITS < oldest:
                self.place.remove(f"{STATE}/{name}")

    def replace(self, added: Iterable[AddedFile]) -> None:
        """Replace all files of the table."""
        self._commit([_add(one) for one in added], None, mode="overwrite")
        self._sync()

    def exchange(self, old: Sequence[TableFile], new: Iterable[AddedFile]) -> bool:
        """Replace files by others that have the same rows. Return False if the table has changed meanwhile.

        It is the commit right after the version that was read, or none: so a file cannot be replaced twice.
        """
        now = int(time.time() * 1000)
        actions = [RemoveAction(one.path, False, now, one.size, {DATE: one.date or None}) for one in old]
        try:
            self._commit(
                [*actions, *(_add(one, is_new=False) for one in new)],
                Transaction(COMPACTION, self.version + 1),
                max_commit_retries=0,
            )
        except CommitFailedError:
            self.refresh()
            return False
        self._sync()
        return True

    def _commit(
        self,
        actions: list[Any],
        transaction: Any,
        *,
        mode: str = "append",
        max_commit_retries: int | None = None,
    ) -> None:
        properties = CommitProperties(
            custom_metadata={APP: f"process {os.getpid()} on {socket.gethostname()}"},
            max_commit_retries=max_commit_retries,
            app_transactions=[transaction] if transaction is not None else None,
        )
        try:
            with explained(self.place.uri):
                self._table.create_write_transaction(
                    actions,
                    mode,
                    self._table.schema(),
                    [DATE],
                    commit_properties=properties,
                    post_commithook_properties=_HOOKS,
                )
                self._table.update_incremental()
        except TableError as error:
            if isinstance(error.__cause__, CommitFailedError):
                raise error.__cause__ from None
            raise

    def _sync(self) -> None:
        """Wait until the last commit is on disk."""
        self.place.sync(f"_delta_log/{self.version:020d}.json")

    def vacuum(self, hours: int) -> int:
        """Remove files that no version of the last hours has, and old commits. Return the number of files.

        Other files in the directory are not ours: Delta would remove every old file that it does not know.
        """
        with explained(self.place.uri):
            unknown = self._table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
            ours = {path for path in map(unquote, unknown) if is_data_file(path)}
            for path in ours:
                self.place.remove(path)
            self._table.cleanup_metadata()
            self._table.update_incremental()
        return len(ours)

    def files(self, dates: Collection[str] | None = None) -> list[TableFile]:
        """Return the files of the table: those of some dates, or all."""
        if not self.exists:
            return []
        listed = pa.table(self._table.get_add_actions(flatten=True))
        if dates is not None:
            days = pa.array([one or None for one in dates], pa.string()).cast(pa.date32())
            listed = listed.filter(pc.is_in(listed.column(f"partition.{DATE}"), days))
        found = listed.to_pylist()
        return [
            TableFile(
                one["path"],
                one["size_bytes"],
                str(one[f"partition.{DATE}"] or ""),
                one["num_records"] or 0,
                {name.removeprefix("min."): value for name, value in one.items() if name.startswith("min.")},
                {name.removeprefix("max."): value for name, value in one.items() if name.startswith("max.")},
            )
            for one in found
        ]


def _add(one: AddedFile, *, is_new: bool = True) -> AddAction:
    return AddAction(one.path, one.size, {DATE: one.date or None}, int(time.time() * 1000), is_new, one.stats)
