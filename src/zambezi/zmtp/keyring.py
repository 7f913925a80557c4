"""The allowed public keys, in a directory that can change at any time.

Every `*.pub` file, and every `*.key` file without a secret key (a public certificate of CZMQ or pyzmq), allows one key;
the name of the key is the name of the file without the suffix. The owner of the keyring calls `scan` as often as it
wants to notice changes: the keyring has no thread and no file system watch, so it works the same way on a local disk
and on a network mount.

A keyring fails closed. A file that cannot be parsed, or is only half written, allows no key, even if an earlier version
of it did; the keyring lists the file in `problems`, and still uses the other files. The one exception is a directory
that cannot be listed because descriptors or memory have run out. That error says nothing about the files; if it removed
all keys, an attacker who keeps the machine busy could disconnect every peer.
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

# Two writes within one tick of the file system's clock leave the same times behind (2 s on FAT). So a file that changed
# this recently is read again, even if its fingerprint is the same.
_SETTLED_AFTER_NS: Final = 3_000_000_000
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

# Modification time, change time, size, inode, device. `cp -p` and rsync preserve the first, but not the change time.
_Fingerprint = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    key: bytes | None
    problem: str | None
    # None: the next scan must read the file again.
    fingerprint: _Fingerprint | None


class Keyring:
    """The allowed public keys in `directory`, as of the last `scan`. The constructor makes the first scan."""

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
        """The allowed keys, each with its names in order: a key can be in several files."""
        return self._keys

    @property
    def problems(self) -> Mapping[Path, str]:
        """The files that could not be used (or the directory itself), each with the reason."""
        return self._problems

    @property
    def generation(self) -> int:
        """A number that grows whenever a scan changes `keys`, so that several users of one keyring all notice."""
        return self._generation

    def name_of(self, key: bytes) -> str | None:
        """Return the first name of an allowed key; return None if the key is not allowed."""
        names = self._keys.get(key)
        return names[0] if names else None

    def scan(self, now_ns: int | None = None) -> bool:
        """Read the files that changed; return whether `keys` changed. Never raises because of the directory's content.

        `now_ns` is the time in nanoseconds since 1970; the default is `time.time_ns()`.
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
            # The keys first: a thread that sees the new generation must see the new keys, too.
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
        # The times were taken before the file is read: if it changes in between, the next scan reads it again.
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
            problem = f"{path}: holds a secret key; only public keys belong here, so move the file away"
            return _Entry(name, None, problem, trusted)
        return _Entry(name, content.public, None, trusted)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __repr__(self) -> str:
        return f"Keyring({str(self.directory)!r}, keys={len(self._keys)}, problems={len(self._problems)})"
