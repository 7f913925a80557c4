"""`zambezi journal`: info, verify, repair, dump, export and truncate."""

import io
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.zeps.journal.streams import append, consistent, held
from zambezi import cli
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.identity import STREAM

InTerminal: TypeAlias = Callable[..., tuple[list[str], str]]
START = 1_700_000_000  # 2023-11-14T22:13:20Z


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with Store(path, policy=Policy(segment=300)) as store:
        prices = store.open("prices")
        for number in range(10):
            append(prices, b"body %d" % number, b"\xff\x00", now=START + number, key=f"k{number % 3}")
        append(store.open("[b]\x1b"), b"x" * 2900)
    return path


def run(data: Path, *arguments: str) -> int:
    return cli.main(["journal", *arguments, "--data", str(data)])


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def sequences(capsys: pytest.CaptureFixture[str]) -> list[int]:
    return [json.loads(line)["sequence"] for line in lines(capsys)]


# info


def test_info_is_a_table(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, "info") == 0
    output = capsys.readouterr().out
    assert [row for row in output.splitlines() if "prices" in row and "2023-11-14T22:13:29" in row]
    assert r"[b]\x1b" in output
    assert "2.9 KiB" in output
    assert "00000000000000000001.log" not in output


def test_info_fits_into_a_terminal(data: Path, in_terminal: InTerminal) -> None:
    with Store(data) as store:
        append(store.open("x" * 120), b"1", now=START)
    lines, _ = in_terminal("journal", "info", "--data", str(data))
    del lines[: next(index for index, line in enumerate(lines) if line.startswith("stream "))]  # the title
    assert lines[0].split() == ["stream", "messages", "first", "last", "size", "newest", "segments"]
    long = next(line for line in lines if line.startswith("xxx"))
    assert long.split()[0].endswith("…")
    assert "2023-11-14 22:13:20Z" in long
    prices = next(line for line in lines if line.startswith("prices"))
    assert prices.split()[1:4] == ["20", "1", "20"]
    assert prices.endswith("2023-11-14 22:13:29Z         2")
    assert lines[-1] == "no room for: oldest, incarnation (--json shows all columns)"
    assert len(lines) == 1 + 3 + 1


def test_info_of_a_stream_has_its_segments(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, "info", "prices") == 0
    output = capsys.readouterr().out
    assert "00000000000000000001.log" in output
    assert "[b]" not in output


def test_info_for_programs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, "info", "--json") == 0
    told = {one["stream"]: one for one in map(json.loads, lines(capsys))}
    assert sorted(told) == ["[b]\x1b", "prices"]
    with Store(data, write=False) as store:
        journal = store.open("prices")
        assert told["prices"]["incarnation"] == str(journal.incarnation)
        assert told["prices"]["octets"] == journal.octets
        assert [one["first"] for one in told["prices"]["segments"]] == [one.first for one in journal.segments]


def test_info_tells_how_many_publishers_are_counted(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(data) as store:
        counts = [Count(bytes([number]) * 16, 1, 5) for number in (1, 2)]
        store.open("prices").append_counts(counts, START + 20)
    assert run(data, "info", "prices", "--json") == 0
    assert json.loads(lines(capsys)[0])["publishers"] == 2
    assert run(data, "info", "prices") == 0
    assert "2 publishers with counts" in " ".join(capsys.readouterr().out.split())


def test_info_while_a_broker_runs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(data):
        assert run(data, "info") == 0


def test_info_reports_damage(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "prices" / STREAM).write_text("{")
    assert run(data, "info") == 1
    output, errors = capsys.readouterr()
    assert "[b]" in output
    assert "stream.json is damaged" in errors
    assert run(data, "info", "prices") == 1
    assert "stream.json is damaged" in capsys.readouterr().err


def test_an_empty_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("info", "verify"):
        assert run(tmp_path, command) == 0
        assert capsys.readouterr().out == (
            f"{tmp_path} has no streams; if it is not the data directory, name that with --data DIR\n"
        )


@pytest.mark.parametrize("command", [["info"], ["verify"], ["dump", "a"], ["export", "a", "x"]])
def test_no_directory(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "nothing", *command) == 1
    assert capsys.readouterr().err == (
        f"zambezi: {tmp_path / 'nothing'} is no data directory: there is no such directory\n"
    )


def test_a_directory_of_something_else_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        (tmp_path / f"other-{number}").mkdir()
    assert cli.main(["journal", "info", "--data", str(tmp_path)]) == 1
    output, errors = capsys.readouterr()
    assert (output, errors) == ("", f"zambezi: {tmp_path} is no data directory: none of its directories is a stream\n")


@pytest.mark.parametrize("command", [["info", "no"], ["verify", "no"], ["dump", "no"], ["truncate", "no", "--after=1"]])
def test_no_such_stream(command: list[str], data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, *command) == 1
    assert capsys.readouterr().err == f"zambezi: {data} has no stream 'no'; it has [b]\\x1b, prices\n"


# verify


def test_verify(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, "verify") == 0
    assert lines(capsys) == [
        r"[b]\x1b: 1 message in 1 batch intact, no damage",
        "prices: 20 messages in 10 batches intact, no damage",
    ]


def test_verify_says_where_the_damage_is(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = data / "prices" / "00000000000000000001.log"
    octets = bytearray(log.read_bytes())
    octets[-1] ^= 1
    log.write_bytes(octets)
    assert run(data, "verify", "prices") == 1
    damage, verdict = lines(capsys)
    assert damage.startswith(f"damage: prices: {log}, byte ")
    assert damage.endswith("does not have its CRC")
    assert verdict == "prices: 18 messages in 9 batches intact, damage in 1 place"


def test_verify_for_programs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = data / "prices" / "00000000000000000001.log"
    octets = bytearray(log.read_bytes())
    octets[-1] ^= 1
    log.write_bytes(octets)
    assert run(data, "verify", "--json") == 1
    good, bad = map(json.loads, lines(capsys))
    assert good == {"stream": "[b]\x1b", "messages": 1, "batches": 1, "damage": [], "note": []}
    assert (bad["stream"], bad["messages"], len(bad["damage"])) == ("prices", 18, 1)
    (data / "prices" / STREAM).unlink()
    assert run(data, "verify", "--json") == 1
    assert "stream.json is missing" in json.loads(lines(capsys)[0])["damage"][0]


def test_verify_counts_a_damaged_identity(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "prices" / STREAM).unlink()
    assert run(data, "verify") == 1
    assert [line for line in lines(capsys) if line.startswith("damage: ") and "stream.json is missing" in line]


# dump


def test_dump(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, "dump", "prices", "--count", "2") == 0
    assert lines(capsys) == [
        "1 2023-11-14T22:13:20.000+00:00 k0 body 0",
        r"2 2023-11-14T22:13:20.000+00:00 k0 \xff\x00",
    ]


def test_dump_as_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, "dump", "prices", "--format", "json", "--until", "2") == 0
    time = "2023-11-14T22:13:20.000000+00:00"
    assert [json.loads(line) for line in lines(capsys)] == [
        {"sequence": 1, "time": time, "key": "k0", "body": "body 0"},
        {"sequence": 2, "time": time, "key": "k0", "body_hex": "ff00"},
    ]


@pytest.mark.parametrize(("form", "expected"), [("raw", b"body 9\n\xff\x00\n"), ("hex", b"626f64792039\nff00\n")])
def test_dump_of_bodies(form: str, expected: bytes, data: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(data, "dump", "prices", "--format", form, "--since", "18") == 0
    assert capfdbinary.readouterr().out == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], list(range(1, 21))),
        (["--since", "17"], [18, 19, 20]),
        (["--until", "3"], [1, 2, 3]),
        (["--since", "3", "--until", "5"], [4, 5]),
        (["--since", "5", "--until", "3"], []),
        (["--since", "99"], []),
        (["--since", "latest"], []),
        (["--until", "earliest"], [1]),
        (["--since", "2023-11-14T22:13:28Z"], [17, 18, 19, 20]),
        (["--until", "2023-11-14T22:13:20Z"], [1, 2]),
        (["--since", "2023-11-14T22:13:20.000001Z", "--until", "2023-11-14T22:13:21.999999Z"], [3, 4]),
        (["--since", "1h"], []),
        (["--until", "1h"], list(range(1, 21))),
        (["--pattern", "k1"], [3, 4, 9, 10, 15, 16]),
        (["--pattern", "k1", "--count", "3"], [3, 4, 9]),
        (["--pattern", "other"], []),
    ],
)
def test_dump_of_a_part(
    arguments: list[str], expected: list[int], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(data, "dump", "prices", "--format", "json", *arguments) == 0
    assert sequences(capsys) == expected


def test_dump_of_many_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(tmp_path) as store:
        for number in range(2500):
            append(store.open("a"), b"x", now=number + 1)
    assert run(tmp_path, "dump", "a", "--format", "json", "--since", "700") == 0
    told = [json.loads(line) for line in lines(capsys)]
    assert [one["sequence"] for one in told] == list(range(701, 2501))
    assert told[-1]["time"] == "1970-01-01T00:41:40.000000+00:00"


def test_an_invalid_position(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, "dump", "prices", "--since", "yesterday") == 2
    assert "'yesterday' is not a position" in capsys.readouterr().err


# export


def test_export_of_the_raw_journal(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "prices.zeps"
    assert run(data, "export", "prices", str(out)) == 0
    logs = sorted((data / "prices").glob("*.log"))
    assert out.read_bytes() == b"".join(log.read_bytes() for log in logs)
    assert capsys.readouterr().err == f"20 messages of prices written to {out}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "prices.zeps"]


def test_export_of_a_part(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "part"
    with Store(data, write=False) as store:
        messages = held(store.open("prices"))
    assert run(data, "export", "prices", str(out), "--format", "zeps", "--since", "3", "--until", "17") == 0
    assert out.read_bytes() == b"".join(messages[sequence] for sequence in range(4, 18))
    assert run(data, "export", "prices", str(out), "--format", "zeps", "--pattern", "k1", "--force") == 0
    assert out.read_bytes() == b"".join(messages[sequence] for sequence in (3, 4, 9, 10, 15, 16))


def test_export_as_json(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "prices.jsonl"
    assert run(data, "export", "prices", str(out)) == 0
    assert [json.loads(line)["sequence"] for line in out.read_text().splitlines()] == list(range(1, 21))


def test_export_to_standard_output(data: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(data, "export", "prices", "-", "--format", "zeps", "--since", "19") == 0
    output, errors = capfdbinary.readouterr()
    with Store(data, write=False) as store:
        assert output == held(store.open("prices"))[20]
    assert errors == b"1 message of prices written\n"


def test_export_replaces_a_file_only_with_force(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "prices.zeps"
    out.write_bytes(b"precious")
    assert run(data, "export", "prices", str(out)) == 1
    assert capsys.readouterr().err == f"zambezi: {out} exists already; use --force to replace it\n"
    assert out.read_bytes() == b"precious"
    assert run(data, "export", "prices", str(out), "--force") == 0
    assert out.read_bytes() != b"precious"


def test_a_failed_export_leaves_no_file(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = data / "prices" / "00000000000000000001.log"
    octets = bytearray(log.read_bytes())
    octets[60] ^= 1
    log.write_bytes(octets)
    for name in ("prices.jsonl", "prices.zeps"):
        assert run(data, "export", "prices", str(tmp_path / name)) == 1
        assert capsys.readouterr().err == (
            f"zambezi: {log}: the batch of 3 to 4 is damaged; --since 4 skips it, and `zambezi journal verify` says "
            "more\n"
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    assert run(data, "export", "prices", str(tmp_path / "rest"), "--since", "4") == 0
    assert len((tmp_path / "rest").read_bytes().splitlines()) == 16


def test_progress_on_a_terminal(data: Path, tmp_path: Path) -> None:
    """The bar is on standard error, so it does not change an export to standard output."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "zambezi", "journal", "verify", "--data", str(data)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=terminal, check=True, env={**os.environ, "TERM": "xterm"}
    )
    os.close(terminal)
    shown = os.read(controller, 65536)
    os.close(controller)
    assert b"%" in shown or b"KiB" in shown or b"kB" in shown or b"bytes" in shown
    assert done.stdout.decode().splitlines()[-1].endswith("no damage")


# truncate


def test_truncate(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(data, write=False) as store:
        before = store.open("prices").incarnation
        messages = held(store.open("prices"))
    assert run(data, "truncate", "prices", "--after", "7", "--yes") == 0
    output = capsys.readouterr().out
    with Store(data) as store:
        journal = store.open("prices")
        assert journal.incarnation != before
        assert consistent(journal) == {sequence: messages[sequence] for sequence in range(1, 8)}
        assert output == (f"prices: 13 messages removed; it ends with sequence 7, incarnation {journal.incarnation}\n")


class Terminal(io.StringIO):
    """A terminal at which a person answers."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "last"), [("yes\n", 7), ("y\n", 7), ("no\n", 20), ("", 20), ("\n", 20)])
def test_truncate_asks(
    answer: str, last: int, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert run(data, "truncate", "prices", "--after", "7") == (0 if last == 7 else 1)
    errors = capsys.readouterr().err
    assert errors.startswith("remove 13 messages of prices, 8 to 20, permanently? (yes or no) ")
    assert ("nothing was removed" in errors) == (last == 20)
    with Store(data, write=False) as store:
        assert store.open("prices").last == last


def test_truncate_without_a_terminal_needs_yes(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    assert run(data, "truncate", "prices", "--after", "7") == 2
    assert "use --yes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        ("21", "cannot be cut after 21"),
    ],
)
def test_truncate_outside(after: str, problem: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, "truncate", "prices", f"--after={after}", "--yes") == 1
    assert problem in capsys.readouterr().err


def test_truncate_at_the_end_does_nothing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(data, write=False) as store:
        before = store.open("prices").incarnation
    assert run(data, "truncate", "prices", "--after", "20") == 0
    assert capsys.readouterr().out == "prices already ends with sequence 20: nothing to do\n"
    with Store(data, write=False) as store:
        assert store.open("prices").incarnation == before


def test_truncate_while_a_broker_runs_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(data):
        assert run(data, "truncate", "prices", "--after", "7", "--yes") == 1
    assert capsys.readouterr().err == (
        f"zambezi: the data directory {data} is in use by process {os.getpid()}: stop it, or use another directory\n"
    )


def test_truncate_creates_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = tmp_path / "nothing"
    assert run(nothing, "truncate", "a", "--after", "1", "--yes") == 1
    assert capsys.readouterr().err == f"zambezi: {nothing} does not exist; name the data directory with --data DIR\n"
    assert not nothing.exists()


# repair


def test_repair_restores_a_damaged_batch_from_a_copy(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = data.parent / "copy"
    shutil.copytree(data, copy)
    log = min((data / "prices").glob("*.log"))
    good = log.read_bytes()
    log.write_bytes(good[:-1] + bytes((good[-1] ^ 1,)))
    assert run(data, "repair", "prices") == 1
    assert "is not repaired: no copy has its bytes" in capsys.readouterr().out
    assert run(data, "repair", "prices", "--from", str(copy)) == 0
    output = capsys.readouterr().out
    assert "is restored" in output
    assert output.endswith("no damage\n")
    assert log.read_bytes() == good


def test_a_repair_reports_as_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = data.parent / "copy"
    shutil.copytree(data, copy)
    log = next((data / "prices").glob("*1.log"))
    octets = bytearray(log.read_bytes())
    octets[20] ^= 1
    log.write_bytes(octets)
    assert run(data, "repair", "prices", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert "is not repaired" in found["repair"][0]
    assert len(found["damage"]) == 1
    assert run(data, "repair", "prices", "--from", str(copy), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["repair"]), found["damage"]) == (1, [])


def test_repair_without_damage_changes_nothing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, "repair", "prices") == 0
    (only,) = lines(capsys)
    assert only.endswith("no damage")


def test_repair_while_a_broker_runs_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(data):
        assert run(data, "repair", "prices") == 1
    assert "is in use by process" in capsys.readouterr().err


def test_repair_needs_a_data_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "nothing", "repair", "prices") == 1
    assert "does not exist; name the data directory" in capsys.readouterr().err
