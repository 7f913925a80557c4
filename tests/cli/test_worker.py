"""`zambezi sub --shared` and `--exec`: a worker in one line of shell. It covers `worker` and `exec`."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.zeps.serving import serving
from zambezi import cli
from zambezi.cli.errors import InputError
from zambezi.cli.exec import Commands, Ended, environment_of
from zambezi.zeps import sync
from zambezi.zeps.client.batch import Message
from zambezi.zeps.letters import Letter

PATIENCE = 60


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path / "data") as (_, endpoint):
        with sync.Client.connect(endpoint) as client:
            stream = client.stream("jobs")
            stream.publish_many([(f"k{number}", b"body %d" % number) for number in range(1, 6)])
            stream.flush(PATIENCE)
        yield endpoint


def sub(endpoint: str, *arguments: str) -> int:
    return cli.main(["sub", "jobs", "--since", "earliest", "--endpoint", endpoint, *arguments])


def info(endpoint: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    capsys.readouterr()
    assert cli.main(["reader", "info", "jobs", "workers", "--json", "--endpoint", endpoint, *arguments]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_member_prints_its_messages(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sub(endpoint, "--shared", "workers", "--count", "3", "--format", "raw") == 0
    assert capsys.readouterr().out == "body 1\nbody 2\nbody 3\n"
    assert info(endpoint, capsys, "--shared")["position"] == 3
    assert sub(endpoint, "--shared", "workers", "--count", "2", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["sequence"] == 4


def test_a_command_gets_the_message_and_its_exit_acknowledges_it(
    endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = f'echo "$ZAMBEZI_STREAM $ZAMBEZI_KEY $ZAMBEZI_SEQUENCE $ZAMBEZI_DELIVERIES $(cat)" >> {out}'
    assert sub(endpoint, "--shared", "workers", "--exec", command, "--count", "5") == 0
    assert out.read_text().splitlines() == [f"jobs k{n} {n} 1 body {n}" for n in range(1, 6)]
    found = info(endpoint, capsys, "--shared")
    assert (found["position"], found["members"]) == (5, 0)


def test_a_command_that_fails_gives_its_message_back(
    endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = f"echo $ZAMBEZI_SEQUENCE $ZAMBEZI_DELIVERIES >> {out}; test $ZAMBEZI_SEQUENCE != 2"
    options = ["--shared", "workers", "--exec", command, "--retry", "0.01", "--limit", "3", "--dead", "dead"]
    assert sub(endpoint, *options, "--count", "7") == 0
    assert "message 2 of jobs is given back: its command has ended with status 1" in capsys.readouterr().err
    lines = out.read_text().splitlines()
    assert sorted(lines) == ["1 1", "2 1", "2 2", "2 3", "3 1", "4 1", "5 1"]
    with sync.Client.connect(endpoint) as client:
        letter = client.stream("dead").subscribe(since="earliest").recv(PATIENCE)
        assert Letter.parse(letter.body)[0] == Letter("jobs", 2, "k2", "workers", 3)


def test_a_command_that_does_not_read_its_input_is_no_problem(endpoint: str) -> None:
    with sync.Client.connect(endpoint) as client:
        client.stream("jobs").publish("big", bytes(1 << 20))
        client.stream("jobs").flush(PATIENCE)
    assert sub(endpoint, "--shared", "workers", "--exec", "true", "--count", "6") == 0


def test_a_command_that_cannot_be_started_eats_no_message(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sub(endpoint, "--shared", "workers", "--limit", "1", "--exec", "/no/such/command") == 1
    assert "the command cannot be started" in capsys.readouterr().err
    found = info(endpoint, capsys, "--shared")
    assert (found["position"], found["letters"], found["returned"]) == (0, 0, 2)


def test_a_reader_with_a_name_stops_at_a_message_that_fails(
    endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "test $ZAMBEZI_SEQUENCE != 3 -o -e " + str(tmp_path / "repaired")
    assert sub(endpoint, "--name", "workers", "--exec", command) == 1
    assert "message 3 of jobs is not acknowledged: its command has ended with status 1" in capsys.readouterr().err
    assert info(endpoint, capsys)["position"] == 2
    (tmp_path / "repaired").touch()
    assert sub(endpoint, "--name", "workers", "--exec", command, "--count", "3") == 0
    assert info(endpoint, capsys)["position"] == 5


def test_a_signal_lets_the_running_command_end(
    endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM comes while a command runs: it goes on, its message is acknowledged, and no other one begins."""
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    os.mkfifo(begun)
    os.mkfifo(go_on)

    def interrupt() -> None:
        begun.read_text()
        os.kill(os.getpid(), signal.SIGTERM)
        go_on.write_text("")

    helper = threading.Thread(target=interrupt)
    helper.start()
    sub(endpoint, "--shared", "workers", "--exec", f"echo > {begun}; cat {go_on}")
    helper.join(PATIENCE)
    found = info(endpoint, capsys, "--shared")
    assert (found["position"], found["members"], found["redelivered"]) == (1, 0, 0)


def test_a_command_can_take_longer_than_the_time_of_a_message(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker tells the broker that it still works on the message of a command that does not end."""
    for module in ("exec", "worker"):
        monkeypatch.setattr(f"zambezi.cli.{module}.POLL", 0.001)
    gate, kept = tmp_path / "gate", threading.Event()
    os.mkfifo(gate)
    sequences: list[int] = []

    def keep(subscription: sync.Subscription, message: Message) -> None:
        sequences.append(message.sequence)
        kept.set()

    def let_end() -> None:
        kept.wait(PATIENCE)
        gate.write_text("")

    monkeypatch.setattr(sync.Subscription, "keep", keep)
    helper = threading.Thread(target=let_end)
    helper.start()
    assert sub(endpoint, "--shared", "workers", "--exec", f"cat {gate}", "--count", "1") == 0
    helper.join(PATIENCE)
    assert set(sequences) == {1}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--exec", "true"], "give --shared or --name"),
        (["--limit", "3"], "give --shared"),
        (["--name", "n", "--exec", "true", "--parallel", "2"], "--parallel is for --shared"),
        (["--shared", "g", "--exec", " "], "needs a command"),
        (["--shared", "g", "--name", "n"], "--name does not work with --shared"),
        (["--shared", "g", "--until", "now"], "--until does not work with --shared"),
        (["--shared", "g", "--multicast"], "--multicast does not work with --shared"),
        (["--name", "n", "--multicast"], "--multicast does not work with --name"),
    ],
)
def test_options_that_contradict_each_other(
    endpoint: str, options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sub(endpoint, *options) == 2
    assert reason in capsys.readouterr().err


def test_commands_that_never_run_are_refused_before_the_group_is_made(
    endpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sub(endpoint, "--shared", "g", "--exec", "true", "--parallel", "0") == 2
    assert "--parallel: '0' is not a number: write 1 or more" in capsys.readouterr().err
    assert cli.main(["reader", "list", "jobs", "--endpoint", endpoint]) == 0
    assert "has no readers" in capsys.readouterr().out


def test_groups_are_listed_set_and_removed(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    sub(endpoint, "--shared", "workers", "--count", "2", "--limit", "4")
    at = ("--endpoint", endpoint)
    capsys.readouterr()
    assert cli.main(["reader", "list", "jobs", *at]) == 0
    listed = capsys.readouterr().out
    assert "group" in listed
    assert "0 members" in listed
    assert cli.main(["reader", "info", "jobs", "workers", "--shared", *at]) == 0
    assert "limit:        4" in capsys.readouterr().out
    assert cli.main(["reader", "info", "jobs", "workers", *at]) == 0  # no reader has that name
    assert cli.main(["reader", "info", "jobs", "other", *at]) == 1
    assert "has no reader other" in capsys.readouterr().err
    assert cli.main(["reader", "set", "jobs", "workers", "--shared", "--to", "4", *at]) == 0
    assert "goes on after sequence 4" in capsys.readouterr().out
    assert cli.main(["reader", "remove", "jobs", "workers", "--shared", "--yes", *at]) == 0
    assert cli.main(["reader", "info", "jobs", "workers", "--shared", *at]) == 1


# Commands


def message(sequence: int, key: str = "k", body: bytes = b"") -> Message:
    return Message(sequence, key, body, "jobs")


def test_commands_run_at_once_but_one_after_another_for_a_key(tmp_path: Path) -> None:
    """The second message of a key waits for the first, and another key does not."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    ended: list[int] = []
    other = threading.Event()

    def finished(message: Message, end: Ended) -> None:
        assert end.status == 0
        ended.append(message.sequence)
        if message.sequence == 3:
            other.set()

    commands = Commands(f"test $ZAMBEZI_SEQUENCE != 1 || cat {gate}", 2, finished)
    for sequence, key in ((1, "a"), (2, "a"), (3, "b")):
        commands.handle(message(sequence, key))
    assert other.wait(PATIENCE)
    assert ended == [3]
    gate.write_text("")
    commands.wait()
    assert ended == [3, 1, 2]


def test_what_was_not_begun_is_returned_at_the_end(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    commands = Commands(f"cat {gate}", 2, lambda message, end: None)
    for sequence in (1, 2, 3):
        commands.handle(message(sequence))
    assert [one.sequence for one in commands.end()] == [2, 3]
    gate.write_text("")
    commands.wait()
    assert commands.end() == []


def test_a_second_signal_ends_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[int] = []
    commands = Commands("sleep 1000", 1, lambda message, end: statuses.append(end.status))
    commands.handle(message(1))
    wait = commands._wait
    interrupted = iter([KeyboardInterrupt])

    def interrupt() -> None:
        for error in interrupted:
            while not commands._running:
                pass
            raise error
        wait()

    monkeypatch.setattr(commands, "_wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        commands.wait()
    assert statuses == [-signal.SIGTERM]


def test_a_shell_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[int] = []
    commands = Commands("true", 1, lambda message, end: statuses.append(end.status))

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(7, "Argument list too long")

    monkeypatch.setattr("subprocess.Popen", fail)
    commands.handle(message(1))
    commands.wait()
    assert statuses
    assert statuses[0] != 0
    with pytest.raises(InputError, match="Argument list too long"):
        commands.handle(message(2))


def test_the_environment_has_any_key() -> None:
    found = environment_of(message(7, "a\0b \udcff"))
    assert (found["ZAMBEZI_KEY"], found["ZAMBEZI_SEQUENCE"]) == ("a?b \udcff", "7")
    assert found["PATH"] == os.environ["PATH"]
