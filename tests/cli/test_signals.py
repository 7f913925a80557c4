"""`zambezi serve` under a service manager: signals, exit statuses, and errors at the start."""

import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi import cli
from zambezi.cli.serve import End
from zambezi.cli.signals import away_from_signals, ending_in_good_order
from zambezi.errors import ZambeziError
from zambezi.spark.pipelines.verdict import Reason, Verdict
from zambezi.zeps.sync import Client

CONFIG = """[server]
data = "{path}/data"
[zeps]
endpoint = "tcp://127.0.0.1:*"
[mcollective]
enabled = false
[zre]
enabled = false
[console]
port = 0
"""


class Running:
    """A process that runs a server."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self.process = process
        self.zeps = process.stdout.readline().split()[-1]
        self.console = process.stdout.readline().split()[-1]

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.console + path, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def read_log(self, begin: str) -> None:
        """Read the log up to a message that begins with this text."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if json.loads(line)["message"].startswith(begin):
                return
        pytest.fail(f"it did not log {begin}")

    def end(self, *signals: signal.Signals) -> tuple[int, list[str]]:
        """Send signals, wait for the end, and return the exit status and the logged messages."""
        for number in signals:
            self.process.send_signal(number)
        _, logged = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, [json.loads(line)["message"] for line in logged.splitlines()]


@contextmanager
def running(path: Path, config: str = CONFIG) -> Iterator[Running]:
    file = path / "zambezi.toml"
    file.write_text(config.format(path=path))
    command = [sys.executable, "-m", "zambezi", "serve", "--config", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


@contextmanager
def flooded(endpoint: str) -> Iterator[None]:
    """Publish to the stream `flood` as fast as possible."""
    enough, begun = threading.Event(), threading.Event()

    def publish() -> None:
        with suppress(ZambeziError), Client.connect(endpoint, linger=0) as client:
            stream = client.stream("flood")
            while not enough.is_set():
                stream.publish_many([("k", b"x" * 1000)] * 100, timeout=1)
                begun.set()

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        assert begun.wait(PATIENCE)
        yield
    finally:
        enough.set()
        thread.join(PATIENCE)


def half_open(endpoint: str) -> socket.socket:
    """Open a connection that sends half of a greeting, and then nothing."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    sock = socket.create_connection((host, int(port)))
    sock.sendall(b"\xff\0\0\0\0\0\0\0\x01\x7f\x03")
    return sock


def test_a_busy_server_ends_in_good_order(tmp_path: Path) -> None:
    with (
        running(tmp_path) as server,
        flooded(server.zeps),
        half_open(server.zeps),
        socket.create_connection(("127.0.0.1", int(server.console.split(":")[-1].rstrip("/")))) as page,
    ):
        page.sendall(b"GET /api/tail?stream=flood&since=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert page.recv(12) == b"HTTP/1.1 200"
        status, logged = server.end(signal.SIGTERM)
    assert status == 0
    assert "stopping" in logged
    assert cli.main(["journal", "verify", "--data", str(tmp_path / "data")]) == 0


def test_a_second_signal_changes_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        status, logged = server.end(signal.SIGTERM, signal.SIGINT)
        assert status == 0
        assert logged.count("stopping") == 1


def test_a_third_signal_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    stop = asyncio.Event()
    end = End(stop)
    end.wanted()
    assert stop.is_set()
    end.wanted()
    assert ended == []
    end.wanted()
    assert ended == [1]


def test_a_full_disk_is_reported_until_there_is_room(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        pid = server.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        with Client.connect(server.zeps) as client:
            stream = client.stream("prices")
            stream.publish("k", b"x")
            stream.flush(timeout=PATIENCE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
            stream.publish("k", b"x" * 8192)
            wait_until(lambda: server.get("readyz")[0] == 503)
            assert "stream prices: " in server.get("readyz")[1]
            server.read_log("stream prices: ")
            assert server.get("healthz")[0] == 200
            assert 'zambezi_stream_held{stream="prices"} 1.0' in server.get("metrics")[1]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
            stream.flush(timeout=PATIENCE)
            wait_until(lambda: server.get("readyz")[0] == 200)
            server.read_log("resolved: stream prices: ")
        assert server.end(signal.SIGTERM)[0] == 0


def test_a_reload_reports_what_it_could_not_change(tmp_path: Path) -> None:
    file = tmp_path / "zambezi.toml"
    with running(tmp_path) as server:
        assert server.process.stderr is not None
        logged = (json.loads(line)["message"] for line in server.process.stderr)
        next(logged)
        file.write_text(file.read_text().replace("port = 0", "port = 1") + "[zeps.journal]\nkeep = '1d'\n")
        server.process.send_signal(signal.SIGHUP)
        assert next(logged) == "rules and retention were reloaded"
        assert next(logged) == "these changes need a restart: console.port"
        # A problem of the machine does not prevent the reload.
        file.write_text(file.read_text().replace("[zre]\nenabled = false", '[zre]\ninterface = "none0"'))
        server.process.send_signal(signal.SIGHUP)
        assert next(logged) == "rules and retention were reloaded"
        assert "zre.enabled" in next(logged)
        assert next(logged).startswith(f"{file}:8: ")
        file.write_text("[zeps]\ncreate = 1\nbehind = 2\n")
        server.process.send_signal(signal.SIGHUP)
        assert next(logged).startswith(f"the configuration was not reloaded: {file}:2: create must be true or false")
        assert next(logged).startswith(f"the configuration was not reloaded: {file}:3: behind must be one of")
        file.unlink()
        server.process.send_signal(signal.SIGHUP)
        assert next(logged).startswith("the configuration was not reloaded: ")
        assert server.get("healthz")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("service", ["zeps", "mcollective", "console"])
def test_the_error_for_a_port_in_use_has_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], service: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        key = f"port = {port}" if service == "console" else f'endpoint = "tcp://127.0.0.1:{port}"'
        file = tmp_path / "zambezi.toml"
        file.write_text(f'[server]\ndata = "{tmp_path}/data"\n[{service}]\n{key}\n')
        assert cli.main(["serve", "--config", str(file), "--only", service]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"zambezi: {file}:4: ")
    assert "Address already in use" in error
    assert error.count("\n") == 1


def test_a_mistake_on_the_command_line_is_reported_with_its_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for option, value, problem in (
        ("--data", f"{tmp_path}/file", "is not a directory"),
        ("--curve", f"{tmp_path}/none", "zambezi keygen server"),
    ):
        data = [] if option == "--data" else ["--data", str(tmp_path / "data")]
        assert cli.main(["serve", "--only", "zeps", option, value, *data]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"zambezi: {option}: ")
        assert problem in error


def test_the_table_of_exit_statuses_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Try the table in docs/operations.md. (Other tests here cover the statuses 0 and 1 of a server.)"""
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    told = {int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    bad = tmp_path / "bad.toml"
    bad.write_text("[zeps]\ncreate = 1\n")
    tried = {
        cli.main(["config", "show"]): 0,
        cli.main(["config", "check", str(bad)]): 1,
        cli.main(["serve", "--config", str(bad)]): 1,
        cli.main(["serve", "--nonsense"]): 2,
    }
    reader, writer = os.pipe()
    os.close(reader)
    show = [sys.executable, "-m", "zambezi", "config", "show"]
    ran = subprocess.run(show, check=False, stdout=writer, stderr=subprocess.PIPE, timeout=PATIENCE)
    os.close(writer)
    assert ran.stderr == b"", "a closed pipe causes no traceback"
    tried[ran.returncode] = 141
    tried[Verdict("traffic", (Reason("room", "silent", "room was silent"),)).status] = 3

    def interrupt(_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("zambezi.server.config.show", interrupt)
    tried[cli.main(["config", "show"])] = 130
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` ignores it
    for number, status in ((signal.SIGHUP, 129), (signal.SIGTERM, 143)):
        monkeypatch.setattr("zambezi.server.config.show", lambda _, number=number: signal.raise_signal(number))
        tried[cli.main(["config", "show"])] = status
    signal.signal(signal.SIGHUP, before)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert tried == {status: status for status in told}


def test_a_server_without_free_descriptors_keeps_serving_its_clients(tmp_path: Path) -> None:
    with running(tmp_path) as server, Client.connect(server.zeps) as client:
        stream = client.stream("prices")
        stream.publish("k", b"x")
        stream.flush(timeout=PATIENCE)
        pid = server.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 4, limits[1]))
        crowd = [half_open(server.zeps) for _ in range(12)]
        server.read_log(f"{server.zeps}: the handshake with a peer")
        stream.publish("k", b"y")
        stream.flush(timeout=PATIENCE)
        for one in crowd:
            one.close()
        with Client.connect(server.zeps) as late:
            again = late.stream("prices")
            again.publish("k", b"z")
            again.flush(timeout=PATIENCE)
        assert server.get("readyz") == (200, "ok\n")
        assert server.end(signal.SIGTERM)[0] == 0


def interrupt_main() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_work_away_from_signals_gives_its_result_or_its_error() -> None:
    assert away_from_signals(lambda _: 7, lambda: None) == 7

    def fail(_: threading.Event) -> int:
        raise ZambeziError("wrong")

    with pytest.raises(ZambeziError):
        away_from_signals(fail, lambda: None)


def test_work_that_ends_as_asked_by_a_signal_has_a_result() -> None:
    def follow(interrupted: threading.Event) -> int:
        interrupt_main()
        assert interrupted.wait(PATIENCE)
        return 5

    with ending_in_good_order():
        assert away_from_signals(follow, lambda: None) == 5


def test_work_that_a_signal_has_cancelled_ends_as_by_ctrl_c() -> None:
    cancelled = threading.Semaphore(0)

    def work(_: threading.Event) -> int:
        interrupt_main()
        for _again in range(2):  # the first call can come between two jobs
            assert cancelled.acquire(timeout=PATIENCE)
        raise ZambeziError("the job was cancelled")

    with ending_in_good_order(), pytest.raises(KeyboardInterrupt):
        away_from_signals(work, cancelled.release)
