"""`zambezi request`: ask a server of a stream, and print its reply."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from zambezi.cli.client import add_client_options, client_of
from zambezi.cli.errors import OptionsError
from zambezi.cli.notices import telling
from zambezi.cli.quantity import seconds
from zambezi.wire.text import as_bytes

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "request",
        description=(
            "Send BODY as a request with the routing key KEY to a program that serves STREAM, and print the reply. "
            "Without BODY, the request is the content of --file, or of standard input if that is not a terminal. The "
            "exit status is 1 if no server listens, if no reply comes in time, or if the server answers with an error."
        ),
    )
    parser.add_argument("stream", metavar="STREAM", help="the name of the stream")
    parser.add_argument("key", metavar="KEY", help="the routing key of the request")
    parser.add_argument("body", metavar="BODY", nargs="?", help="the request (default: standard input)")
    parser.add_argument("--file", metavar="FILE", type=Path, help="the file with the request")
    parser.add_argument(
        "--timeout", metavar="TIME", type=seconds, default=10.0, help="how long to wait for the reply (default: 10s)"
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    body = _body(arguments)
    with client_of(arguments) as client:
        stream = client.stream(arguments.stream)
        with telling(f"waiting for a reply of {arguments.stream}, for up to {arguments.timeout:g} s"):
            reply = stream.request(arguments.key, body, timeout=arguments.timeout)
    sys.stdout.buffer.write(reply)
    if sys.stdout.isatty() and not reply.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    return 0


def _body(arguments: argparse.Namespace) -> bytes:
    if arguments.body is not None and arguments.file is not None:
        raise OptionsError("give either BODY or --file")
    if arguments.body is not None:
        return as_bytes(arguments.body)
    if arguments.file is not None:
        content: bytes = arguments.file.read_bytes()
        return content
    return b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
