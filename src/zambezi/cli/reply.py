"""`zambezi reply`: answer the requests of a stream with a command of the shell."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from zambezi.cli.client import add_client_options, client_of
from zambezi.cli.exec import Commands, Ended
from zambezi.cli.quantity import count, seconds
from zambezi.wire.text import printable
from zambezi.zeps.client.batch import Message
from zambezi.zeps.errors import TimedOut, ZepsError

if TYPE_CHECKING:
    import argparse

    from zambezi.zeps.requests.sync import Request, Serving

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_POLL: Final = 0.5  # seconds between looks whether the command can be started
_CAUSE: Final = 1000  # characters of the last line of standard error that an error reply has


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "reply",
        description=(
            "Serve the requests of STREAM whose keys match PATTERN. Each request is the standard input of a command of "
            "the shell, and its standard output is the reply. If the command ends with another status than 0, the "
            "reply is an error, with the last line of its standard error. The environment of the command has the key "
            "and the sequence of the request (ZAMBEZI_KEY, ZAMBEZI_SEQUENCE). Several commands `zambezi reply` share "
            "the requests. Ctrl-C ends it."
        ),
    )
    parser.add_argument("stream", metavar="STREAM", help="the name of the stream")
    parser.add_argument(
        "pattern",
        metavar="PATTERN",
        nargs="?",
        default="",
        help="the keys to serve: a prefix, exact:KEY, glob:PATTERN or regex:PATTERN (default: all)",
    )
    parser.add_argument("--exec", metavar="COMMAND", required=True, help="the command of the shell that answers")
    parser.add_argument(
        "--parallel", metavar="N", type=count, default=1, help="how many commands run at once (default: 1)"
    )
    parser.add_argument(
        "--wait",
        metavar="TIME",
        type=seconds,
        default=30.0,
        help="how long a command has, before another server gets the request, too (default: 30s)",
    )
    parser.add_argument("--count", metavar="N", type=count, default=0, help="stop after this number of requests")
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        try:
            with client.stream(arguments.stream).serve(arguments.pattern, wait=arguments.wait) as serving:
                _Replier(serving, arguments).run(arguments.count)
        except KeyboardInterrupt:
            pass  # the usual end of serving
    return 0


class _Replier:
    """The requests, and the commands that answer them."""

    def __init__(self, serving: Serving, arguments: argparse.Namespace) -> None:
        self._serving = serving
        self._requests: dict[int, Request] = {}
        self._commands = Commands(
            arguments.exec, arguments.parallel, self._finished, is_ordered=False, captures_output=True
        )

    def run(self, most: int) -> None:
        """Answer requests, until a signal comes or so many are answered."""
        taken = 0
        try:
            while not most or taken < most:
                self._commands.check()
                with suppress(TimedOut):
                    request = self._serving.recv(_POLL)
                    taken += 1
                    self._requests[request.sequence] = request
                    self._commands.handle(Message(request.sequence, request.key, request.body, request.stream))
            self._commands.wait()
        finally:
            self._commands.end()
            self._commands.wait()
        self._commands.check()

    def _finished(self, message: Message, ended: Ended) -> None:
        request = self._requests.pop(message.sequence)
        sys.stderr.write(printable_lines(ended.errors))
        sys.stderr.flush()
        with suppress(ZepsError):  # the client of this program is closed
            if ended.status:
                request.fail(_cause(ended))
                return
            try:
                request.reply(ended.output)
            except ZepsError as error:
                request.fail(f"the reply cannot be sent: {error}")


def printable_lines(octets: bytes) -> str:
    """Return what a command has written, with its line ends, as a terminal can show it."""
    return "".join(f"{printable(line)}\n" for line in octets.decode(errors="replace").splitlines())


def _cause(ended: Ended) -> str:
    """Return why a command has failed: the last line that it has written, or its status."""
    lines = [line for line in ended.errors.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:_CAUSE] if lines else f"the command has ended with status {ended.status}"
