"""The memory of idle connections to a broker, beside NATS: 10,000 connections in one run.

    python -m bench.connections [--count 10000]

Each broker is started with an empty directory. Connections come one after the other on loopback; each does its
handshake and then nothing. The figure is the growth of the broker's resident memory for each connection,
after the first hundred. The kernel's buffers of a connection are not in it; they are the same for both.

`publishers` are connections that have named a stream. `subscribers` are connections of Zambezi that also wait for
messages; of NATS both are the same, because each connection has a subscription.
"""

from __future__ import annotations

import argparse
import math
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.brokers.body import Case
from bench.brokers.drain import PATIENCE
from bench.brokers.jetstream import JetStream
from bench.brokers.system import System
from bench.brokers.zambezi import Zambezi
from bench.report import Bars, environment, table

WARM: Final = 100  # connections before the first look at the memory
SPARE: Final = 1000  # descriptors besides the connections
QUIET: Final = 0.5  # seconds between two looks at the memory, until it does not grow any more
NATS: Final = JetStream()
OURS: Final = Zambezi()

Connect = Callable[[int], socket.socket]


def subscriber(port: int) -> socket.socket:
    return OURS.follow(port, Case(1))[0].sock


def resident(pid: int) -> int:
    """Return the bytes of memory that a process has."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def settled(pid: int) -> int:
    """Return the memory of a process when it has stopped growing."""
    before, deadline = resident(pid), time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        time.sleep(QUIET)
        now = resident(pid)
        if now <= before:
            break
        before = now
    return resident(pid)


def measure(system: System, connect: Connect, count: int) -> tuple[float, float]:
    """Return the bytes of memory of a connection, and the microseconds of processor that it took to make one."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(system.serve(directory))
        kept = [stack.enter_context(connect(server.port)) for _ in range(WARM)]
        before, used = settled(server.pid), server.processor()
        kept += [stack.enter_context(connect(server.port)) for _ in range(count - WARM)]
        used = server.processor() - used
        grown = settled(server.pid) - before
        lost = sum(_is_closed(sock) for sock in kept)
        if lost:
            print(f"{system.name} closed {lost} of the connections", file=sys.stderr)
    return grown / (count - WARM), used / (count - WARM) * 1e6


def _is_closed(sock: socket.socket) -> bool:
    sock.setblocking(False)  # a socket with a timeout waits for it, also with MSG_DONTWAIT
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=10_000, help="connections")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = min(arguments.count, most - SPARE) if most != resource.RLIM_INFINITY else arguments.count
    bars = Bars("connections")
    problem = NATS.missing()
    print(environment({} if problem else NATS.versions()))
    if problem:
        print(f"left out: {NATS.name}: {problem}")
    if count < arguments.count:
        print(f"only {count} connections: this process may open {most} files")
    cases: dict[str, tuple[System, Connect]] = {
        "zambezi, publishers": (OURS, OURS.publisher),
        "zambezi, subscribers": (OURS, subscriber),
    }
    if not problem:
        cases["NATS"] = NATS, NATS.publisher
    found = {name: measure(system, connect, count) for name, (system, connect) in cases.items()}
    rows = [[name, f"{memory / 1000:.1f}", f"{used:.0f}"] for name, (memory, used) in found.items()]
    heads = [f"{count:,} idle connections", "kB each", "us of processor to connect"]
    print(f"\n{table(heads, rows)}", flush=True)
    theirs = found["NATS"][0] if not problem else math.nan
    for name, (memory, used) in list(found.items())[:2]:
        bars.at_most(
            f"memory of an idle connection, {name}",
            memory / theirs,
            1.0,
            result=f"{memory / 1000:.1f} kB",
            beside="NATS" if problem else f"NATS {theirs / 1000:.1f} kB",
            processor=f"{used:.0f} us",
        )
    bars.show()


if __name__ == "__main__":
    main()
