"""`zambezi context`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from zambezi import cli
from zambezi.cli.surroundings import contexts_file


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def run(*words: str) -> None:
    assert cli.main(["context", *words]) == 0


def listed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    capsys.readouterr()
    run("list", "--json")
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_contexts_are_set_used_changed_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    run("set", "lab", "--endpoint", "tcp://lab:1", "--console", "http://lab:2")
    run("set", "work", "--endpoint", 'tcp://"work":1')
    run("use", "lab")
    lab = {"context": "lab", "in_use": True, "endpoint": "tcp://lab:1", "console": "http://lab:2"}
    assert listed(capsys) == [lab, {"context": "work", "in_use": False, "endpoint": 'tcp://"work":1'}]
    run("set", "lab", "--endpoint", "tcp://lab:3", "--console", "")
    assert listed(capsys)[0] == {"context": "lab", "in_use": True, "endpoint": "tcp://lab:3"}
    run("list")
    assert "* lab  endpoint=tcp://lab:3\n" in capsys.readouterr().out
    run("use")
    assert not any(one["in_use"] for one in listed(capsys))
    run("use", "lab")
    run("remove", "lab")
    assert listed(capsys) == [{"context": "work", "in_use": False, "endpoint": 'tcp://"work":1'}]


def test_the_token_is_kept_from_others(capsys: pytest.CaptureFixture[str]) -> None:
    run("set", "lab", "--token", "secret")
    assert contexts_file().stat().st_mode & 0o777 == 0o600
    run("list")
    run("list", "--json")
    assert "secret" not in capsys.readouterr().out
    assert "secret" in contexts_file().read_text()


def test_key_files_are_found_from_everywhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("set", "lab", "--server-key", "server.pub")
    assert listed(capsys)[0]["server_key"] == str(tmp_path / "server.pub")


@pytest.mark.parametrize(
    ("words", "status", "problem"),
    [
        (["use", "gone"], 1, "no context 'gone'"),
        (["remove", "gone"], 1, "no context 'gone'"),
        (["set", "a/b"], 2, "is no name for a context"),
        (["set", "lab", "--endpoint", "nonsense"], 2, "'nonsense' is no endpoint: write tcp://HOST:PORT"),
        (["set", "lab", "--endpoint", "tcp://a:1,tcp://b"], 2, "'tcp://b' has no port"),
        (["set", "lab", "--middleware", "tcp://a:x"], 2, "'tcp://a:x'"),
        (["set", "lab", "--console", "lab:8470"], 2, "'lab:8470' is not the URL of a console"),
    ],
)
def test_mistakes(words: list[str], status: int, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["context", *words]) == status
    assert problem in capsys.readouterr().err
    assert not contexts_file().exists()


def test_contexts_fit_into_a_terminal(in_terminal: Callable[..., tuple[list[str], str]]) -> None:
    run(
        "set",
        "lab",
        "--endpoint",
        "tcp://lab.example.org:5671",
        "--server-key",
        f"/{'k' * 70}",
        "--console",
        "http://l:2",
    )
    run("set", "work", "--endpoint", "tcp://work:1")
    run("use", "work")
    assert in_terminal("context", "list")[0] == [
        "  context  settings",
        "  lab      endpoint=tcp://lab.example.org:5671",
        "           console=http://l:2",
        f"           server_key=/{'k' * 57}",
        f"           {'k' * 13}",
        "* work     endpoint=tcp://work:1",
    ]
