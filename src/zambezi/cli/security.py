"""The options of CURVE encryption, the same for every command that connects to a server."""

from __future__ import annotations

import argparse
from pathlib import Path

from zambezi.cli.errors import OptionsError
from zambezi.cli.surroundings import add_context_option, setting_of
from zambezi.zmtp.keys import KeyPair, read_pair, read_public
from zambezi.zmtp.security import CurveClient, Null, Security


def add_security_options(options: argparse._ArgumentGroup, server: str) -> None:
    """Add --server-key and --key for a command that connects to a server, such as "the broker"."""
    add_context_option(options)
    options.add_argument(
        "--server-key", metavar="FILE", type=Path, help=f"encrypt with CURVE: the public key of {server} (server.pub)"
    )
    options.add_argument(
        "--key",
        metavar="FILE",
        dest="own_key",
        type=Path,
        help=f"your own key pair (NAME.key), if {server} admits only known keys",
    )


def security_of(arguments: argparse.Namespace) -> Security:
    """Return the security of the client that the options describe: CURVE if they name the server's public key.

    Keys of the context, or of the environment, count if the command line names no key of a server.
    """
    if not hasattr(arguments, "context") or arguments.server_key is not None:
        return curve(arguments.server_key, arguments.own_key)
    server_key = _file(setting_of(arguments, "server_key"))
    own_key = arguments.own_key or (_file(setting_of(arguments, "key")) if server_key is not None else None)
    return curve(server_key, own_key)


def _file(path: str) -> Path | None:
    return Path(path) if path else None


def curve(server_key: Path | None, own_key: Path | None, own: str = "--key", server: str = "--server-key") -> Security:
    """Return CURVE with these key files, or no security without any; `own` and `server` name the options."""
    if server_key is None:
        if own_key is not None:
            raise OptionsError(f"{own} works only with {server}: add {server} FILE, the server's public key")
        return Null()
    keys = read_pair(own_key) if own_key is not None else KeyPair.generate()
    return CurveClient(read_public(server_key), keys)
