"""A broker as the measurements see it: how it is started, and how it is published and subscribed to, in two ways each.

Raw: prepared octets on a socket, for what the broker itself costs. By Python clients: as a program would do it.
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

START: Final = 20.0  # seconds that a broker has to start, and to stop
_PROCESSOR: Final = 2  # what Linux adds to the complement of a process to name its clock (clock_getcpuclockid)
PREPARED: Final = 400 << 20  # octets


@dataclass(frozen=True, slots=True)
class Server:
    """A broker that runs."""

    pid: int
    port: int

    def processor(self) -> float:
        """Seconds of processor that all its threads have used, in the program and in the kernel.

        It is what /proc/PID/stat tells, which counts in hundredths; the clock counts in nanoseconds.
        """
        return time.clock_gettime((~self.pid << 3) | _PROCESSOR)


class NotStarted(Exception):
    """A broker did not start."""


class System(ABC):
    """One broker, and the ways to it."""

    name: ClassVar[str]
    lines: ClassVar[int] = 0  # in the answer to each message that a raw publisher sends
    window: ClassVar[int] = 8  # chunks that a raw publisher has under way, where they are answered
    # How many times more messages than the slowest it gets by raw sockets and by clients, so that it is busy as long.
    raw_weight: ClassVar[int] = 1
    client_weight: ClassVar[int] = 1

    @abstractmethod
    def missing(self) -> str:
        """Why it cannot be measured here; nothing if it can."""

    @abstractmethod
    def versions(self) -> dict[str, str]: ...

    @abstractmethod
    def command(self, directory: Path, port: int) -> list[str]:
        """How to start it. `port` is free now, for those who cannot find one by themselves."""

    @abstractmethod
    def find_port(self, directory: Path, port: int) -> int | None:
        """The port where it answers; None if it does not yet."""

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Server]:
        """Run it, with its data in a directory; it ends with the block."""
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
        told = (directory / "log").read_text(errors="replace").strip().splitlines()
        raise NotStarted(f"{self.name} did not start: {' / '.join(told[-3:]) or 'it told nothing'}")

    # Raw

    @abstractmethod
    def publisher(self, port: int) -> socket.socket:
        """A connection that can publish."""

    @abstractmethod
    def frame(self, key: str, body: bytes) -> bytes:
        """What publishes one message."""

    def prepare(self, case: Case, sock: socket.socket) -> Iterable[bytes]:
        """What publishes all messages, made before the clock starts unless it is too much."""
        made = chunks(case, self.frame)
        return list(made) if case.count * (case.size + 64) <= PREPARED else made

    @abstractmethod
    def follow(self, port: int, case: Case) -> Sequence[Feed]:
        """Connections that get all messages from the first on."""

    def confirm(self, sock: socket.socket, case: Case) -> None:  # noqa: B027 (most have nothing to do)
        """Wait until what was published is kept."""

    # By Python clients

    @abstractmethod
    def publish(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        """Connect, call `ready`, publish everything."""

    @abstractmethod
    def subscribe(self, port: int, case: Case, ready: Callable[[], object]) -> list[float]:
        """Subscribe, call `ready`, take everything; how old the messages were, if they are stamped."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
