"""The options of every command that talks to an MCollective middleware, and the connector that they describe."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from zambezi.mcollective.errors import McollectiveError
from zambezi.zmtp.face import SocketArguments
from zambezi.zmtp.keys import KeyPair, read_pair, read_public
from zambezi.zmtp.security import CurveClient

# The port that MCollective's middlewares have had since the days of STOMP.
ENDPOINT: Final = "tcp://127.0.0.1:61616"


def add_middleware_options(parser: argparse.ArgumentParser) -> None:
    """Where the middleware is, and who we are to it."""
    options = parser.add_argument_group("the middleware")
    options.add_argument(
        "--connect", metavar="ENDPOINT", default=ENDPOINT, help=f"where the middleware is (default: {ENDPOINT})"
    )
    options.add_argument("--key", metavar="FILE", type=Path, help="our CURVE keys (NAME.key)")
    options.add_argument("--server-key", metavar="FILE", type=Path, help="the middleware's public key: encrypt")


def connector_options(arguments: argparse.Namespace) -> SocketArguments:
    """The options of a connector that a command line asks for."""
    if arguments.server_key is None:
        if arguments.key is not None:
            raise McollectiveError("--key is for CURVE: say --server-key FILE too, the middleware's public key")
        return {}
    keys = read_pair(arguments.key) if arguments.key is not None else KeyPair.generate()
    return {"security": CurveClient(read_public(arguments.server_key), keys)}
