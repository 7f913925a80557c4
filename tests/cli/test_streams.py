"""`zambezi serve`, `pub`, `sub` and `stream`, as people at a terminal use them.

It covers `pub`, `sub`, `stream`, `stream_tables`, and the options in `client` and `security`.
"""

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias, cast

import pytest

from tests.zeps.serving import serving
from tests.zmtp.waiting import wait_until
from zambezi import cli
from zambezi.cli.pub import paced
from zambezi.cli.stream_tables import size, stream_table
from zambezi.cli.sub import _batches
from zambezi.zeps.directory import StreamInfo
from zambezi.zeps.errors import JournalFull, TimedOut
from zambezi.zeps.journal import Journal
from zambezi.zeps.sync import Stream, Subscription
from zambezi.zmtp.keys import KeyPair, write_pair

PATIENCE = 60
InTerminal: TypeAlias = Callable[..., tuple[list[str], str]]


class Served:
    """A process that runs a server."""

    def __init__(self, data: Path, *arguments: str) -> None:
        command = [sys.executable, "-W", "error", "-m", "zambezi", "serve", "--only", "zeps"]
        self._process = subprocess.Popen(
            [*command, "--data", str(data), "--zeps", "tcp://127.0.0.1:*", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline().split()
        assert said[:2] == ["zeps", "at"]
        self.endpoint = said[2]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self._process.send_signal(number)
        _, errors = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, errors


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path / "data")
    yield server
    status, errors = server.stop()
    assert status == 0
    assert json.loads(errors.splitlines()[-1])["message"] == "stopping"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(list(arguments)) == 0
    return capsys.readouterr().out


def type_in(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))


def test_published_messages_are_received(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    began = datetime.now(UTC)
    at = ("--endpoint", served.endpoint)
    run(capsys, "pub", "prices", "EURUSD", "1.08", *at)
    type_in(monkeypatch, b"one\ntwo\n\xff\n")
    run(capsys, "pub", "prices", "tick", *at)
    type_in(monkeypatch, b"a\tfirst\nb\tsecond")
    run(capsys, "pub", "prices", "--tab", *at)

    def seen(*arguments: str) -> list[str]:
        return run(capsys, "sub", "prices", "--until", "now", *arguments, *at).splitlines()

    assert seen("--since", "earliest") == [
        "1 EURUSD 1.08",
        "2 tick one",
        "3 tick two",
        "4 tick \\xff",
        "5 a first",
        "6 b second",
    ]
    assert seen("--since", "10m", "--pattern", "glob:?", "--format", "raw") == ["first", "second"]
    assert seen("--since", "4", "--count", "1", "--format", "hex") == [b"first".hex()]
    found = [json.loads(line) for line in seen("--since", "2", "--pattern", "tick", "--format", "json")]
    times = [datetime.fromisoformat(one.pop("time")) for one in found]
    assert found == [
        {"stream": "prices", "sequence": 3, "key": "tick", "body": "two"},
        {"stream": "prices", "sequence": 4, "key": "tick", "body_hex": "ff"},
    ]
    assert began <= times[0] <= times[1] <= datetime.now(UTC)
    reserved = run(capsys, "sub", "$streams", "--since", "earliest", "--count", "1", "--format", "json", *at)
    assert json.loads(reserved)["time"] is None
    table = run(capsys, "stream", "list", *at)
    assert "prices" in table
    assert " 6 " in table


def test_messages_survive_a_restart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = Served(tmp_path)
    run(capsys, "pub", "prices", "k", "kept", "--endpoint", first.endpoint)
    assert first.stop(signal.SIGINT)[0] == 0
    second = Served(tmp_path)
    told = run(capsys, "sub", "prices", "--since", "earliest", "--until", "now", "--endpoint", second.endpoint)
    assert told == "1 k kept\n"
    assert second.stop()[0] == 0


def test_with_curve_only_allowed_clients_can_connect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = tmp_path / "keys"
    write_pair(keys, "server", KeyPair.generate())
    (keys / "allowed").mkdir()
    _, secret = write_pair(keys / "allowed", "ann", KeyPair.generate())
    (keys / "server.pub").rename(tmp_path / "server.pub")
    server = Served(tmp_path / "data", "--curve", str(keys))
    at = ("--endpoint", server.endpoint, "--server-key", str(tmp_path / "server.pub"))
    run(capsys, "pub", "s", "k", "hello", "--key", str(secret), *at)
    for timeout in ("1s", "5s", "25s"):  # the answer of a busy machine takes longer
        assert cli.main(["pub", "s", "k", "hello", "--timeout", timeout, *at]) == 1
        told = capsys.readouterr().err
        if "does not let us in" in told:
            break
    assert "does not let us in" in told
    assert server.stop()[0] == 0


def test_a_secret_key_is_not_taken_as_the_key_of_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    public, secret = write_pair(tmp_path, "server", KeyPair.generate())
    error = fails(capsys, "pub", "s", "k", "x", "--endpoint", "tcp://127.0.0.1:1", "--server-key", str(secret))
    assert error == f"zambezi: {secret}: holds a secret key, which must stay with its owner; use {public}\n"


def test_a_list_that_is_watched_goes_on(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, each list is printed below the last one."""
    at = ("--endpoint", served.endpoint)
    run(capsys, "pub", "prices", "k", "1", *at)
    for form in ((), ("--json",)):
        command = [sys.executable, "-m", "zambezi", "stream", "list", "--watch", "--interval", "10ms", *form, *at]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            lists = (line for line in watching.stdout if "prices" in line)
            next(lists)
            next(lists)
            watching.stdout.close()  # as `head` does
            assert watching.wait(PATIENCE) == 141
            assert watching.stderr is not None
            assert watching.stderr.read() == ""


def test_the_status_tells_if_the_reader_has_closed_the_pipe_before_all_was_written(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("--endpoint", served.endpoint)
    run(capsys, "pub", "prices", "k", "1", *at)
    for words in (["list"], ["list", "--json"], ["info", "prices"], ["last", "prices", "k"], ["--help"]):
        for is_closed, status in ((True, 141), (False, 0)):
            reading, writing = os.pipe()
            if is_closed:
                os.close(reading)
            command = [sys.executable, "-u", "-m", "zambezi", "stream", *words, *(() if words == ["--help"] else at)]
            done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=PATIENCE)
            os.close(writing)
            if not is_closed:
                os.close(reading)  # after all of it was written into the pipe
            assert (done.returncode, done.stderr) == (status, b"")


def test_a_publisher_with_a_name_skips_the_lines_that_it_has_published(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ("--endpoint", served.endpoint)

    def publish(text: bytes, name: str = "copy") -> str:
        type_in(monkeypatch, text)
        assert cli.main(["pub", "copies", "k", "--publisher", name, *at]) == 0
        return capsys.readouterr().err.strip()

    lines = [b"%d\n" % number for number in range(2500)]
    assert publish(b"".join(lines[:1200])) == "1,200 messages published to copies"
    assert publish(b"".join(lines)) == "1,300 messages published to copies; 1,200 messages skipped, published before"
    assert publish(b"".join(lines[:1])) == "0 messages published to copies; 1 message skipped, published before"
    found = run(capsys, "sub", "copies", "--since", "earliest", "--until", "now", *at).splitlines()
    assert found == [f"{number + 1} k {number}" for number in range(2500)]
    assert publish(b"another\n", "another") == "1 message published to copies"


def test_files_are_published_as_messages(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    at = ("--endpoint", served.endpoint)
    (tmp_path / "one").write_bytes(b"1\n2\n")
    type_in(monkeypatch, b"typed\n")
    run(capsys, "pub", "files", "k", "--file", str(tmp_path / "one"), "--file", "-", "--repeat", "2", *at)
    found = run(capsys, "sub", "files", "--since", "earliest", "--until", "now", "--format", "hex", *at)
    assert [bytes.fromhex(line) for line in found.split()] == [b"1\n2\n", b"typed\n"] * 2


def test_a_message_is_repeated_at_a_rate(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pub", "s", "k", "x", "--repeat", "2500", "--rate", "100000", "--endpoint", served.endpoint]) == 0
    assert "2,500 messages published" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["pub", "s"], 2, "give either the KEY"),
        (["pub", "s", "k", "x", "--publisher", "me"], 2, "leave BODY and --file out"),
        (["pub", "s", "k", "x", "--file", "f"], 2, "not both"),
        (["pub", "s", "--tab", "--file", "f"], 2, "the key of a file is KEY"),
        (["pub", "s", "k", "--repeat", "2"], 2, "can be read only once"),
        (["pub", "s", "k", "--file", "nosuch"], 1, "nosuch"),
        (["pub", "s", "k", "x", "--key", "f"], 2, "--key works only with --server-key"),
        (["topics", "--key", "f"], 2, "--key works only with --server-key"),
        (["pub", "s", "k", "x", "--endpoint", "nowhere"], 2, "argument --endpoint: 'nowhere' is no endpoint"),
        (["topics", "--connect", "tcp://h"], 2, "argument --connect: 'tcp://h' has no port"),
        (["serve", "--zeps", "tcp://h"], 2, "argument --zeps: 'tcp://h' has no port"),
        (["serve", "--mcollective", "tcp://h"], 2, "argument --mcollective: 'tcp://h' has no port"),
        (["serve", "--config", "nosuch.toml"], 1, "nosuch.toml"),
        (["serve", "--curve", "nosuch"], 1, "zambezi keygen server"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str],
    status: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == status
    error = capsys.readouterr().err
    assert told in error
    assert len(error.splitlines()) == 1


def test_a_publisher_that_is_interrupted_says_so_by_its_status(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(messages: list[tuple[str, bytes]], _rate: int | None) -> Iterator[list[tuple[str, bytes]]]:
        yield messages[:2]
        raise KeyboardInterrupt

    monkeypatch.setattr("zambezi.cli.pub.paced", interrupted)
    at = ("--endpoint", served.endpoint)
    assert cli.main(["pub", "prices", "gold", "1", "--repeat", "9", *at]) == 130
    assert capsys.readouterr().err == "2 messages published to prices\n"
    type_in(monkeypatch, b"1\n2\n3\n")
    assert cli.main(["pub", "prices", "gold", *at]) == 0  # Ctrl-C is the usual end of typing
    assert capsys.readouterr().err == "2 messages published to prices\n"


def test_a_publisher_whose_messages_wait_says_how_many_are_confirmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise JournalFull("the disk is full")

    resumed = Stream.resumed
    monkeypatch.setattr("zambezi.zeps.sync.WORTH_ASKING", 0.0)
    monkeypatch.setattr("zambezi.zeps.administration.sync.WHY", PATIENCE)
    with serving(tmp_path) as (_, endpoint):
        at = ("--endpoint", endpoint)

        def publish(*arguments: str, timeout: str = "300ms") -> int:
            type_in(monkeypatch, b"1\n2\n3\n4\n5\n")
            return cli.main(["pub", "readings", "k", *arguments, "--timeout", timeout, *at])

        type_in(monkeypatch, b"1\n2\n3\n")
        run(capsys, "pub", "readings", "k", "--publisher", "me", *at)
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", fail)
            patch.setattr(Stream, "resumed", lambda stream, timeout: resumed(stream, PATIENCE))  # not in question here
            for arguments, told in (
                (("--publisher", "me"), "Confirmed are 3 of 5 messages; the same command goes on after them\n"),
                ((), "Confirmed are 0 of 5 messages\n"),
                (("x",), "Confirmed are 0 of 1 message\n"),
            ):
                assert publish(*arguments) == 1
                error = capsys.readouterr().err
                assert error.startswith("zambezi: not all messages of 'readings' were confirmed within 0.3 s; ")
                assert error.endswith(f"the broker keeps messages waiting: the disk is full. {told}")
                assert error.count("\n") == 1
        assert publish("--publisher", "me", timeout=f"{PATIENCE}s") == 0


def test_lines_of_json_are_published(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b'{"key": "k", "body": "1"}\n{"key_hex": "ff", "body_hex": "00ff"}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    run(capsys, "pub", "s", "--json", "--endpoint", served.endpoint)
    found = run(capsys, "sub", "s", "--since", "0", "--until", "now", "--format", "json", "--endpoint", served.endpoint)
    rows = [json.loads(line) for line in found.splitlines()]
    assert [(row.get("key"), row.get("body")) for row in rows] == [("k", "1"), (None, None)]
    assert (rows[1]["key_hex"], rows[1]["body_hex"]) == ("ff", "00ff")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[]\n")))
    assert "standard input:1:1: it must be a JSON object" in fails(
        capsys, "pub", "s", "--json", "--endpoint", served.endpoint
    )


def test_a_line_without_a_tab_is_reported(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, b"a\tfine\nnot fine\n")
    assert cli.main(["pub", "s", "--tab", "--endpoint", served.endpoint]) == 1
    assert "line 2 of standard input has no tab" in capsys.readouterr().err


def test_an_invalid_position_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sub", "s", "--since", "yesterday"]) == 2
    assert "'yesterday' is not a position: write earliest" in capsys.readouterr().err
    for option in (["--since", "999999999999d"], ["--timeout", "99999999999d"]):
        assert cli.main(["sub", "s", *option]) == 2
        assert "is more than 100 years" in capsys.readouterr().err
    assert cli.main(["sub", "s", "--since", "0001-01-01T00:00:00"]) == 2
    assert "'0001-01-01T00:00:00' is not a position" in capsys.readouterr().err
    for name in ("stream", "journal"):
        assert cli.main([name, "truncate", "s", "--after", "-1"]) == 2
        assert "'-1' is not a sequence: write 0 or more" in capsys.readouterr().err
    assert cli.main(["pipeline", "run", "traffic", "--since", "yesterday"]) == 2
    assert "'yesterday' is not a time in ISO 8601" in capsys.readouterr().err


def test_sizes_have_units() -> None:
    assert [size(count) for count in (0, 1023, 1024, 1 << 20, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.0 MiB",
        "3.0 TiB",
    ]


def fails(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 1) -> str:
    assert cli.main(list(arguments)) == status
    return capsys.readouterr().err


def test_streams_are_administered(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--endpoint", served.endpoint)
    told = run(capsys, "stream", "create", "prices", "--keep", "7d", "--keep-bytes", "10M", *at)
    assert told == "prices is created\n"
    assert "there is a stream prices already" in fails(capsys, "stream", "create", "prices", *at)
    for number in range(5):
        run(capsys, "pub", "prices", "k", str(number), *at)
    info = json.loads(run(capsys, "stream", "info", "prices", "--json", *at))
    assert (info["messages"], info["keep_bytes"], info["keep_seconds"]) == (5, 10 << 20, 7 * 86400)
    shown = run(capsys, "stream", "info", "prices", *at).splitlines()
    for line in (
        "keep_bytes:      10.0 MiB",
        "keep_seconds:    7d",
        "max_publishers:  100000",
        "keep_publishers: 7d",
        "messages:        5",
    ):
        assert line in shown
    assert not [line for line in shown if line.startswith(("feed", "sealed"))]
    assert (
        run(capsys, "stream", "edit", "prices", "--keep", "default", "--sync", "interval", *at) == "prices is changed\n"
    )
    (listed,) = [json.loads(line) for line in run(capsys, "stream", "list", "--json", *at).splitlines()]
    assert (listed["sync"], listed["keep_seconds"], listed["keep_bytes"]) == ("interval", None, 10 << 20)
    assert "name the settings" in fails(capsys, "stream", "edit", "prices", *at, status=2)
    assert run(capsys, "stream", "last", "prices", "k", *at) == "5 k 4\n"
    last = json.loads(run(capsys, "stream", "last", "prices", "k", "--json", *at))
    assert (last["sequence"], last["key"], last["body"]) == (5, "k", "4")
    assert datetime.fromisoformat(last["time"]).tzinfo is not None
    assert fails(capsys, "stream", "last", "prices", "none", *at) == (
        "zambezi: prices has no message with the key none\n"
    )
    assert run(capsys, "stream", "copy", "prices", "copies", *at) == "copies has 5 messages of prices\n"
    assert run(capsys, "stream", "trim", "prices", "--before", "3", "--yes", *at) == "prices begins with sequence 3\n"
    assert (
        run(capsys, "stream", "trim", "copies", "--before", "2100-01-01T00:00:00Z", "--yes", *at)
        == "copies begins with sequence 6\n"
    )
    assert run(capsys, "stream", "truncate", "prices", "--after", "4", "--yes", *at) == "prices ends with sequence 4\n"
    assert "use --yes" in fails(capsys, "stream", "delete", "prices", *at, status=2)
    assert run(capsys, "stream", "delete", "prices", "--yes", *at) == "prices is deleted\n"
    assert "there is no stream prices" in fails(capsys, "stream", "info", "prices", *at)


def test_named_readers_go_on_and_are_administered(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--endpoint", served.endpoint)
    for number in range(5):
        run(capsys, "pub", "prices", "tick", str(number), *at)
    assert "has no readers" in run(capsys, "reader", "list", "prices", *at)

    def seen(*arguments: str) -> list[str]:
        return run(capsys, "sub", "prices", "--name", "billing", "--format", "raw", *arguments, *at).splitlines()

    assert seen("--since", "earliest", "--count", "2") == ["0", "1"]
    assert seen("--count", "1") == ["2"]  # after the last line that was printed, not after the batch
    row = json.loads(run(capsys, "reader", "list", "prices", "--json", *at))
    assert (row["reader"], row["position"], row["lag"], row["holder"]) == ("billing", 3, 2, "")
    assert "billing" in run(capsys, "reader", "list", "prices", *at)
    assert "lag" in run(capsys, "stream", "list", *at)
    assert "reader_lag:      2" in run(capsys, "stream", "info", "prices", *at)
    assert seen("--until", "now") == ["3", "4"]
    said = run(capsys, "reader", "set", "prices", "billing", "--to", "1", *at)
    assert said == "billing goes on after sequence 1: 4 messages wait for it\n"
    assert json.loads(run(capsys, "reader", "info", "prices", "billing", "--json", *at))["position"] == 1
    assert re.search(r"^behind: +\d+s$", run(capsys, "reader", "info", "prices", "billing", *at), re.MULTILINE)
    assert run(capsys, "reader", "set", "prices", "billing", "--to", "4", *at).endswith(": 1 message waits for it\n")
    assert run(capsys, "reader", "set", "prices", "billing", "--to", "5", *at).endswith(": 0 messages wait for it\n")
    assert "behind:       -\n" in run(capsys, "reader", "info", "prices", "billing", *at)
    error = fails(capsys, "reader", "set", "prices", "billing", "--to", "1000000", *at)
    assert "the last sequence of this stream is 5: " in error
    assert "; give one from 0 to 5" in error
    assert "subscribe" not in error
    run(capsys, "reader", "set", "prices", "billing", "--to", "1", *at)
    assert "position:     1" in run(capsys, "reader", "info", "prices", "billing", *at)
    assert cli.main(["reader", "remove", "prices", "billing", *at]) == 2
    assert "use --yes" in capsys.readouterr().err
    assert run(capsys, "reader", "remove", "prices", "billing", "--yes", *at) == "billing is removed\n"
    assert cli.main(["reader", "info", "prices", "billing", *at]) == 1
    assert "the stream prices has no reader billing" in capsys.readouterr().err
    assert cli.main(["reader", "list", "price", *at]) == 1
    assert "did you mean prices?" in capsys.readouterr().err


def test_a_group_is_found_by_its_name_alone(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--endpoint", served.endpoint)
    run(capsys, "pub", "prices", "tick", "1", *at)
    run(capsys, "reader", "set", "prices", "both", "--to", "0", *at)
    for group in ("both", "workers"):
        run(capsys, "sub", "prices", "--shared", group, "--since", "earliest", "--count", "1", *at)
    assert "members:" in run(capsys, "reader", "info", "prices", "workers", *at)
    assert "members:" not in run(capsys, "reader", "info", "prices", "both", *at)
    assert "members:" in run(capsys, "reader", "info", "prices", "both", "--shared", *at)
    run(capsys, "reader", "remove", "prices", "workers", "--yes", *at)
    assert "workers" not in run(capsys, "reader", "list", "prices", *at)


def test_messages_that_a_group_gave_back_are_not_in_flight(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--endpoint", served.endpoint)
    run(capsys, "pub", "prices", "tick", "1", "--repeat", "5", *at)
    run(capsys, "sub", "prices", "--shared", "workers", "--since", "earliest", "--count", "2", *at)

    def row() -> dict[str, object]:
        return cast("dict[str, object]", json.loads(run(capsys, "reader", "list", "prices", "--json", *at)))

    wait_until(lambda: row()["in_flight"] == 0)  # the broker has noticed that the member left
    assert row()["returned"] == 3
    assert "behind" not in row()
    assert "0 members, 0 in flight, 3 returned" in run(capsys, "reader", "list", "prices", *at)
    told = run(capsys, "reader", "info", "prices", "workers", *at)
    assert "behind" not in told
    assert "wait:         30s\n" in told


def test_readers_fit_into_a_terminal(served: Served, in_terminal: InTerminal) -> None:
    at = ("--endpoint", served.endpoint)
    assert cli.main(["pub", "prices", "tick", "1", "--repeat", "5", *at]) == 0
    assert cli.main(["reader", "set", "prices", "r" * 60, "--to", "2", *at]) == 0
    assert cli.main(["sub", "prices", "--shared", "workers", "--since", "earliest", "--count", "2", *at]) == 0
    lines, _ = in_terminal("reader", "list", "prices", *at)
    words = "reader kind position lag behind in use by changed user"
    assert " ".join(lines[1].split()) == words
    long = next(line for line in lines if line.startswith("rrr"))
    assert "…  reader         2    3 " in long


def test_a_name_with_control_characters_is_escaped(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pub", "ctl\x1b[31m\udcff", "k", "v", "--endpoint", served.endpoint]) == 0
    assert capsys.readouterr().err == "1 message published to ctl\\x1b[31m\\xff\n"


def test_tables_for_files_are_not_cut(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--endpoint", served.endpoint)
    name = "measurements of the turbine in the north hall of the second power plant"
    run(capsys, "pub", name, "tick", "1", *at)
    assert name in run(capsys, "stream", "list", *at)


def test_commands_without_a_broker_do_not_wait_in_silence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = ("--endpoint", "tcp://127.0.0.1:1")
    assert "$streams within 0.01 s; the client is not connected" in fails(
        capsys, "stream", "list", "--timeout", "10ms", *nowhere
    )
    error = fails(capsys, "stream", "create", "x", "--timeout", "10ms", *nowhere)
    assert "no answer to the order 'create' arrived within 0.01 s; the client is not connected" in error
    assert "; the order was not sent (nothing listens there: is zambezi serve running?)" in error
    assert "may still execute" not in error
    monkeypatch.setattr("zambezi.zeps.client.connection.QUIET", 0.01)
    error = fails(capsys, "sub", "x", "--timeout", "500ms", *nowhere)
    assert error.count("warning: waiting for a broker: this client is not connected to tcp://127.0.0.1:1") == 1
    assert "$streams within 0.5 s" in error


@pytest.mark.parametrize("stream", ["x", "$streams"])
def test_a_replay_without_a_broker_gives_up(
    stream: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zambezi.cli.sub.LOOK", 0.1)
    error = fails(capsys, "sub", stream, "--until", "now", "--endpoint", "tcp://127.0.0.1:1")
    assert "within 0.1 s; the client is not connected to tcp://127.0.0.1:1" in error


def test_a_replay_that_stalls_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    class Stalled:
        """A subscription whose messages come late."""

        def __init__(self) -> None:
            self.coming: list[str | TimedOut] = ["a", TimedOut("no message arrived within 2 s; the client is attached")]

        def recv_batch(self, timeout: float) -> str:
            if isinstance(found := self.coming.pop(0), TimedOut):
                raise found
            return found

        def batches(self) -> Iterator[str]:
            yield from ("b", "c")

    found = [str(batch) for batch in _batches(cast("Subscription", Stalled()), is_due=True)]
    assert found == ["a", "b", "c"]
    told = "no message arrived within 2 s; the client is attached; waiting for the rest of the messages"
    assert capsys.readouterr().err == f"zambezi: warning: {told}\n"


def test_a_stream_that_is_not_there_is_not_created_by_looking(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("--endpoint", served.endpoint)
    run(capsys, "pub", "readings", "k", "1", *at)
    assert "there is no stream reading; did you mean readings?" in fails(capsys, "sub", "reading", *at)
    assert "there is no stream zzz" in fails(capsys, "sub", "zzz", *at)
    assert len(run(capsys, "stream", "list", "--json", *at).splitlines()) == 1


def test_a_stream_whose_broker_does_not_answer_has_no_figures() -> None:
    table = stream_table([StreamInfo(stream="prices", owner="tcp://berlin:5671", sync="store")])
    cells = list(table.rows[0])
    assert cells[:6] == ["prices", "-", "-", "-", "-", "-"]
    assert cells[-1] == "tcp://berlin:5671"


def test_a_long_name_leaves_the_other_columns_in_a_terminal(served: Served, in_terminal: InTerminal) -> None:
    at = ("--endpoint", served.endpoint)
    for name in ("x" * 120, "short"):
        assert cli.main(["pub", name, "k", "v", *at]) == 0
    lines, _ = in_terminal("stream", "list", *at)
    assert lines[1].split() == ["stream", "messages", "last", "size", "per", "s", "readers", "newest", "sync"]
    short, long = lines[2:4]
    assert long.startswith("xxxxxxxxxxxxxxx")
    assert [one for one in long.split()[1:3] if one != "1"] == []
    assert "…" in long
    assert long.endswith("ago  always")
    assert short.split()[:3] == ["short", "1", "1"]


def test_the_reason_of_a_held_stream_is_below_the_table() -> None:
    reason = "no room on the disk of /var/lib/zambezi: it has 1.0 MiB, and 64.0 MiB are reserved; remove messages"
    table = stream_table([StreamInfo(stream="big", held=f"stream 'big': {reason}"), StreamInfo(stream="small")])
    assert table.rows[0][table.columns.index("sync")] == "held"
    assert list(table.notes) == [f"big is held: {reason}"]


def test_messages_are_paced() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += max(seconds, 0.001)

    sent = [(now[0], len(some)) for some in paced([("k", b"")] * 101, 10, lambda: now[0], sleep)]
    assert sum(number for _, number in sent) == 101
    assert sent[0] == (0.0, 1)
    assert sent[-1][0] == pytest.approx(10.0, abs=0.2)
