"""The `zambezi` command.

Each subcommand is a module of its name with a function `add_parser(subparsers)`, which declares the arguments and sets
`run`, a function that takes the parsed arguments and returns an exit status. A subcommand raises errors and does not
print them: `main` prints each as one line on standard error. Only the module of the command that is asked for is
imported: a short command does not wait for the modules of the others.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

from zambezi import __version__
from zambezi.cli.errors import OptionsError, error_line
from zambezi.cli.hints import with_hint
from zambezi.cli.signals import Terminated, ending_in_good_order
from zambezi.errors import ZambeziError
from zambezi.server.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    _Subparsers = argparse._SubParsersAction

SUCCESS: Final = 0
FAILURE: Final = 1
WRONG: Final = 2  # the command line, as argparse has it
# The status that a shell reports for a process that SIGINT or SIGPIPE ended.
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

# The subcommands and their lines of the help, in this order. They are here so that the help imports no subcommand.
SUBCOMMANDS: Final = {
    "serve": "run a server: streams, the middleware of fleets, a node of the mesh, the console",
    "config": "check or print the configuration of a server",
    "top": "watch a server in the terminal",
    "pub": "publish messages to a stream",
    "sub": "replay a stream, and follow it",
    "stream": "list, create, change and delete the streams of a broker",
    "brokers": "list the brokers that share an object store",
    "reader": "list, set and remove the named readers of a stream",
    "mirror": "follow a stream of another server into one here",
    "request": "ask a server of a stream, and print its reply",
    "reply": "answer the requests of a stream with a command",
    "journal": "inspect and verify journals, and export messages",
    "store": "copy streams to an object store, and list, check and restore them",
    "pipeline": "archive and analyse streams with Spark",
    "sql": "query streams with Spark SQL",
    "fleet": "run and call agents on many machines (MCollective)",
    "topics": "list the topics of an MCollective middleware, and their subscribers",
    "mesh": "watch a mesh of ZRE nodes, and send messages in it (36/ZRE)",
    "log": "collect the logs of a mesh (ZRE/LOG)",
    "peer": "chat through a PEER socket (51/P2P)",
    "keygen": "make a CURVE key pair",
    "bench": "measure a running server",
    "context": "name servers, and choose the one that commands use",
    "completion": "let a shell complete commands",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, or that of the process, and return its exit status."""
    try:
        status = _run(argv)
        # Flush here, where the error of a closed pipe can still be handled.
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_output()
        return BROKEN_PIPE
    except Terminated as signalled:
        return signalled.status
    except KeyboardInterrupt:
        return INTERRUPTED
    except ConfigError as error:
        return _fail(*error.mistakes)
    except OptionsError as error:
        return _fail(str(error), status=WRONG)
    except ZambeziError as error:
        return _fail(with_hint(str(error)))
    except OSError as error:
        return _fail(_describe(error))
    except Exception as error:
        if os.environ.get("ZAMBEZI_TRACEBACK"):
            raise
        return _fail(
            f"unexpected {type(error).__name__}: {error} (this is a bug; set ZAMBEZI_TRACEBACK=1 for a traceback)"
        )
    return status


def _run(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else argv
    parser = command_parser(needed(words))
    try:
        arguments = parser.parse_args(words)
    except SystemExit as stop:
        # argparse exits after --help and --version with 0, and after a usage error with 2.
        return stop.code if isinstance(stop.code, int) else SUCCESS
    run: Callable[[argparse.Namespace], int] | None = getattr(arguments, "run", None)
    if run is None:
        parser.print_help()
        return SUCCESS
    with ending_in_good_order():
        return run(arguments)


def needed(words: Sequence[str]) -> Sequence[str]:
    """Return the subcommands whose arguments are needed to parse these words: one, or none for the help."""
    first = next((word for word in words if not word.startswith("-")), "")
    return [first] if first in SUBCOMMANDS else []


class _Parser(argparse.ArgumentParser):
    """A parser that takes options anywhere, and does not hide that the reader of its help has closed the pipe."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._mixes = False  # whether this is a part of the parse below

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line, also with options between arguments: `pub STREAM --key FILE KEY BODY`.

        Otherwise argparse takes arguments that may be missing for missing when an option comes before them. After `--`
        there are no options.
        """
        if self._mixes:
            return super().parse_known_args(args, namespace)
        has_optional = any(action.nargs in {"?", "*"} for action in self._get_positional_actions())
        if not has_optional or "--" in (args or ()):
            found, unknown = super().parse_known_args(args, namespace)
        else:
            self._mixes = True
            try:
                found, unknown = self.parse_known_intermixed_args(args, namespace)
            finally:
                self._mixes = False
        if unknown:  # here, and not in the parser of all commands: the error names the command whose help shows how
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """End the command with one line, like other errors: the usage of a command can fill the screen."""
        self.exit(WRONG, f"{error_line(message)} ({self.prog} --help shows how)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout:
            sys.stdout.write(message)
        else:
            super()._print_message(message, file)


class _Commands(_Subparsers):
    """Adds a subcommand with its line of the help."""

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser:
        return super().add_parser(name, help=SUBCOMMANDS[name], **options)


def command_parser(subcommands: Sequence[str] = tuple(SUBCOMMANDS)) -> argparse.ArgumentParser:
    """Return the parser of a command line with one of these subcommands. Without any, it knows only their names."""
    parser = _Parser(prog="zambezi", description="ZeroMQ messaging: peers, streams, commands.")
    parser.add_argument("--version", action="version", version=f"zambezi {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", action=_Commands)
    for subcommand in subcommands:
        import_module(f"zambezi.cli.{subcommand}").add_parser(subparsers)
    for subcommand in () if subcommands else SUBCOMMANDS:
        subparsers.add_parser(subcommand)  # for the help, or for an error that lists them
    return parser


def _fail(*problems: str, status: int = FAILURE) -> int:
    with contextlib.suppress(OSError):
        for problem in problems:
            print(error_line(problem), file=sys.stderr)
    return status


def _describe(error: OSError) -> str:
    problem = error.strerror or str(error) or type(error).__name__
    return problem if error.filename is None else f"{error.filename}: {problem}"


def _silence_output() -> None:
    # The interpreter flushes standard output once more at exit, and would print an error.
    with contextlib.suppress(OSError, ValueError):
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)
