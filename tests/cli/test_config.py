"""`zambezi config`, and a server that reloads its configuration."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.zmtp.waiting import PATIENCE
from zambezi import cli


def test_a_printed_configuration_has_no_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zambezi.toml"
    assert cli.main(["config", "show"]) == 0
    path.write_text(capsys.readouterr().out)
    assert cli.main(["config", "check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: no mistakes\n"
    assert cli.main(["config", "show", str(path)]) == 0
    assert capsys.readouterr().out == path.read_text()
    assert cli.main(["config", "show", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == tomllib.loads(path.read_text())


def test_mistakes_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_text("[zeps]\nenabled = 1\n")
    assert cli.main(["config", "check", str(path)]) == 1
    assert f"{path}:2: enabled must be true or false" in capsys.readouterr().err


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


def test_a_server_without_a_file_ends_with_its_terminal(tmp_path: Path) -> None:
    terminal, own = os.openpty()
    try:
        command = [sys.executable, "-m", "zambezi", "serve", "--data", str(tmp_path), "--only", "zeps"]
        command += ["--zeps", "tcp://127.0.0.1:*"]
        with subprocess.Popen(command, stdin=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stderr is not None
            assert server.stdout.readline().startswith("zeps at ")
            assert "no encryption" in server.stderr.readline()  # then the services run
            server.send_signal(signal.SIGHUP)
            assert server.wait(PATIENCE) == 0
    finally:
        os.close(own)
        os.close(terminal)


def test_each_mistake_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_text("[zeps]\nenabled = 1\ncreate = 2\n")
    assert cli.main(["config", "check", str(path)]) == 1
    one, two = capsys.readouterr().err.splitlines()
    assert one.startswith(f"zambezi: {path}:2: ")
    assert two.startswith(f"zambezi: {path}:3: ")


def test_missing_files_are_mistakes_unless_the_configuration_is_for_another_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_text(f'[server]\ndata = "{tmp_path}"\nkeys = "{tmp_path}/none"\n')
    assert cli.main(["config", "check", str(path)]) == 1
    assert f"{path}:3: {tmp_path}/none/server.key does not exist" in capsys.readouterr().err
    assert cli.main(["config", "check", "--elsewhere", str(path)]) == 0


def test_unsafe_settings_are_warnings_also_for_another_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_text(f'[server]\ndata = "{tmp_path}"\n[zeps]\nendpoint = "tcp://0.0.0.0:5671"\n')
    for elsewhere in ([], ["--elsewhere"]):
        assert cli.main(["config", "check", *elsewhere, str(path)]) == 0
        warning, _ = capsys.readouterr().out.splitlines()
        assert warning.startswith(f"warning: {path}:4: every machine that reaches tcp://0.0.0.0:5671 has full access")


def test_a_warning_is_not_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_text(f'[server]\ndata = "{tmp_path}"\n[console]\nresults = "{tmp_path}/none"\n')
    assert cli.main(["config", "check", str(path)]) == 0
    warning, good = capsys.readouterr().out.splitlines()
    assert warning.startswith(f"warning: {path}:4: ")
    assert good == f"{path}: no mistakes"


def test_a_check_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_text(f'[server]\ndata = "{tmp_path}"\n[console]\nresults = "{tmp_path}/none"\n')
    assert cli.main(["config", "check", "--json", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["file"], told["mistakes"], len(told["warnings"])) == (str(path), [], 1)
    path.write_text("[zeps]\nenabled = 1\n")
    assert cli.main(["config", "check", "--json", str(path)]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (len(told["mistakes"]), told["warnings"]) == (1, [])
