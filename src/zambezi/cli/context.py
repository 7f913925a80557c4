"""`zambezi context`: name the servers that one works with, and choose among them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zambezi.cli.completion import offer
from zambezi.cli.quantity import console_url, endpoint, endpoints
from zambezi.cli.surroundings import CHOICE, SETTINGS, Contexts, check_name, context_names, variable
from zambezi.wire.text import printable

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_CHECKS: Final[dict[str, Callable[[str], str]]] = {
    "endpoint": endpoints,
    "middleware": endpoint,
    "console": console_url,
}


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "context",
        description="A context names a server: its endpoints and keys. Commands take what they need from the context "
        f"in use, from --context NAME or from the variable {CHOICE}. A single setting can also come from the "
        f"environment: {', '.join(map(variable, SETTINGS))}. The contexts are in "
        "~/.config/zambezi/contexts.toml, or in a directory zambezi of $XDG_CONFIG_HOME.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    command = commands.add_parser("list", help="list the contexts", description="List the contexts; * is in use.")
    command.add_argument("--json", action="store_true", help="print a line of JSON for each context")
    command.set_defaults(run=run_list)
    command = commands.add_parser(
        "set",
        help="add a context, or change settings of one",
        description="Add a context, or change settings of one. An empty value removes a setting.",
    )
    offer(command.add_argument("name", metavar="NAME", help="the name of the context"), context_names)
    for setting, described in SETTINGS.items():
        command.add_argument(
            f"--{setting.replace('_', '-')}", metavar="TEXT", type=partial(_checked, setting), help=described
        )
    command.set_defaults(run=run_set)
    for name, run, described in (
        ("use", run_use, "Let commands use a context from now on; without NAME, none."),
        ("remove", run_remove, "Remove a context."),
    ):
        command = commands.add_parser(name, help=_first(described), description=described)
        argument = command.add_argument(
            "name", metavar="NAME", nargs="?" if name == "use" else None, help="the name of the context"
        )
        offer(argument, context_names)
        command.set_defaults(run=run)


def _checked(setting: str, text: str) -> str:
    """Check the text of a setting; an empty one removes the setting."""
    check = _CHECKS.get(setting)
    return check(text) if check is not None and text else text


def _first(described: str) -> str:
    return described[0].lower() + described[1:].split(";", maxsplit=1)[0].rstrip(".")


def run_list(arguments: argparse.Namespace) -> int:
    contexts = Contexts.load()
    if arguments.json:
        for name, settings in sorted(contexts.all.items()):
            print(json.dumps({"context": name, "in_use": name == contexts.current, **_without_token(settings)}))
    else:
        rows = [(_marked(name, contexts), _lines(settings)) for name, settings in sorted(contexts.all.items())]
        if rows and sys.stdout.isatty():
            _print_table(rows)
        else:
            for name, lines in rows:
                print("  ".join([name, *lines]))
    if not contexts.all:
        print("there are no contexts yet: add one with `zambezi context set NAME --endpoint ENDPOINT`", file=sys.stderr)
    return 0


def _marked(name: str, contexts: Contexts) -> str:
    return printable(f"{'*' if name == contexts.current else ' '} {name}")


def _lines(settings: dict[str, str]) -> list[str]:
    return [printable(f"{setting}={value}") for setting, value in _without_token(settings).items()]


def _print_table(contexts: Sequence[tuple[str, list[str]]]) -> None:
    """Print contexts as a table with a line for each setting."""
    from zambezi.cli.fitting import JSON, FittingTable  # noqa: PLC0415 - a pipe needs no Rich, which takes long
    from zambezi.cli.terminal import table_console  # noqa: PLC0415

    rows = [(name, "\n".join(lines)) for name, lines in contexts]
    table_console().print(FittingTable(("  context", "settings"), (), rows, JSON))


def _without_token(settings: dict[str, str]) -> dict[str, str]:
    """Return settings as they may be shown."""
    return {setting: "(hidden)" if setting == "token" else value for setting, value in settings.items()}


def run_set(arguments: argparse.Namespace) -> int:
    contexts = Contexts.load()
    before = contexts.all.get(check_name(arguments.name), {})
    given = {setting: getattr(arguments, setting) for setting in SETTINGS if getattr(arguments, setting) is not None}
    for setting in ("server_key", "key"):
        if given.get(setting):
            given[setting] = str(Path(given[setting]).expanduser().absolute())
    contexts.all[arguments.name] = {setting: value for setting, value in (before | given).items() if value}
    contexts.save()
    if contexts.current != arguments.name:
        print(f"saved; use it with `zambezi context use {arguments.name}`", file=sys.stderr)
    return 0


def run_use(arguments: argparse.Namespace) -> int:
    contexts = Contexts.load()
    if arguments.name is not None:
        contexts.find(arguments.name)
    contexts.current = arguments.name or ""
    contexts.save()
    return 0


def run_remove(arguments: argparse.Namespace) -> int:
    contexts = Contexts.load()
    contexts.find(arguments.name)
    del contexts.all[arguments.name]
    if contexts.current == arguments.name:
        contexts.current = ""
    contexts.save()
    return 0
