"""The transcripts of the pages are played: every command runs, and answers what the page says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.pages.blocks import ROOT, blocks
from tests.pages.commands import check, lines, words
from tests.pages.terminal import PATIENCE, Command, fits, goes_on, masked, transcript
from tests.zre import namespaces
from tests.zre.namespaces import Network

pytestmark = pytest.mark.skipif(bool(namespaces.allowed()), reason=namespaces.allowed() or "-")

# Installing is for people; what it would bring is here already.
INSTALLS = ("pip ", "apt-get ", "python3 -m venv ", ". ")


@dataclass(frozen=True, slots=True)
class Session:
    """What a page takes for granted, beside what it says itself."""

    files: dict[str, str] = field(default_factory=dict)
    before: list[tuple[str, ...]] = field(default_factory=list)  # (host, command, answers), before anything is typed
    asides: dict[str, list[str]] = field(default_factory=dict)  # after a command, by its beginning
    typed: tuple[str, ...] = ()  # what a person types into a program; the terminal shows it
    places: dict[str, str] = field(default_factory=dict)  # directories of the system, and what they are here
    again: tuple[str, ...] = ()  # commands that look at what others do: a person would look again
    name: str = "laptop"


# The servers of docs/multicast.md: one without keys, and one whose group is sealed.
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
        places={"/etc/zambezi": "etc"},
        asides={
            "zambezi keygen sensor-7": [
                "cp sensor-7/sensor-7.pub etc/keys/allowed/ && cp etc/keys/server.pub .",
                f"zambezi serve {ONLY} --zeps tcp://127.0.0.2:5671 --curve etc/keys",
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


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", SESSIONS)
def test_the_transcripts_of_a_page_are_true(page: str, network: Network, tmp_path: Path) -> None:
    session = SESSIONS[page]
    for file, text in session.files.items():
        (tmp_path / file).write_text(text)
    host = network.host()
    going: list[tuple[Command, list[str]]] = []
    begun: list[Command] = []

    def run(command: str, name: str) -> Command:
        begun.append(Command(host, tmp_path, command, name=name))
        return begun[-1]

    def begin(command: str, answered: list[str], name: str = session.name) -> Command:
        for place, here in session.places.items():
            command = command.replace(place, here)
            answered = [line.replace(place, here) for line in answered]
        one = run(command, name)
        for number, line in enumerate(answered):
            if line in session.typed:
                one.says(answered[:number])
                one.type(line)
        if goes_on(command):
            one.says(answered, first=True)
            going.append((one, answered))
        else:
            deadline = time.monotonic() + PATIENCE
            while not one.ends(answered) and command in session.again and time.monotonic() < deadline:
                one = run(command, name)
            one.answers(answered)
        return one

    try:
        for name, command, *answered in session.before:
            begin(command, answered, name).says(answered)
        for block in blocks(ROOT / page, "console"):
            for command, answered in transcript(block):
                if command.startswith(INSTALLS):
                    for part in lines(command):
                        check(words(part))
                    continue
                begin(command, answered)
                for beginning, commands in session.asides.items():
                    for aside in commands if command.startswith(beginning) else ():
                        begin(aside, [])
        for one, answered in going:
            one.says(answered)
        for one, _ in reversed(going):
            one.stop()
    finally:
        for one in reversed(begun):
            one.kill()


def test_another_answer_is_found() -> None:
    page = ["1 message published to readings", "...", "took 3.4 ms"]
    said = ["1 message published to readings", "a", "b", "took 17.1 ms"]
    assert fits(list(map(masked, page)), list(map(masked, said)), whole=True)
    assert not fits(list(map(masked, page)), list(map(masked, [*said, "more"])), whole=True)
    assert not fits(list(map(masked, page)), list(map(masked, ["2 messages published to readings", *said[1:]])))
