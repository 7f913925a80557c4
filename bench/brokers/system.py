"""The interface of a broker for the measurements: how to start it, publish to it and subscribe to it, in two ways.

Raw: prepared bytes on a socket, which shows the cost of the broker itself. With the Python client: as programs do it.
"""

from __future__ import annotations

import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from bench.brokers.body import Case
from bench.brokers.drain import Feed, chunks

START: Final = 20.0  # seconds that a broker may take to start, and to stop
_PROCESSOR: Final = 2  # the kind of clock in Linux's id of a process's CPU clock (clock_getcpuclockid)
PREPARED: Final = 400 << 20  # bytes that may be made before a measurement


@dataclass(frozen=True, slots=True)
class Server:
    """A running broker."""

    pid: int
    port: int

    def processor(self) -> float:
        """Return its processor time in seconds."""
        return processor_time(self.pid)


def processor_time(pid: int) -> float:
    """Return the processor time of all threads of a process in seconds, user and system.

    /proc/PID/stat has the same value in hundredths of a second; this clock counts nanoseconds.
    """
    return time.clock_gettime((~pid << 3) | _PROCESSOR)


class NotStarted(Exception):
    """A broker that did not start."""


class System(ABC):
    """A broker, and the ways to use it."""

    name: ClassVar[str]
    lines: ClassVar[int] = 0  # lines of the broker's answer to each message of a raw publisher
    window: ClassVar[int] = 8  # chunks that a raw publisher sends before it waits for answers
    # A faster broker gets more messages, so that all are busy for the same time: the factor to the slowest one, with
    # raw sockets and with clients.
    raw_weight: ClassVar[int] = 1
    client_weight: ClassVar[int] = 1

    @abstractmethod
    def missing(self) -> str:
        """Return why it cannot be measured here, or "" if it can."""

    @abstractmethod
    def versions(self) -> dict[str, str]: ...

    @abstractmethod
    def command(self, directory: Path, port: int) -> list[str]:
        """Return the command that starts it. `port` is a free port, for brokers that cannot choose one."""

    @abstractmethod
    def find_port(self, directory: Path, port: int) -> int | None:
        """Return the port on which it answers, or None if it does not answer yet."""

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Server]:
        """Run it, with its data in a directory, until the end of the `with` block."""
        port = free_port()
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(self.command(directory, port), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            yield Server(process.pid, self._wait(process, directory, port))
        finally:
            process.terminate()
            try:
                process.wait(START)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _wait(self, process: subprocess.Popen[bytes], directory: Path, port: int) -> int:
        deadline = time.monotonic() + START
        while time.monotonic() < deadline and process.poll() is None:
            found = self.find_port(directory, port)
            if found is not None:
                return found
            time.sleep(0.02)
        log = (directory / "log").read_text(errors="replace").strip().splitlines()
        raise NotStarted(f"{self.name} did not start: {' / '.join(log[-3:]) or 'its log is empty'}")

    # Raw

    @abstractmethod
    def publisher(self, port: int) -> socket.socket:
        """Return a connection that can publish."""

    @abstractmethod
    def frame(self, key: str, body: bytes) -> bytes:
        """Return the bytes that publish one message."""

    def prepare(self, case: Case, sock: socket.socket) -> Iterable[bytes]:
        """Return the bytes that publish all messages, made before the measurement unless they are too large."""
        made = chunks(case, self.frame)
        return list(made) if case.count * (case.size + 64) <= PREPARED else made

    @abstractmethod
    def follow(self, port: int, case: Case) -> Sequence[Feed]:
        """Return connections that get all messages from the first on."""

    def confirm(self, sock: socket.socket, case: Case) -> None:  # noqa: B027 (most brokers need nothing here)
        """Wait until the broker has stored all published messages."""

    # With the Python client

    @abstractmethod
    def publish(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        """Connect, call `ready`, and publish all messages."""

    @abstractmethod
    def subscribe(self, port: int, case: Case, ready: Callable[[], object]) -> list[float]:
        """Subscribe, call `ready`, and receive all messages; return their ages if they have time stamps."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def answers(port: int) -> bool:
    """Return whether a program listens on a port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
