"""`zambezi config`: check a server's configuration, and show all that there is to configure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from zambezi.server import Config, config

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("config", help="check or show a server's configuration")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = commands.add_parser("check", help="say what is wrong with a configuration, with the line, or nothing")
    check.add_argument("file", metavar="FILE", type=Path)
    check.set_defaults(run=run_check)
    show = commands.add_parser("show", help="print a configuration with every key, its value, and what it is for")
    show.add_argument("file", metavar="FILE", type=Path, nargs="?", help="(default: the defaults)")
    show.set_defaults(run=run_show)


def run_check(arguments: argparse.Namespace) -> int:
    config.read(arguments.file)
    print(f"{arguments.file}: no mistakes")
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    print(config.show(config.read(arguments.file) if arguments.file is not None else Config()), end="")
    return 0
