"""zambezi.zre.security: the keys of a mesh, the keys of a node, and which keys are let in."""

from pathlib import Path
from typing import Any

import pytest

from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.keys import KeyPair, write_pair
from zambezi.zmtp.security import CurveClient, CurveServer, Null
from zambezi.zre.contact import with_key
from zambezi.zre.errors import ZreError
from zambezi.zre.security import NodeSecurity

OURS, ANN, EVE = (KeyPair.generate(seed=bytes([number]) * 32) for number in (1, 2, 3))
ENDPOINT = "tcp://10.0.0.2:2"


def test_without_keys_nothing_is_encrypted() -> None:
    security = NodeSecurity(None, None, None)
    assert (security.server, security.authenticator, security.client(ENDPOINT)) == (Null(), None, Null())
    assert (security.is_encrypted, security.has_node_keys, security.public_key) == (False, False, b"")


def test_the_keys_of_a_mesh_are_those_of_all_its_nodes() -> None:
    security = NodeSecurity(OURS, None, None)
    assert isinstance(security.server, CurveServer)
    assert security.client(ENDPOINT) == CurveClient(OURS.public, OURS)
    assert (security.is_encrypted, security.has_node_keys, security.public_key) == (True, False, b"")
    assert security.allows(OURS.public)
    assert not security.allows(ANN.public)


@pytest.mark.parametrize("kind", ["mapping", "directory", "authenticator"])
def test_a_node_with_keys_of_its_own_lets_in_the_keys_that_the_operator_allows(kind: str, tmp_path: Path) -> None:
    write_pair(tmp_path, "ann", ANN)
    (tmp_path / "ann.key").unlink()
    allowed: Any = {
        "mapping": {"ann": ANN.public},
        "directory": Keyring(tmp_path),
        "authenticator": Authenticator(keys={"ann": ANN.public}),
    }[kind]
    security = NodeSecurity(None, OURS, allowed)
    assert (security.is_encrypted, security.has_node_keys, security.public_key) == (True, True, OURS.public)
    assert security.client(with_key(ENDPOINT, ANN.public)) == CurveClient(ANN.public, OURS)
    assert security.allows(ANN.public)
    assert not security.allows(EVE.public)
    assert not security.allows(b"")


def test_any_key_is_let_in_if_the_operator_says_so() -> None:
    security = NodeSecurity(None, OURS, "any")
    assert security.allows(EVE.public)
    assert not security.allows(b"")


@pytest.mark.parametrize("contact", [ENDPOINT, f"{ENDPOINT}|", f"{ENDPOINT}|nonsense"])
def test_a_connection_needs_the_key_of_the_other_node(contact: str) -> None:
    with pytest.raises(ZreError, match=r"write ENDPOINT\|KEY"):
        NodeSecurity(None, OURS, "any").client(contact)


@pytest.mark.parametrize("contact", [f"{ENDPOINT}|", f"{ENDPOINT}|nonsense", f"{ENDPOINT}|{OURS.public_z85}"])
@pytest.mark.parametrize("keys", [None, ANN])
def test_the_key_of_another_node_is_for_nodes_with_keys_of_their_own(contact: str, keys: KeyPair | None) -> None:
    with pytest.raises(ZreError, match="leave the key out, or give this node a key pair of its own"):
        NodeSecurity(keys, None, None).client(contact)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((OURS, ANN, "any"), "not both"),
        ((None, OURS, None), 'allowed="any"'),
        ((None, None, "any"), "give it node_keys"),
        ((None, OURS, "some"), "not 'some'"),
    ],
)
def test_mistakes_are_explained(arguments: tuple[Any, Any, Any], error: str) -> None:
    with pytest.raises(ZreError, match=error):
        NodeSecurity(*arguments)
