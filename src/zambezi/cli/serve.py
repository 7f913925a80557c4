"""`zambezi serve`: run the services of a server until a signal stops it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from zambezi.cli import logs
from zambezi.cli.quantity import bound_endpoint, octets, seconds
from zambezi.errors import ZambeziError
from zambezi.server import Config, Server, config
from zambezi.server.config import environment
from zambezi.server.config.lines import KeyPath
from zambezi.server.errors import ConfigError, SettingError
from zambezi.server.server import SERVICES
from zambezi.server.service_manager import ServiceManager

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


T = TypeVar("T", bound=Any)

_log: Final = logging.getLogger("zambezi.server")

# The first signal ends the server in good order. A second one can be an accident (at Ctrl-C both the terminal and a
# parent process can send one). The third one ends the process at once.
ENOUGH: Final = 3
# The settings that have an option on the command line, and the option.
_OPTIONS: Final[dict[KeyPath, str]] = {
    ("server", "data"): "data",
    ("server", "keys"): "curve",
    ("zeps", "endpoint"): "zeps",
    ("mcollective", "endpoint"): "mcollective",
}


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "serve",
        description=(
            "Run the services of a server, in the foreground, until SIGTERM or Ctrl-C. Options override the "
            "configuration; zambezi config show prints all its keys. SIGHUP reads rules, journal settings and allowed "
            "keys again."
        ),
    )
    defaults = Config()
    parser.add_argument("--config", metavar="FILE", type=Path, help="the configuration (zambezi.toml)")
    parser.add_argument(
        "--data",
        metavar="DIR",
        help=f"the directory of the journals and sessions, created if it is missing (default: {defaults.server.data})",
    )
    parser.add_argument(
        "--zeps",
        metavar="ENDPOINT",
        type=bound_endpoint,
        help=f"the endpoint of the broker of streams (default: {defaults.zeps.endpoint})",
    )
    parser.add_argument(
        "--mcollective",
        metavar="ENDPOINT",
        type=bound_endpoint,
        help=f"the endpoint of the middleware of fleets (default: {defaults.mcollective.endpoint})",
    )
    parser.add_argument(
        "--only",
        metavar="SERVICE",
        action="append",
        choices=SERVICES,
        help=f"run only this service, one of {', '.join(SERVICES)} (can be repeated)",
    )
    parser.add_argument(
        "--curve", metavar="KEYDIR", help="encrypt with CURVE: the directory with server.key and allowed/"
    )
    journal = parser.add_argument_group("journals")
    journal.add_argument(
        "--sync",
        choices=("always", "interval", "never"),
        help="when to fsync: before each confirmation (always), every second (interval), or never "
        f"(default: {defaults.zeps.journal.sync})",
    )
    journal.add_argument(
        "--keep-bytes",
        metavar="SIZE",
        type=octets,
        help="keep this size of messages of each stream (10G), and remove older ones",
    )
    journal.add_argument("--keep", metavar="TIME", type=seconds, help="remove messages older than this (7d, 12h)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    asyncio.run(_serve(arguments))
    return 0


def configured(arguments: argparse.Namespace) -> Config:
    """Return the configuration of the file, with the options of the command line."""
    read = config.read(arguments.config) if arguments.config is not None else Config()
    journal = _changed(read.zeps.journal, sync=arguments.sync, keep=arguments.keep, keep_bytes=arguments.keep_bytes)
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
    """Return a copy with the changes that are not None."""
    return dataclasses.replace(value, **{name: one for name, one in changes.items() if one is not None})


def checked(arguments: argparse.Namespace) -> tuple[Config, list[str]]:
    """Return the configuration and its warnings. Raise `ConfigError` if it does not fit this machine."""
    wanted = configured(arguments)
    if not any(getattr(wanted, name).enabled for name in SERVICES if name != "log"):
        raise ConfigError(["all services are off, so the server has nothing to run: set enabled = true in one"])
    found = environment.examine(wanted, arguments.config)
    if mistakes := [_placed(arguments, one.path, one.problem) for one in found if one.is_mistake]:
        raise ConfigError(mistakes)
    return wanted, [_placed(arguments, one.path, one.problem) for one in found if not one.is_watched]


def _placed(arguments: argparse.Namespace, path: KeyPath, problem: str) -> str:
    """Return a problem with its place: the option, the line of the file, or the key."""
    option = _OPTIONS.get(path)
    if option is not None and getattr(arguments, option) is not None:
        return f"--{option}: {problem}"
    if arguments.config is not None:
        return f"{config.place(arguments.config, path)}: {problem}"
    return f"{'.'.join(map(str, path))}: {problem}"


async def _serve(arguments: argparse.Namespace) -> None:
    wanted, warnings = checked(arguments)
    logs.begin(wanted.server.log, wanted.server.level)
    for warning in warnings:
        _log.warning("%s", warning)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    end = End(stop)
    manager = ServiceManager()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.wanted)
    # Ignore SIGHUP until the services run: its default action would end the process.
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    try:
        async with Server(wanted) as server, _console(server) as page:
            if arguments.config is None and sys.stdin.isatty():
                loop.add_signal_handler(
                    signal.SIGHUP, end.wanted
                )  # there is nothing to read again: the terminal is gone
            else:
                loop.add_signal_handler(signal.SIGHUP, _reload, server, arguments, manager)
            for service, endpoint in server.endpoints.items():
                print(f"{service} at {endpoint}", flush=True)
            if page:
                print(page, flush=True)
            security = "CURVE" if wanted.server.keys else "no encryption: every client that can connect has full access"
            _log.info("%s; %s", _data(server), security)
            async with manager.informed():
                await stop.wait()
    except SettingError as error:
        raise ConfigError([_placed(arguments, error.path, error.problem)]) from None


def _data(server: Server) -> str:
    """Return what the server keeps, and where."""
    if server.broker is not None:
        return f"data in {server.config.server.data}"
    if server.sessions is not None:
        return f"sessions in {server.sessions}"
    if server.config.mcollective.enabled and server.config.mcollective.sessions:
        return "no data: sessions of MCollective clients end with the server, unless --data names a directory for them"
    return "no data"


class End:
    """The reaction to signals that end the server."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._signals = 0

    def wanted(self) -> None:
        """Stop the server at the first signal; end the process at the third."""
        self._signals += 1
        if self._signals == 1:
            _log.info("stopping")
            self._stop.set()
        elif self._signals < ENOUGH:
            _log.warning("still stopping; one more signal ends the process at once, and journalled messages are kept")
        else:
            os._exit(1)


def _reload(server: Server, arguments: argparse.Namespace, manager: ServiceManager) -> None:
    manager.begin_reload()
    try:
        _read_again(server, arguments)
    finally:
        manager.end_reload()


def _read_again(server: Server, arguments: argparse.Namespace) -> None:
    """Apply the settings that can change while the server runs.

    A configuration with mistakes changes nothing. A problem of the machine, such as an interface that is down, does not
    prevent the reload: an operator must always be able to revoke a permission.
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
            _log.warning("these changes need a restart: %s", ", ".join(differ))
        for one in environment.examine(wanted, arguments.config):
            _log.warning("%s", _placed(arguments, one.path, one.problem))


@asynccontextmanager
async def _console(server: Server) -> AsyncIterator[str]:
    """Run the console, if it is enabled and installed; give the line that says where, or "" without a console."""
    if not server.config.console.enabled:
        yield ""
        return
    try:
        from zambezi.console import Console  # noqa: PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        _log.warning("no console: %s is not installed; pip install 'zambezi[console]'", error.name)
        yield ""
        return
    async with Console(server) as console:
        yield f"{'health checks' if console.is_off else 'console'} at {console.url}"
