"""Commands as processes, for tests of a mesh on loopback that has its own beacon port."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import IO, Self

from tests.zmtp.waiting import PATIENCE

COMMAND = [sys.executable, "-X", "faulthandler", "-W", "error", "-m", "zambezi"]


def free_port() -> int:
    """Return a UDP port that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Running:
    """A running command, whose output is collected."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.lines)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.errors)),
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: IO[bytes], lines: list[str]) -> None:
        lines.extend(line.decode().rstrip("\n") for line in stream)

    def see(self, pattern: str) -> re.Match[str]:
        """Wait for a line of the output or the errors that contains the pattern."""
        deadline = time.monotonic() + PATIENCE
        while True:
            lines = [*self.lines, *self.errors]
            found = next(filter(None, (re.search(pattern, line) for line in lines)), None)
            if found is not None:
                return found
            ended = self.process.poll() is not None and not any(reader.is_alive() for reader in self._readers)
            assert not ended, (pattern, self.lines, self.errors)
            assert time.monotonic() < deadline, (pattern, self.lines, self.errors)
            time.sleep(0.005)

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    def hang_up(self) -> int:
        """End the input, as Ctrl-D does, and return the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.end()

    def interrupt(self) -> int:
        """Send SIGINT, as Ctrl-C does, and return the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def end(self) -> int:
        status = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.end()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def run(*arguments: str) -> tuple[int, str, str]:
    """Run a command to its end, and return its status, output and errors."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr
