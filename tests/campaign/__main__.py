"""The campaign from the command line; see the package."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from collections.abc import Callable
from typing import Literal

from bench.report import environment
from tests.campaign import attacks, connections, disks, inputs, kills
from tests.campaign.targets import TARGETS

SYNCS: tuple[Literal["always", "interval"], ...] = ("always", "interval")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description="Attacks, faults and mutated inputs.")
    parser.add_argument(
        "parts", nargs="*", choices=[[], *PARTS], help="the parts to run (default: all)", metavar="PART"
    )
    parser.add_argument("--short", action="store_true", help="a few of everything, in about a minute")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeats a run (default: the time)")
    group = parser.add_argument_group("inputs")
    group.add_argument("--inputs", type=int, default=10_000_000, help="mutated inputs (default: 10 million)")
    group.add_argument("--processes", type=int, default=1, help="processes that feed them (default: 1)")
    group.add_argument("--target", action="append", default=[], choices=TARGETS, help="only this target")
    group.add_argument("--chunk", type=int, help="repeat only this chunk of the target")
    group = parser.add_argument_group("attacks")
    group.add_argument("--attack", action="append", default=[], help="only attacks with this text in their name")
    group = parser.add_argument_group("kills, connections, disks")
    group.add_argument("--kills", type=int, default=1000, help="SIGKILLs for each sync policy (default: 1000)")
    group.add_argument("--connections", type=int, default=10_000, help="idle connections (default: 10,000)")
    group.add_argument("--busy", type=int, default=2000, help="busy connections (default: 2,000)")
    group.add_argument("--seconds", type=float, default=10.0, help="how long they are busy (default: 10)")
    group.add_argument("--stop", type=float, default=60.0, help="seconds of SIGSTOP (default: 60)")
    group.add_argument("--slow", type=float, default=3.0, help="seconds that a slow disk takes (default: 3)")
    arguments = parser.parse_args()
    if arguments.short:
        arguments.inputs, arguments.kills, arguments.connections = 100_000, 5, 500
        arguments.busy, arguments.seconds, arguments.stop, arguments.slow = 100, 1.0, 2.0, 0.5
        arguments.attack = arguments.attack or ["none", "PINGs"]
    return arguments


def run_inputs(arguments: argparse.Namespace) -> bool:
    if arguments.chunk is not None:
        results = [inputs.repeat_chunk(name, arguments.seed, arguments.chunk) for name in arguments.target]
    else:
        results = inputs.run_inputs(
            arguments.inputs, arguments.seed, arguments.processes, arguments.target, progress=_progress
        )
    print(inputs.report(results))
    for one in results:
        for took, text in one.slow:
            print(f"\nslow: {one.target}: {took:.1f} s: {text}")
        for failure in one.failures:
            print(f"\n{failure}")
    return not any(one.failures for one in results)


def run_attacks(arguments: argparse.Namespace) -> bool:
    outcomes = []
    for attack in attacks.ATTACKS:
        if not arguments.attack or any(text in attack.name for text in arguments.attack):
            _progress(attack.name)
            outcomes.append(attacks.carry_out(attack))
    print(attacks.report(outcomes))
    return all(one.held for one in outcomes)


def run_kills(arguments: argparse.Namespace) -> bool:
    print(kills.report([kills.run_kills(arguments.kills, arguments.seed, sync, _progress) for sync in SYNCS]))
    return True


def run_connections(arguments: argparse.Namespace) -> bool:
    most = connections.allow_descriptors()
    results = [
        connections.idle(min(most, arguments.connections)),
        connections.busy(min(most, arguments.busy), arguments.seconds),
    ]
    print(connections.report(results))
    return not any(one.problems for one in results)


def run_disks(arguments: argparse.Namespace) -> bool:
    times = disks.Times(slow=arguments.slow, stop=arguments.stop)
    results = []
    for fault in disks.STORIES:
        if "tmpfs" in fault and not disks.can_mount():
            print(f"left out, because this system does not let us mount one: {fault}")
            continue
        for sync in SYNCS:
            _progress(f"{fault}, {sync}")
            results.append(disks.run_fault(fault, sync, times))
    print(disks.report(results))
    return True


PARTS: dict[str, Callable[[argparse.Namespace], bool]] = {
    "inputs": run_inputs,
    "attacks": run_attacks,
    "kills": run_kills,
    "connections": run_connections,
    "disks": run_disks,
}


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main() -> int:
    arguments = parse()
    logging.getLogger("zambezi").addHandler(logging.NullHandler())  # warnings about refused messages say nothing new
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the processes of a run end with it
    print(environment({}))
    print(f"seed {arguments.seed}")
    held = True
    for name in arguments.parts or PARTS:
        began = time.monotonic()
        print(f"\n### {name}\n", flush=True)
        held = PARTS[name](arguments) and held
        print(f"\n{time.monotonic() - began:.0f} s", flush=True)
    print("\neverything held" if held else "\nNOT everything held")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
