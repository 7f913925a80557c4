"""A real object store, by `obstore`: S3, Google's, Azure's and what speaks their languages; or a directory.

All calls block and are thread-safe; obstore releases the interpreter's lock meanwhile. obstore is imported when a store
is opened, so that a process without a store does not need it.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast
from urllib.parse import unquote, urlsplit

from zambezi.zeps.errors import StoreError, StoreFull, StoreSilent
from zambezi.zeps.histogram import Histogram
from zambezi.zeps.store.commands import (
    AT_ONCE,
    DONE,
    EXISTS,
    MISSING,
    Answer,
    Compute,
    Delete,
    Failed,
    Get,
    List,
    Names,
    Procedure,
    Put,
    Request,
    StoredObject,
    Together,
    Wait,
)
from zambezi.zeps.store.names import FORMAT_KEY
from zambezi.zeps.store.options import check_options
from zambezi.zeps.store.problems import as_failed, is_refusal, reason_of

if TYPE_CHECKING:
    from obstore.store import ObjectStore as RawStore

T = TypeVar("T")
_log: Final = logging.getLogger("zambezi.zeps")
SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "file")
_CLIENT_OPTIONS: Final = frozenset(
    {"allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_ca_certificate", "proxy_url", "timeout"}
)
_TIMEOUT: Final = "10s"  # of a request; the engines repeat it
_QUICK: Final = 0.003  # seconds for a request
_MOST_FAILING: Final = 1000  # requests
_FORGOTTEN: Final = 15.0  # seconds after which a request that failed counts as given up
PATIENCE: Final = 30.0  # seconds of failures, after which a blocking call gives up
FULL: Final = 1.0  # seconds after which it gives up if the store has no room


def is_store_url(text: str) -> bool:
    """Return whether a text is the URL of a store, and not a directory.

    >>> is_store_url("s3://bucket/prefix"), is_store_url("/var/lib/zambezi")
    (True, False)
    """
    return "://" in text


class ObjectStore:
    """A prefix of an object store, by its URL: `s3://bucket/prefix`, `gs://...`, `az://...`, or a directory.

    `options` are obstore's, such as `endpoint`, `region`, `access_key_id`, `allow_http`. Without them, the store's own
    environment variables count. With `create`, a directory that does not exist is made.
    """

    def __init__(self, url: str, options: Mapping[str, str] | None = None, *, create: bool = True) -> None:
        self.url = url
        self._failing: dict[str, tuple[str, float]] = {}  # the last reason of requests that failed, and when
        self._directory: Path | None = None
        self._full_at = -math.inf  # when a put found no room, unless another one has succeeded since then
        self._has_format = False  # whether a request has shown that the directory has a file with the format
        self._raw = self._open(url, dict(options or {}), create=create)
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self.puts = Histogram()  # how long each put took, also if it failed
        self._puts_lock = threading.Lock()
        self._synced: set[Path] = set()  # directories whose names are on the disk

    def _open(self, url: str, options: dict[str, str], *, create: bool) -> RawStore:
        try:
            from obstore.store import LocalStore, from_url  # noqa: PLC0415
        except ImportError:
            raise StoreError("an object store needs obstore: pip install 'zambezi[store]'") from None
        scheme = urlsplit(url).scheme if is_store_url(url) else "file"
        if scheme not in SCHEMES:
            raise StoreError(f"{url!r} is no store: it must be a directory, or begin with s3://, gs:// or az://")
        check_options(url, options)
        try:
            if scheme == "file":
                path = Path(unquote(urlsplit(url).path) if is_store_url(url) else url).absolute()
                if create:
                    path.mkdir(parents=True, exist_ok=True)
                elif not path.is_dir():
                    raise StoreError(f"{url} cannot be opened: there is no such directory")
                self._directory = path
                return LocalStore(path)
            if scheme in ("s3", "s3a"):
                options.setdefault("unsigned_payload", "true")  # objects have a CRC: a SHA-256 of each costs more
            client: dict[str, Any] = {"timeout": _TIMEOUT}
            client |= {name: options.pop(name) for name in list(options) if name in _CLIENT_OPTIONS}
            if "allow_http" in client:
                client["allow_http"] = str(client["allow_http"]).lower() == "true"
            retries = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}
            # The options come from a file: obstore checks their values.
            opened: RawStore = cast("Any", from_url)(url, config=options, client_options=client, retry_config=retries)
            return opened
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(f"{url} cannot be opened: {reason_of(error)}") from None
        except Exception as error:  # obstore's errors have no common base but this one
            if not type(error).__module__.startswith("obstore"):
                raise
            raise StoreError(f"{url} cannot be opened: {reason_of(error)}") from None

    def execute(self, request: Request) -> Answer:
        """Execute a request, and return the answer. An error of the store is an answer, too."""
        began = time.monotonic()
        answer = self._try(request)
        if isinstance(request, Put):
            with self._puts_lock:
                self.puts.add(time.monotonic() - began)
            if not isinstance(answer, Failed):
                self._full_at = -math.inf
        if isinstance(answer, Failed):
            if len(self._failing) >= _MOST_FAILING:
                self._failing.clear()
            self._failing[_name_of(request)] = answer.reason, time.monotonic()
            if answer.is_full:
                self._full_at = time.monotonic()
        elif self._failing:
            self._failing.pop(_name_of(request), None)
        return answer

    @property
    def problem(self) -> str:
        """Why a request has failed that has not succeeded since then. Engines repeat a request until it succeeds."""
        begun = time.monotonic() - _FORGOTTEN
        return next((reason for reason, at in list(self._failing.values()) if at >= begun), "")

    @property
    def is_full(self) -> bool:
        """Whether the store had no room a moment ago."""
        return time.monotonic() < self._full_at + FULL

    def silence(self, problem: Failed, failing: float, patience: float) -> StoreSilent | None:
        """Return the error of a blocking call that has failed for so many seconds; None if it must go on."""
        if problem.is_full and failing > min(patience, FULL):
            return StoreFull(f"{self.url} has no room: {problem.reason}")
        return StoreSilent(f"{self.url} does not answer: {problem.reason}") if failing > patience else None

    def _try(self, request: Request) -> Answer:
        if not (lost := self._lost()):
            answer = self._ask(request)
            lost = self._lost()
        if lost:
            return Failed(lost)
        if isinstance(request, Get) and request.key == FORMAT_KEY and isinstance(answer, bytes):
            self._has_format = True
        return answer

    def _lost(self) -> str:
        """Return why a directory is no longer the store: it was unmounted or moved away. Empty if it still is.

        Otherwise obstore would make the directories of a new object again, for example in the directory below the mount
        point, and all streams would seem to be empty.
        """
        if not self._has_format or self._directory is None or (self._directory / FORMAT_KEY).exists():
            return ""
        return f"{self._directory} has no {FORMAT_KEY} any more: was it unmounted, or moved?"

    def _ask(self, request: Request) -> Answer:
        try:
            return self._execute(request)
        except FileNotFoundError as error:
            return MISSING if isinstance(request, Get) and not is_refusal(error) else as_failed(error)
        except Exception as error:
            if type(error).__name__ == "AlreadyExistsError":
                return EXISTS
            if isinstance(error, OSError) or type(error).__module__.startswith("obstore"):
                return as_failed(error)
            raise

    def _execute(self, request: Request) -> Answer:
        import obstore  # noqa: PLC0415

        if isinstance(request, Compute):
            return request.run()
        if isinstance(request, Put):
            data = request.data if isinstance(request.data, bytes) else list(request.data)
            mode: Literal["create", "overwrite"] = "create" if request.create else "overwrite"
            obstore.put(self._raw, request.key, data, mode=mode, use_multipart=False)
            self._sync(request.key)
            return DONE
        if isinstance(request, Get):
            return self._get(request)
        if isinstance(request, List):
            return self._list(request.prefix)
        if isinstance(request, Names):
            found = obstore.list_with_delimiter(self._raw, request.prefix)["common_prefixes"]
            return [str(path).rstrip("/").rpartition("/")[2] for path in found]
        return self._delete(request)

    def _get(self, request: Get) -> Answer:
        import obstore  # noqa: PLC0415

        form = memoryview if request.as_view else bytes
        if request.length is None:
            return form(obstore.get(self._raw, request.key).bytes())[request.start :]
        if not request.length:
            return b""
        try:
            return form(obstore.get_range(self._raw, request.key, start=request.start, length=request.length))
        except Exception:
            # A store refuses a range after the end: the object is shorter than it was. The caller sees that.
            if request.start < obstore.head(self._raw, request.key)["size"]:
                raise
            return b""

    def _list(self, prefix: str) -> Sequence[StoredObject]:
        found = self._list_once(prefix)
        # A directory is not read at one moment: a file that is made meanwhile can be missing while one that was removed
        # after that is gone. So it is read until it is the same twice.
        while self._directory is not None and found != (again := self._list_once(prefix)):
            found = again
        return found

    def _list_once(self, prefix: str) -> list[StoredObject]:
        import obstore  # noqa: PLC0415

        found = obstore.list(self._raw, prefix=prefix).collect()
        return sorted(StoredObject(one["path"], one["size"], one["last_modified"].timestamp()) for one in found)

    def _delete(self, request: Delete) -> Answer:
        import obstore  # noqa: PLC0415

        try:
            obstore.delete(self._raw, list(request.keys))
        except FileNotFoundError:
            for key in request.keys:
                try:
                    obstore.delete(self._raw, key)
                except FileNotFoundError:
                    continue
        return DONE

    def _sync(self, key: str) -> None:
        """Sync a new file of a directory to the disk, and the names that lead to it. Other stores do so themselves."""
        if self._directory is None:
            return
        path = self._directory / key
        _fsync(path, os.O_RDONLY)
        parent = path.parent
        _fsync(parent, os.O_RDONLY | os.O_DIRECTORY)
        while parent != self._directory and parent not in self._synced:
            self._synced.add(parent)
            parent = parent.parent
            _fsync(parent, os.O_RDONLY | os.O_DIRECTORY)

    def run(self, procedure: Procedure[T], patience: float = PATIENCE) -> T:
        """Run a procedure to its end.

        Raises `StoreSilent` if the store fails for longer than `patience` seconds, has no room or refuses a request.
        """
        failing_since: float | None = None  # when the first request began that failed
        is_told = False
        problem = Failed("")
        answer: Any = None
        while True:
            try:
                command = procedure.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(command, Wait):
                if problem.is_refusal:
                    raise StoreSilent(f"{self.url} refuses a request: {problem.reason}")
                failing = 0.0 if failing_since is None else time.monotonic() - failing_since
                if silence := self.silence(problem, failing + command.seconds, patience):
                    raise silence
                if not is_told:
                    is_told = True
                    _log.warning("%s does not answer, and is asked again: %s", self.url, problem.reason)
                time.sleep(command.seconds)
                continue
            began = time.monotonic()
            if isinstance(command, Together):
                answer = self.execute_all(command.commands)
                failed = [one for one in answer if isinstance(one, Failed)]
            else:
                answer = self.execute(command)
                failed = [answer] if isinstance(answer, Failed) else []
            if failed:
                problem = failed[0]
                failing_since = began if failing_since is None else failing_since
            else:
                failing_since, is_told = None, False

    def execute_all(self, requests: Sequence[Request]) -> list[Answer]:
        """Execute requests, some at a time, and return the answers in order.

        As long as the store answers at once, one after another is cheaper than threads.
        """
        answers: list[Answer] = []
        is_quick = True
        while is_quick and len(answers) < len(requests):
            begun = time.monotonic()
            answers.append(self.execute(requests[len(answers)]))
            is_quick = time.monotonic() - begun < _QUICK
        return [*answers, *self._execute_in_threads(requests[len(answers) :])]

    def _execute_in_threads(self, requests: Sequence[Request]) -> Iterable[Answer]:
        if len(requests) < 2:
            return map(self.execute, requests)
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(AT_ONCE, "zambezi-store")
        return self._threads.map(self.execute, requests)

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
            self._threads = None

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"


def _name_of(request: Request) -> str:
    """Return the name of a request, to know it again when it is repeated."""
    if isinstance(request, (Put, Get)):
        return request.key
    if isinstance(request, (List, Names)):
        return f"{request.prefix}/"
    return type(request).__name__


def _fsync(path: Path, flags: int) -> None:
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return  # another broker has removed it meanwhile
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
