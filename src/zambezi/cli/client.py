"""The options of every command that connects to a broker of streams, and the client that they describe."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from zambezi.cli.security import add_security_options, security_of
from zambezi.zeps.sync import Client

ENDPOINT: Final = "tcp://127.0.0.1:5671"


class _JoinedEndpoints(argparse.Action):
    """Joins the endpoints of an option that is given several times."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        _option: str | None = None,
    ) -> None:
        namespace.endpoints = [*getattr(namespace, "endpoints", ()), values]
        setattr(namespace, self.dest, ",".join(namespace.endpoints))


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the broker and the keys."""
    options = parser.add_argument_group("the broker")
    options.add_argument(
        "--endpoint",
        metavar="ENDPOINT",
        action=_JoinedEndpoints,
        default=ENDPOINT,
        help=f"the endpoint of the broker (default: {ENDPOINT}); give it several times for brokers that share a store",
    )
    add_security_options(options, "the broker")


def client_of(arguments: argparse.Namespace, group_key: bytes = b"") -> Client:
    """Return the client that the options describe."""
    return Client.connect(arguments.endpoint, security=security_of(arguments), group_key=group_key)
