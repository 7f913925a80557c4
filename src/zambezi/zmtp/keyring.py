"""The public keys that may connect, as a directory that can change at any time.

Every `*.pub` file, and every `*.key` file without a secret (a public certificate of CZMQ or pyzmq), allows
one key; its name is the file's name without the suffix. Whoever owns the ring calls `scan` as often as
changes should be noticed: there is no thread and no file system watch, so a ring behaves alike on a local
disk and on a network mount.

A ring fails closed. A file that cannot be understood, half-written ones included, allows nobody, even if an
earlier version of it did; it is listed in `problems` and leaves the other files alone. The one exception is a
directory that cannot be listed for want of descriptors or memory: that says nothing about its content, and
dropping every peer because the machine is busy would let an attacker do just that.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from zambezi.zmtp.keys import PUBLIC_SUFFIX, SECRET_SUFFIX, KeyFileError, read_key_file

if TYPE_CHECKING:
    from collections.abc import Mapping

# Two writes within one tick of the file system's clock leave the same times behind (2 s on FAT). A file that
# was touched this recently is read again, whatever its fingerprint says.
_SETTLED_AFTER_NS: Final = 3_000_000_000
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

# Modification time, change time, size, inode, device. The change time sees what `cp -p` and rsync hide.
_Fingerprint = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    key: bytes | None
    problem: str | None
    # None: not to be relied on, read the file again.
    fingerprint: _Fingerprint | None


class Keyring:
    """The allowed public keys in `directory`, as of the last `scan`; the first one is made at once."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._lock = threading.Lock()
        self._entries: dict[Path, _Entry] = {}
        self._keys: Mapping[bytes, tuple[str, ...]] = MappingProxyType({})
        self._problems: Mapping[Path, str] = MappingProxyType({})
        self._generation = 0
        self.scan()

    @property
    def keys(self) -> Mapping[bytes, tuple[str, ...]]:
        """Every allowed key, with the names it is allowed under, in order: a key may be in several files."""
        return self._keys

    @property
    def problems(self) -> Mapping[Path, str]:
        """What could not be used, and why: the path of a file, or of the directory itself."""
        return self._problems

    @property
    def generation(self) -> int:
        """Goes up whenever a scan changes `keys`, so that several users of one ring all notice."""
        return self._generation

    def name_of(self, key: bytes) -> str | None:
        """The first name of an allowed key; None if the key is not allowed."""
        names = self._keys.get(key)
        return names[0] if names else None

    def scan(self, now_ns: int | None = None) -> bool:
        """Read what changed, and say whether `keys` did. Never raises for what it finds in the directory.

        `now_ns` is the time as `time.time_ns` tells it, which is the default.
        """
        with self._lock:
            return self._scan(time.time_ns() if now_ns is None else now_ns)

    def _scan(self, now_ns: int) -> bool:
        problems: dict[Path, str] = {}
        try:
            paths = self._candidates()
        except OSError as error:
            problems[self.directory] = f"{self.directory}: cannot be listed: {error.strerror or error}"
            if error.errno in _EXHAUSTED:
                self._problems = MappingProxyType({**self._problems, **problems})
                return False
            paths = []
        entries = {path: self._entry(path, now_ns) for path in paths}
        keys: dict[bytes, set[str]] = {}
        for path, entry in entries.items():
            if entry.key is not None:
                keys.setdefault(entry.key, set()).add(entry.name)
            if entry.problem is not None:
                problems[path] = entry.problem
        allowed = {key: tuple(sorted(names)) for key, names in keys.items()}
        changed = allowed != self._keys
        self._entries = entries
        self._problems = MappingProxyType(problems)
        if changed:
            # The keys first: whoever sees the new generation must judge by them.
            self._keys = MappingProxyType(allowed)
            self._generation += 1
        return changed

    def _candidates(self) -> list[Path]:
        with os.scandir(self.directory) as listing:
            names = [
                entry.name
                for entry in listing
                if entry.name.endswith((PUBLIC_SUFFIX, SECRET_SUFFIX)) and not entry.name.startswith(".")
            ]
        return [self.directory / name for name in sorted(names)]

    def _entry(self, path: Path, now_ns: int) -> _Entry:
        name = path.stem
        try:
            status = path.stat()
        except OSError as error:
            return _Entry(name, None, f"{path}: cannot be read: {error.strerror or error}", None)
        fingerprint = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev)
        known = self._entries.get(path)
        if known is not None and known.fingerprint == fingerprint:
            return known
        # Taken before the file is read: a change in between makes the next scan read it again.
        settled = max(status.st_mtime_ns, status.st_ctime_ns) + _SETTLED_AFTER_NS < now_ns
        trusted = fingerprint if settled else None
        if not name.isprintable():
            return _Entry(name, None, f"{str(path)!a}: the name has characters that cannot be printed", trusted)
        if not stat.S_ISREG(status.st_mode):
            return _Entry(name, None, f"{path}: is not a regular file", trusted)
        try:
            content = read_key_file(path)
        except KeyFileError as error:
            # A file that could not be opened may be readable next time without having changed.
            return _Entry(name, None, str(error), None if isinstance(error.__cause__, OSError) else trusted)
        if content.secret is not None:
            problem = f"{path}: holds a secret key; only public keys belong here, so move it away"
            return _Entry(name, None, problem, trusted)
        return _Entry(name, content.public, None, trusted)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __repr__(self) -> str:
        return f"Keyring({str(self.directory)!r}, keys={len(self._keys)}, problems={len(self._problems)})"
