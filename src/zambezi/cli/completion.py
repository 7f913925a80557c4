"""`zambezi completion`: let a shell complete commands and options.

The script of a shell asks `zambezi completion words` for the words that can follow. It reads them from the parsers of
the commands, so it knows each option as soon as the command has it. Where nothing is known the shell offers files.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_BASH: Final = """\
_zambezi() {
    local words
    words=$(zambezi completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]#=}"))
}
complete -o default -F _zambezi zambezi
"""
_ZSH: Final = """\
#compdef zambezi
_zambezi() {
    local -a found
    found=("${(@f)$(zambezi completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _zambezi zambezi
"""
_FISH: Final = """\
function __zambezi
    set -l words (commandline -opc) (commandline -ct)
    zambezi completion words -- $words[2..] 2>/dev/null
end
complete -c zambezi -a '(__zambezi)'
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_WHERE: Final = {
    "bash": "~/.local/share/bash-completion/completions/zambezi",
    "zsh": "a file _zambezi in a directory of $fpath",
    "fish": "~/.config/fish/completions/zambezi.fish",
}


def add_parser(subparsers: Subparsers) -> None:
    places = "; ".join(f"{shell}: {place}" for shell, place in _WHERE.items())
    parser = subparsers.add_parser(
        "completion",
        description=f"Print a script that lets a shell complete commands and options. Write it to ({places}).",
    )
    commands = parser.add_subparsers(title="shells", metavar="SHELL", required=True)
    for shell in SCRIPTS:
        command = commands.add_parser(shell, help=f"for {shell}", description=f"Print the script for {shell}.")
        command.set_defaults(run=run, shell=shell)
    command = commands.add_parser(
        "words", help="for these scripts", description="Print the words that can be the last one of a command line."
    )
    command.add_argument("words", metavar="WORD", nargs="*", help="the words after zambezi, of which the last is begun")
    command.set_defaults(run=run_words)


def run(arguments: argparse.Namespace) -> int:
    print(SCRIPTS[arguments.shell], end="")
    return 0


def run_words(arguments: argparse.Namespace) -> int:
    from zambezi.cli import command_parser, needed  # noqa: PLC0415 - the package imports this module

    *before, begun = arguments.words or [""]
    for word in candidates(command_parser(needed(before)), before, begun):
        print(word)
    return 0


def offer(action: argparse.Action, words: Callable[[], Iterable[str]]) -> None:
    """Let shells complete an option or an argument with these words, which are called for when a shell asks."""
    vars(action)["offered"] = words


def interfaces() -> list[str]:
    """Return the names of the network interfaces of this machine."""
    import socket  # noqa: PLC0415 - only if a shell asks

    return [name for _, name in socket.if_nameindex()]


def _offered(action: argparse.Action) -> list[str]:
    """Return the known values of an option or an argument."""
    words: Callable[[], Iterable[str]] = vars(action).get("offered", lambda: action.choices or ())
    return [str(word) for word in words()]


def candidates(parser: argparse.ArgumentParser, before: Sequence[str], begun: str) -> list[str]:
    """Return the words with a beginning that can follow others in the command line of a parser."""
    is_value: argparse.Action | None = None  # the option whose value comes next
    name, equals, value = begun.partition("=")
    if equals:  # --option=value; bash hands over the three parts as words
        before, begun, prefix = [*before, *filter(None, [name])], value, f"{name}=" if name else ""
    else:
        prefix = ""
    for word in before:
        if word == "=":
            continue
        if is_value is not None:
            is_value = None
        elif word.startswith("-"):
            option = parser._option_string_actions.get(word)
            is_value = option if option is not None and option.nargs != 0 else None
        else:
            parser = commands_of(parser).get(word, parser)
    if is_value is not None:
        found = _offered(is_value)
    elif begun.startswith("-"):
        found = [name for name in parser._option_string_actions if name.startswith("--") or begun == "-"]
    else:
        found = [*commands_of(parser), *_choices(parser)]
    return sorted(prefix + word for word in found if word.startswith(begun))


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the subcommands of a parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _choices(parser: argparse.ArgumentParser) -> list[str]:
    """Return the known values of the arguments."""
    return [
        word
        for action in parser._actions
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
        for word in _offered(action)
    ]
