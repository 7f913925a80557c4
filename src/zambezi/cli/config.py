"""`zambezi config`: check the configuration of a server, or print it with all keys."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
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
        description="Check the configuration of zambezi serve, or print it with all keys.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = commands.add_parser(
        "check",
        help="report the mistakes in a configuration",
        description=(
            "Report every mistake in a configuration, with its line and what to write instead: mistakes in the file, "
            "and directories, keys and networks that this machine does not have. The exit status is 1 if there is a "
            "mistake. A warning does not prevent the server from starting: it is about settings that are not safe, or "
            "not as intended. The server logs all warnings at every start. The command changes nothing."
        ),
    )
    check.add_argument("file", metavar="FILE", type=Path, help="the configuration (zambezi.toml)")
    check.add_argument(
        "--elsewhere", action="store_true", help="check only the file, because it is for another machine"
    )
    check.add_argument("--json", action="store_true", help="print mistakes and warnings as a JSON object")
    check.set_defaults(run=run_check)
    show = commands.add_parser(
        "show",
        help="print a configuration with all keys, their values and comments",
        description=(
            "Print a configuration with all keys, their values and a comment on each. The output is a valid "
            "configuration."
        ),
    )
    show.add_argument(
        "file", metavar="FILE", type=Path, nargs="?", help="the configuration (default: the default values)"
    )
    show.add_argument("--json", action="store_true", help="print the keys and values as a JSON object")
    show.set_defaults(run=run_show)


def run_check(arguments: argparse.Namespace) -> int:
    return _check_as_json(arguments) if arguments.json else _check(arguments)


def _check_as_json(arguments: argparse.Namespace) -> int:
    mistakes: Sequence[str] = ()
    warnings: list[str] = []
    try:
        warnings = _warnings(arguments)
    except ConfigError as error:
        mistakes = error.mistakes
    print(json.dumps({"file": str(arguments.file), "mistakes": list(mistakes), "warnings": warnings}))
    return 1 if mistakes else 0


def _check(arguments: argparse.Namespace) -> int:
    for text in _warnings(arguments):
        say(f"warning: {text}")
    say(f"{arguments.file}: no mistakes")
    return 0


def _warnings(arguments: argparse.Namespace) -> list[str]:
    """Return the warnings about a configuration; raise `ConfigError` if it has mistakes."""
    file: Path = arguments.file
    wanted = config.read(file)
    found = environment.warn(wanted) if arguments.elsewhere else environment.examine(wanted, file)
    placed = [(one.is_mistake, f"{config.place(file, one.path)}: {one.problem}") for one in found]
    if mistakes := [text for is_mistake, text in placed if is_mistake]:
        raise ConfigError(mistakes)
    return [text for _, text in placed]


def run_show(arguments: argparse.Namespace) -> int:
    shown = config.show(config.read(arguments.file) if arguments.file is not None else Config())
    print(json.dumps(tomllib.loads(shown)) + "\n" if arguments.json else shown, end="")
    return 0
