"""`zambezi keygen NAME`: make a CURVE key pair."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from zambezi.cli.errors import OptionsError
from zambezi.zmtp.keys import KeyPair, name_problem, write_pair

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "keygen",
        description="Make a CURVE key pair: NAME.key is secret and stays on this machine, NAME.pub is for others.",
    )
    parser.add_argument("name", metavar="NAME", help="the name of the key pair; servers know its owner by this name")
    parser.add_argument(
        "--directory",
        metavar="DIR",
        type=Path,
        default=Path(),
        help="the directory to write to, created if it is missing (default: the current directory)",
    )
    parser.add_argument("--force", action="store_true", help="replace existing files; the old keys are lost")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    directory, slash, name = arguments.name.rpartition("/")
    if slash:
        advice = shlex.join(["zambezi", "keygen", name or "NAME", "--directory", directory or "/"])
        raise OptionsError(f"NAME has no slash: use `{advice}`")
    if problem := name_problem(name):
        raise OptionsError(f"{name!a} cannot name a key: {problem}")
    pair = KeyPair.generate()
    public_path, secret_path = write_pair(arguments.directory, arguments.name, pair, force=arguments.force)
    print(f"wrote {secret_path} (secret: keep it on this machine)")
    print(f"wrote {public_path} (public)")
    print(f"public key: {pair.public_z85}")
    print(f"next: {_next(arguments.name, public_path.name, secret_path.name)}")
    return 0


def _next(name: str, public: str, secret: str) -> str:
    """Return what to do with a key pair. A server finds its own keys by their names."""
    match name:
        case "server":
            return f"start the server with --curve DIR, the directory of {secret}, and give {public} to its clients"
        case "mesh":
            return f"every node of the mesh needs {secret}: copy it to their machines in a safe way"
        case "group":
            return f"subscribers of encrypted multicast groups need {secret}: copy it to them in a safe way"
        case _:
            return f"copy {public} into the server's directory of allowed keys"
