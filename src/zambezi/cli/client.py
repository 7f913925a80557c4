"""The options of every command that connects to a broker of streams, and the client that they describe."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from zambezi.cli.notices import show_warnings
from zambezi.cli.quantity import endpoints, seconds
from zambezi.cli.security import add_security_options, security_of
from zambezi.cli.surroundings import setting_of
from zambezi.zeps.sync import Client

ENDPOINT: Final = "tcp://127.0.0.1:5671"
LOOK: Final = 5.0  # seconds that a command waits for a broker, if it only looks
WORK: Final = 60.0  # seconds for commands that let the broker do something


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
        type=endpoints,
        action=_JoinedEndpoints,
        help=f"the endpoint of the broker (default: $ZAMBEZI_ENDPOINT, or that of the context, or {ENDPOINT}); give it "
        "several times for brokers that share a store",
    )
    add_security_options(options, "the broker")


def add_timeout_option(parser: argparse.ArgumentParser, *, only_looks: bool = False) -> None:
    """Add --timeout: how long a command waits for the broker."""
    default = LOOK if only_looks else WORK
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=seconds,
        default=default,
        help=f"how long to wait for the broker (default: {default:g}s)",
    )


def endpoint_of(arguments: argparse.Namespace) -> str:
    """Return the endpoint of the broker, or several with commas: of the options, the environment or the context."""
    given: str | None = arguments.endpoint
    return given or setting_of(arguments, "endpoint") or ENDPOINT


def client_of(arguments: argparse.Namespace, group_key: bytes = b"") -> Client:
    """Return the client that the options describe. Its warnings are shown: no command waits for a broker in silence."""
    show_warnings()
    return Client.connect(endpoint_of(arguments), security=security_of(arguments), group_key=group_key)
