"""The key directory."""

from pathlib import Path

import pytest

from zambezi.server.errors import KeyDirectoryError
from zambezi.server.keydir import KeyDirectory
from zambezi.zmtp.keys import KeyPair, write_pair


def test_it_has_the_servers_pair_and_those_allowed(tmp_path: Path) -> None:
    server, ann = KeyPair.generate(), KeyPair.generate()
    write_pair(tmp_path, "server", server)
    write_pair(tmp_path / "allowed", "ann", ann)
    keys = KeyDirectory.read(tmp_path)
    assert keys.pair.public == server.public


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(KeyDirectoryError, match="zambezi keygen server"):
        KeyDirectory.read(tmp_path)
    write_pair(tmp_path, "server", KeyPair.generate())
    with pytest.raises(KeyDirectoryError, match="nobody may connect"):
        KeyDirectory.read(tmp_path)
