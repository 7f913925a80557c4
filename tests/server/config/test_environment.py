"""The check of a configuration against this machine."""

import dataclasses
import os
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from zambezi.server.config import Config, environment, parse
from zambezi.server.config.environment import Finding, examine
from zambezi.zmtp.keys import KeyPair, write_pair
from zambezi.zre.interfaces import Interface

TOKEN = "0c1f6f0e9a7b43d2"


def config_of(path: Path, text: str = "") -> Config:
    config = parse(f'[server]\ndata = "{path}/data"\nkeys = "{path}/keys"\n{text}')
    return dataclasses.replace(config, console=dataclasses.replace(config.console, token=TOKEN))


@pytest.fixture
def keys(bare_keys: Path) -> Path:
    write_pair(bare_keys, "mesh", KeyPair.generate())
    return bare_keys


@pytest.fixture
def bare_keys(tmp_path: Path) -> Path:
    """Return a key directory without a key for the mesh."""
    path = tmp_path / "keys"
    write_pair(path, "server", KeyPair.generate())
    write_pair(path / "allowed", "ann", KeyPair.generate())
    (path / "allowed" / "ann.key").unlink()
    return path


def only(config: Config) -> Finding:
    (found,) = examine(config)
    return found


def test_a_configuration_that_fits_the_machine_has_no_findings(tmp_path: Path, keys: Path) -> None:
    assert examine(config_of(tmp_path, '[[rules]]\nkeys = ["ann", "sensor-*"]\npublish = ["*"]')) == []


def test_data_needs_a_directory_or_a_place_for_one(tmp_path: Path, keys: Path) -> None:
    (tmp_path / "data").write_text("")
    found = only(config_of(tmp_path))
    assert (found.path, found.is_mistake) == (("server", "data"), True)
    assert "is not a directory" in found.problem


def test_data_that_cannot_be_written_to(tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # because root can write everywhere
    assert f"this user cannot write to {tmp_path};" in only(config_of(tmp_path)).problem


def test_data_on_a_read_only_file_system(tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = os.statvfs_result((*os.statvfs(tmp_path)[:8], os.ST_RDONLY, 255))
    monkeypatch.setattr("os.statvfs", lambda path: flags)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    problem = f"{tmp_path} is on a read-only file system; mount it for writing, or name another directory"
    assert only(config_of(tmp_path)).problem == problem


def test_a_secret_key_that_is_missing_or_that_other_users_can_read(tmp_path: Path, keys: Path) -> None:
    (keys / "server.key").chmod(0o644)
    assert "chmod 600" in only(config_of(tmp_path)).problem
    (keys / "server.key").unlink()
    found = only(config_of(tmp_path))
    assert (found.path, found.is_mistake) == (("server", "keys"), True)
    assert "zambezi keygen server" in found.problem


def test_a_file_that_is_no_key_is_a_warning(tmp_path: Path, keys: Path) -> None:
    (keys / "allowed" / "bob.pub").write_text("junk")
    found = only(config_of(tmp_path))
    assert not found.is_mistake
    assert "bob.pub: holds no public key" in found.problem


def test_a_rule_that_names_a_missing_key_is_a_warning(tmp_path: Path, keys: Path) -> None:
    found = only(config_of(tmp_path, '[[rules]]\n[[rules]]\nkeys = ["ann", "anne"]'))
    assert (found.path, found.is_mistake) == (("rules", 1, "keys"), False)
    assert found.problem == f"{keys}/allowed has no key anne; it has: ann"


def test_rules_by_name_need_keys(tmp_path: Path) -> None:
    found = only(parse(f'[server]\ndata = "{tmp_path}"\n[[rules]]\nkeys = ["ann"]'))
    assert (found.path, found.is_mistake) == (("rules", 0, "keys"), True)
    assert "no keys are configured" in found.problem
    assert examine(parse(f'[server]\ndata = "{tmp_path}"\n[[rules]]\nsubscribe = ["*"]')) == []


def test_an_interface_that_does_not_exist(tmp_path: Path, keys: Path) -> None:
    found = only(config_of(tmp_path, '[zre]\ninterface = "nosuch0"'))
    assert (found.path, found.is_mistake) == (("zre", "interface"), True)


def test_a_mesh_key_that_does_not_exist(tmp_path: Path, keys: Path) -> None:
    assert only(config_of(tmp_path, f'[zre]\nkey = "{tmp_path}/none"')).path == ("zre", "key")


def test_the_key_of_a_node_and_the_keys_that_it_allows(tmp_path: Path, bare_keys: Path) -> None:
    node = f'[zre]\nnode_key = "{bare_keys}/server.key"\n'
    assert only(config_of(tmp_path, f'[zre]\nnode_key = "{tmp_path}/none"\nallowed = "{tmp_path}"')).path == (
        "zre",
        "node_key",
    )
    found = only(config_of(tmp_path, f'{node}allowed = "{tmp_path}/none"'))
    assert (found.path, found.is_mistake) == (("zre", "allowed"), True)
    found = only(config_of(tmp_path, f'{node}allowed = "any"'))
    assert (found.path, found.is_mistake) == (("zre", "allowed"), False)
    assert examine(config_of(tmp_path, f'{node}allowed = "{bare_keys}/allowed"')) == []


def test_a_server_with_keys_needs_a_key_for_a_mesh_on_a_real_network(
    tmp_path: Path, bare_keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = Interface("eth7", IPv4Interface("10.0.0.7/24"), True)
    monkeypatch.setattr(environment, "choose", lambda wanted, ipv6: [outside])
    found = only(config_of(tmp_path, '[zre]\ninterface = "eth7"'))
    assert (found.path, found.is_mistake) == (("zre", "interface"), True)
    assert "zambezi keygen mesh" in found.problem
    assert examine(config_of(tmp_path, '[zre]\ninterface = "eth7"\nclear = true')) == []
    write_pair(bare_keys, "mesh", KeyPair.generate())
    assert examine(config_of(tmp_path, '[zre]\ninterface = "eth7"')) == []


def test_a_server_with_keys_needs_a_key_for_a_mesh_on_loopback_too(tmp_path: Path, bare_keys: Path) -> None:
    found = only(config_of(tmp_path))
    assert (found.path, found.is_mistake) == (("zre", "interface"), True)
    assert "the mesh on lo" in found.problem
    for accepted in ("clear = true", "enabled = false", f'key = "{bare_keys}/server.key"'):
        assert examine(config_of(tmp_path, f"[zre]\n{accepted}")) == []
    write_pair(bare_keys, "mesh", KeyPair.generate())
    assert examine(config_of(tmp_path)) == []


def test_a_missing_directory_of_results_is_a_warning(tmp_path: Path, keys: Path) -> None:
    found = only(config_of(tmp_path, f'[console]\nresults = "{tmp_path}/none"'))
    assert (found.path, found.is_mistake) == (("console", "results"), False)


def test_keys_that_every_user_can_change_are_a_mistake(tmp_path: Path, keys: Path) -> None:
    for path in (keys, keys / "allowed", keys / "allowed" / "ann.pub"):
        before = path.stat().st_mode
        path.chmod(before | 0o002)
        found = only(config_of(tmp_path))
        assert (found.path, found.is_mistake) == (("server", "keys"), True)
        assert found.problem.startswith(f"every user of this machine can change {path}, ")
        path.chmod(before | 0o020)
        found = only(config_of(tmp_path))
        assert not found.is_mistake
        assert found.problem.startswith(f"a group can change {path}, ")
        path.chmod(before)


def test_a_broken_link_in_allowed_is_no_finding_of_its_own(tmp_path: Path, keys: Path) -> None:
    (keys / "allowed" / "old.txt").symlink_to(tmp_path / "none")
    assert examine(config_of(tmp_path)) == []


def test_a_group_needs_a_key_if_the_server_has_keys(tmp_path: Path, keys: Path) -> None:
    text = '[zeps.streams.prices]\nmulticast = "udp://239.77.1.1:5680"'
    found = only(config_of(tmp_path, text))
    assert (found.path, found.is_mistake) == (("zeps", "streams", "prices", "multicast"), True)
    assert "zambezi keygen group" in found.problem
    write_pair(keys, "group", KeyPair.generate())
    assert examine(config_of(tmp_path, text)) == []


def test_a_token_that_every_user_can_read_is_a_warning(tmp_path: Path, keys: Path) -> None:
    file = tmp_path / "zambezi.toml"
    file.touch()
    file.chmod(0o640)
    assert examine(config_of(tmp_path), file) == []
    file.chmod(0o644)
    (found,) = examine(config_of(tmp_path), file)
    assert (found.path, found.is_mistake) == (("console", "token"), False)
    assert f"chmod o-r {file}" in found.problem
    file.chmod(0o642)
    (found,) = examine(config_of(tmp_path), file)
    assert "can change" in found.problem


def test_a_mesh_without_a_key_on_a_real_network_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = Interface("eth7", IPv4Interface("10.0.0.7/24"), True)
    monkeypatch.setattr(environment, "choose", lambda wanted, ipv6: [outside])
    found = only(parse(f'[server]\ndata = "{tmp_path}"\n[zre]\ninterface = "eth7"'))
    assert (found.path, found.is_mistake) == (("zre", "interface"), False)
    assert "every machine in the network of eth7 (10.0.0.7) can join" in found.problem


def test_the_keys_of_a_mirror_must_exist(tmp_path: Path, keys: Path) -> None:
    text = '[[zeps.mirrors]]\nsource = "tcp://berlin:5671"\nstream = "s"\n'
    found = only(config_of(tmp_path, f'{text}server_key = "{tmp_path}/berlin.pub"'))
    assert (found.path, found.is_mistake) == (("zeps", "mirrors", 0, "server_key"), True)
    assert examine(config_of(tmp_path, f'{text}server_key = "{keys}/server.pub"')) == []


def test_a_rule_can_name_the_console_if_it_has_a_token(tmp_path: Path, keys: Path) -> None:
    config = config_of(tmp_path, '[[rules]]\nkeys = ["console"]\npublish = ["*"]')
    assert examine(config) == []
    without = dataclasses.replace(config, console=dataclasses.replace(config.console, token=""))
    assert any("has no key console" in one.problem for one in examine(without))
