"""`zambezi config`: check a server's configuration, and show all that there is to configure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from zambezi.cli.terminal import say
from zambezi.server import Config, config
from zambezi.server.config import environment
from zambezi.server.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "config",
        help="check or show a server's configuration",
        description="Check the configuration of zambezi serve, or show all that there is to configure.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = commands.add_parser(
        "check",
        help="say what is wrong with a configuration, with the line",
        description=(
            "Say everything that is wrong with a configuration, with its line and what to write instead: in the file, "
            "and with the directories, keys and networks that it names. The exit status is 1 if there is a mistake. "
            "What a server can run with, though it is perhaps not meant so, is a warning. Nothing is changed."
        ),
    )
    check.add_argument("file", metavar="FILE", type=Path, help="the configuration (zambezi.toml)")
    check.add_argument(
        "--elsewhere", action="store_true", help="it is for another machine: look at nothing but the file"
    )
    check.set_defaults(run=run_check)
    show = commands.add_parser(
        "show",
        help="print a configuration with every key, its value, and what it is for",
        description="Print a configuration with every key, its value, and what it is for. It can be read back.",
    )
    show.add_argument(
        "file", metavar="FILE", type=Path, nargs="?", help="the configuration (default: what holds without one)"
    )
    show.set_defaults(run=run_show)


def run_check(arguments: argparse.Namespace) -> int:
    file: Path = arguments.file
    wanted = config.read(file)
    found = [] if arguments.elsewhere else environment.examine(wanted)
    placed = [(one.is_mistake, f"{config.place(file, one.path)}: {one.problem}") for one in found]
    if mistakes := [text for is_mistake, text in placed if is_mistake]:
        raise ConfigError(mistakes)
    for _, text in placed:
        say(f"warning: {text}")
    say(f"{file}: no mistakes")
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    print(config.show(config.read(arguments.file) if arguments.file is not None else Config()), end="")
    return 0
