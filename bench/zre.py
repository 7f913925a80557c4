"""ZRE meshes in one process, compared with Pyre: the time to form, the cost, and the rate of SHOUTs.

    python -m bench.zre [--rounds 3] [--large 100 250 500 1000]

Zambezi and Pyre run one after the other, each in its own process, with UDP beacons (every second) and TCP. They run in
a network namespace that has its own network and ends with the process, so nothing reaches another network. If no
namespace can be made, this part is left out, and the output says why. Large meshes use the memory transport, on an
asyncio loop whose clock is the processor time (see `bench.processor_clock`): so their processor time does not depend on
other programs, and on a quiet machine it is the time of the clock.

If ZAMBEZI_ZYRE names a program that runs Zyre nodes in one process, its meshes are measured, too. It is called with the
number of nodes, and with the interface in ZSYS_INTERFACE, as CZMQ reads it. It prints a line that begins with "ready"
when each node has seen all others enter, and then goes on until it is killed. Its time is from its start to this line.

Each figure is the median of the rounds. The time of a mesh is from the start of the first node until every node has
seen every other node enter. The processor time of the whole process shows whether the machine was busy or the mesh was
slow: Pyre has several threads for each node, and Zambezi one for all nodes. The floor is the cost of the connections
alone, in an asyncio loop without nodes (see `bench.floor`): it shows how much of Zambezi's time could be saved at most.

The progress is printed on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from importlib.metadata import version
from typing import Any, Final, NoReturn

import psutil
import zmq
from pyre import Pyre  # type: ignore[import-untyped]

from bench.floor import Floor
from bench.processor_clock import ProcessorLoop
from bench.report import Bars, environment, table
from zambezi.zre.asyncio import Node
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.events import Enter, Join, Shout

SMALL: Final = (10, 25, 50)
RECEIVERS: Final = 10
BODY: Final = b"x" * 100
WINDOW: Final = 200  # SHOUTs that are sent before all of them must have arrived, for Zambezi and for Pyre
SHOUTS: Final = 4000
GROUP: Final = "BENCH"
INTERFACE: Final = "mesh0"
ADDRESS: Final = "10.77.0.1"
NETWORK: Final = (
    f"ip link add {INTERFACE} type veth peer name mesh1 && ip addr add {ADDRESS}/24 brd + dev {INTERFACE} && "
    f'ip link set {INTERFACE} up && ip link set mesh1 up && ip link set lo up && exec "$@"'
)
ZYRE: Final = "ZAMBEZI_ZYRE"
PATIENCE: Final = 1200.0  # seconds for one measurement: a mesh of 1,000 nodes on a busy machine

Figures = dict[str, float]


def _usage(began: tuple[float, float], before: int, process: psutil.Process | None = None) -> Figures:
    """Return the time since `began`, and what a process takes: this one, or one that was started then."""
    seconds = time.perf_counter() - began[0]
    processor = sum(process.cpu_times()[:2]) if process is not None else time.process_time() - began[1]
    process = process or psutil.Process()
    return {
        "seconds": seconds,
        "processor": processor,
        "memory": float(process.memory_info().rss),
        "grown": float(process.memory_info().rss - before),
        "descriptors": float(process.num_fds()),
    }


# Zambezi


async def _form(nodes: Sequence[Node], group: bool = False) -> None:
    """Start the nodes, and read events until each has seen all others enter, or join the group."""
    wanted = len(nodes) - 1

    async def see_all(node: Node) -> None:
        left = wanted
        while left:
            left -= isinstance(await node.recv(), Join if group else Enter)

    for node in nodes:
        await node.start()
    await asyncio.gather(*map(see_all, nodes))


async def zambezi_mesh(count: int, network: MemoryNetwork | None = None) -> Figures:
    before = psutil.Process().memory_info().rss
    began = time.perf_counter(), time.process_time()
    if network is not None:
        # As in a real network, the more nodes there are, the less often each sends a beacon.
        interval = max(1.0, count / 50)
        nodes = [
            Node(f"n{number}", network=network, interval=interval, evasive=5 * interval, expired=30 * interval)
            for number in range(count)
        ]
    else:
        nodes = [Node(f"n{number}", interface=INTERFACE) for number in range(count)]
    await _form(nodes)
    return _usage(began, before)


async def zambezi_shout(count: int) -> Figures:
    nodes = [Node(f"n{number}", interface=INTERFACE, groups=[GROUP]) for number in range(RECEIVERS + 1)]
    await _form(nodes, group=True)
    speaker, *listeners = nodes
    heard = 0
    all_heard = asyncio.Event()
    window = 0

    async def listen(node: Node) -> None:
        nonlocal heard
        async for event in node:
            if isinstance(event, Shout):
                heard += 1
                if heard == window * RECEIVERS:
                    all_heard.set()

    tasks = [asyncio.create_task(listen(node)) for node in listeners]
    began = time.perf_counter()
    for start in range(0, count, WINDOW):
        window = min(count, start + WINDOW)
        all_heard.clear()
        for _ in range(start, window):
            await speaker.shout(GROUP, BODY)
        await all_heard.wait()
    took = time.perf_counter() - began
    for task in tasks:
        task.cancel()
    return {"seconds": took, "shouts": count / took, "deliveries": count * RECEIVERS / took}


# Pyre


def _pyre_nodes(count: int) -> list[Any]:
    logging.disable(logging.CRITICAL)
    return [Pyre(f"n{number}") for number in range(count)]


def _pyre_start(nodes: list[Any], kind: bytes) -> None:
    """Start the nodes, and read events until each has had an event of this kind from all others."""
    poller = zmq.Poller()
    left = {}
    for node in nodes:
        node.join(GROUP)
        node.start()
        poller.register(node.inbox, zmq.POLLIN)
        left[node.inbox] = len(nodes) - 1
    while any(left.values()):
        for inbox, _ in poller.poll():
            left[inbox] -= inbox.recv_multipart()[0] == kind


def pyre_mesh(count: int) -> Figures:
    before = psutil.Process().memory_info().rss
    began = time.perf_counter(), time.process_time()
    _pyre_start(_pyre_nodes(count), b"ENTER")
    return _usage(began, before)


def pyre_shout(count: int) -> Figures:
    nodes = _pyre_nodes(RECEIVERS + 1)
    _pyre_start(nodes, b"JOIN")
    speaker, *listeners = nodes
    poller = zmq.Poller()
    for node in listeners:
        poller.register(node.inbox, zmq.POLLIN)
    began = time.perf_counter()
    heard = 0
    for start in range(0, count, WINDOW):
        window = min(count, start + WINDOW)
        for _ in range(start, window):
            speaker.shout(GROUP, BODY)
        while heard < window * RECEIVERS:
            for inbox, _ in poller.poll():
                heard += inbox.recv_multipart()[0] == b"SHOUT"
    took = time.perf_counter() - began
    return {"seconds": took, "shouts": count / took, "deliveries": count * RECEIVERS / took}


# Zyre


def zyre_mesh(count: int) -> Figures:
    began = time.perf_counter(), 0.0
    command = [os.environ[ZYRE], str(count)]
    environ = {**os.environ, "ZSYS_INTERFACE": INTERFACE}
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        for line in program.stdout:
            if line.startswith("ready"):
                figures = _usage(began, 0, psutil.Process(program.pid))
                program.kill()
                return figures
    raise SystemExit(f"{command[0]} ended with status {program.returncode} before its nodes had met")


# The floor


async def floor_mesh(count: int) -> Figures:
    before = psutil.Process().memory_info().rss
    began = time.perf_counter(), time.process_time()
    await Floor(count, ADDRESS).form()
    return _usage(began, before)


MEASUREMENTS: Final[dict[str, Callable[[int], Figures]]] = {
    "zambezi-mesh": lambda count: asyncio.run(_and_end(zambezi_mesh(count))),
    "zambezi-memory": lambda count: ProcessorLoop().run_until_complete(_and_end(zambezi_mesh(count, MemoryNetwork()))),
    "zambezi-shout": lambda count: asyncio.run(_and_end(zambezi_shout(count))),
    "floor-mesh": lambda count: asyncio.run(_and_end(floor_mesh(count))),
    "pyre-mesh": pyre_mesh,
    "zyre-mesh": zyre_mesh,
    "pyre-shout": pyre_shout,
}


async def _and_end(measurement: Coroutine[Any, Any, Figures]) -> NoReturn:
    _report(await measurement)


def _report(figures: Figures) -> NoReturn:
    """Print the figures, and end the process at once: closing a million links is not measured."""
    print(json.dumps(figures), flush=True)
    os._exit(0)


def measure_here(name: str, count: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if name == "zambezi-memory":
        # With the defaults the garbage collector would examine millions of live objects again and again. Small meshes
        # run with the defaults, both Zambezi's and Pyre's.
        gc.set_threshold(200_000, 20, 100)
    _report(MEASUREMENTS[name](count))


# The runs


def measure(prefix: Sequence[str], name: str, count: int) -> Figures | None:
    """Run one measurement in its own process; return None if it did not finish."""
    print(f"measuring {name} {count}", file=sys.stderr, flush=True)
    command = [*prefix, sys.executable, "-m", "bench.zre", "--measure", name, str(count)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        print(f"{name} {count} did not end within {PATIENCE:g} s", file=sys.stderr)
        return None
    try:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        errors = done.stderr.strip().splitlines()[-1:] or ["without an error text"]
        print(f"{name} {count} failed with status {done.returncode}: {errors[0]}", file=sys.stderr)
        return None


def namespace() -> tuple[list[str], str]:
    """Return the prefix of a command that runs it in its own network, and the problem if that is not possible."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return [], "unshare and ip (util-linux, iproute2) are needed"
    problem = ""
    for rights in ([], ["--map-root-user"]):
        prefix = ["unshare", *rights, "--net", "sh", "-c", NETWORK, "sh"]
        done = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False, timeout=30)
        if done.returncode == 0:
            return prefix, ""
        problem = done.stderr.strip() or f"status {done.returncode}"
    return [], f"no network namespace can be made: {problem}"


def medians(found: Sequence[Figures | None]) -> Figures | None:
    """Return the median of each figure, or None if a round did not finish."""
    rounds = [figures for figures in found if figures is not None]
    if not rounds or len(rounds) < len(found):
        return None
    return {key: statistics.median(figures[key] for figures in rounds) for key in rounds[0]}


def compare(
    prefix: Sequence[str], kind: str, count: int, rounds: int, names: Sequence[str] = ("zambezi", "pyre")
) -> list[Figures | None]:
    """Measure each in turns, and return the figures of each."""
    found: list[list[Figures | None]] = [[] for _ in names]
    for _ in range(rounds):
        for name, figures in zip(names, found, strict=True):
            figures.append(measure(prefix, f"{name}-{kind}", count))
    return [medians(figures) for figures in found]


def _mesh_row(name: str, nodes: int, figures: Figures | None, ratio: str) -> list[str]:
    if figures is None:
        return [name, str(nodes), f"none in {PATIENCE:g} s", "", "", "", ratio]
    megabytes, links = figures["memory"] / 1e6, nodes * (nodes - 1)
    per_link = f"{figures['grown'] / links / 1000:.1f}"
    return [
        name,
        str(nodes),
        f"{figures['seconds']:.2f}",
        f"{figures['processor']:.2f}",
        f"{megabytes:,.0f} ({per_link})",
        f"{figures['descriptors']:,.0f}",
        ratio,
    ]


HEADS: Final = ["mesh", "nodes", "seconds", "of processor", "MB (kB per link)", "descriptors", "Pyre's time / this"]


def _ratio(above: Figures | None, below: Figures | None, figure: str) -> float:
    return above[figure] / below[figure] if above is not None and below is not None else float("nan")


def _figure(found: Figures | None, name: str) -> float:
    """Return a figure; not a number if the measurement did not finish."""
    return math.nan if found is None else found[name]


def _shown(found: Figures | None, name: str, form: str, unit: str) -> str:
    return "" if found is None else f"{found[name]:{form}}{unit}"


def small_meshes(prefix: Sequence[str], rounds: int, bars: Bars) -> None:
    rows = []
    for nodes in SMALL:
        names = ("zambezi", "pyre", "floor", "zyre") if ZYRE in os.environ else ("zambezi", "pyre", "floor")
        ours, theirs, floor, *zyre = compare(prefix, "mesh", nodes, rounds, names)
        faster = _ratio(theirs, ours, "seconds")
        rows += [
            _mesh_row("zambezi", nodes, ours, f"{faster:.1f}x"),
            _mesh_row("pyre", nodes, theirs, ""),
            _mesh_row("floor", nodes, floor, f"{_ratio(theirs, floor, 'seconds'):.1f}x"),
            *(_mesh_row("zyre", nodes, found, f"{_ratio(theirs, found, 'seconds'):.1f}x") for found in zyre),
        ]
        if nodes == SMALL[-1]:
            _judge_mesh(bars, nodes, ours, theirs, floor)
    print(f"\n### Full mesh in one process, UDP beacons and TCP\n\n{table(HEADS, rows)}", flush=True)


def _judge_mesh(bars: Bars, nodes: int, ours: Figures | None, pyre: Figures | None, floor: Figures | None) -> None:
    result, beside, bare = (_shown(found, "seconds", ".2f", " s") for found in (ours, pyre, floor))
    used = _shown(ours, "processor", ".2f", " s")
    faster = _ratio(pyre, ours, "seconds")
    bars.at_least(f"{nodes} nodes form, to Pyre", faster, 5, result=result, beside=beside, processor=used)
    seconds = _figure(ours, "seconds")
    bars.at_most(f"{nodes} nodes form", seconds, 0.4, " s", beside=f"bare sockets {bare}", processor=used)


def shouts(prefix: Sequence[str], rounds: int, bars: Bars) -> None:
    ours, theirs = compare(prefix, "shout", SHOUTS, rounds)
    faster = _ratio(ours, theirs, "shouts")
    rows = [
        [name, f"{found['shouts']:,.0f}", f"{found['deliveries']:,.0f}"] if found else [name, "none", ""]
        for name, found in (("zambezi", ours), ("pyre", theirs))
    ]
    heads = ["node", "SHOUTs/s", "deliveries/s"]
    print(f"\n### SHOUT of {len(BODY)} B to {RECEIVERS} peers, TCP, one process\n\n{table(heads, rows)}", flush=True)
    result, beside = (_shown(found, "shouts", ",.0f", "/s") for found in (ours, theirs))
    bars.at_least("SHOUT to 10 peers, to Pyre", faster, 5, result=result, beside=beside)


def large_meshes(counts: Sequence[int], bars: Bars) -> None:
    rows = []
    costs: dict[int, tuple[float, float]] = {}
    for nodes in counts:
        found = measure([], "zambezi-memory", nodes)
        rows.append(_mesh_row("zambezi", nodes, found, ""))
        if found is not None:
            links = nodes * (nodes - 1)
            costs[nodes] = found["processor"] / links * 1e6, found["grown"] / links
            rows[-1][-1] = f"{costs[nodes][0]:.0f}"
        if nodes == 1000:
            processor = _shown(found, "processor", ".0f", " s")
            bars.at_most("1,000 nodes in memory form", _figure(found, "processor"), 60, " s", processor=processor)
            bars.at_most("memory of 1,000 nodes", _figure(found, "memory") / 2**30, 4, " GiB")
    heads = [*HEADS[:-1], "us of processor per link"]
    print(f"\n### Full mesh in one process, memory\n\n{table(heads, rows)}", flush=True)
    if 250 in costs and 1000 in costs:
        for what, unit, at in (("processor time", "us", 0), ("memory", "B", 1)):
            many, few = (f"{costs[nodes][at]:,.0f} {unit}" for nodes in (1000, 250))
            growth = costs[1000][at] / costs[250][at]
            bars.at_most(f"{what} of a link, 1,000 nodes to 250", growth, 1.25, result=many, beside=few)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often to measure each pair; the result is the median"
    )
    parser.add_argument(
        "--large",
        type=int,
        nargs="*",
        default=[100, 250, 500, 1000],
        help="the numbers of nodes of the meshes in memory",
    )
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "COUNT"), help=argparse.SUPPRESS)
    arguments: Any = parser.parse_args()
    if arguments.measure:
        measure_here(arguments.measure[0], int(arguments.measure[1]))
    print(environment({"pyre": version("zeromq-pyre"), "pyzmq": zmq.__version__, "libzmq": zmq.zmq_version()}))
    bars = Bars("zre")
    prefix, problem = namespace()
    if problem:
        print(f"\nthe comparison with Pyre is left out: {problem}")
    else:
        small_meshes(prefix, arguments.rounds, bars)
        shouts(prefix, arguments.rounds, bars)
    large_meshes(arguments.large, bars)
    bars.show()


if __name__ == "__main__":
    main()
