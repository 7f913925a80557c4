"""Terminals for the transcripts of a page: what stands after `$` is typed, and what is answered is compared.

A page is played from its beginning to its end, in a directory of its own, on a host of its own (a network namespace),
so that servers have the ports that they have on the page. A command that goes on (a server, a subscriber) does so until
the end of the page, and may say the rest of what the page has it say while others are typed.

The terminal is a real one, if a simple one: 80 characters wide, without colours, and nothing moves. What differs from
run to run (times, ports, identities, how much of a disk is used) is not compared, and neither is how wide a table is.
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

PATIENCE = 240.0  # Spark takes its time to begin
# Commands that do not end by themselves, unless they are told when.
_GOES_ON = re.compile(
    r"zambezi (serve\b|top\b|(fleet agent|(mesh|peer) chat|mesh watch|log collect|sub)\b(?!.*--(count|until)))"
)

# What differs from run to run.
_MASKS = (
    (r"\b\d+\.\d+ ms\b", "N ms"),
    (r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?(\+00:00)?)?)?", "TIME"),
    (r"\b\d\d:\d\d:\d\d\b", "TIME"),
    (r"127\.0\.0\.1:(49|5\d|6[0-5])\d{3}(?<!61616)", "127.0.0.1:PORT"),
    (r"\b\d+ [0-9a-f]{8}\b", "CLIENT"),  # a process, and what tells its connections apart
    (r"\b\d{7,10}\b", "ID"),  # a routing id
    (r"(?<=public key: )\S{40}$", "KEY"),
    (r'(?<="(?:used|free)": )[\d.]+', "N"),
    (r"(?<=│)\s+\d+\.\d(?=\s+│)", " N"),  # milliseconds, in a table
    (r"[\u2500-\u257f]", " "),  # the lines of tables
    (r"\s+", " "),
)


def masked(line: str) -> str:
    for pattern, instead in _MASKS:
        line = re.sub(pattern, instead, line)
    # Clients are listed in the order in which they came.
    line = re.sub(r"\S+ CLIENT(, \S+ CLIENT)+", lambda found: ", ".join(sorted(found[0].split(", "))), line)
    return line.strip()


def transcript(block: Block) -> list[tuple[str, list[str]]]:
    """The commands of a block, each with what is answered."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    whole = [re.sub(r" \\\n\s*", " ", part).splitlines() for part in parts]
    return [(re.sub(r"\s+# .*", "", command), answered) for command, *answered in whole]


def goes_on(command: str) -> bool:
    return bool(_GOES_ON.match(command))


class Command:
    """A command at a terminal."""

    def __init__(self, host: Host, place: Path, command: str, *, name: str = "laptop", hosts: str = "") -> None:
        self.command = command
        self._said = ""
        self._over = False
        resolving = place / f".hosts-{name}"
        resolving.write_text(f"127.0.0.1 localhost {name} broker middleware\n127.0.0.2 server\n{hosts}")
        # Names of a namespace's own: `ip netns exec` has made the mounts private already.
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
        said = b""
        while True:
            try:
                part = os.read(self._master, 65536)
            except OSError:  # the other end is closed
                break
            said += part
            self._said = said.decode(errors="replace")
        self._over = True

    @property
    def lines(self) -> list[str]:
        """What it has said, without what differs."""
        return [line for line in map(masked, self._said.replace("\r", "\n").split("\n")) if line]

    def type(self, text: str) -> None:
        os.write(self._master, text.encode() + b"\n")

    def says(self, expected: list[str], *, first: bool = False) -> None:
        """Wait until it has said what the page says, or the first line of it; `...` is any number of lines."""
        wanted = [line for line in map(masked, expected) if line]
        wanted = wanted[:1] if first else wanted
        with contextlib.suppress(AssertionError):  # it is told below
            wait_until(lambda: fits(wanted, self.lines) or self._over)
        assert fits(wanted, self.lines), self.account(wanted)

    def ends(self, expected: list[str]) -> bool:
        """Wait for its end. Whether it did well, and said what the page says and nothing else."""
        status = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        wanted = [line for line in map(masked, expected) if line]
        return status == 0 and (not wanted or fits(wanted, self.lines, whole=True))

    def answers(self, expected: list[str]) -> None:
        """The same, for a command that has no other chance."""
        assert self.ends(expected), self.account([line for line in map(masked, expected) if line])

    def stop(self) -> None:
        """Ctrl-C, as a person would. It ends in order."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        status = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert status in {0, 130}, self.account([])
        assert "Traceback" not in self._said, self.account([])

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        os.close(self._master)

    def account(self, wanted: list[str]) -> str:
        said = [f"$ {self.command} (status {self._process.poll()})", "--- the page says", *wanted]
        return "\n".join([*said, "--- it said", *self.lines, "--- word for word", self._said])


def fits(wanted: list[str], said: list[str], *, whole: bool = False) -> bool:
    """Whether what was said begins like what is wanted; with `whole`, whether it is that."""
    if not wanted:
        return not (whole and said)
    if wanted[0] == "...":
        return any(fits(wanted[1:], said[begin:], whole=whole) for begin in range(len(said) + 1))
    return bool(said) and wanted[0] == said[0] and fits(wanted[1:], said[1:], whole=whole)
