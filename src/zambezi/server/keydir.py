"""The key directory: one place for the keys of all services of a server.

keys/
    server.key      the server's secret key           zambezi keygen server --directory keys
    server.pub      the server's public key, which every client needs
    allowed/        a NAME.pub for each client that may connect
    group.key       encrypts multicast groups         zambezi keygen group --directory keys
    mesh.key        encrypts the mesh; every node needs it    zambezi keygen mesh --directory keys
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zambezi.server.errors import KeyDirectoryError
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.keys import KeyFileError, KeyPair, read_pair
from zambezi.zmtp.security import CurveServer

SECRET: Final = "server.key"  # noqa: S105 - the name of a file
ALLOWED: Final = "allowed"
GROUP: Final = "group.key"
MESH: Final = "mesh.key"


@dataclass(frozen=True, slots=True)
class KeyDirectory:
    """The server's key pair, and the keys of the clients that may connect."""

    pair: KeyPair
    ring: Keyring
    authenticator: Authenticator
    group_key: bytes = b""  # encrypts multicast groups
    mesh: KeyPair | None = None  # the key pair that all nodes of the mesh share

    @property
    def security(self) -> CurveServer:
        return CurveServer(self.pair)

    @classmethod
    def read(cls, path: Path) -> KeyDirectory:
        """Read the keys in a directory. Raise `KeyDirectoryError` if it is incomplete."""
        secret, allowed = path / SECRET, path / ALLOWED
        if not secret.exists():
            raise KeyDirectoryError(f"{secret} does not exist; make it with zambezi keygen server --directory {path}")
        if not allowed.is_dir():
            raise KeyDirectoryError(
                f"{allowed} does not exist, so no client can connect; make it, and copy the NAME.pub of each client "
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

    def replaced_in(self, path: Path) -> list[str]:
        """Return the files whose secret keys are not those that the server uses: it reads them when it is started."""
        try:
            now = self.read(path)
        except (KeyDirectoryError, KeyFileError) as error:
            return [str(error)]
        pairs = ((SECRET, self.pair, now.pair), (GROUP, self.group_key, now.group_key), (MESH, self.mesh, now.mesh))
        return [str(path / name) for name, before, after in pairs if before != after]

    @property
    def problems(self) -> list[str]:
        """The files in `allowed/` that are ignored, and why."""
        return sorted(self.ring.problems.values())

    @property
    def names(self) -> set[str]:
        """The names of the clients that may connect."""
        return {name for names in self.ring.keys.values() for name in names}
