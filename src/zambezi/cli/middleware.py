"""The options of every command that connects to an MCollective middleware."""

from __future__ import annotations

import argparse
from typing import Final

from zambezi.cli.security import add_security_options

# The usual port of MCollective's middlewares since they spoke STOMP.
ENDPOINT: Final = "tcp://127.0.0.1:61616"


def add_middleware_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the middleware and the keys."""
    options = parser.add_argument_group("the middleware")
    options.add_argument(
        "--connect", metavar="ENDPOINT", default=ENDPOINT, help=f"the endpoint of the middleware (default: {ENDPOINT})"
    )
    add_security_options(options, "the middleware")
