"""The security of the sockets of a node. There are three kinds:

none             every host that reaches the node is believed
keys of a mesh   all nodes share one key pair, and only its holders can connect
keys of a node   each node has a key pair of its own, as in Zyre. It learns the public keys of others by their beacons,
                 by gossip and by the header X-PUBLICKEY of HELLO, and connects only to keys that are allowed
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from zambezi.zmtp.authenticator import Authenticator, Claim
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.security import CurveClient, CurveServer, Null, Security
from zambezi.zre.contact import endpoint_of, key_of
from zambezi.zre.errors import ZreError

# The public keys of other nodes that may join: by name, in a directory, by an authenticator, or any key.
Allowed: TypeAlias = Mapping[str, bytes] | Keyring | Authenticator | Literal["any"]

ANY: Final = "any"


class NodeSecurity:
    """The security of a node with the keys of its mesh (`keys`), or with keys of its own (`node_keys`)."""

    def __init__(self, keys: KeyPair | None, node_keys: KeyPair | None, allowed: Allowed | None) -> None:
        if keys is not None and node_keys is not None:
            raise ZreError(
                "a node has the keys of its mesh or keys of its own: give it keys=... or node_keys=..., not both"
            )
        if node_keys is None and allowed is not None:
            raise ZreError("allowed=... is for a node with keys of its own: give it node_keys=... too")
        if node_keys is not None and allowed is None:
            raise ZreError(
                "a node with keys of its own must know which other keys may join: give it allowed=... with the public "
                'keys of the other nodes, or allowed="any"'
            )
        if isinstance(allowed, str) and allowed != ANY:
            raise ZreError(
                f'allowed must be public keys by name, a Keyring, an Authenticator or "any", not {allowed!r}'
            )
        self._node_keys = node_keys
        self.server: Security = Null()
        self.authenticator: Authenticator | None = None
        self._client: Security = Null()
        if keys is not None:
            self.server = CurveServer(keys)
            self.authenticator = Authenticator(keys={"mesh": keys.public})
            self._client = CurveClient(keys.public, keys)
        elif node_keys is not None:
            self.server = CurveServer(node_keys)
            self.authenticator = _authenticator(allowed)

    @property
    def is_encrypted(self) -> bool:
        """Whether all connections are encrypted."""
        return self.authenticator is not None

    @property
    def has_node_keys(self) -> bool:
        """Whether the node has keys of its own."""
        return self._node_keys is not None

    @property
    def public_key(self) -> bytes:
        """The public key that the node tells others; empty if it has no keys of its own."""
        return self._node_keys.public if self._node_keys is not None else b""

    def client(self, contact: str) -> Security:
        """Return the security of a connection to a contact."""
        key = key_of(contact)
        if self._node_keys is None:
            if key != b"":
                raise ZreError(
                    f"{contact!r} has the key of a node, which is for nodes with keys of their own: leave the key out, "
                    "or give this node a key pair of its own, too"
                )
            return self._client
        if not key:
            raise ZreError(
                f"{endpoint_of(contact)!r} has no public key, or a malformed one: write ENDPOINT|KEY, with the 40 "
                "characters of the key of the node there"
            )
        return CurveClient(key, self._node_keys)

    @property
    def generation(self) -> int:
        """A number that grows whenever the allowed keys change."""
        return self.authenticator.generation if self.authenticator is not None else 0

    def allows(self, key: bytes) -> bool:
        """Return whether the holder of a public key may join."""
        return self.authenticator is None or self.authenticator.judge(Claim("CURVE", "", key=key)).allowed


def allowed_keys(text: str) -> Allowed:
    """Return the allowed keys by a configuration: `any`, or a directory of `NAME.pub` files."""
    return ANY if text == ANY else Keyring(text)


def _authenticator(allowed: Allowed | None) -> Authenticator:
    if isinstance(allowed, Authenticator):
        return allowed
    return Authenticator(keys=None if isinstance(allowed, str) else allowed)
