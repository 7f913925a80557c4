"""The data directory: a directory for each stream, and a lock, so that only one process writes to it."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, TypeAlias
from uuid import UUID, uuid4

from zambezi.zeps.errors import JournalError, JournalFull
from zambezi.zeps.journal.file_cache import FileCache
from zambezi.zeps.journal.files import make_directory, make_private, open_file
from zambezi.zeps.journal.identity import (
    STREAM,
    DamagedIdentity,
    Identity,
    read_identity,
    sync_directory,
    write_cache_identity,
    write_identity,
)
from zambezi.zeps.journal.journal import Journal
from zambezi.zeps.journal.names import directory_of, name_of
from zambezi.zeps.journal.policy import Policy
from zambezi.zeps.journal.reserve import keep_reserve, with_reserve
from zambezi.zeps.journal.segment import LOG, Segment, found_names
from zambezi.zeps.journal.stored_policy import changed, merged, read_changes, write_changes

_log: Final = logging.getLogger("zambezi.zeps")

LOCK: Final = ".lock"
_NEW: Final = ".new-"
_DELETED: Final = ".deleted-"
_DEFAULT_POLICY: Final = Policy()
Fill: TypeAlias = Callable[[Journal], object]

_CLOSERS: Final = 16  # threads that sync journals when the store closes: a disk combines syncs that wait together


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
            self._prepare_directory()
        elif not self.path.is_dir():
            raise JournalError(f"{self.path} is no data directory: there is no such directory")

    def _prepare_directory(self) -> None:
        """Create the data directory if it is missing, lock it, and make it private."""
        try:
            if not self.path.is_dir():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                make_directory(self.path)
            self._lock = self._lock_directory()
        except OSError as error:
            raise JournalError(f"{error.filename or self.path} cannot be used: {error.strerror or error}") from error
        self._remove_leftovers()
        self.keep_reserve()
        exposed = make_private(self.path)
        if exposed:
            _log.info(
                "%s: other users could read %d files and directories; now only the user of this process can",
                self.path,
                exposed,
            )

    def _lock_directory(self) -> int:
        """Lock the data directory, write our process id into the lock file, and return its descriptor."""
        descriptor = open_file(self.path / LOCK, os.O_RDWR | os.O_CREAT)
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
        with suppress(OSError):  # a full disk: the lock holds without the number too
            with_reserve(self.path, partial(os.pwrite, descriptor, f"{os.getpid()}\n".encode(), 0))
        return descriptor

    def keep_reserve(self) -> bool:
        """Make the file that keeps room for an operator, if there is room; return whether it exists."""
        return keep_reserve(self.path)

    def _remove_leftovers(self) -> None:
        """Remove the directories of streams whose creation or deletion was interrupted by a crash."""
        for path in self.path.iterdir():
            if path.name.startswith((_NEW, _DELETED)):
                shutil.rmtree(path, ignore_errors=True)

    def names(self) -> list[str]:
        """Return the names of all streams, in order."""
        names = []
        self.problems = []
        try:
            paths = list(self.path.iterdir())
        except OSError as error:
            raise JournalError(f"{self.path} cannot be read: {error.strerror or error}") from error
        for path in paths:
            if path.name.startswith(".") or not path.is_dir():
                continue
            try:
                name = self._name_of(path)
            except JournalError as problem:
                if path.exists():  # if not, another process has just deleted it
                    self.problems.append(str(problem))
            else:
                names.append(name)
        if self.problems and not names and not self._write:
            self._check_is_ours(paths)
        return sorted(names)

    def _check_is_ours(self, paths: Iterable[Path]) -> None:
        """Raise one error for a directory that cannot be that of a broker, and not one for each path in it."""
        if not any((path / STREAM).exists() or found_names(path) for path in paths if path.is_dir()):
            raise JournalError(f"{self.path} is no data directory: none of its directories is a stream")

    def _name_of(self, path: Path) -> str:
        """Return the name of the stream in a directory, or raise `JournalError`."""
        try:
            name = read_identity(path).name
        except DamagedIdentity as problem:
            guessed = name_of(path.name)
            if guessed is None or not found_names(path):
                raise
            self.problems.append(str(problem))
            return guessed
        if directory_of(name) != path.name:
            raise JournalError(f"{path} says that it is stream {name!a}, which has another directory: move it away")
        return name

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
            settings, problem = _settings_of(directory)
            journal = Journal(directory, policy or changed(self.policy, settings), self._file_cache, write=self._write)
            journal.settings = settings
            journal.problems += problem
        except OSError as error:
            raise JournalError(
                f"stream {name!a} cannot be opened: {error.filename or directory}: {error.strerror or error}"
            ) from error
        if journal.name != name:
            journal.close()
            raise JournalError(f"{directory} should be stream {name!a}, but says that it is {journal.name!a}")
        self._journals[name] = journal
        return journal

    def open_current(self, name: str) -> Journal:
        """Return the journal of a stream that exists, in the present state of its files."""
        journal = self._journals.get(name)
        if journal is None or not journal.is_open:
            return self.open(name, create=False)
        journal.refresh()
        return journal

    def make(
        self,
        name: str,
        settings: Mapping[str, object] | None = None,
        fill: Fill | None = None,
        *,
        first: int = 1,
        incarnation: UUID | None = None,
    ) -> None:
        """Create a stream on the disk, with its own settings, unless it exists. Blocks; any thread may call it.

        It is empty, or `fill` appends messages before the stream gets its name. A stream that is restored begins with
        the sequence `first`, and has the incarnation that it had.
        """
        identity = Identity(name, incarnation or uuid4())

        def write(fresh: Path) -> None:
            Segment(str(fresh), first).create()
            if settings:
                write_changes(fresh, settings)
            write_identity(fresh, identity)

        self._make(name, write, lambda fresh: self._fill(fresh, settings or {}, fill) if fill is not None else None)

    def make_cache(self, name: str, settings: Mapping[str, object], first: int, incarnation: UUID) -> None:
        """Create the cache of a stream that a store has, unless it exists. Blocks; any thread may call it.

        Nothing is synced to the disk: a cache that a crash of the system leaves behind incomplete is made again.
        """

        def write(fresh: Path) -> None:
            write_cache_identity(fresh, Identity(name, incarnation))
            Segment(str(fresh), first).create()
            if settings:
                write_changes(fresh, settings)

        directory = self.path / directory_of(name)
        if directory.is_dir() and is_unfinished(directory):
            shutil.rmtree(directory, ignore_errors=True)
        self._make(name, write, lambda _: None, sync=False)

    def _make(
        self, name: str, write: Callable[[Path], None], fill: Callable[[Path], None], *, sync: bool = True
    ) -> None:
        directory = self.path / directory_of(name)
        try:
            if not directory.is_dir():
                fresh = self.path / f"{_NEW}{uuid4().hex}"
                try:
                    self._file_cache.with_descriptors(partial(_write_anew, fresh, write))
                    fill(fresh)
                    self._give_name(fresh, directory, sync=sync)
                except BaseException:
                    shutil.rmtree(fresh, ignore_errors=True)
                    raise
        except OSError as error:
            raise JournalError(f"stream {name!a} cannot be created: {directory}: {error.strerror or error}") from error

    def _fill(self, fresh: Path, settings: Mapping[str, object], fill: Fill) -> None:
        journal = Journal(fresh, changed(self.policy, settings), self._file_cache, write=True)
        try:
            fill(journal)
            journal.close()
        except JournalFull as error:
            raise JournalError(f"stream {journal.name!a} was not created: {self.path} has no room for it") from error
        finally:
            journal.abandon()

    def _give_name(self, fresh: Path, directory: Path, *, sync: bool) -> None:
        """Give the directory of a stream its name. If it is synced, it exists complete or not at all after a crash."""
        with self._making:
            if directory.is_dir():
                shutil.rmtree(fresh)  # another thread was faster
                return
            fresh.rename(directory)
            try:
                if sync:
                    sync_directory(self.path)
            except OSError:
                directory.rename(fresh)  # the disk may not have the name: the next attempt must not find it
                raise

    def edit(self, name: str, changes: Mapping[str, object]) -> None:
        """Change the own settings of an open stream, by a client's order; None takes the default again. Blocks."""
        journal = self._journals[name]
        settings = merged(journal.settings, changes)
        policy = changed(self.policy, settings)
        with_reserve(self.path, partial(write_changes, journal.directory, settings))
        journal.settings, journal.policy = settings, policy

    def truncate(self, name: str, last: int) -> None:
        """Remove all messages of an open stream after a sequence, by a client's order. Blocks."""
        self._journals[name].truncate(last)

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

    def opened(self, name: str) -> Journal | None:
        """Return the journal of a stream if it is open."""
        return self._journals.get(name)

    def journals(self) -> list[Journal]:
        """Return the journals that are open."""
        return list(self._journals.values())

    def close(self) -> None:
        """Close all journals, and unlock the directory."""
        problem = self._close_journals()
        self._journals.clear()
        self._file_cache.clear()
        if self._lock >= 0:
            with suppress(OSError):
                os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1
        if problem is not None:
            raise problem

    def _close_journals(self) -> JournalError | None:
        """Close all journals; return the error of one whose messages could not be synced to the disk."""
        dirty = [journal for journal in self._journals.values() if journal.is_dirty]
        problems = []
        if dirty:
            with ThreadPoolExecutor(min(_CLOSERS, len(dirty)), "zambezi-close") as pool:
                problems = [problem for problem in pool.map(_close, dirty) if problem is not None]
        for journal in self._journals.values():
            problem = _close(journal)
            problems += [problem] if problem is not None else []
        return problems[-1] if problems else None

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"


def is_unfinished(directory: Path) -> bool:
    """Return whether a crash of the system has left a directory behind that has no identity and no messages."""
    try:
        read_identity(directory)
    except DamagedIdentity:
        return not any((directory / f"{name}{LOG}").stat().st_size for name in found_names(directory))
    except JournalError:
        pass
    return False


def _write_anew(fresh: Path, write: Callable[[Path], None]) -> None:
    shutil.rmtree(fresh, ignore_errors=True)  # of an attempt before, for which no descriptor was left
    make_directory(fresh)
    write(fresh)


def _settings_of(directory: Path) -> tuple[dict[str, object], list[str]]:
    """Return the settings of a stream, and what is wrong with them: then it has none."""
    try:
        return read_changes(directory), []
    except JournalError as problem:
        return {}, [str(problem)]


def _close(journal: Journal) -> JournalError | None:
    try:
        journal.close()
    except JournalError as error:
        return error
    return None
