"""The data directory: a directory for each stream, and a lock, so that only one process writes to it."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final
from uuid import uuid4

from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.identity import DamagedIdentity, Identity, read_identity, sync_directory, write_identity
from zambezi.zeps.journal.journal import Journal
from zambezi.zeps.journal.names import directory_of, name_of
from zambezi.zeps.journal.policy import Policy
from zambezi.zeps.journal.segment import FileCache, Segment, first_sequences

LOCK: Final = "lock"
_NEW: Final = ".new-"
_DELETED: Final = ".deleted-"
_DEFAULT_POLICY: Final = Policy()


class Store:
    """The journals of all streams in a directory. With `write=False` it is not locked, and is read-only.

    >>> from tempfile import TemporaryDirectory
    >>> from zambezi.zeps.block import deliver
    >>> from zambezi.zeps.messages import Publish
    >>> with TemporaryDirectory() as directory, Store(directory) as store:
    ...     prices = store.open("prices")
    ...     prices.append(deliver([Publish("gold", b"2048").encode()[0]], first=1), now=1_700_000_000)
    ...     span = prices.reader(after=0).peek(65536)
    ...     span.read().keys
    [b'gold']
    """

    def __init__(self, path: str | os.PathLike[str], *, policy: Policy = _DEFAULT_POLICY, write: bool = True) -> None:
        self.path = Path(path)
        self.policy = policy
        self.problems: list[str] = []  # directories that are not valid streams
        self._write = write
        self._file_cache = FileCache()
        self._journals: dict[str, Journal] = {}
        self._making = threading.Lock()
        self._lock = -1
        if write:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = self._lock_directory()
            self._remove_leftovers()
        elif not self.path.is_dir():
            raise JournalError(f"{self.path} is no data directory: there is no such directory")

    def _lock_directory(self) -> int:
        """Lock the data directory, write our process id into the lock file, and return its descriptor."""
        descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise JournalError(f"{self.path} cannot be locked: {error.strerror or error}") from error
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise JournalError(
                f"the data directory {self.path} is in use by {who}: stop it, or use another directory"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return descriptor

    def _remove_leftovers(self) -> None:
        """Remove the directories of streams whose creation or deletion was interrupted by a crash."""
        for path in self.path.iterdir():
            if path.name.startswith((_NEW, _DELETED)):
                shutil.rmtree(path)

    def names(self) -> list[str]:
        """Return the names of all streams, in order."""
        names = []
        self.problems = []
        for path in self.path.iterdir():
            if path.name.startswith(".") or not path.is_dir():
                continue
            name: str | None
            try:
                name = read_identity(path).name
                if directory_of(name) != path.name:
                    raise JournalError(
                        f"{path} says that it is stream {name!a}, which has another directory: move it away"
                    )
            except JournalError as problem:
                if not path.exists():
                    continue  # another process has just deleted it
                self.problems.append(str(problem))
                name = name_of(path.name) if isinstance(problem, DamagedIdentity) and first_sequences(path) else None
            if name is not None:
                names.append(name)
        return sorted(names)

    def open(self, name: str, policy: Policy | None = None, create: bool = True) -> Journal:
        """Return the journal of a stream; create it if it is new, and repair it after a crash. (ZEP-12, ZEP-17)"""
        if self._write and self._lock < 0:
            raise JournalError(f"the data directory {self.path} is closed")
        journal = self._journals.get(name)
        if journal is not None and journal.is_open:
            if policy is not None:
                journal.policy = policy
            return journal
        directory = self.path / directory_of(name)
        try:
            if not directory.is_dir():
                if not create or not self._write:
                    raise JournalError(f"there is no stream {name!a} in {self.path}")
                self.make(name)
            journal = Journal(directory, policy or self.policy, self._file_cache, write=self._write)
        except OSError as error:
            raise JournalError(f"stream {name!a} cannot be opened: {directory}: {error.strerror or error}") from error
        if journal.name != name:
            journal.close()
            raise JournalError(f"{directory} should be stream {name!a}, but says that it is {journal.name!a}")
        self._journals[name] = journal
        return journal

    def make(self, name: str) -> None:
        """Create an empty stream on the disk, unless it exists. Blocks; any thread may call it."""
        directory = self.path / directory_of(name)
        try:
            with self._making:
                if not directory.is_dir():
                    self._make_directory(name, directory)
        except OSError as error:
            raise JournalError(f"stream {name!a} cannot be created: {directory}: {error.strerror or error}") from error

    def _make_directory(self, name: str, directory: Path) -> None:
        """Create the directory of a stream: after a crash it exists complete, or not at all."""
        fresh = self.path / f"{_NEW}{uuid4().hex}"
        fresh.mkdir()
        try:
            Segment(str(fresh), 1).create()
            write_identity(fresh, Identity(name, uuid4()))
            fresh.rename(directory)
            try:
                sync_directory(self.path)
            except OSError:
                directory.rename(fresh)  # the disk may not have the name: the next attempt must not find it
                raise
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def delete(self, name: str) -> None:
        """Delete a stream with all its messages. A new stream of the same name has another incarnation."""
        if not self._write or self._lock < 0:
            raise JournalError(f"the data directory {self.path} is not open for writing")
        directory = self.path / directory_of(name)
        if not directory.is_dir():
            raise JournalError(f"there is no stream {name!a} in {self.path}")
        journal = self._journals.pop(name, None)
        doomed = self.path / f"{_DELETED}{uuid4().hex}"
        directory.rename(doomed)
        sync_directory(self.path)
        if journal is not None:
            journal.abandon()
        shutil.rmtree(doomed)

    def close(self) -> None:
        """Close all journals, and unlock the directory."""
        problem: JournalError | None = None
        for journal in self._journals.values():
            try:
                journal.close()
            except JournalError as error:
                problem = error
        self._journals.clear()
        self._file_cache.clear()
        if self._lock >= 0:
            with suppress(OSError):
                os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1
        if problem is not None:
            raise problem

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"
