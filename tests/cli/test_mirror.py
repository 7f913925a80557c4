"""`zambezi mirror`, as people at a terminal use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.zeps.serving import serving
from tests.zmtp.waiting import PATIENCE
from zambezi import cli
from zambezi.zeps.mirror import Mirror
from zambezi.zeps.sync import Client


def fill(endpoint: str, stream: str, count: int) -> None:
    with Client.connect(endpoint) as client:
        client.stream(stream).publish_many([(f"k{number % 10}", b"%d" % number) for number in range(count)])


def found(endpoint: str, stream: str) -> list[bytes]:
    with Client.connect(endpoint) as client:
        return [message.body for message in client.stream(stream).subscribe(since="earliest", until="now")]


def test_a_stream_is_copied_to_another_server_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path / "a") as (_, one), serving(tmp_path / "b") as (_, two):
        fill(one, "readings", 30)
        command = ["mirror", one, "readings", "--to", two, "--as", "copies", "--until", "now"]
        assert cli.main(command) == 0
        begun, *_, done = capsys.readouterr().err.splitlines()
        assert begun == f"mirroring readings of {one} to copies at {two}"
        assert done == "done: at sequence 30, 0 behind; 30 copied"
        assert cli.main(command) == 0
        assert capsys.readouterr().err.endswith("0 copied\n")
        assert found(two, "copies") == [b"%d" % number for number in range(30)]
        assert cli.main(["mirror", one, "readings", "--to", two, "--as", "some", "--until", "now", "--pattern=k3"]) == 0
        assert found(two, "some") == [b"3", b"13", b"23"]


def test_a_mirror_follows_waits_and_ends_by_a_signal(tmp_path: Path) -> None:
    with serving(tmp_path / "a") as (_, one), serving(tmp_path / "b") as (_, two):
        fill(one, "readings", 3)
        command = [sys.executable, "-W", "error", "-m", "zambezi", "mirror", one, "readings", "--to", two]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("mirroring readings of")
        with Client.connect(two) as client:
            while (subscription := client.stream("readings").subscribe(since="earliest")).recv(PATIENCE).body != b"0":
                subscription.close()
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert said.splitlines()[-1] == "ended: at sequence 3, 0 behind; 3 copied"


def test_a_mistake_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path / "a") as (_, one), serving(tmp_path / "b") as (_, two):
        fill(one, "readings", 3)
        assert cli.main(["mirror", one, "reading", "--to", two]) == 1
        assert "there is no stream 'reading' to mirror; did you mean 'readings'?" in capsys.readouterr().err
        assert cli.main(["mirror", one, "readings", "--to", one]) == 1
        assert "the source itself" in capsys.readouterr().err
    assert cli.main(["mirror", one, "readings", "--to", two, "--source-key", "x"]) == 2
    assert "--source-key works only with --source-server-key" in capsys.readouterr().err
    assert cli.main(["mirror", one, "readings", "--since", "10m"]) == 2
    assert "write earliest, latest or a sequence" in capsys.readouterr().err
    assert cli.main(["mirror", "nowhere", "readings"]) == 2
    assert "argument SOURCE: 'nowhere' is no endpoint" in capsys.readouterr().err
    assert cli.main(["mirror", one, "readings", "--to", "nowhere"]) == 2
    assert "argument --to: 'nowhere' is no endpoint" in capsys.readouterr().err


def test_a_server_that_is_away_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path / "a") as (_, one):
        fill(one, "readings", 3)
        looks: list[float] = []

        def run(self: Mirror, seconds: float) -> bool:
            looks.append(seconds)
            if len(looks) == 3:
                raise KeyboardInterrupt
            return real(self, 0.05)

        real = Mirror.run
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Mirror, "run", run)
            assert cli.main(["mirror", one, "readings", "--to", "tcp://127.0.0.1:1"]) == 0
        assert "waiting for the target: not connected to tcp://127.0.0.1:1" in capsys.readouterr().err
