"""A hook of mkdocs that makes a page for each command from its parser, and a page that lists them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

from mkdocs.structure.files import File, Files

from zambezi.cli import command_parser
from zambezi.cli.completion import commands_of

PAGE = "commands.md"  # the list
NAV = "Commands and options"  # its place in mkdocs.yml
WIDTH = "100"  # columns of a help text


def on_config(config: Any, /, **_: Any) -> Any:
    """Put the pages of the commands behind their list."""
    pages = [{f"zambezi {name}": path_of(name)} for name in commands_of(command_parser())]
    for entry in config.nav:
        if NAV in entry:
            entry[NAV] = [{"All commands": PAGE}, *pages]
    return config


def on_files(files: Files, /, *, config: Any, **_: Any) -> Files:
    """Add the pages to the site."""
    os.environ["COLUMNS"] = WIDTH
    commands = commands_of(command_parser())
    files.append(File.generated(config, PAGE, content=overview(commands)))
    for name, parser in commands.items():
        files.append(File.generated(config, path_of(name), content=page(f"zambezi {name}", parser)))
    return files


def path_of(name: str) -> str:
    """Return the path of the page of a command."""
    return f"commands/{name}.md"


def overview(commands: dict[str, argparse.ArgumentParser]) -> str:
    """Return the text of the page that lists the commands: each one, and the first sentence about it."""
    lines = ["# Commands and options", "", "Each command has a page with what its `--help` prints.", ""]
    lines += ["| command | what it does |", "| --- | --- |"]
    for top, parser in commands.items():
        for name, leaf in leaves(f"zambezi {top}", parser):
            anchor = "" if leaf is parser else f"#{name.replace(' ', '-')}"
            lines.append(f"| [`{name}`]({path_of(top)}{anchor}) | {first_sentence(leaf)} |")
    return "\n".join([*lines, ""])


def first_sentence(parser: argparse.ArgumentParser) -> str:
    """Return the first sentence of a description, for a cell of a table."""
    return " ".join((parser.description or "").split()).partition(". ")[0].rstrip(".").replace("|", "\\|")


def page(name: str, parser: argparse.ArgumentParser) -> str:
    """Return the text of the page of a command."""
    lines = [f"# {name}", ""]
    found = list(leaves(name, parser))
    if found[0][1] is not parser:
        lines += [f"{parser.description or ''}", ""]
    for one, leaf in found:
        described, leaf.description = leaf.description, None  # the help would repeat it
        heading = [] if leaf is parser else [f"## {one}", ""]
        lines += [*heading, f"{described}", "", "```text", leaf.format_help().rstrip(), "```", ""]
    return "\n".join(lines)


def leaves(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands below a parser that have no commands of their own."""
    commands = commands_of(parser)
    if not commands:
        yield name, parser
    for word, command in commands.items():
        yield from leaves(f"{name} {word}", command)
