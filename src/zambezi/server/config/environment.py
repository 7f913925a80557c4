"""A configuration compared with this machine: the directories, keys and networks that it names.

A mistake keeps a server from running. A doubt does not, though perhaps the operator did not mean it: a rule for a key
that is not allowed is a doubt, or else removing a key would keep the server from its next start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zambezi.errors import ZambeziError
from zambezi.server.config.lines import KeyPath
from zambezi.server.keydir import MESH, KeyDirectory
from zambezi.zmtp.keys import read_pair
from zambezi.zre.interfaces import choose

if TYPE_CHECKING:
    from zambezi.server.config.settings import Config


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be: with which key of the configuration, and what to do."""

    path: KeyPath
    problem: str
    is_mistake: bool = True


def examine(config: Config) -> list[Finding]:
    """Return everything that is wrong, or doubtful, on this machine."""
    return [*_data(config), *_keys(config), *_mesh(config), *_results(config)]


def _data(config: Config) -> Iterator[Finding]:
    if not config.zeps.enabled:
        return
    wanted = path = Path(config.server.data).absolute()
    while not path.exists() and path != path.parent:
        path = path.parent  # what is missing is made
    if not path.is_dir():
        problem = f"{path} is no directory; name one, or a place for a new one"
    elif not os.access(path, os.W_OK | os.X_OK):
        problem = f"{path} cannot be written to by this user; name another directory, or change its owner"
    elif path == wanted and not os.access(path, os.R_OK):
        problem = f"{path} cannot be read by this user; name another directory, or change its owner"
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
        yield from (Finding(("server", "keys"), f"it lets nobody in: {one}", False) for one in keys.problems)
    for index, rule in enumerate(config.rules):
        names = [name for name in rule.keys if not set(name) & set("*?[")]
        if keys is None and rule.keys and "*" not in rule.keys:
            yield Finding(
                ("rules", index, "keys"),
                'rules go by the names of keys, and without keys nobody has a name: write keys = "DIRECTORY" below '
                '[server], or keys = ["*"] here',
            )
        elif keys is not None:
            for name in names:
                if name not in keys.names:
                    problem = f"there is no key {name} in {config.server.keys}/allowed{_known(keys.names)}"
                    yield Finding(("rules", index, "keys"), problem, False)


def _known(names: set[str]) -> str:
    some = sorted(names)[:10]
    return f"; there are: {', '.join(some)}{', ...' if len(names) > len(some) else ''}" if some else ", nor any other"


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
    outside = [str(one) for one in chosen if not one.where.is_loopback]
    keys = config.server.keys
    if keys and outside and not (zre.key or zre.clear or (Path(keys) / MESH).exists()):
        yield Finding(
            ("zre", "interface"),
            f"the mesh on {outside[0]} would speak in clear, though [server] has keys: zambezi keygen mesh --directory "
            f"{keys} makes a key for it, which every node needs; or write clear = true below [zre]",
        )


def _results(config: Config) -> Iterator[Finding]:
    results = config.console.results
    if config.console.enabled and results and not Path(results).is_dir():
        yield Finding(("console", "results"), f"{results} is no directory, so that no results are shown", False)
