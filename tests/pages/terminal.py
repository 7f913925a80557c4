"""Terminals for the transcripts of a page: they type the commands after `$`, and compare the output with the page.

A page is played from its beginning to its end, in its own directory and network namespace, so that servers get the same
ports as on the page. A command that does not end by itself (a server, a subscriber) runs until the end of the page. The
rest of its output may come while other commands run.

The terminal is real but simple: 80 columns, no colours, no cursor movement. The comparison ignores values that differ
from run to run (times, ports, identities, disk usage) and the widths of tables.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.pages.blocks import Block
from tests.zmtp.waiting import wait_until
from tests.zre.namespaces import Host

PATIENCE = 240.0  # Spark starts slowly
# Commands that do not end by themselves, unless an option says when.
_GOES_ON = re.compile(
    r"zambezi (serve\b|top\b|(fleet agent|(mesh|peer) chat|mesh watch|log collect|sub)\b(?!.*--(count|until)))"
)

# What a command says if the server that was just started is not ready after 2 s: a busy machine.
_WAITS = "zambezi: warning: waiting for a "

# Values that differ from run to run, and their masks.
_MASKS = (
    (r"\b\d+\.\d+ ms\b", "N ms"),
    (r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?(\+00:00)?)?)?", "TIME"),
    (r"\b\d\d:\d\d:\d\d\b", "TIME"),
    (r"127\.0\.0\.1:(49|5\d|6[0-5])\d{3}(?<!61616)", "127.0.0.1:PORT"),
    (r"\b\d+ [0-9a-f]{8}\b", "CLIENT"),  # a process id and a random number
    (r"\b\d{7,10}\b", "ID"),  # a routing id
    (r"(?<=public key: )\S{40}$", "KEY"),
    (r'(?<="(?:used|free)": )[\d.]+', "N"),
    (r"(?<=  )\d+\.\d(?=  )", "N"),  # milliseconds, in a table
    (r"\s+", " "),
)


def masked(line: str) -> str:
    for pattern, instead in _MASKS:
        line = re.sub(pattern, instead, line)
    # Clients are listed in the order in which they connected.
    line = re.sub(r"\S+ CLIENT(, \S+ CLIENT)+", lambda found: ", ".join(sorted(found[0].split(", "))), line)
    return line.strip()


def transcript(block: Block) -> list[tuple[str, list[str]]]:
    """Return the commands of a block, each with the lines of its output."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    whole = [re.sub(r" \\\n\s*", " ", part).splitlines() for part in parts]
    return [(re.sub(r"\s+# .*", "", command), output) for command, *output in whole]


def goes_on(command: str) -> bool:
    return bool(_GOES_ON.match(command))


class Command:
    """A command at a terminal."""

    def __init__(self, host: Host, place: Path, command: str, *, name: str = "laptop", hosts: str = "") -> None:
        self.command = command
        self._output = ""
        self._ended = False
        resolving = place / f".hosts-{name}"
        resolving.write_text(f"127.0.0.1 localhost {name} broker middleware\n127.0.0.2 server\n{hosts}")
        # Host names for this namespace only: `ip netns exec` has already made the mounts private.
        begin = f'mount --bind "{resolving}" /etc/hosts && hostname {name} && exec bash -c "$0"'
        self._master, terminal = pty.openpty()
        environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "COLUMNS"}}
        path = f"{Path(sys.executable).parent}:{environment['PATH']}"
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", host.name, "unshare", "--uts", "bash", "-c", begin, command],
            cwd=place,
            env=environment | {"PATH": path, "TERM": "dumb", "NO_COLOR": "1", "TZ": "UTC"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        output = b""
        while True:
            try:
                part = os.read(self._master, 65536)
            except OSError:  # the other end is closed
                break
            output += part
            self._output = output.decode(errors="replace")
        self._ended = True

    @property
    def lines(self) -> list[str]:
        """The lines of its output, masked."""
        lines = map(masked, self._output.replace("\r", "\n").split("\n"))
        return [line for line in lines if line and not line.startswith(_WAITS)]

    def type(self, text: str) -> None:
        os.write(self._master, text.encode() + b"\n")

    def says(self, expected: list[str], *, first: bool = False) -> None:
        """Wait for the output that the page shows, or its first line; `...` is any number of lines."""
        wanted = [line for line in map(masked, expected) if line]
        wanted = wanted[:1] if first else wanted
        with contextlib.suppress(AssertionError):  # the assertion below has a better text
            wait_until(lambda: fits(wanted, self.lines) or self._ended)
        assert fits(wanted, self.lines), self.account(wanted)

    def ends(self, expected: list[str]) -> bool:
        """Wait for its end; return whether its status was 0 and its output was exactly what the page shows."""
        status = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        wanted = [line for line in map(masked, expected) if line]
        return status == 0 and (not wanted or fits(wanted, self.lines, whole=True))

    def answers(self, expected: list[str]) -> None:
        """Wait for its end, and fail unless `ends` is true."""
        assert self.ends(expected), self.account([line for line in map(masked, expected) if line])

    def stop(self) -> None:
        """Send SIGINT, as Ctrl-C does, and check that it ends in order."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        status = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert status in {0, 130}, self.account([])
        assert "Traceback" not in self._output, self.account([])

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        os.close(self._master)

    def account(self, wanted: list[str]) -> str:
        """Return a text that compares the output with the page."""
        page = [f"$ {self.command} (status {self._process.poll()})", "--- the page shows", *wanted]
        return "\n".join([*page, "--- the output, masked", *self.lines, "--- the output", self._output])


def fits(wanted: list[str], lines: list[str], *, whole: bool = False) -> bool:
    """Return whether the lines begin with the wanted ones; with `whole`, whether they are equal."""
    if not wanted:
        return not (whole and lines)
    if wanted[0] == "...":
        return any(fits(wanted[1:], lines[begin:], whole=whole) for begin in range(len(lines) + 1))
    return bool(lines) and wanted[0] == lines[0] and fits(wanted[1:], lines[1:], whole=whole)
