"""The options of every command that connects to an MCollective middleware."""

from __future__ import annotations

import argparse
from typing import Final

from zambezi.cli.quantity import endpoint
from zambezi.cli.security import add_security_options
from zambezi.cli.surroundings import setting_of

# The usual port of MCollective's middlewares since they spoke STOMP.
ENDPOINT: Final = "tcp://127.0.0.1:61616"


def add_middleware_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the middleware and the keys."""
    options = parser.add_argument_group("the middleware")
    options.add_argument(
        "--connect",
        metavar="ENDPOINT",
        type=endpoint,
        help=f"the endpoint of the middleware (default: $ZAMBEZI_MIDDLEWARE, or that of the context, or {ENDPOINT})",
    )
    add_security_options(options, "the middleware")


def middleware_of(arguments: argparse.Namespace) -> str:
    """Return the endpoint of the middleware: of the options, the environment or the context."""
    given: str | None = arguments.connect
    return given or setting_of(arguments, "middleware") or ENDPOINT
