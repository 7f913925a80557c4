"""Every command has help, and answers wrong arguments with one line. It covers the parser in `cli` and `quantity`."""

import argparse
from collections.abc import Iterator

import pytest

from zambezi import cli


def parsers(
    parser: argparse.ArgumentParser, name: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command, inner in action.choices.items():
                yield from parsers(inner, (*name, command))


COMMANDS = dict(parsers(cli.command_parser()))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_argument_has_its_help(command: tuple[str, ...]) -> None:
    for action in COMMANDS[command]._actions:
        if not isinstance(action, argparse._SubParsersAction):
            assert action.help, f"{action.dest} of {' '.join(command)}"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_is_printed_and_nonsense_refused(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(" ".join(["usage: zambezi", *command]))
    assert cli.main([*command, "--nonsense"]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    (problem,) = errors.splitlines()
    assert problem.startswith("zambezi: ")
    assert problem.endswith(f" ({' '.join(['zambezi', *command])} --help shows how)")


# The commands that neither list nor report: services, conversations, and orders whose outcome is one line.
ACTING = {
    *("serve", "mirror", "reply", "fleet agent", "mesh chat", "peer chat"),
    *("pub", "request", "mesh whisper", "mesh shout", "keygen"),
    *("stream create", "stream edit", "stream trim", "stream truncate", "stream delete", "stream copy"),
    *("reader set", "reader remove", "journal export", "journal import", "journal truncate"),
    *("context set", "context use", "context remove"),
    *("completion bash", "completion zsh", "completion fish", "completion words"),
}


def test_every_command_that_lists_or_reports_has_json() -> None:
    leaves = {
        " ".join(name): parser
        for name, parser in COMMANDS.items()
        if not any(isinstance(action, argparse._SubParsersAction) for action in parser._actions)
    }
    assert leaves.keys() >= ACTING
    without = [name for name, parser in leaves.items() if "--json" not in parser._option_string_actions]
    assert set(without) <= ACTING, "add --json to it, or name it in ACTING if it neither lists nor reports"


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5"])
def test_a_number_of_messages_is_at_least_one(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("sub", "journal dump"):
        assert cli.main([*command.split(), "stream", f"--count={number}"]) == 2
        assert "write 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "pub readings --timeout 3 k b",
        "pub readings k --timeout 3 b",
        "pub --timeout 3 readings k b",
        "pub --timeout 3 readings -- k b",
    ],
)
def test_options_may_stand_between_arguments(words: str) -> None:
    found = cli.command_parser(["pub"]).parse_args(words.split())
    assert (found.stream, found.key, found.body, found.timeout) == ("readings", "k", "b", 3.0)
