"""`zambezi serve`: run the services of a server until it is told to stop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from zambezi.cli import logs
from zambezi.cli.quantity import octets, seconds
from zambezi.errors import ZambeziError
from zambezi.server import Config, Server, config
from zambezi.server.server import SERVICES

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


T = TypeVar("T", bound=Any)

_log: Final = logging.getLogger("zambezi.server")


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="run a server: streams that are journalled, replayed and followed",
        description=(
            "Run the services of a server, in the foreground, until SIGTERM or Ctrl-C. What is said here counts before "
            "the configuration; zambezi config show prints what there is to configure."
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
        "--only", metavar="SERVICE", action="append", choices=SERVICES, help="run this service alone; may be repeated"
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


async def _serve(arguments: argparse.Namespace) -> None:
    config = configured(arguments)
    logs.begin(config.server.log, config.server.level)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Server(config) as server, _console(server) as url:
        loop.add_signal_handler(signal.SIGHUP, _reload, server, arguments)
        for service, endpoint in server.endpoints.items():
            print(f"{service} at {endpoint}", flush=True)
        if url:
            print(f"console at {url}", flush=True)
        security = "CURVE" if config.server.keys else "no encryption: anybody who reaches it may use it"
        _log.info("data in %s; %s", config.server.data, security)
        await stop.wait()
        _log.info("stopping")


def _reload(server: Server, arguments: argparse.Namespace) -> None:
    """Take over what can be changed while it runs. A configuration with mistakes changes nothing."""
    try:
        server.reload(configured(arguments))
    except (ZambeziError, OSError) as error:
        _log.error("the configuration was not reloaded: %s", error)
    else:
        _log.info("rules and retention were reloaded")


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
