"""`zambezi config`, and a server that is told to read its configuration again."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.zmtp.waiting import PATIENCE
from zambezi import cli


def test_what_is_shown_has_no_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zambezi.toml"
    assert cli.main(["config", "show"]) == 0
    path.write_text(capsys.readouterr().out)
    assert cli.main(["config", "check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: no mistakes\n"
    assert cli.main(["config", "show", str(path)]) == 0
    assert capsys.readouterr().out == path.read_text()


def test_mistakes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_text("[zeps]\nenabled = 1\n")
    assert cli.main(["config", "check", str(path)]) == 1
    assert f"{path}:2: enabled is true or false" in capsys.readouterr().err


def test_sighup_reads_the_configuration_again(tmp_path: Path) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_text(f'[server]\ndata = "{tmp_path}/data"\n[zeps]\nendpoint = "tcp://127.0.0.1:*"\n')
    command = [sys.executable, "-m", "zambezi", "serve", "--config", str(path), "--only", "zeps"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        assert server.stdout.readline().startswith("zeps at ")
        logged = (json.loads(line)["message"] for line in server.stderr)
        assert "no encryption" in next(logged)
        server.send_signal(signal.SIGHUP)
        assert next(logged) == "rules and retention were reloaded"
        path.write_text("[zeps]\nenabled = 1\n")
        server.send_signal(signal.SIGHUP)
        assert next(logged).startswith("the configuration was not reloaded: ")
        server.send_signal(signal.SIGTERM)
        assert next(logged) == "stopping"
        assert server.wait(PATIENCE) == 0
