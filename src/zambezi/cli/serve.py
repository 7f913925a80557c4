"""`zambezi serve`: run the services of a server until it is told to stop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from zambezi.cli import logs
from zambezi.cli.quantity import octets, seconds
from zambezi.errors import ZambeziError
from zambezi.server import Config, Server, config
from zambezi.server.config import environment
from zambezi.server.config.lines import KeyPath
from zambezi.server.errors import ConfigError, SettingError
from zambezi.server.server import SERVICES

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


T = TypeVar("T", bound=Any)

_log: Final = logging.getLogger("zambezi.server")

# Signals: the first ends the server in good order. Who runs it may send a second one by mistake (a terminal and a
# parent both do at Ctrl-C); the third means it.
ENOUGH: Final = 3
# What is said on the command line, and not in a file.
_OPTIONS: Final[dict[KeyPath, str]] = {
    ("server", "data"): "data",
    ("server", "keys"): "curve",
    ("zeps", "endpoint"): "zeps",
    ("mcollective", "endpoint"): "mcollective",
}


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="run a server: streams, commands of fleets, a node of the mesh, the console",
        description=(
            "Run the services of a server, in the foreground, until SIGTERM or Ctrl-C. What is said here counts before "
            "the configuration; zambezi config show prints what there is to configure. SIGHUP reads rules and "
            "retention again."
        ),
    )
    defaults = Config()
    parser.add_argument("--config", metavar="FILE", type=Path, help="the configuration (zambezi.toml)")
    parser.add_argument(
        "--data",
        metavar="DIR",
        help=f"where the journals are; made if it is missing (default: {defaults.server.data})",
    )
    parser.add_argument(
        "--zeps", metavar="ENDPOINT", help=f"where streams are served (default: {defaults.zeps.endpoint})"
    )
    parser.add_argument(
        "--mcollective",
        metavar="ENDPOINT",
        help=f"where commands of fleets are served (default: {defaults.mcollective.endpoint})",
    )
    parser.add_argument(
        "--only",
        metavar="SERVICE",
        action="append",
        choices=SERVICES,
        help=f"run this service alone; may be repeated ({', '.join(SERVICES)})",
    )
    parser.add_argument("--curve", metavar="KEYDIR", help="encrypt: the directory of server.key and allowed/")
    journal = parser.add_argument_group("journals")
    journal.add_argument(
        "--sync",
        choices=("always", "interval", "never"),
        help="when to have the disk confirm what was written: before each barrier is confirmed, every second, or when "
        f"the system pleases (default: {defaults.zeps.journal.sync})",
    )
    journal.add_argument("--keep-octets", metavar="SIZE", type=octets, help="keep about so much of each stream (10G)")
    journal.add_argument("--keep", metavar="TIME", type=seconds, help="keep messages for so long (7d, 12h)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    asyncio.run(_serve(arguments))
    return 0


def configured(arguments: argparse.Namespace) -> Config:
    """The configuration that a command line asks for."""
    read = config.read(arguments.config) if arguments.config is not None else Config()
    journal = _changed(read.zeps.journal, sync=arguments.sync, keep=arguments.keep, keep_octets=arguments.keep_octets)
    services = {}
    for name in SERVICES:
        service = getattr(read, name)
        if arguments.only:
            service = dataclasses.replace(service, enabled=name in arguments.only)
        services[name] = service
    services["zeps"] = _changed(services["zeps"], endpoint=arguments.zeps, journal=journal)
    services["mcollective"] = _changed(services["mcollective"], endpoint=arguments.mcollective)
    server = _changed(read.server, data=arguments.data, keys=arguments.curve)
    return dataclasses.replace(read, server=server, **services)


def _changed(value: T, **changes: object) -> T:
    """With what was given."""
    return dataclasses.replace(value, **{name: one for name, one in changes.items() if one is not None})


def checked(arguments: argparse.Namespace) -> tuple[Config, list[str]]:
    """The configuration that a command line asks for, if this machine can have it; and what is in doubt about it."""
    wanted = configured(arguments)
    if not any(getattr(wanted, name).enabled for name in SERVICES if name != "log"):
        raise ConfigError(["no service is on, so that there is nothing to run"])
    found = environment.examine(wanted)
    if mistakes := [_placed(arguments, one.path, one.problem) for one in found if one.is_mistake]:
        raise ConfigError(mistakes)
    # Keys that let nobody in the server tells by itself, as they come and go.
    return wanted, [_placed(arguments, one.path, one.problem) for one in found if one.path != ("server", "keys")]


def _placed(arguments: argparse.Namespace, path: KeyPath, problem: str) -> str:
    """A problem, with where that setting was made."""
    option = _OPTIONS.get(path)
    if option is not None and getattr(arguments, option) is not None:
        return f"--{option}: {problem}"
    if arguments.config is not None:
        return f"{config.place(arguments.config, path)}: {problem}"
    return f"{'.'.join(map(str, path))}: {problem}"


async def _serve(arguments: argparse.Namespace) -> None:
    wanted, doubts = checked(arguments)
    logs.begin(wanted.server.log, wanted.server.level)
    for doubt in doubts:
        _log.warning("%s", doubt)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    end = End(stop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.wanted)
    # Until all is there it has nothing to read again; and it must not be the end, which it is by default.
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    try:
        async with Server(wanted) as server, _console(server) as url:
            loop.add_signal_handler(signal.SIGHUP, _reload, server, arguments)
            for service, endpoint in server.endpoints.items():
                print(f"{service} at {endpoint}", flush=True)
            if url:
                print(f"console at {url}", flush=True)
            security = "CURVE" if wanted.server.keys else "no encryption: anybody who reaches it may use it"
            data = f"data in {wanted.server.data}" if server.broker is not None else "no data"
            _log.info("%s; %s", data, security)
            await stop.wait()
    except SettingError as error:
        raise ConfigError([_placed(arguments, error.path, error.problem)]) from None


class End:
    """What signals make of a server."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._signals = 0

    def wanted(self) -> None:
        self._signals += 1
        if self._signals == 1:
            _log.info("stopping")
            self._stop.set()
        elif self._signals < ENOUGH:
            _log.warning("it is stopping; one more signal ends it at once: what was journalled stays")
        else:
            os._exit(1)


def _reload(server: Server, arguments: argparse.Namespace) -> None:
    """Take over what can be changed while it runs. A configuration with mistakes changes nothing; what is wrong with
    the machine, such as an interface that is down, keeps nobody from taking away a right.
    """
    try:
        wanted = configured(arguments)
    except ConfigError as error:
        for mistake in error.mistakes:
            _log.error("the configuration was not reloaded: %s", mistake)
    except (ZambeziError, OSError) as error:
        _log.error("the configuration was not reloaded: %s", error)
    else:
        differ = server.reload(wanted)
        _log.info("rules and retention were reloaded")
        if differ:
            _log.warning("what has changed besides needs a restart: %s", ", ".join(differ))
        for one in environment.examine(wanted):
            _log.warning("%s", _placed(arguments, one.path, one.problem))


@asynccontextmanager
async def _console(server: Server) -> AsyncIterator[str]:
    """The console, where it is wanted and can be had; its address."""
    if not server.config.console.enabled:
        yield ""
        return
    try:
        from zambezi.console import Console  # noqa: PLC0415 - the core installs without it
    except ModuleNotFoundError as error:
        _log.warning("no console: %s is not installed; pip install 'zambezi[console]'", error.name)
        yield ""
        return
    async with Console(server) as console:
        yield console.url
