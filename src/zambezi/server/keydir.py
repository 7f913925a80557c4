"""The key directory: one place for the keys of all services of a server.

keys/
    server.key      the server's secret           zambezi keygen server --directory keys
    server.pub      its public key: for the clients
    allowed/        a NAME.pub for each client that may connect
    group.key       seals multicast groups        zambezi keygen group --directory keys
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zambezi.server.errors import KeyDirectoryError
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.keys import KeyPair, read_pair
from zambezi.zmtp.security import CurveServer

SECRET: Final = "server.key"  # noqa: S105 - the name of a file
ALLOWED: Final = "allowed"
GROUP: Final = "group.key"


@dataclass(frozen=True, slots=True)
class KeyDirectory:
    """The server's key pair, and who may connect."""

    pair: KeyPair
    authenticator: Authenticator
    group_key: bytes = b""  # what multicast is sealed with

    @property
    def security(self) -> CurveServer:
        return CurveServer(self.pair)

    @classmethod
    def read(cls, path: Path) -> KeyDirectory:
        secret, allowed = path / SECRET, path / ALLOWED
        if not secret.exists():
            raise KeyDirectoryError(f"{secret} is not there; make it: zambezi keygen server --directory {path}")
        if not allowed.is_dir():
            raise KeyDirectoryError(
                f"{allowed} is not there, so that nobody may connect; make it, and copy the NAME.pub of each client "
                f"into it"
            )
        group = path / GROUP
        group_key = read_pair(group).secret if group.exists() else b""
        return cls(read_pair(secret), Authenticator(keys=Keyring(allowed)), group_key)
