"""A check of a configuration against this machine: the directories, keys and networks that it names.

A mistake prevents the server from starting. A warning does not: the server can run, but perhaps the operator meant
something else. A rule that names a missing key is a warning, because otherwise the removal of a key would prevent the
next start. Keys that every user of the machine can change are a mistake: any of them could give itself access. Keys
that a group can change are a warning, because the group can be the administrators.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zambezi.errors import ZambeziError
from zambezi.server.config.caution import cautions
from zambezi.server.config.lines import KeyPath
from zambezi.server.keydir import ALLOWED, GROUP, MESH, SECRET, KeyDirectory
from zambezi.zmtp.keys import read_pair, read_public
from zambezi.zre.interfaces import choose
from zambezi.zre.security import ANY

if TYPE_CHECKING:
    from zambezi.server.config.settings import Config, ZreConfig


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with one key of the configuration, and what to do about it; a mistake or a warning."""

    path: KeyPath
    problem: str
    is_mistake: bool = True
    is_watched: bool = False  # a running server logs it itself, as it comes and goes


def warn(config: Config) -> list[Finding]:
    """Return the warnings about the configuration alone, which are the same on every machine."""
    return [Finding(path, problem, False) for path, problem in cautions(config)]


def examine(config: Config, file: Path | None = None) -> list[Finding]:
    """Return all mistakes and warnings for this machine; `file` is the file that the configuration was read from."""
    found = [*_data(config), *_keys(config), *_groups(config), *_mesh(config), *_others(config), *_file(config, file)]
    return [*found, *warn(config)]


def _data(config: Config) -> Iterator[Finding]:
    if not config.zeps.enabled:
        return
    wanted = path = Path(config.server.data).absolute()
    while not path.exists() and path != path.parent:
        path = path.parent  # the server creates missing directories
    if not path.is_dir():
        problem = f"{path} is not a directory; name a directory, existing or new"
    elif os.statvfs(path).f_flag & os.ST_RDONLY:
        problem = f"{path} is on a read-only file system; mount it for writing, or name another directory"
    elif not os.access(path, os.W_OK | os.X_OK):
        problem = f"this user cannot write to {path}; name another directory, or change its owner"
    elif path == wanted and not os.access(path, os.R_OK):
        problem = f"this user cannot read {path}; name another directory, or change its owner"
    else:
        return
    yield Finding(("server", "data"), problem)


def _keys(config: Config) -> Iterator[Finding]:
    keys = None
    if config.server.keys:
        try:
            keys = KeyDirectory.read(Path(config.server.keys))
        except (ZambeziError, OSError) as error:
            yield Finding(("server", "keys"), str(error))
            return
        for problem in keys.problems:
            yield Finding(("server", "keys"), f"a key file is ignored: {problem}", False, is_watched=True)
        yield from _writable(Path(config.server.keys))
    for index, rule in enumerate(config.rules):
        console = {"console"} if config.console.token else set()  # the console gives orders under this name
        names = [name for name in rule.keys if not set(name) & set("*?[") and name not in console]
        if keys is None and set(rule.keys) - console and "*" not in rule.keys:
            yield Finding(
                ("rules", index, "keys"),
                'rules identify clients by the names of their keys, and no keys are configured: set keys = "DIRECTORY" '
                'in [server], or keys = ["*"] here',
            )
        elif keys is not None:
            for name in names:
                if name not in keys.names:
                    problem = f"{config.server.keys}/allowed has no key {name}{_known(keys.names)}"
                    yield Finding(("rules", index, "keys"), problem, False)


def _writable(keys: Path) -> Iterator[Finding]:
    """Yield the key directory, `allowed/` and its files, as far as other users can change them."""
    allowed = keys / ALLOWED
    try:
        files = sorted(allowed.iterdir())
    except OSError:
        files = []  # this user cannot list the directory, and so allows no key
    modes = {path: _mode(path) for path in [keys, allowed, *files]}
    by_all = [str(path) for path, mode in modes.items() if mode & stat.S_IWOTH]
    by_group = [str(path) for path, mode in modes.items() if mode & stat.S_IWGRP and not mode & stat.S_IWOTH]
    for paths, users, is_mistake in ((by_all, "every user of this machine", True), (by_group, "a group", False)):
        if paths:
            shown = f"{', '.join(paths[:3])}{', ...' if len(paths) > 3 else ''}"
            problem = f"{users} can change {shown}, and so allow any key: chmod -R go-w {keys}"
            yield Finding(("server", "keys"), problem, is_mistake)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        return 0  # it was removed just now, or is a broken link, which allows no key


def _groups(config: Config) -> Iterator[Finding]:
    """Yield the multicast groups that would carry an encrypted stream in clear."""
    keys = config.server.keys
    if not keys or not config.zeps.enabled or (Path(keys) / GROUP).exists():
        return
    for name, stream in config.zeps.streams.items():
        if stream.multicast:
            yield Finding(
                ("zeps", "streams", name, "multicast"),
                f"the group would carry {name} in clear, although [server] has keys: make a key for all its readers "
                f"with zambezi keygen group --directory {keys}, or remove this key",
            )


def _file(config: Config, file: Path | None) -> Iterator[Finding]:
    """Yield the configuration itself, if it has a secret that other users can read, or if they can change it."""
    mode = _mode(file) if file is not None else 0
    if config.console.token and mode & stat.S_IROTH:
        problem = f"every user of this machine can read the token in {file}: chmod o-r {file}"
        yield Finding(("console", "token"), problem, False)
    if mode & stat.S_IWOTH:
        yield Finding(("server",), f"every user of this machine can change {file}: chmod o-w {file}", False)


def _known(names: set[str]) -> str:
    some = sorted(names)[:10]
    return f"; it has: {', '.join(some)}{', ...' if len(names) > len(some) else ''}" if some else "; it is empty"


def _mesh(config: Config) -> Iterator[Finding]:
    zre = config.zre
    if not zre.enabled:
        return
    yield from _mesh_keys(zre)
    try:
        chosen = choose(zre.interface or None, zre.ipv6)
    except ZambeziError as error:
        yield Finding(("zre", "interface"), str(error))
        return
    keys = config.server.keys
    outside = [str(one) for one in chosen if not one.where.is_loopback]
    if not keys and outside and not (zre.key or zre.node_key):
        yield Finding(
            ("zre", "interface"),
            f"every machine in the network of {outside[0]} can join the mesh and read its messages: set key in [zre], "
            'or interface = "lo"',
            False,
        )
    has_keys = bool(keys) and (Path(keys) / SECRET).exists()  # otherwise `_keys` says what is missing
    if has_keys and not (zre.key or zre.node_key or zre.clear or (Path(keys) / MESH).exists()):
        yield Finding(
            ("zre", "interface"),
            f"the mesh on {chosen[0]} would not be encrypted, although [server] has keys: make a key for all nodes of "
            f"the mesh with zambezi keygen mesh --directory {keys}, or set clear = true in [zre]",
        )


def _mesh_keys(zre: ZreConfig) -> Iterator[Finding]:
    for name, file in (("key", zre.key), ("node_key", zre.node_key)):
        if file:
            try:
                read_pair(file)
            except (ZambeziError, OSError) as error:
                yield Finding(("zre", name), str(error))
    if zre.allowed == ANY:
        problem = "every machine that reaches the mesh can join it with a key that it makes itself; name a directory"
        yield Finding(("zre", "allowed"), problem, False)
    elif zre.allowed and not Path(zre.allowed).is_dir():
        problem = (
            f"{zre.allowed} is not a directory, so no node can join; make it, with the NAME.pub of each node in it"
        )
        yield Finding(("zre", "allowed"), problem)


def _others(config: Config) -> Iterator[Finding]:
    yield from _mirrors(config)
    yield from _results(config)


def _mirrors(config: Config) -> Iterator[Finding]:
    for index, mirror in enumerate(config.zeps.mirrors if config.zeps.enabled else ()):
        for name, file, read in (("server_key", mirror.server_key, read_public), ("key", mirror.key, read_pair)):
            if file:
                try:
                    read(file)
                except (ZambeziError, OSError) as error:
                    yield Finding(("zeps", "mirrors", index, name), str(error))


def _results(config: Config) -> Iterator[Finding]:
    results = config.console.results
    if config.console.enabled and results and not Path(results).is_dir():
        yield Finding(("console", "results"), f"{results} is not a directory, so the console shows no results", False)
