"""The files in deploy/ are correct: the unit, the Containerfile and the configuration."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

from tests.pages.blocks import ROOT
from tests.pages.commands import check, words
from zambezi.server import config

DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "zambezi.service").read_text()
CONTAINER = (DEPLOY / "Containerfile").read_text()


def test_the_configuration_is_valid() -> None:
    read = config.read(DEPLOY / "zambezi.toml")
    assert read.server.keys  # other machines can reach this server, so it must have keys


def test_the_unit_runs_commands_that_exist() -> None:
    commands = re.findall(r"^Exec(?:Start|StartPre)=(.*)$", UNIT, re.MULTILINE)
    assert [words(command)[1] for command in commands] == ["config", "serve"]
    for command in commands:
        check(words(command))


def test_unit_container_and_configuration_have_the_same_paths() -> None:
    read = config.read(DEPLOY / "zambezi.toml")
    assert f"WorkingDirectory={read.server.data}\n" in UNIT
    assert f"StateDirectory={Path(read.server.data).name}\n" in UNIT
    assert f"VOLUME {read.server.data}\n" in CONTAINER
    assert "/etc/zambezi/zambezi.toml" in UNIT
    assert "/etc/zambezi/zambezi.toml" in CONTAINER
    assert read.server.keys == "/etc/zambezi/keys"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """Verify the unit with /bin/true in place of the program, which is not installed."""
    unit = tmp_path / "zambezi.service"
    unit.write_text(UNIT.replace("/opt/zambezi/bin/zambezi", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_leaves_little_to_an_attacker(tmp_path: Path) -> None:
    unit = tmp_path / "zambezi.service"
    unit.write_text(UNIT.replace("/opt/zambezi/bin/zambezi", "/bin/true"))
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=40", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


def test_the_container_copies_files_that_exist() -> None:
    copied = [
        line.split()[1:-1] for line in CONTAINER.splitlines() if line.startswith("COPY ") and "--from" not in line
    ]
    assert copied
    for sources in copied:
        assert all((ROOT / source).exists() for source in sources)


def test_the_container_runs_a_command_that_exists() -> None:
    (begin,) = re.findall(r'^ENTRYPOINT \["(\w+)"\]$', CONTAINER, re.MULTILINE)
    (rest,) = re.findall(r"^CMD \[(.*)\]$", CONTAINER, re.MULTILINE)
    check([begin, *re.findall(r'"([^"]*)"', rest)])
    assert "USER zambezi" in CONTAINER


def test_the_container_exposes_the_ports_of_the_server() -> None:
    (exposed,) = re.findall(r"^EXPOSE (.*)$", CONTAINER, re.MULTILINE)
    defaults = config.Config()
    ports = [defaults.zeps.endpoint.rpartition(":")[2], defaults.mcollective.endpoint.rpartition(":")[2]]
    assert exposed.split() == [*ports, str(defaults.console.port)]


@pytest.fixture(scope="module")
def manifests() -> dict[str, dict[str, Any]]:
    """The manifests for Kubernetes, by their kind."""
    read = yaml.safe_load_all((DEPLOY / "kubernetes" / "zambezi.yaml").read_text())
    return {manifest["kind"]: manifest for manifest in read}


def test_kubernetes_understands_the_manifests(manifests: dict[str, dict[str, Any]]) -> None:
    assert set(manifests) == {"ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"}
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_the_configuration_for_kubernetes_is_valid(manifests: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "zambezi.toml"
    file.write_text(manifests["ConfigMap"]["data"]["zambezi.toml"])
    read = config.read(file)
    assert (read.zeps.journal.sync, bool(read.zeps.store.url), bool(read.server.keys)) == ("store", True, True)
    pod = manifests["StatefulSet"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts[str(Path(read.server.data).parent)] == "data"
    assert mounts[str(Path(read.server.keys).parent)] == "keys"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"zeps": int(read.zeps.endpoint.rpartition(":")[2]), "console": read.console.port}
    check(["zambezi", *container["args"]])


def test_the_names_in_the_manifests_fit_each_other(manifests: dict[str, dict[str, Any]]) -> None:
    spec = manifests["StatefulSet"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    assert manifests["Service"]["spec"]["selector"] == labels
    assert manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert spec["serviceName"] == manifests["Service"]["metadata"]["name"]
    claims = {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    pod = spec["template"]["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]} | claims
    used = {mount["name"] for one in (*pod["containers"], *pod["initContainers"]) for mount in one["volumeMounts"]}
    assert used == volumes
