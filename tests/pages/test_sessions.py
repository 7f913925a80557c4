"""The transcripts of the pages are played: every command runs, and its output is what the page shows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.pages.blocks import ROOT, blocks
from tests.pages.commands import check, lines, words
from tests.pages.terminal import PATIENCE, Command, fits, goes_on, masked, transcript
from tests.zmtp.waiting import wait_until
from tests.zre import namespaces
from tests.zre.namespaces import Network

pytestmark = pytest.mark.skipif(bool(namespaces.allowed()), reason=namespaces.allowed() or "-")

# Commands that install something are only checked: the packages are already installed.
INSTALLS = ("pip ", "apt-get ", "python3 -m venv ", ". ")


@dataclass(frozen=True, slots=True)
class Session:
    """The things that a page assumes, besides its own commands."""

    files: dict[str, str] = field(default_factory=dict)
    before: list[tuple[str, ...]] = field(default_factory=list)  # (host, command, output), before the page begins
    asides: dict[str, list[str]] = field(default_factory=dict)  # commands to run after a command with this beginning
    typed: tuple[str, ...] = ()  # lines that a person types into a program; the terminal shows them
    places: dict[str, str] = field(default_factory=dict)  # directories of the system, and their replacements
    unit: str = ""  # the command that `systemctl start zambezi` runs
    again: tuple[str, ...] = ()  # commands to repeat until the state that the page shows is reached
    name: str = "laptop"


# The servers of docs/multicast.md: one without keys, and one whose group is encrypted.
GROUP = """
[zeps]
endpoint = "tcp://127.0.0.1:5671"
[zeps.streams.prices]
multicast = "udp://239.77.1.1:5680?interface=eth0"
"""
SEALED = """
[server]
data = "sealed"
keys = "keys"
[zeps]
endpoint = "tcp://127.0.0.2:5671"
[zeps.streams.prices]
multicast = "udp://239.77.1.2:5680?interface=eth0"
"""
# The server of docs/operations.md.
UNIT = """
[server]
data = "data"
keys = "etc/keys"
[zeps]
endpoint = "tcp://127.0.0.2:5671"
[console]
enabled = false
[zre]
enabled = false
"""
ONLY = "--only zeps"

SESSIONS: dict[str, Session] = {
    "README.md": Session(),
    "docs/tutorial.md": Session(
        files={"rooms.py": blocks(ROOT / "docs" / "tutorial.md", "python")[0].text},
        typed=("hello, bob",),
        again=("zambezi fleet ping",),
    ),
    "docs/fleet.md": Session(
        name="node1",
        files={"disk.py": blocks(ROOT / "docs" / "fleet.md", "python")[0].text},
        before=[
            ("middleware", "zambezi serve --only mcollective"),
            ("node2", "zambezi fleet agent --load disk.py --connect tcp://middleware:61616"),
        ],
        again=("zambezi fleet ping",),
    ),
    "docs/mcollective.md": Session(
        before=[
            ("middleware", "zambezi serve --only mcollective"),
            ("node1", "zambezi fleet agent", "...", "* connected to tcp://127.0.0.1:61616"),
            ("node2", "zambezi fleet agent", "...", "* connected to tcp://127.0.0.1:61616"),
        ],
        again=("zambezi topics --clients | cat",),
    ),
    "docs/multicast.md": Session(
        files={"group.toml": GROUP, "sealed.toml": SEALED},
        before=[
            ("server", f"zambezi serve {ONLY} --config group.toml"),
            ("laptop", "zambezi pub prices tea.green 4.20"),
            ("server", "zambezi keygen server --directory keys"),
            ("laptop", "zambezi keygen ann"),
            ("server", "mkdir keys/allowed && cp ann.pub keys/allowed && cp keys/server.pub ."),
        ],
        asides={
            "zambezi keygen group": [
                f"zambezi serve {ONLY} --config sealed.toml",
                "zambezi pub prices tea.green 4.20 --endpoint tcp://server:5671 --server-key server.pub --key ann.key",
            ],
        },
    ),
    "docs/operations.md": Session(
        places={"/etc/zambezi": "etc", "/var/lib/zambezi": "data", "/backup": "backup"},
        files={"etc/zambezi.toml": UNIT},
        unit=f"zambezi serve {ONLY} --config etc/zambezi.toml",
        asides={
            "zambezi keygen sensor-7 ": [
                "cp sensor-7/sensor-7.pub etc/keys/allowed/ && cp etc/keys/server.pub .",
                "systemctl start zambezi",
            ],
        },
    ),
    "docs/peer.md": Session(typed=("hello bob",)),
    "docs/pipelines.md": Session(
        before=[
            ("broker", f"zambezi serve {ONLY} --data data"),
            ("laptop", "seq 1 1000 | zambezi pub readings room0.celsius"),
        ],
    ),
    "docs/security.md": Session(),
    "docs/spark.md": Session(),
    "docs/store.md": Session(
        before=[
            ("broker", f"zambezi serve {ONLY}"),
            ("laptop", "seq 1 50 | zambezi pub prices gold"),
        ],
    ),
    "docs/journal.md": Session(
        before=[
            ("broker", f"zambezi serve {ONLY}"),
            ("laptop", "seq 1 50 | zambezi pub prices gold"),
        ],
    ),
}


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as one:
        yield one


# Groups begin first. These pages start Spark, and must not be the last tests of a run.
WITH_SPARK = ("docs/pipelines.md", "docs/tutorial.md")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.xdist_group("spark-processes")) if page in WITH_SPARK else page
        for page in SESSIONS
    ],
)
def test_the_transcripts_of_a_page_are_true(page: str, network: Network, tmp_path: Path) -> None:
    session = SESSIONS[page]
    for file, text in session.files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    host = network.host()
    running: list[tuple[Command, list[str]]] = []
    started: list[Command] = []

    def run(command: str, name: str) -> Command:
        started.append(Command(host, tmp_path, command, name=name))
        return started[-1]

    def control(order: str) -> Command:
        """Do what `systemctl` does with the unit of the server. It waits until a new server is ready."""
        if order in ("stop", "restart"):
            running.pop()[0].stop()
        if order in ("start", "restart"):
            server = run(session.unit, session.name)
            running.append((server, []))
            wait_until(lambda: bool(server.lines))
        return started[-1]

    def begin(command: str, output: list[str], name: str = session.name) -> Command:
        if command.startswith("systemctl "):
            return control(command.split()[1])
        for place, here in session.places.items():
            command = command.replace(place, here)
            output = [line.replace(place, here) for line in output]
        one = run(command, name)
        for number, line in enumerate(output):
            if line in session.typed:
                one.says(output[:number])
                one.type(line)
        if goes_on(command):
            one.says(output, first=True)
            running.append((one, output))
        else:
            deadline = time.monotonic() + PATIENCE
            while not one.ends(output) and command in session.again and time.monotonic() < deadline:
                one = run(command, name)
            one.answers(output)
        return one

    try:
        for name, command, *output in session.before:
            begin(command, output, name).says(output)
        for block in blocks(ROOT / page, "console"):
            for command, output in transcript(block):
                if command.startswith(INSTALLS):
                    for part in lines(command):
                        check(words(part))
                    continue
                begin(command, output)
                for beginning, commands in session.asides.items():
                    for aside in commands if command.startswith(beginning) else ():
                        begin(aside, [])
        for one, output in running:
            one.says(output)
        for one, _ in reversed(running):
            one.stop()
    finally:
        for one in reversed(started):
            one.kill()


def test_a_different_output_is_found() -> None:
    page = ["1 message published to readings", "...", "took 3.4 ms"]
    output = ["1 message published to readings", "a", "b", "took 17.1 ms"]
    assert fits(list(map(masked, page)), list(map(masked, output)), whole=True)
    assert not fits(list(map(masked, page)), list(map(masked, [*output, "more"])), whole=True)
    assert not fits(list(map(masked, page)), list(map(masked, ["2 messages published to readings", *output[1:]])))
