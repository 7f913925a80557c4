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
        (["sub", "prices", "--since", ""], []),
        (["nonsense", "x"], []),
    ],
)
def test_words(words: list[str], wanted: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert offered(capsys, *words) == wanted


def test_all_commands_are_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert offered(capsys, "") == sorted(cli.SUBCOMMANDS)
    assert offered(capsys) == sorted(cli.SUBCOMMANDS)


@pytest.mark.parametrize("shell", SCRIPTS)
def test_each_script_asks_for_the_words(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    assert "zambezi completion words -- " in capsys.readouterr().out


def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    program = tmp_path / "zambezi"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m zambezi "$@"\n')
    program.chmod(0o755)
    assert cli.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    typed = "COMP_WORDS=(zambezi stream trun)\nCOMP_CWORD=2\n"
    asked = f'PATH={tmp_path}:$PATH\n{typed}_zambezi\necho "${{COMPREPLY[@]}}"\n'
    found = subprocess.run([bash], input=script + asked, text=True, capture_output=True, check=True, timeout=60)
    assert found.stdout == "truncate\n"
