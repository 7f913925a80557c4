"""A stream over multicast on real networks: hosts in namespaces, with readers that lose datagrams. (ZEP-16)"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.zeps.multicast.actors import body
from tests.zmtp.waiting import wait_until
from tests.zre import namespaces
from tests.zre.namespaces import Host, Line, Network, Program
from zambezi.zmtp.keys import KeyPair, write_pair

pytestmark = pytest.mark.skipif(bool(namespaces.allowed()), reason=namespaces.allowed() or "-")

GROUP = "udp://239.77.1.1:5680?interface=eth0&rate=50M"


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as one:
        yield one


class Station:
    """The broker of a network."""

    def __init__(self, host: Host, data: Path, **options: Any) -> None:
        self.endpoint = f"tcp://{host.address}:5671"
        settings = {"endpoint": self.endpoint, "data": str(data), "group": GROUP, **options}
        self.program = host.start("tests.zeps.multicast.actors", "broker", json.dumps(settings))
        self.program.wait_for("Serving")
        self._published = 0
        self._looks = 0

    def publish(self, count: int, at_once: int = 20) -> int:
        self._published += count
        self.program.tell("publish", count, at_once)
        return self._published

    def published(self) -> None:
        """Wait until all of it is published."""
        self.program.wait_for("Published", last=self._published)

    def restart(self, times: int = 1) -> None:
        self.program.tell("restart")
        self.program.wait_for("Restarted", times)

    def looks_like(self, **fields: object) -> Line:
        """Ask for the state until the condition holds."""

        def seen() -> Line | None:
            self._looks += 1
            self.program.tell("look")
            line = self.program.wait_for("Looked", self._looks)
            return line if fields.items() <= line.items() else None

        found: list[Line] = []

        def found_it() -> bool:
            found.extend(filter(None, [seen()]))
            return bool(found)

        wait_until(found_it)
        return found[0]


class Readers:
    """Many readers in one program on one host."""

    def __init__(self, host: Host, station: Station, **options: Any) -> None:
        settings = {"endpoint": station.endpoint, "interface": "eth0", **options}
        self.program: Program = host.start("tests.zeps.multicast.actors", "readers", json.dumps(settings))

    def join(self, *names: str, goal: int, **settings: Any) -> None:
        for name in names:
            self.program.tell("join", name, {"goal": goal, **settings})
        for name in names:
            self.program.wait_for("Ready", reader=name)

    def arrive(self, *names: str) -> dict[str, dict[str, Any]]:
        """Wait until each reader has all its messages; return their counters of the group."""
        return {name: self.program.wait_for("Reached", reader=name)["counters"]["multicast"] for name in names}


@pytest.mark.spec("ZEP-16")
def test_twenty_readers_in_bad_weather_see_every_message_once_and_in_order(network: Network, tmp_path: Path) -> None:
    """30 % are lost, some are repeated or late; one reader joins late, one stalls, and the broker is restarted."""
    hosts = [network.host() for _ in range(3)]
    station = Station(hosts[0], tmp_path)
    wet = Readers(hosts[1], station, loss=0.3, seed=7)
    dry = Readers(hosts[2], station)
    goal = 3000
    soaked = [f"wet{number}" for number in range(13)]
    wet.join(*soaked, goal=goal)
    wet.join("wet, blocking", goal=goal, blocking=True)
    wet.join("wet, choosy", goal=goal - goal % 4, pattern="k0")
    wet.join("wet, stalling", goal=goal, stall=True, window=20_000)
    dry.join("dry", "dry, too", goal=goal)
    dry.join("dry, blocking", goal=goal, blocking=True)
    station.publish(1000)
    station.published()
    wet.program.wait_for("Stalls", reader="wet, stalling")
    dry.join("late", goal=goal)  # it must catch up with all messages
    station.publish(1000)
    station.published()
    station.restart()
    station.publish(1000)
    station.published()
    wet.program.tell("go", "wet, stalling")
    found = {
        **wet.arrive(*soaked, "wet, blocking", "wet, choosy", "wet, stalling"),
        **dry.arrive("dry", "dry, too", "dry, blocking", "late"),
    }
    assert len(found) == 20
    wet_ones = [counters for name, counters in found.items() if "wet" in name]
    assert all(counters["falls"] for counters in wet_ones), "each had something to repair"
    assert sum(counters["from_group"] for counters in wet_ones) > 0, "and yet the group was of use"
    assert all(counters["from_group"] for name, counters in found.items() if "wet" not in name)
    assert all(counters["foreign"] == 0 for counters in found.values())


@pytest.mark.spec("ZEP-16")
def test_a_subscriber_in_the_group_costs_the_broker_nothing(network: Network, tmp_path: Path) -> None:
    station = Station(network.host(), tmp_path)
    readers = Readers(network.host(), station)
    names = [f"reader{number}" for number in range(5)]
    readers.join(*names, goal=500)
    station.looks_like(subscribers=0)
    station.publish(500)
    station.published()
    counters = readers.arrive(*names)
    assert sum(one["from_group"] for one in counters.values()) > 0
    feed = station.looks_like(subscribers=0)["feed"]
    assert feed["messages"] == 500
    assert feed["withheld"] == feed["failed"] == 0


@pytest.mark.spec("ZEP-16")
def test_a_sealed_group_is_read_with_its_key_only(network: Network, tmp_path: Path) -> None:
    station = Station(network.host(), tmp_path, key="07" * 32)
    inside = Readers(network.host(), station, key="07" * 32)
    outside = Readers(network.host(), station)
    wrong = Readers(network.host(), station, key="08" * 32)
    for readers in (inside, outside, wrong):
        readers.join("one", goal=300)
    station.looks_like(subscribers=2)
    station.publish(300)
    assert inside.arrive("one")["one"]["from_group"] > 0
    assert outside.arrive("one")["one"] == {
        "from_group": 0, "from_broker": 0, "falls": 0, "foreign": 0, "discarded": 0
    }  # fmt: skip
    found = wrong.arrive("one")["one"]
    assert found["from_broker"] == 300
    assert found["foreign"] > 0


def test_a_cable_that_is_pulled_costs_no_message(network: Network, tmp_path: Path) -> None:
    hosts = network.host(), network.host()
    station = Station(hosts[0], tmp_path)
    readers = Readers(hosts[1], station)
    readers.join("one", goal=600)
    station.looks_like(subscribers=0)
    station.publish(200)
    station.published()
    hosts[1].unplug()
    station.publish(200)
    station.published()
    hosts[1].plug()
    station.publish(200)
    station.published()
    counters = readers.arrive("one")["one"]
    assert counters["falls"]
    assert counters["from_group"]
    assert counters["from_broker"]


@pytest.mark.spec("ZEP-16")
def test_zambezi_sub_reads_from_the_group(network: Network, tmp_path: Path) -> None:
    pair = KeyPair.generate()
    write_pair(tmp_path / "keys", "group", pair)
    station = Station(network.host(), tmp_path / "data", key=pair.secret.hex())
    host = network.host()
    station.publish(200)
    station.published()
    group_key = str(tmp_path / "keys" / "group.key")
    options = ["--multicast", "--interface", "eth0", "--group-key", group_key, "--format", "hex"]
    command = [sys.executable, "-W", "error", "-m", "zambezi", "sub", "s", "--endpoint", station.endpoint, *options]
    with subprocess.Popen(
        ["ip", "netns", "exec", host.name, *command, "--since", "earliest", "--until", "400"],
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        lines = [program.stdout.readline() for _ in range(200)]  # it has caught up
        station.looks_like(subscribers=0)
        station.publish(200)
        lines += program.stdout.readlines()
        assert program.wait(namespaces.PATIENCE) == 0
    assert [bytes.fromhex(line) for line in lines] == [body(number) for number in range(1, 401)]
