"""The key directory: one place for the keys of all services of a server.

keys/
    server.key      the server's secret           zambezi keygen server --directory keys
    server.pub      its public key: for the clients
    allowed/        a NAME.pub for each client that may connect
    group.key       seals multicast groups        zambezi keygen group --directory keys
    mesh.key        lets into the mesh            zambezi keygen mesh --directory keys; every node needs it
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
MESH: Final = "mesh.key"


@dataclass(frozen=True, slots=True)
class KeyDirectory:
    """The server's key pair, and who may connect."""

    pair: KeyPair
    ring: Keyring
    authenticator: Authenticator
    group_key: bytes = b""  # what multicast is sealed with
    mesh: KeyPair | None = None  # what nodes of the mesh know each other by

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
        group, mesh = path / GROUP, path / MESH
        ring = Keyring(allowed)
        return cls(
            read_pair(secret),
            ring,
            Authenticator(keys=ring),
            group_key=read_pair(group).secret if group.exists() else b"",
            mesh=read_pair(mesh) if mesh.exists() else None,
        )

    @property
    def problems(self) -> list[str]:
        """What in `allowed/` lets nobody in, and why."""
        return sorted(self.ring.problems.values())

    @property
    def names(self) -> set[str]:
        """Those who may connect."""
        return {name for names in self.ring.keys.values() for name in names}
