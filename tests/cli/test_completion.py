"""`zambezi completion`: the words that a shell offers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zambezi import cli
from zambezi.cli.completion import SCRIPTS


def offered(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert cli.main(["completion", "words", "--", *words]) == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["ser"], ["serve"]),
        (["stream", "tr"], ["trim", "truncate"]),
        (["stream", "trim", "--be"], ["--before"]),
        (["stream", "trim", "--endpoint", "tcp://x:1", "--y"], ["--yes"]),
        (["sub", "prices", "--format", ""], ["hex", "json", "raw", "text"]),
        (["sub", "--format", "j"], ["json"]),
        (["sub", "prices", "--since", ""], ["earliest", "latest"]),
        (["sub", "prices", "--until", ""], ["now"]),
        (["sub", "--format", "=", "j"], ["json"]),
        (["sub", "--format", "="], ["hex", "json", "raw", "text"]),
        (["sub", "--format=j"], ["--format=json"]),
        (["sub", "prices", "--count", ""], []),
        (["stream", "edit", "prices", "--sync", ""], ["always", "default", "interval", "never"]),
        (["stream", "edit", "prices", "--keep", ""], ["default"]),
        (["mesh", "watch", "--interface", "l"], ["lo"]),
        (["nonsense", "x"], []),
    ],
)
def test_words(words: list[str], wanted: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert offered(capsys, *words) == wanted


def test_names_of_contexts_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert offered(capsys, "stream", "list", "--context", "") == []
    for name in ("lab", "work"):
        assert cli.main(["context", "set", name, "--endpoint", "tcp://127.0.0.1:1"]) == 0
    for words in (["pub", "--context"], ["top", "--context"], ["sql", "--context"], ["context", "use"]):
        assert offered(capsys, *words, "") == ["lab", "work"]
    assert offered(capsys, "context", "remove", "w") == ["work"]


def test_all_commands_are_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert offered(capsys, "") == sorted(cli.SUBCOMMANDS)
    assert offered(capsys) == sorted(cli.SUBCOMMANDS)


@pytest.mark.parametrize("shell", SCRIPTS)
def test_each_script_asks_for_the_words(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    assert "zambezi completion words -- " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("stream trun", "truncate"),
        ("stream list --context la", "lab"),
        ("stream list --context = la", "lab"),
        ("stream list --context =", "lab"),
    ],
)
def test_bash_completes(
    typed: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    assert cli.main(["context", "set", "lab", "--endpoint", "tcp://127.0.0.1:1"]) == 0
    program = tmp_path / "zambezi"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m zambezi "$@"\n')
    program.chmod(0o755)
    assert cli.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    words = f"COMP_WORDS=(zambezi {typed})\nCOMP_CWORD={len(typed.split())}\n"
    asked = f'PATH={tmp_path}:$PATH\n{words}_zambezi\necho "${{COMPREPLY[@]}}"\n'
    found = subprocess.run([bash], input=script + asked, text=True, capture_output=True, check=True, timeout=60)
    assert found.stdout == f"{wanted}\n"
