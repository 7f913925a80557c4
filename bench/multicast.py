"""Multicast compared with TCP fan-out, in one run: the broker's cost for 1 publisher and 10 to 200 receivers.

    python -m bench.multicast [--rounds 3] [--quick]

The benchmark makes a network namespace that has only a loopback interface with multicast, and removes it at the end: no
datagram reaches a real network. If it is not allowed to make one, it says so and measures nothing.

A raw socket publishes the same messages at the same rate three times: without receivers, to raw TCP sockets with one
subscription each, and to raw UDP sockets that have joined the group. The result is the processor time of the broker
minus that of the run without receivers, in the program (user) and in the kernel (system). The kernel's part includes
the copies for each receiver, because sender and receivers are on one machine; in a real network the switches make these
copies. The receivers only count bytes. The number of sends is counted in separate runs. The last measurement is with
programs: subscribers with Zambezi's client, and how many of their messages came from the group.

There are two loads. In `batches` the publisher sends 20 messages, 1,000 times per second; each batch is a block in the
broker, and goes to each receiver by one send. In `flood` it sends 500 messages, 200 times per second, and the broker
makes large blocks of them: a send has so many messages that the fan-out costs the program almost nothing either way.

The total processor time is exact. The kernel only samples how it divides into user and system time, a hundred times per
second: that takes long runs, and a small difference in user time means little.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import math
import os
import random
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import psutil

from bench.brokers.body import KEY, Case
from bench.brokers.drain import BUFFER, drain
from bench.brokers.run import Failed, Worker
from bench.brokers.system import Server
from bench.brokers.zambezi import Zambezi
from bench.report import Bars, environment, table
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker import Broker
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.receiver import _open_socket
from zambezi.zeps.multicast.sender import UdpSender
from zambezi.zmtp.peer import Peer

GROUP: Final = "udp://239.77.1.1:5680?interface=lo&rate=1G"
RECEIVERS: Final = (10, 50)
COUNTED: Final = (10, 50, 200)  # receivers of the runs that count sends
PATIENCE: Final = 60.0
PROGRAMS: Final = 20_000  # messages for the programs
QUIET: Final = 0.5  # seconds without a datagram, after which a run is complete


Figures: TypeAlias = dict[tuple[str, int], float]


@dataclass(frozen=True, slots=True)
class Load:
    """The messages of a run."""

    name: str
    chunk: int  # messages of one send
    pace: float  # seconds between two sends
    seconds: float

    @property
    def messages(self) -> int:
        return int(self.seconds / self.pace) * self.chunk


LOADS: Final = (Load("batches", 20, 0.001, 12.0), Load("flood", 500, 0.005, 3.0))


class Measured(Zambezi):
    """A broker with or without a group, which can count its sends."""

    def __init__(self, way: str, counting: bool) -> None:
        self._way = way
        self._counting = counting

    def command(self, directory: Path, port: int) -> list[str]:
        return [sys.executable, "-m", "bench.multicast", "--broker", str(directory), self._way, str(self._counting)]


@dataclass(frozen=True, slots=True)
class Found:
    """The results of one run."""

    user: float  # the broker's user time per message in microseconds
    total: float  # the same with the kernel's time
    sends: float  # sends per message
    arrived: float  # the share of the messages that arrived


# The broker


async def _serve(directory: Path, way: str, counting: bool) -> None:
    counts = {"sends": 0}
    if counting:
        _count(Peer, Peer.offer, counts)
        _count(UdpSender, UdpSender._sendmsg, counts)
    groups = {KEY: GROUP} if way == "group" else {}
    async with Broker(directory / "data", multicast=groups, heartbeat=None) as broker:
        port = broker.bind("tcp://127.0.0.1:*").rpartition(":")[2]
        (directory / "port.new").write_text(port)
        (directory / "port.new").rename(directory / "port")
        while True:
            await asyncio.sleep(0.2)
            if counting:
                (directory / "sends.new").write_text(str(counts["sends"]))
                (directory / "sends.new").rename(directory / "sends")


def _count(kind: type, original: Callable[..., Any], counts: dict[str, int]) -> None:
    def counted(*arguments: Any) -> Any:
        counts["sends"] += 1
        return original(*arguments)

    setattr(kind, original.__name__, counted)


# Publishing and receiving


def _publish(system: Zambezi, port: int, case: Case, load: Load, ready: Callable[[], None]) -> None:
    with system.publisher(port) as sock:
        messages = [system.frame(case.key(number), case.body(number)) for number in range(case.count)]
        chunks = [b"".join(messages[start : start + load.chunk]) for start in range(0, case.count, load.chunk)]
        ready()
        start = time.monotonic()
        for number, chunk in enumerate(chunks):
            # Vary the pace: the kernel samples at a fixed rate, and would always sample the same part of the work.
            time.sleep(max(0.0, start + (number + random.random()) * load.pace - time.monotonic()))
            sock.sendall(chunk)
        system.confirm(sock, case)


def _receive(system: Zambezi, port: int, case: Case, way: str, ready: Callable[[], None]) -> float:
    """Return the share of messages that arrived, over all receivers."""
    if way == "tcp":
        feeds = system.follow(port, case)
        ready()
        drain(feeds, False)
        return 1.0
    receivers = [_open_socket(Group.parse(GROUP)) for _ in range(case.subscribers if way == "group" else 0)]
    ready()
    return _listen(receivers, case) if receivers else math.nan


def _listen(receivers: Sequence[socket.socket], case: Case) -> float:
    came = 0
    wanted = len(receivers) * case.count
    buffer = memoryview(bytearray(BUFFER))
    with select.epoll() as epoll:
        by_number = {sock.fileno(): sock for sock in receivers}
        for number in by_number:
            epoll.register(number, select.EPOLLIN)
        deadline = time.monotonic() + PATIENCE
        while came < wanted and time.monotonic() < deadline:
            ready = epoll.poll(QUIET if came else PATIENCE)
            if not ready:
                break
            for number, _ in ready:
                size = by_number[number].recv_into(buffer)
                if size > 32 and buffer[3] == 1:  # a datagram with messages; it has their number
                    came += int.from_bytes(buffer[28:32], "big")
    return came / wanted


def run(load: Load, way: str, receivers: int, counting: bool = False) -> Found:
    """Run one measurement."""
    system = Measured(way, counting)
    messages = load.messages
    case = Case(messages, subscribers=receivers)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server: Server = stack.enter_context(system.serve(directory))
        listeners = stack.enter_context(Worker(partial(_receive, system, server.port, case, way)))
        listeners.answer()
        publisher = stack.enter_context(Worker(partial(_publish, system, server.port, case, load)))
        publisher.answer()
        listeners.go()
        process = psutil.Process(server.pid)
        before, used = process.cpu_times(), server.processor()
        publisher.go()
        publisher.answer()
        arrived = listeners.answer()
        after, used = process.cpu_times(), server.processor() - used
        sends = 0
        if counting:
            time.sleep(0.5)
            sends = int((directory / "sends").read_text())
        scale = 1e6 / messages
        return Found((after.user - before.user) * scale, used * scale, sends / messages, arrived)


# Programs


async def _programs(directory: Path, readers: int, messages: int) -> tuple[int, int, int]:
    """Run subscribers with Zambezi's client; return their messages from the group, from the broker, and their falls."""
    async with (
        Broker(directory, multicast={KEY: GROUP}) as broker,
        Client.connect(broker.bind("tcp://127.0.0.1:*")) as client,
    ):
        stream = client.stream(KEY)
        followers = [stream.subscribe(since=0, until=messages, multicast=True, interface="lo") for _ in range(readers)]
        for one in followers:
            await one.ready()

        async def follow(index: int) -> None:
            last = 0
            async for batch in followers[index].batches():
                if batch.first != last + 1 or len(batch) != batch.last - last:
                    raise Failed(f"a reader got {batch} after {last}")
                last = batch.last

        tasks = [asyncio.create_task(follow(index)) for index in range(readers)]
        for start in range(0, messages, 100):
            await stream.publish_many([(KEY, b"%0100d" % number) for number in range(start, start + 100)])
            await asyncio.sleep(0.005)
        await asyncio.gather(*tasks)
        counters = [one.counters.multicast for one in followers]
        return (
            sum(one.from_group for one in counters),
            sum(one.from_broker for one in counters),
            sum(one.falls for one in counters),
        )


# The report


def report(rounds: int, scale: float) -> None:
    print(environment({}))
    bars = Bars("multicast")
    for load in LOADS:
        users, totals, sends = _measure(dataclasses.replace(load, seconds=load.seconds * scale), rounds)
        few, many = sends["group", COUNTED[0]], sends["group", COUNTED[-1]]
        share = _share(totals["group", 50], totals["tcp", 50])
        if load is LOADS[0]:
            user = _share(users["group", 50], users["tcp", 50])
            bars.at_most(f"{load.name}: user CPU at 50 receivers, to TCP (sampled)", user, 0.2)
        bars.at_most(f"{load.name}: CPU at 50 receivers, to TCP, with the kernel's", share, 0.2)
        bars.at_most(f"{load.name}: sends per message, 200 receivers to 10", many / few, 1.1)
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        group, broker, falls = asyncio.run(_programs(Path(directory), 50, PROGRAMS))
    print(
        f"\n50 programs that read {PROGRAMS:,} messages, all in this process: {group:,} came from the group, "
        f"{broker:,} from the broker, {falls} falls from the group"
    )
    bars.show()


def _measure(load: Load, rounds: int) -> tuple[Figures, Figures, Figures]:
    """Measure all runs of a load; return user and total time above the run without receivers, and sends per message."""
    plan = [("none", 0), *((way, count) for count in RECEIVERS for way in ("tcp", "group"))]
    found: dict[tuple[str, int], list[Found]] = {one: [] for one in plan}
    for number in range(rounds):
        for way, count in plan if number % 2 == 0 else reversed(plan):
            try:
                found[way, count].append(run(load, way, count))
            except Failed as error:
                print(f"{way} to {count}: {error}", file=sys.stderr)
    short = dataclasses.replace(load, seconds=load.seconds / 4)
    counted = [(way, count) for count in COUNTED for way in ("tcp", "group")]
    sends = {(way, count): run(short, way, count, counting=True).sends for way, count in counted}
    users = {one: _mean(found[one], _user) - _mean(found["none", 0], _user) for one in plan}
    totals = {one: _mean(found[one], _total) - _mean(found["none", 0], _total) for one in plan}
    idle = found["none", 0]
    rows = [["no receivers", "0", f"{_mean(idle, _user):.2f}", f"{_mean(idle, _total):.2f}", "", "", "", ""]]
    for way, count in counted:
        tcp = "tcp", count
        measured = (way, count) in users
        compared = measured and way == "group"
        rows.append(
            [
                "TCP" if way == "tcp" else "multicast",
                str(count),
                f"{users[way, count]:+.2f}" if measured else "",
                f"{totals[way, count]:+.2f}" if measured else "",
                f"{_share(users[way, count], users[tcp]):.2f}x" if compared else "",
                f"{_share(totals[way, count], totals[tcp]):.2f}x" if compared else "",
                f"{sends[way, count]:.4f}",
                f"{_mean(found[way, count], lambda each: each.arrived):.1%}" if measured else "",
            ]
        )
    heads = ["way", "receivers", "user us", "user and kernel us", "user to TCP", "both to TCP", "sends", "arrived"]
    per_second = f"{load.chunk} messages of 100 B, {1 / load.pace:.0f} times per second"
    print(f"\n### {load.name}: {per_second}; broker, per message, above no receivers; mean of {rounds} rounds\n")
    print(table(heads, rows), flush=True)
    return users, totals, sends


def _user(one: Found) -> float:
    return one.user


def _total(one: Found) -> float:
    return one.total


def _share(part: float, whole: float) -> float:
    """Return a ratio; not a number if the whole is too small to be measured."""
    return part / whole if whole > 0 else math.nan


def _mean(found: Sequence[Found], figure: Callable[[Found], float]) -> float:
    return statistics.fmean(map(figure, found)) if found else math.nan


# The network


@contextlib.contextmanager
def namespace() -> Iterator[str]:
    """Make a network namespace that has only a loopback interface with multicast."""
    name = f"zambezi-{os.getpid()}-bench"
    commands = [
        ["ip", "netns", "add", name],
        ["ip", "-n", name, "link", "set", "lo", "up"],
        ["ip", "-n", name, "link", "set", "lo", "multicast", "on"],
        ["ip", "-n", name, "route", "add", "239.0.0.0/8", "dev", "lo"],
    ]
    try:
        for command in commands:
            subprocess.run(command, check=True, capture_output=True, text=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often to measure each; the result is the mean")
    parser.add_argument(
        "--quick", action="store_true", help="measure one round with fewer messages, to see that it runs"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--broker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.broker:
        directory, way, counting = arguments.broker
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_serve(Path(directory), way, json.loads(counting.lower())))
    elif arguments.inside:
        report(1 if arguments.quick else arguments.rounds, 0.1 if arguments.quick else 1)
    elif shutil.which("ip") is None:
        print("not measured: the program ip (iproute2) is needed to make a network namespace")
    else:
        try:
            with namespace() as name:
                command = [sys.executable, "-m", "bench.multicast", "--inside", "--rounds", str(arguments.rounds)]
                command += ["--quick"] if arguments.quick else []
                subprocess.run(["ip", "netns", "exec", name, *command], check=True)
        except subprocess.CalledProcessError as error:
            if error.cmd[:3] == ["ip", "netns", "exec"]:
                raise SystemExit(error.returncode) from None
            print(f"not measured: network namespaces are not allowed here: {(error.stderr or '').strip()}")


if __name__ == "__main__":
    main()
