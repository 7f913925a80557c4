"""A running `zambezi serve`, as an attacker's target: its ports, memory and descriptors, and a lawful client of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import zambezi
from demo.server import free_port

PATIENCE = 60.0
CONFIGURATION = """
[server]
data = "{directory}/data"
[zeps]
endpoint = "tcp://127.0.0.1:*"
[mcollective]
endpoint = "tcp://127.0.0.1:*"
[zre]
interface = "lo"
beacon_port = {beacons}
[console]
port = 0
{more}
"""


def environment() -> dict[str, str]:
    """Return the environment of child processes: they import the same tree as this process."""
    tree = Path(zambezi.__file__).parents[1]
    path = [str(tree), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


@dataclass(frozen=True)
class Usage:
    """The memory of a process in bytes, and its descriptors."""

    memory: int
    descriptors: int


class Server:
    """A server process. `descriptors` is the limit of its open files."""

    def __init__(self, more: str = "", descriptors: int = 0) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="zambezi-campaign-"))
        self.beacon_port = free_port(socket.SOCK_DGRAM)
        self._descriptors = descriptors
        config = CONFIGURATION.format(directory=self.directory, beacons=self.beacon_port, more=more)
        (self.directory / "zambezi.toml").write_text(config)
        self.log = self.directory / "log"
        self.ports: dict[str, int] = {}
        self.start()

    def start(self) -> None:
        """Start the process, for the first time or again, and wait until all its services run."""
        self.ports = {}
        command = [sys.executable, "-m", "zambezi", "serve", "--config", str(self.directory / "zambezi.toml")]
        if self._descriptors:
            command = ["sh", "-c", f'ulimit -n {self._descriptors}; exec "$@"', "sh", *command]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(),
                cwd=self.directory,
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            service, _, endpoint = line.decode().split()
            self.ports[service] = int(endpoint.rstrip("/").rpartition(":")[2])
            if service == "console":
                return
        raise RuntimeError(f"the server did not start: {self.log.read_text()[-2000:]}")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def usage(self) -> Usage:
        """Return what the process uses now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        return Usage(memory << 10, sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        """End the process in good order; kill it if it does not end."""
        if self.alive:
            self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class Lawful:
    """The lawful client, in its own process."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.campaign.lawful", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )
        assert self._process.stdout is not None
        if b"ready" not in self._process.stdout.readline():
            raise RuntimeError("the lawful client did not get an answer before the attack")

    def stop(self, since: float) -> tuple[float, int, str]:
        """End it. Return the longest wait for an answer since a time, the number of answers, and what went wrong."""
        output, _ = self._process.communicate(b"\n", PATIENCE * 2)
        told = json.loads(output)
        answers = [took for began, took in told["answers"] if began + took >= since]
        return max(answers, default=float("inf")), len(answers), told["problem"]


class Watch(threading.Thread):
    """Samples of what a server uses, and the highest of them."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._ended = threading.Event()
        self.before = server.usage()
        self.most = self.before
        self.start()

    def run(self) -> None:
        while not self._ended.wait(0.05) and self._server.alive:
            now = self._server.usage()
            self.most = Usage(max(self.most.memory, now.memory), max(self.most.descriptors, now.descriptors))

    def end(self) -> None:
        self._ended.set()
        self.join()


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE) -> bool:
    """Wait until a condition (a function) is true; return whether it is."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
