"""The key directory."""

from pathlib import Path

import pytest

from zambezi.server.errors import KeyDirectoryError
from zambezi.server.keydir import KeyDirectory
from zambezi.zmtp.keys import KeyPair, write_pair


def test_it_has_the_servers_key_pair_and_the_allowed_clients(tmp_path: Path) -> None:
    server, ann = KeyPair.generate(), KeyPair.generate()
    write_pair(tmp_path, "server", server)
    write_pair(tmp_path / "allowed", "ann", ann)
    keys = KeyDirectory.read(tmp_path)
    assert keys.pair.public == server.public
    assert keys.names == {"ann"}
    (problem,) = keys.problems  # write_pair has left the secret key there, too
    assert "ann.key" in problem


def test_an_error_names_the_missing_file(tmp_path: Path) -> None:
    with pytest.raises(KeyDirectoryError, match="zambezi keygen server"):
        KeyDirectory.read(tmp_path)
    write_pair(tmp_path, "server", KeyPair.generate())
    with pytest.raises(KeyDirectoryError, match="no client can connect"):
        KeyDirectory.read(tmp_path)


def test_keys_that_were_replaced_are_named(tmp_path: Path) -> None:
    write_pair(tmp_path, "server", KeyPair.generate())
    write_pair(tmp_path / "allowed", "ann", KeyPair.generate())
    keys = KeyDirectory.read(tmp_path)
    assert keys.replaced_in(tmp_path) == []
    write_pair(tmp_path, "mesh", KeyPair.generate())
    assert keys.replaced_in(tmp_path) == [str(tmp_path / "mesh.key")]
    write_pair(tmp_path, "server", KeyPair.generate(), force=True)
    assert keys.replaced_in(tmp_path) == [str(tmp_path / "server.key"), str(tmp_path / "mesh.key")]
    (tmp_path / "server.key").write_text("nonsense")
    [problem] = keys.replaced_in(tmp_path)
    assert problem.startswith(str(tmp_path / "server.key"))
