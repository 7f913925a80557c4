"""The place of a table: a directory, or a prefix of an object store.

A place is sent to executors, so it keeps only its name and options, and opens the store in the process that uses it.
Files on a disk are synced before they are closed: a commit must not name a file that a power failure empties.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import fs

from zambezi.spark.lake.disk import make, sync
from zambezi.spark.lake.problems import TableError, explained
from zambezi.spark.options import local_path
from zambezi.zeps.errors import StoreError
from zambezi.zeps.store.options import check_options, is_option

_VARIABLES: Final = {  # of the environment, by the beginning of a URL
    "s3": "AWS_",
    "s3a": "AWS_",
    "gs": "GOOGLE_",
    "az": "AZURE_",
    "abfs": "AZURE_",
    "abfss": "AZURE_",
    "adl": "AZURE_",
}
_OPTIONS: Final = (  # of deltalake
    "max_retries",
    "retry_timeout",
    "backoff_config.init_backoff",
    "backoff_config.max_backoff",
    "backoff_config.base",
)
_PART: Final = 1 << 20  # bytes
_TRIED: Final = 1 << 14  # bytes that must have room
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)


class Place:
    """A directory, or a prefix of an object store, with the options of the store."""

    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        """Describe a place. Options that are not given come from the environment of this process.

        They are the options of `object_store`, such as `AWS_ENDPOINT_URL` or `endpoint`.
        """
        name = local_path(uri)
        scheme = _URL.match(name)
        if not name or (scheme is not None and scheme[1].lower() not in {*_VARIABLES, "hdfs"}):
            raise TableError(f"{uri}: it must be a directory, or a URL with {', '.join(_VARIABLES)} or file")
        self.local = None if scheme is not None else Path(name).absolute()
        self.uri = str(self.local) if scheme is None else name.rstrip("/")
        if self.local is not None and self.local.exists() and not self.local.is_dir():
            raise TableError(f"{self.uri} is a file, not a directory: choose another place")
        self.options: dict[str, str] = {}
        if scheme is not None:
            prefix = _VARIABLES.get(scheme[1].lower(), "")
            # Other programs have variables such as AWS_PAGER. Executors get the options as if they had been given.
            environment = {
                key: value
                for key, value in os.environ.items()
                if prefix and key.startswith(prefix) and is_option(name, key, also=_OPTIONS)
            }
            try:
                check_options(name, options or {}, also=_OPTIONS)
            except StoreError as error:
                raise TableError(str(error)) from None
            self.options = environment | dict(options or {})
            if prefix == "AWS_":  # commits need put-if-absent
                self.options.setdefault("aws_conditional_put", "etag")
        self._store: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_store": None}

    def __str__(self) -> str:
        return self.uri

    @property
    def files(self) -> Any:
        """The file system of pyarrow with this place as its root."""
        if self._store is None:
            if self.local is not None:
                self._store = fs.SubTreeFileSystem(str(self.local), fs.LocalFileSystem())
            else:
                from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415

                with explained(self.uri):
                    self._store = fs.PyFileSystem(DeltaStorageHandler(self.uri, self.options))
        return self._store

    @contextmanager
    def create(self, path: str) -> Iterator[Any]:
        """Open a new file to write. It is on disk when the block ends."""
        if self.local is None:
            # deltalake's stream takes no Buffer of pyarrow; and a part of an upload costs a request.
            with explained(self.uri), pa.BufferedOutputStream(self.files.open_output_stream(path), _PART) as file:
                yield file
            return
        target = self.local / path
        with explained(str(target)):
            make(target.parent)
            with target.open("wb") as file:
                yield file
                file.flush()
            sync(target)
            sync(target.parent)

    def write(self, path: str, octets: bytes) -> None:
        """Write a file. A reader of a directory can see a part of it."""
        with self.create(path) as file:
            file.write(octets)

    def put(self, path: str, octets: bytes) -> None:
        """Replace a file. A reader sees the old one or the new one."""
        if self.local is None:
            self.write(path, octets)
            return
        target = self.local / path
        fresh = target.with_name(f".{target.name}-{os.getpid()}")
        with explained(str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(octets)
            fresh.replace(target)

    def check_writable(self) -> None:
        """Write a small file and remove it. Raise TableError if that fails."""
        name = f".zambezi-{os.getpid()}"  # readers of tables ignore it
        try:
            self.write(name, bytes(_TRIED))
        except TableError:
            with suppress(TableError):
                self.remove(name)
            raise
        self.remove(name)

    def read(self, path: str) -> bytes | None:
        """Read a file; None if it does not exist."""
        with explained(f"{self.uri}/{path}"):
            try:
                with self.files.open_input_stream(path) as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

    def names(self, path: str) -> list[str]:
        """Return the names of the files in a directory; none if it does not exist."""
        with explained(f"{self.uri}/{path}"):
            found = self.files.get_file_info(fs.FileSelector(path, allow_not_found=True))
            return sorted(one.base_name for one in found if one.type == fs.FileType.File)

    def remove(self, path: str) -> None:
        """Remove a file."""
        with explained(f"{self.uri}/{path}"):
            self.files.delete_file(path)

    def sync(self, path: str) -> None:
        """Wait until a file that another library wrote, and its directory, are on disk."""
        if self.local is not None:
            sync(self.local / path)
            sync((self.local / path).parent)
