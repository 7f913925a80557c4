"""`zambezi log collect` on loopback."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.mesh_processes import Running, free_port
from zambezi import cli
from zambezi.cli.log import _appending, line_of, stored
from zambezi.zre.log import Level, Log, Record, What, hash_of, read
from zambezi.zre.sync import Node


def record(time: int = 1_000, data: str = "bob") -> Record:
    log = Log(Level.INFO, What.ENTER, 0x1F3A, 0x77C0, time, data)
    return Record(log, log.encode()[0])


def test_logs_are_printed_and_stored(tmp_path: Path) -> None:
    port = free_port()
    out = tmp_path / "mesh.jsonl"
    options = ["--interface", "lo", "--beacon-port", str(port), "--name", "collector", "--out", str(out)]
    with Running("log", "collect", *options) as collect:
        collect.see("^collecting logs at tcp://127.0.0.1:")
        with Node("ann", interface="lo", beacon_port=port, log=True) as ann:
            node = f"{hash_of(ann.uuid):04x}"
            collect.see(rf"\+00:00 INFO    ENTER {node}( \(ann\))? [0-9a-f]{{4}} \(collector\) collector$")
            ann.join("TEAM")
            collect.see(rf"INFO    JOIN  {node}( \(ann\))? - TEAM$")
        assert collect.interrupt() == 0
        collect.see(rf"^\d+ logs, 0 invalid messages discarded; appended to {out}$")
        printed = len(collect.lines)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == printed
    for line in lines:
        again = read(bytes.fromhex(line["octets"]))
        assert again is not None
        assert stored(again, datetime.fromisoformat(line["received"])) == line


def test_it_stops_after_a_number_of_logs(tmp_path: Path) -> None:
    port = free_port()
    options = ["--interface", "lo", "--beacon-port", str(port), "--count", "1", "--quiet"]
    with (
        Running("log", "collect", *options) as collect,
        Node("ann", interface="lo", beacon_port=port, log=True),
    ):
        assert collect.end() == 0
        collect.see("^1 log, 0 invalid messages discarded$")
        assert collect.lines == []


def test_logs_as_json() -> None:
    port = free_port()
    options = ["--interface", "lo", "--beacon-port", str(port), "--count", "1", "--json"]
    with (
        Running("log", "collect", *options) as collect,
        Node("ann", interface="lo", beacon_port=port, log=True),
    ):
        assert collect.end() == 0
        assert json.loads(collect.lines[0])["event"] == "ENTER"


def test_it_stops_after_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    port = str(free_port())
    assert cli.main(["log", "collect", "--interface", "lo", "--beacon-port", port, "--seconds", "0.2"]) == 0
    assert capsys.readouterr().err.endswith("0 logs, 0 invalid messages discarded\n")


def test_an_unfinished_line_is_ended_first(tmp_path: Path) -> None:
    out = tmp_path / "mesh.jsonl"
    out.write_bytes(b'{"torn": ')
    for _ in range(2):
        with _appending(out) as file:
            assert file is not None
            file.write(b"{}\n")
    assert out.read_bytes() == b'{"torn": \n{}\n{}\n'


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "missing" / "mesh.jsonl"
    assert cli.main(["log", "collect", "--interface", "lo", "--out", str(out)]) == 1
    assert capsys.readouterr().err == f"zambezi: {out}: No such file or directory\n"


def test_a_log_for_people() -> None:
    assert line_of(record(), {}) == "1970-01-01T00:00:01.000+00:00 INFO    ENTER 1f3a 77c0 bob"
    assert line_of(record(), {0x1F3A: "ann", 0x77C0: ""}).endswith("ENTER 1f3a (ann) 77c0 bob")
    assert line_of(record(data="\x1b[2J"), {}).endswith(r"\x1b[2J")


def test_a_time_out_of_the_calendar() -> None:
    assert line_of(record(2**64 - 1), {}).startswith("18446744073709551615 ms INFO")
    assert stored(record(2**64 - 1), datetime.now(UTC))["time"] == "18446744073709551615 ms"
