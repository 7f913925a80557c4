"""`zambezi pub`: publish to a stream, from the command line or from standard input."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zambezi.cli.client import add_client_options, add_timeout_option, client_of
from zambezi.cli.counts import so_many
from zambezi.cli.errors import InputError, OptionsError
from zambezi.cli.exported import parse_line
from zambezi.cli.quantity import count
from zambezi.wire.text import as_bytes, as_text, printable
from zambezi.zeps.errors import TimedOut

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

AT_ONCE: Final = 1000  # messages of one call


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "pub",
        description=(
            "Publish BODY to STREAM with the routing key KEY. Without BODY, each line of standard input is a message; "
            "with --tab, each line is KEY, a tab, and the body; with --file, each file is a message. The command ends "
            "when the broker has confirmed that "
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
        "--file",
        metavar="FILE",
        dest="files",
        type=Path,
        action="append",
        help="publish the content of a file as one message, `-` for standard input (can be repeated)",
    )
    parser.add_argument("--repeat", metavar="N", type=count, default=1, help="publish BODY or the files so many times")
    parser.add_argument(
        "--rate",
        metavar="N",
        type=count,
        help="publish at most so many messages per second (default: no limit)",
    )
    parser.add_argument(
        "--publisher",
        metavar="NAME",
        help="count the lines under this name, and skip those that were published under it before",
    )
    add_timeout_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if [arguments.key is not None, arguments.tab, arguments.json].count(True) != 1:
        raise OptionsError("give either the KEY of all messages, or --tab or --json if each line has its own")
    _check(arguments)
    read = published = skipped = 0
    interrupted: KeyboardInterrupt | None = None
    with client_of(arguments) as client:
        named = {} if arguments.publisher is None else {"publisher": arguments.publisher}
        stream = client.stream(arguments.stream, **named)
        before = stream.resumed(timeout=arguments.timeout) if named else 0
        try:
            try:
                for messages in _messages(arguments):
                    read += len(messages)
                    known = min(len(messages), before - skipped)
                    skipped += known
                    for some in paced(messages[known:], arguments.rate):
                        stream.publish_many(some, timeout=arguments.timeout)
                        published += len(some)
            except KeyboardInterrupt as signalled:
                interrupted = signalled  # the flush below still confirms what was read
            stream.flush(timeout=arguments.timeout)
        except TimedOut as error:
            confirmed = skipped + stream.counters.confirmed
            advice = "; the same command goes on after them" if named else ""
            raise TimedOut(f"{error}. Confirmed are {confirmed:,} of {so_many(read, 'message')}{advice}") from error
    print(
        f"{so_many(published, 'message')} published to {printable(arguments.stream)}{_skipped(skipped)}",
        file=sys.stderr,
    )
    if interrupted is not None and (arguments.body is not None or arguments.files is not None):
        raise interrupted  # Ctrl-C is the usual end of lines that are typed, but not of a number of messages
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Raise an error for options that do not go together."""
    is_given = arguments.body is not None or arguments.files is not None
    if arguments.body is not None and arguments.files is not None:
        raise OptionsError("give BODY or --file, not both")
    if is_given and arguments.key is None:
        raise OptionsError("the key of a file is KEY: --tab and --json are for lines")
    if is_given and arguments.publisher is not None:
        raise OptionsError("--publisher counts the lines of standard input: leave BODY and --file out")
    if arguments.repeat > 1 and not is_given:
        raise OptionsError("--repeat needs BODY or --file: standard input can be read only once")


def paced(
    messages: list[tuple[str, bytes]],
    rate: int | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[list[tuple[str, bytes]]]:
    """Yield messages at a rate: many times per second some of them."""
    if rate is None:
        yield messages
        return
    began = clock()
    done = 0
    while done < len(messages):
        due = min(len(messages), int((clock() - began) * rate) + 1)
        if due > done:
            yield messages[done:due]
            done = due
        else:
            sleep(max(0.0, began + done / rate - clock()))


def _skipped(count: int) -> str:
    return f"; {so_many(count, 'message')} skipped, published before" if count else ""


def _content(path: Path) -> bytes:
    return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()


def _messages(arguments: argparse.Namespace) -> Iterator[list[tuple[str, bytes]]]:
    if arguments.body is not None or arguments.files is not None:
        bodies = [as_bytes(arguments.body)] if arguments.files is None else [_content(path) for path in arguments.files]
        messages = [(arguments.key, body) for body in bodies]
        left = arguments.repeat
        while left:
            rounds = min(left, max(1, AT_ONCE // len(messages)))
            yield messages * rounds
            left -= rounds
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
                raise InputError(f"line {number} of standard input has no tab between the key and the body")
            batch.append((as_text(key), text))
        else:
            batch.append((arguments.key, text))
        # A line that a person types is sent at once; the lines of a file are sent by the thousand.
        if len(batch) >= AT_ONCE or sys.stdin.isatty():
            yield batch
            batch = []
    if batch:
        yield batch
