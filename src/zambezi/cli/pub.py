"""`zambezi pub`: publish to a stream, from the command line or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from zambezi.cli.client import add_client_options, add_timeout_option, client_of
from zambezi.cli.errors import OptionsError
from zambezi.cli.exported import parse_line
from zambezi.wire.text import as_bytes, as_text

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

AT_ONCE: Final = 1000  # messages of one call


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "pub",
        help="publish messages to a stream",
        description=(
            "Publish BODY to STREAM with the routing key KEY. Without BODY, each line of standard input is a message; "
            "with --tab, each line is KEY, a tab, and the body. The command ends when the broker has confirmed that "
            "all messages are in the journal. With --publisher, a command that was interrupted can be repeated with "
            "the same input: it skips the lines that the stream has."
        ),
    )
    parser.add_argument("stream", metavar="STREAM", help="the name of the stream")
    parser.add_argument("key", metavar="KEY", nargs="?", help="the routing key of the messages")
    parser.add_argument("body", metavar="BODY", nargs="?", help="the message (default: the lines of standard input)")
    parser.add_argument("--tab", action="store_true", help="read the key of each message from its line")
    parser.add_argument(
        "--json", action="store_true", help="read lines of JSON with key and body, as `zambezi journal export` has them"
    )
    parser.add_argument(
        "--publisher",
        metavar="NAME",
        help="count the lines under this name, and skip those that were published under it before",
    )
    add_timeout_option(parser, 30.0)
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if [arguments.key is not None, arguments.tab, arguments.json].count(True) != 1:
        raise OptionsError("give either the KEY of all messages, or --tab or --json if each line has its own")
    if arguments.publisher is not None and arguments.body is not None:
        raise OptionsError("--publisher counts the lines of standard input: leave BODY out")
    count = skipped = 0
    with client_of(arguments) as client:
        named = {} if arguments.publisher is None else {"publisher": arguments.publisher}
        stream = client.stream(arguments.stream, **named)
        before = stream.resumed(timeout=arguments.timeout) if named else 0
        try:
            for messages in _messages(arguments):
                known = min(len(messages), before - skipped)
                skipped += known
                stream.publish_many(messages[known:], timeout=arguments.timeout)
                count += len(messages) - known
        except KeyboardInterrupt:
            pass  # the flush below still confirms what was read
        stream.flush(timeout=arguments.timeout)
    print(f"{_number(count)} published to {arguments.stream}{_skipped(skipped)}", file=sys.stderr)
    return 0


def _number(count: int) -> str:
    return f"{count} {'message' if count == 1 else 'messages'}"


def _skipped(count: int) -> str:
    return f"; {_number(count)} skipped, published before" if count else ""


def _messages(arguments: argparse.Namespace) -> Iterator[list[tuple[str, bytes]]]:
    if arguments.body is not None:
        yield [(arguments.key, as_bytes(arguments.body))]
        return
    batch: list[tuple[str, bytes]] = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        text = line.removesuffix(b"\n")
        if arguments.json:
            message = parse_line(text, "standard input", number)
            batch.append((as_text(message.key), message.body))
        elif arguments.tab:
            key, tab, text = text.partition(b"\t")
            if not tab:
                raise OptionsError(f"line {number} of standard input has no tab between the key and the body")
            batch.append((as_text(key), text))
        else:
            batch.append((arguments.key, text))
        # A line that a person types is sent at once; the lines of a file are sent by the thousand.
        if len(batch) >= AT_ONCE or sys.stdin.isatty():
            yield batch
            batch = []
    if batch:
        yield batch
