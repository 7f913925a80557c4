"""`zambezi keygen`, and how `zambezi` reports errors and exit statuses."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zambezi import __version__, cli
from zambezi.cli import keygen
from zambezi.cli.errors import InputError, OptionsError
from zambezi.errors import ZambeziError
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.keys import read_pair


def test_keygen_writes_a_pair_and_says_what_to_do_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keygen", "alice", "--directory", str(tmp_path)]) == 0
    pair = read_pair(tmp_path / "alice.key")
    output, errors = capsys.readouterr()
    assert errors == ""
    assert str(tmp_path / "alice.key") in output
    assert str(tmp_path / "alice.pub") in output
    assert pair.public_z85 in output
    assert "copy alice.pub" in output
    assert pair.secret_z85 not in output
    assert Keyring(tmp_path).name_of(pair.public) == "alice"


@pytest.mark.parametrize(
    ("name", "advice"),
    [("server", "give server.pub to its clients"), ("mesh", "needs mesh.key"), ("group", "need group.key")],
)
def test_keygen_knows_the_keys_of_a_server(
    name: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["keygen", name, "--directory", str(tmp_path)]) == 0
    assert advice in capsys.readouterr().out


def test_keygen_with_a_path_names_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keygen", "keys/server"]) == 2
    assert "use `zambezi keygen server --directory keys`" in capsys.readouterr().err
    assert cli.main(["keygen", "a b/c"]) == 2
    assert "use `zambezi keygen c --directory 'a b'`" in capsys.readouterr().err


def test_keygen_writes_here_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["keygen", "alice"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alice.key", "alice.pub"]


def test_keygen_keeps_existing_keys_unless_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["keygen", "alice", "--directory", str(tmp_path)]
    assert cli.main(arguments) == 0
    first = read_pair(tmp_path / "alice.key")
    capsys.readouterr()
    assert cli.main(arguments) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("zambezi: ")
    assert errors.count("\n") == 1
    assert "exists already" in errors
    assert read_pair(tmp_path / "alice.key") == first
    assert cli.main([*arguments, "--force"]) == 0
    assert read_pair(tmp_path / "alice.key") != first


def test_a_bad_name_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keygen", ".alice", "--directory", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "zambezi: '.alice' cannot name a key: it begins with a dot\n")


def test_no_arguments_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    output = capsys.readouterr().out
    assert output.startswith("usage: zambezi")
    assert "keygen" in output


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"zambezi {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "begin", "command"),
    [
        (["keygen"], "the following arguments are required: NAME", "zambezi keygen"),
        (["keygen", "a", "b"], "unrecognized arguments: b", "zambezi keygen"),
        (["keygen", "a", "--x\nnew line"], "unrecognized arguments: --x new line", "zambezi keygen"),
        (["nonsense"], "argument COMMAND: invalid choice: 'nonsense'", "zambezi"),
        (["--nonsense"], "unrecognized arguments: --nonsense", "zambezi"),
    ],
)
def test_usage_errors(arguments: list[str], begin: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong command line is one line, without the usage, and names the help that shows the right one."""
    assert cli.main(arguments) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"zambezi: {begin}")
    assert errors.endswith(f" ({command} --help shows how)\n")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ZambeziError("the river\nis dry"), 1, "zambezi: the river is dry\n"),
        (InputError("the file\nis empty"), 1, "zambezi: the file is empty\n"),
        (OptionsError("give a\nor b"), 2, "zambezi: give a or b\n"),
        (PermissionError(13, "Permission denied", "keys"), 1, "zambezi: keys: Permission denied\n"),
        (OSError(28, "No space left on device"), 1, "zambezi: No space left on device\n"),
        (TimeoutError(), 1, "zambezi: TimeoutError\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_errors_become_one_line_and_a_status(
    error: BaseException,
    status: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(arguments: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(keygen, "run", fail)
    assert cli.main(["keygen", "alice"]) == status
    assert capsys.readouterr() == ("", line)


def test_a_bug_shows_its_traceback_only_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: argparse.Namespace) -> int:
        raise TypeError("oops")

    monkeypatch.setattr(keygen, "run", fail)
    monkeypatch.delenv("ZAMBEZI_TRACEBACK", raising=False)
    assert cli.main(["keygen", "alice"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("zambezi: unexpected TypeError: oops")
    assert errors.count("\n") == 1
    monkeypatch.setenv("ZAMBEZI_TRACEBACK", "1")
    with pytest.raises(TypeError):
        cli.main(["keygen", "alice"])


def test_the_module_is_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "zambezi", "keygen", "alice", "--directory", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_no_error(unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "zambezi"],
            stdout=writing,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            check=False,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
