"""The options of every command that connects to a broker of streams, and the client that they describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zambezi.cli.security import add_security_options, security_of
from zambezi.zeps.sync import Client

if TYPE_CHECKING:
    import argparse

ENDPOINT: Final = "tcp://127.0.0.1:5671"


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the broker and the keys."""
    options = parser.add_argument_group("the broker")
    options.add_argument(
        "--endpoint", metavar="ENDPOINT", default=ENDPOINT, help=f"the endpoint of the broker (default: {ENDPOINT})"
    )
    add_security_options(options, "the broker")


def client_of(arguments: argparse.Namespace, group_key: bytes = b"") -> Client:
    """Return the client that the options describe."""
    return Client.connect(arguments.endpoint, security=security_of(arguments), group_key=group_key)
