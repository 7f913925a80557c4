"""The options of every command that talks to a broker of streams, and the client that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from zambezi.errors import ZambeziError
from zambezi.zeps.sync import Client
from zambezi.zmtp.keys import KeyPair, read_pair, read_public
from zambezi.zmtp.security import CurveClient, Null, Security

if TYPE_CHECKING:
    import argparse

ENDPOINT: Final = "tcp://127.0.0.1:5671"


class OptionsError(ZambeziError):
    """Options that do not go together."""


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """Where the broker is, and who we are to it."""
    options = parser.add_argument_group("the broker")
    options.add_argument("--endpoint", metavar="ENDPOINT", default=ENDPOINT, help=f"where it is (default: {ENDPOINT})")
    options.add_argument("--server-key", metavar="FILE", type=Path, help="its public key (server.pub): encrypt")
    options.add_argument(
        "--key", metavar="FILE", dest="own_key", type=Path, help="our own keys, where the server lets in only some"
    )


def security_of(arguments: argparse.Namespace) -> Security:
    """The security that a command line asks for."""
    if arguments.server_key is None:
        if arguments.own_key is not None:
            raise OptionsError("--key is of use with --server-key only: the public key of the server")
        return Null()
    keys = read_pair(arguments.own_key) if arguments.own_key is not None else KeyPair.generate()
    return CurveClient(read_public(arguments.server_key), keys)


def client_of(arguments: argparse.Namespace, group_key: bytes = b"") -> Client:
    """The client that a command line asks for."""
    return Client.connect(arguments.endpoint, security=security_of(arguments), group_key=group_key)
