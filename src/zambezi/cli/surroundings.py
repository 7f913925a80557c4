"""The surroundings of a command, from which it takes what nobody wants to type: the environment and named contexts.

An option of the command line counts first, then a variable of the environment such as ZAMBEZI_ENDPOINT, then the
context: that of --context, or of ZAMBEZI_CONTEXT, or the one that `zambezi context use` has chosen.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

from zambezi.cli.completion import offer
from zambezi.cli.errors import InputError, OptionsError

# The settings of a context, and what they are.
SETTINGS: Final = {
    "endpoint": "the endpoint of the broker of streams",
    "middleware": "the endpoint of the middleware, for fleets",
    "console": "the URL of the console",
    "server_key": "the file with the public key of the server",
    "key": "the file with your own key pair",
    "token": "the token of the console",
}
CHOICE: Final = "ZAMBEZI_CONTEXT"
_SERVERS: Final = ("endpoint", "connect", "console")  # options that name a server
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LARGEST: Final = 1 << 20  # bytes of the file


def variable(setting: str) -> str:
    """Return the name of the variable of the environment for a setting."""
    return f"ZAMBEZI_{setting.upper()}"


def contexts_file() -> Path:
    """Return the file with the contexts of this user."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "zambezi" / "contexts.toml"


def add_context_option(options: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """Add --context to a command that uses `setting_of`."""
    option = options.add_argument(
        "--context", metavar="NAME", help=f"a context of `zambezi context` (default: ${CHOICE}, or the one in use)"
    )
    offer(option, context_names)


def context_names() -> list[str]:
    """Return the names of the contexts, for shells."""
    return list(Contexts.load().all)


def setting_of(arguments: argparse.Namespace, setting: str) -> str:
    """Return a setting from the environment, or from the context; empty if neither has it.

    The context in use does not count for a command line that names a server: its keys are those of another one.
    """
    named: str | None = arguments.context
    if named is None and (value := os.environ.get(variable(setting))):
        return value
    if named is None and any(getattr(arguments, option, None) for option in _SERVERS):
        return ""
    return Contexts.load().choose(named).get(setting, "")


class Contexts:
    """The named contexts of a user."""

    def __init__(self, path: Path, contexts: dict[str, dict[str, str]], current: str = "") -> None:
        self.path = path
        self.all = contexts
        self.current = current  # the one in use; empty: none

    @classmethod
    def load(cls) -> Contexts:
        """Read the file of this user; there are no contexts if there is no file."""
        path = contexts_file()
        try:
            with path.open("rb") as file:
                table = tomllib.loads(file.read(_LARGEST).decode())
        except FileNotFoundError:
            return cls(path, {})
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"{path}: it is not valid TOML: {error}") from error
        return cls(path, _contexts_in(table, path), _text(table.get("current", ""), "current", path))

    def choose(self, named: str | None) -> Mapping[str, str]:
        """Return the settings of a context, or of the one in use."""
        name = named or os.environ.get(CHOICE) or self.current
        return self.find(name) if name else {}

    def find(self, name: str) -> Mapping[str, str]:
        """Return the settings of a context; raise `InputError` if it does not exist."""
        if name not in self.all:
            raise InputError(f"there is no context {name!a} in {self.path}: `zambezi context list` shows them")
        return self.all[name]

    def save(self) -> None:
        """Write the file. It can contain a token, so nobody else may read it."""
        lines = [f"current = {json.dumps(self.current)}"] if self.current else []
        for name, settings in sorted(self.all.items()):
            lines += ["", f"[contexts.{json.dumps(name)}]"]
            lines += [f"{setting} = {json.dumps(value)}" for setting, value in settings.items()]
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with NamedTemporaryFile("w", dir=self.path.parent, prefix=".contexts", delete=False) as draft:  # of mode 0600
            draft.write("\n".join(lines).lstrip() + "\n")
        Path(draft.name).replace(self.path)


def check_name(name: str) -> str:
    """Return the name of a context if it is valid."""
    if not _NAME.fullmatch(name):
        raise OptionsError(f"{name!a} is no name for a context: use at most 64 letters, digits, dots, - and _")
    return name


def _contexts_in(table: Mapping[str, Any], path: Path) -> dict[str, dict[str, str]]:
    found = table.get("contexts", {})
    if not isinstance(found, dict):
        raise InputError(f"{path}: contexts must be tables, such as [contexts.lab]")
    contexts: dict[str, dict[str, str]] = {}
    for name, settings in found.items():
        if not isinstance(settings, dict):
            raise InputError(f"{path}: contexts.{name} must be a table")
        unknown = sorted(settings.keys() - SETTINGS.keys())
        if unknown:
            raise InputError(
                f"{path}: contexts.{name} has no setting {unknown[0]!a}; it can have {', '.join(SETTINGS)}"
            )
        contexts[name] = {key: _text(value, f"contexts.{name}.{key}", path) for key, value in settings.items()}
    return contexts


def _text(value: object, name: str, path: Path) -> str:
    if not isinstance(value, str):
        raise InputError(f"{path}: {name} must be a text in quotes")
    return value
