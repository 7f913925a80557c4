"""A check of a configuration against this machine: the directories, keys and networks that it names.

A mistake prevents the server from starting. A warning does not: the server can run, but perhaps the operator meant
something else. A rule that names a missing key is a warning, because otherwise the removal of a key would prevent the
next start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zambezi.errors import ZambeziError
from zambezi.server.config.lines import KeyPath
from zambezi.server.keydir import MESH, SECRET, KeyDirectory
from zambezi.zmtp.keys import read_pair
from zambezi.zre.interfaces import choose

if TYPE_CHECKING:
    from zambezi.server.config.settings import Config


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with one key of the configuration, and what to do about it; a mistake or a warning."""

    path: KeyPath
    problem: str
    is_mistake: bool = True


def examine(config: Config) -> list[Finding]:
    """Return all mistakes and warnings for this machine."""
    return [*_data(config), *_keys(config), *_mesh(config), *_results(config)]


def _data(config: Config) -> Iterator[Finding]:
    if not config.zeps.enabled:
        return
    wanted = path = Path(config.server.data).absolute()
    while not path.exists() and path != path.parent:
        path = path.parent  # the server creates missing directories
    if not path.is_dir():
        problem = f"{path} is not a directory; name a directory, existing or new"
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
        yield from (Finding(("server", "keys"), f"a key file is ignored: {one}", False) for one in keys.problems)
    for index, rule in enumerate(config.rules):
        names = [name for name in rule.keys if not set(name) & set("*?[")]
        if keys is None and rule.keys and "*" not in rule.keys:
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


def _known(names: set[str]) -> str:
    some = sorted(names)[:10]
    return f"; it has: {', '.join(some)}{', ...' if len(names) > len(some) else ''}" if some else "; it is empty"


def _mesh(config: Config) -> Iterator[Finding]:
    zre = config.zre
    if not zre.enabled:
        return
    if zre.key:
        try:
            read_pair(zre.key)
        except (ZambeziError, OSError) as error:
            yield Finding(("zre", "key"), str(error))
    try:
        chosen = choose(zre.interface or None)
    except ZambeziError as error:
        yield Finding(("zre", "interface"), str(error))
        return
    keys = config.server.keys
    has_keys = bool(keys) and (Path(keys) / SECRET).exists()  # otherwise `_keys` says what is missing
    if has_keys and not (zre.key or zre.clear or (Path(keys) / MESH).exists()):
        yield Finding(
            ("zre", "interface"),
            f"the mesh on {chosen[0]} would not be encrypted, although [server] has keys: make a key for all nodes of "
            f"the mesh with zambezi keygen mesh --directory {keys}, or set clear = true in [zre]",
        )


def _results(config: Config) -> Iterator[Finding]:
    results = config.console.results
    if config.console.enabled and results and not Path(results).is_dir():
        yield Finding(("console", "results"), f"{results} is not a directory, so the console shows no results", False)
