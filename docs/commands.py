"""A hook of mkdocs that makes the page of commands from their parsers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

from mkdocs.structure.files import File, Files

from zambezi.cli import command_parser
from zambezi.cli.completion import commands_of

PAGE = "commands.md"
WIDTH = "100"  # columns of a help text


def on_files(files: Files, /, *, config: Any, **_: Any) -> Files:
    """Add the page to the site."""
    files.append(File.generated(config, PAGE, content=page()))
    return files


def page() -> str:
    """Return the text of the page."""
    os.environ["COLUMNS"] = WIDTH
    lines = ["# Commands", "", "What `--help` prints, for every command.", ""]
    for name, parser in leaves("zambezi", command_parser()):
        described, parser.description = parser.description, None  # the help would repeat it
        lines += [f"## {name}", "", f"{described}", "", "```text", parser.format_help().rstrip(), "```", ""]
    return "\n".join(lines)


def leaves(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands below a parser that have no commands of their own."""
    commands = commands_of(parser)
    if not commands:
        yield name, parser
    for word, command in commands.items():
        yield from leaves(f"{name} {word}", command)
