"""`zambezi serve`: run the services of a server until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from zambezi.cli.quantity import octets, seconds
from zambezi.server import Server, ServerOptions
from zambezi.server.server import SERVICES
from zambezi.zeps.journal import Policy

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="run a server: streams that are journalled, replayed and followed",
        description="Run the services of a server, in the foreground, until SIGTERM or Ctrl-C. Without --only, all.",
    )
    defaults = ServerOptions()
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        default=defaults.data,
        help=f"where the journals are; made if it is missing (default: {defaults.data})",
    )
    parser.add_argument(
        "--zeps", metavar="ENDPOINT", default=defaults.zeps, help=f"where streams are served (default: {defaults.zeps})"
    )
    parser.add_argument(
        "--only", metavar="SERVICE", action="append", default=[], choices=SERVICES, help="run this service alone"
    )
    parser.add_argument(
        "--curve", metavar="KEYDIR", type=Path, help="encrypt: a directory with server.key and allowed/"
    )
    journal = parser.add_argument_group("journals")
    journal.add_argument(
        "--sync",
        choices=("always", "interval", "never"),
        default=defaults.policy.sync,
        help="when to have the disk confirm what was written: before each barrier is confirmed, every second, or when "
        f"the system pleases (default: {defaults.policy.sync})",
    )
    journal.add_argument("--keep-octets", metavar="SIZE", type=octets, help="keep about so much of each stream (10G)")
    journal.add_argument("--keep", metavar="TIME", type=seconds, help="keep messages for so long (7d, 12h)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    options = ServerOptions(
        data=arguments.data,
        zeps=arguments.zeps,
        only=arguments.only,
        keys=arguments.curve,
        policy=Policy(sync=arguments.sync, keep_octets=arguments.keep_octets, keep_seconds=arguments.keep),
    )
    asyncio.run(_serve(options))
    return 0


async def _serve(options: ServerOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Server(options) as server:
        for service, endpoint in server.endpoints.items():
            print(f"{service} at {endpoint}", flush=True)
        security = "CURVE" if options.keys is not None else "no encryption: anybody who reaches it may use it"
        print(f"data in {options.data}; {security}; Ctrl-C stops it", file=sys.stderr, flush=True)
        await stop.wait()
        print("stopping", file=sys.stderr, flush=True)
