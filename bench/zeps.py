"""Streams compared with NATS JetStream and Redis Streams, in one run: 1 publisher, 1 to 200 subscribers, on loopback.

    python -m bench.zeps [--rounds 3] [--quick] [--only cost once clients replay latency prefixes]

Each measurement starts a new broker with an empty directory, a process that publishes and one that subscribes. A broker
that is not installed is left out, and the output says why. All brokers keep messages in files, and none waits for an
fsync at each message: Zambezi (with `sync = "interval"`) and Redis sync every second, NATS every two minutes. All three
confirm a message when the operating system has it. `zambezi, sync always` is Zambezi's default, whose confirmations
wait for the disk; `python -m bench.durability` measures publishers that wait for each confirmation.

`cost` is the processor time of the broker (all threads, user and system) per delivery, including the cost of publishing
and journalling. Publishers and subscribers are raw sockets that look only for the last message, so the result does not
depend on a client library. `clients` is the time from the first publish to the last delivery with Python clients, and
the processor time of each process; all subscribers are in one process. redis-py sends 500 messages at once, and waits
until all of them are confirmed; our client asks for confirmation every 2 MiB, and goes on meanwhile. The same bytes
sent by bare `send` and `sendfile` are the limit. `bare relay` is the floor of a broker: its system calls alone, with
two writes to files. `clients` and `latency` have that floor on asyncio, with clients on asyncio: they copy each body
once and make system calls, and do nothing else.

`once` is the `cost` of 1 publisher and 1 subscriber, for a publisher that counts its messages (RESUME), as our clients
do, beside one that does not. It has three times as many rounds, because the difference is small.

`prefixes` uses a thousand different keys. The same messages go to one connection: first with one pattern that matches
all keys, then with one pattern for each key. The difference is the cost of matching. Then they go to a thousand
connections with one key each, where each message also costs a system call. For comparison, a thousand connections with
the same pattern get as many deliveries of fewer messages.

Each figure is the median of the rounds. The brokers take turns, in another order in each round, so a machine that slows
down affects all of them. Faster brokers get more messages, so that all are busy for about the same time.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Unpack

from bench.brokers.body import Case
from bench.brokers.jetstream import JetStream
from bench.brokers.loopback import BareSend, BareSendfile
from bench.brokers.relay import AsyncioRelay, BareRelay
from bench.brokers.run import Failed, Figures, measure, measure_replay, median
from bench.brokers.streams import RedisStreams
from bench.brokers.system import NotStarted, System
from bench.brokers.zambezi import (
    ZambeziAlways,
    ZambeziBlocking,
    ZambeziFiltered,
    ZambeziInterval,
    ZambeziMessages,
    ZambeziOnce,
)
from bench.report import Bars, Texts, environment, table

OURS: Final = ZambeziInterval()
ALWAYS: Final = ZambeziAlways()
ONCE: Final = ZambeziOnce()
FILTERED: Final = ZambeziFiltered()
NATS: Final = JetStream()
REDIS: Final = RedisStreams()
RELAY: Final = BareRelay()
ASYNCIO_RELAY: Final = AsyncioRelay()
SEND: Final = BareSend()
SENDFILE: Final = BareSendfile()
FACES: Final = (OURS, ZambeziMessages(), ZambeziBlocking())  # the ways to use Zambezi's client

SIZES: Final = (100, 1024)
# Messages for each number of subscribers; a broker gets them multiplied by its weight.
RAW: Final = {1: 50_000, 10: 20_000, 50: 10_000, 200: 3_000}
BY_CLIENTS: Final = {1: 20_000, 10: 4_000, 50: 1_000, 200: 250}
COSTS: Final = {100: 0.25, 1024: 1.4}  # us of the broker's processor per message, 1 to 1, by the size of the body
PREFIXES: Final = 1000
RATE: Final = 1000.0

Measure = Callable[[System], Figures]
Found = dict[System, list[Figures]]


class Run:
    """The brokers that are installed, and the results so far."""

    def __init__(self, rounds: int, scale: float) -> None:
        self.rounds = rounds
        self.scale = scale
        self.bars = Bars("zeps")
        self.rivals: list[System] = []
        self.versions: dict[str, str] = {}
        self.left_out: list[str] = []
        for rival in (NATS, REDIS):
            problem = rival.missing()
            if problem:
                self.left_out.append(f"left out: {rival.name}: {problem}")
            else:
                self.rivals.append(rival)
                self.versions |= rival.versions()

    def count(self, messages: float) -> int:
        return max(100, int(messages * self.scale))

    def rounds_of(self, systems: Sequence[System], take: Measure) -> Found:
        """Measure each broker in each round, in turns."""
        found: Found = {system: [] for system in systems}
        for number in range(self.rounds):
            turn = number % len(systems)
            for system in (*systems[turn:], *systems[:turn]):
                try:
                    found[system].append(take(system))
                except (Failed, NotStarted) as error:
                    print(f"{system.name}: {error}", file=sys.stderr)
        return found

    def below(self, promise: str, found: float, limit: float, unit: str = "x", **texts: Unpack[Texts]) -> None:
        self.bars.at_most(promise, found, limit, unit, **texts)

    def above(self, promise: str, found: float, limit: float, **texts: Unpack[Texts]) -> None:
        self.bars.at_least(promise, found, limit, **texts)


def _cost(found: list[Figures]) -> float:
    return median(found, lambda one: one.cost)


def _rate(found: list[Figures]) -> float:
    return median(found, lambda one: one.rate)


def _p50(found: list[Figures]) -> float:
    return median(found, lambda one: one.age(0.5))


def _rate_texts(ours: list[Figures], name: str, theirs: list[Figures]) -> Texts:
    """Return both rates, and the processor times of both brokers for each message."""
    processor = f"{_cost(ours):.3f} us beside {_cost(theirs):.3f}"
    return Texts(result=f"{_rate(ours):,.0f}/s", beside=f"{name} {_rate(theirs):,.0f}/s", processor=processor)


def _p50_texts(ours: list[Figures], name: str, theirs: list[Figures]) -> Texts:
    """Return both latencies, and the processor times of both brokers for each message."""
    processor = f"{_cost(ours):.0f} us beside {_cost(theirs):.0f}"
    return Texts(result=f"{_p50(ours):.0f} us", beside=f"{name} {_p50(theirs):.0f} us", processor=processor)


def _show(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n### {title}\n\n{table(heads, rows)}", flush=True)


# The measurements


def fan_out(run: Run, systems: Sequence[System], size: int, raw: bool) -> dict[int, Found]:
    """Measure each broker with each number of subscribers."""
    return {
        subscribers: fan_out_to(run, systems, size, subscribers, raw) for subscribers in (RAW if raw else BY_CLIENTS)
    }


def fan_out_to(run: Run, systems: Sequence[System], size: int, subscribers: int, raw: bool) -> Found:
    """Measure each broker with a number of subscribers."""
    messages = (RAW if raw else BY_CLIENTS)[subscribers] / (1 if size == SIZES[0] else 4)

    def take(system: System) -> Figures:
        weight = system.raw_weight if raw else system.client_weight
        return measure(system, Case(run.count(messages * weight), size, subscribers), raw)

    return run.rounds_of(systems, take)


def cost(run: Run) -> None:
    for size in SIZES:
        every = fan_out(run, [OURS, *run.rivals, RELAY, SEND, SENDFILE], size, True)
        rows = []
        for subscribers, found in every.items():
            ours = _cost(found[OURS])
            for system, figures in found.items():
                costs = f"{_cost(figures):.3f}", f"{_cost(figures) / ours:.2f}x"
                rows.append([*_rates(system, subscribers, figures), *costs])
        heads = ["broker", "subscribers", "messages/s", "deliveries/s", "us of processor per delivery", "to zambezi"]
        _show(f"Cost of a delivery, {size} B, raw sockets", heads, rows)
        most = COSTS[size]
        promise = f"1 to 1, {size} B: at most {most} us of the broker's processor per message"
        cost_of = {system.name: _cost(every[1].get(system, [])) for system in (REDIS, RELAY)}
        beside = ", ".join([f"{name} {figure:.2f} us" for name, figure in cost_of.items()])
        ours = _cost(every[1][OURS])
        run.below(promise, ours, most, " us", beside=beside, processor=f"{ours:.2f} us")
        if size == SIZES[0]:
            _cost_bars(run, every)


def _cost_bars(run: Run, every: dict[int, Found]) -> None:
    ours = _cost(every[50][OURS])
    run.below("1 to 50, 100 B: at most 0.15 us of the broker's processor per delivery", ours, 0.15, " us")
    for rival, share in ((NATS, 20), (REDIS, 5)):
        theirs = _cost(every[50].get(rival, []))
        run.above(f"1 to 50, 100 B: {rival.name} costs {share} times as much", theirs / ours, share)


def once(run: Run) -> None:
    found: Found = {OURS: [], ONCE: []}
    case = Case(run.count(RAW[1] * OURS.raw_weight))
    for _ in range(3):
        for system, figures in run.rounds_of([OURS, ONCE], partial(measure, case=case)).items():
            found[system] += figures
    plain = _cost(found[OURS])
    rows = [
        [system.name, f"{_rate(figures):,.0f}", f"{_cost(figures):.3f}", f"{_cost(figures) / plain:.3f}x"]
        for system, figures in found.items()
    ]
    heads = ["publisher", "messages/s", "us of processor per message", "to plain"]
    _show("A publisher that counts, 1 to 1, 100 B, raw sockets", heads, rows)
    run.below("once costs at most 5 % of the broker's processor", _cost(found[ONCE]) / plain, 1.05)


def clients(run: Run) -> None:
    for size in SIZES:
        every = fan_out(run, [*FACES, ALWAYS, *run.rivals], size, False)
        every[1] |= fan_out_to(run, [ASYNCIO_RELAY], size, 1, False)
        rows = [
            [
                *_rates(system, subscribers, figures),
                f"{_rate(figures) / _rate(found[OURS]):.2f}x",
                *(f"{cost:.2f}" for cost in _processors(figures)),
            ]
            for subscribers, found in every.items()
            for system, figures in found.items()
        ]
        heads = ["clients", "subscribers", "messages/s", "deliveries/s", "to zambezi"]
        heads += ["us of processor, publisher", "broker", "subscriber"]
        _show(f"End to end by Python clients, {size} B", heads, rows)
        found = every[1]
        if size == 1024:
            redis = found.get(REDIS, [])
            ours, theirs = (sum(_processors(figures)) for figures in (found[OURS], redis))
            texts = _rate_texts(found[OURS], REDIS.name, redis)
            texts["processor"] = f"{ours:.1f} us beside {theirs:.1f}, all three processes"
            times = _rate(found[OURS]) / _rate(redis)
            run.above(f"1 to 1, 1 KiB, Python clients: 5 times {REDIS.name}", times, 5, **texts)
        else:
            slowest = min(_rate(found[face]) for face in FACES)
            for rival in (NATS, REDIS):
                theirs = _rate(found.get(rival, []))
                run.above(f"1 to 1, 100 B, Python clients: 3 times {rival.name}", _rate(found[OURS]) / theirs, 3)
                run.above(f"the same with the slowest of our clients: 3 times {rival.name}", slowest / theirs, 3)


def _processors(figures: list[Figures]) -> list[float]:
    """Return the processor time of a message for its publisher, and of a delivery for the broker and the subscriber."""
    publisher, subscriber = (
        median(figures, lambda one: one.publisher_cost),
        median(figures, lambda one: one.subscriber_cost),
    )
    return [publisher, _cost(figures), subscriber]


def _rates(system: System, subscribers: int, figures: list[Figures]) -> list[str]:
    rate = _rate(figures)
    return [system.name, str(subscribers), f"{rate:,.0f}", f"{rate * subscribers:,.0f}"]


def replay(run: Run, messages: int) -> None:
    """Compare replays. The rate of a filtered one counts the messages that are passed: half of them go out."""

    def take(system: System) -> Figures:
        if system in (SEND, SENDFILE):
            return measure(system, Case(messages))
        if system is FILTERED:
            return measure_replay(system, Case(messages, prefixes=2, each=True))
        return measure_replay(system, Case(messages if system is OURS else messages // 10))

    found = run.rounds_of([OURS, FILTERED, SENDFILE, SEND, *run.rivals], take)
    limit = _rate(found[SENDFILE])
    rows = [
        [
            system.name,
            f"{figures[0].case.count:,}" if figures else "",
            f"{_rate(figures):,.0f}",
            f"{_cost(figures):.3f}",
            f"{_rate(figures) / limit:.3f}x",
        ]
        for system, figures in found.items()
    ]
    heads = ["replay", "messages", "messages/s", "us of processor per message", "rate to bare sendfile"]
    _show("Replay of everything to one subscriber, 100 B, raw socket", heads, rows)
    run.above("unfiltered replay at half the rate of bare sendfile", _rate(found[OURS]) / limit, 0.5)
    ratio = _rate(found[FILTERED]) / _rate(found[OURS])
    texts = _rate_texts(found[FILTERED], "unfiltered", found[OURS])
    run.above("replay by a prefix that takes half, at 0.3 of the rate of unfiltered replay", ratio, 0.3, **texts)


def latency(run: Run) -> None:
    case = Case(run.count(5 * RATE), rate=RATE)
    heads = ["publish to deliver", "p50 us", "p99 us", "p50 to NATS", "p50 to Redis", "us of the broker's processor"]
    for name, raw, systems, share in (
        ("raw sockets", True, [OURS, *run.rivals, RELAY, ASYNCIO_RELAY], 1.0),
        ("Python clients", False, [*FACES, ALWAYS, *run.rivals, ASYNCIO_RELAY], 0.9),
    ):
        found = run.rounds_of(systems, partial(measure, case=case, raw=raw))
        nats, redis = _p50(found.get(NATS, [])), _p50(found.get(REDIS, []))
        rows = [
            [
                system.name,
                f"{_p50(figures):.0f}",
                f"{median(figures, lambda one: one.age(0.99)):.0f}",
                f"{_p50(figures) / nats:.2f}x",
                f"{_p50(figures) / redis:.2f}x",
                f"{_cost(figures):.0f}",
            ]
            for system, figures in found.items()
        ]
        _show(f"Latency at {RATE:,.0f} messages/s, 100 B, {name}", heads, rows)
        ours = found[OURS]
        run.below(
            f"p50 latency at most that of NATS, {name}",
            _p50(ours) / nats,
            1,
            **_p50_texts(ours, NATS.name, found.get(NATS, [])),
        )
        run.below(
            f"p50 latency at most {share:g} of that of Redis, {name}",
            _p50(ours) / redis,
            share,
            **_p50_texts(ours, REDIS.name, found.get(REDIS, [])),
        )


def prefixes(run: Run) -> None:
    count = run.count(500_000)
    cases = {
        "1 connection, one prefix": Case(count, prefixes=PREFIXES),
        "1 connection, 1,000 prefixes": Case(count, prefixes=PREFIXES, each=True),
        "1,000 connections, the same prefix, 1/1,000 of the messages": Case(
            max(1, count // PREFIXES), subscribers=PREFIXES, prefixes=PREFIXES
        ),
        "1,000 connections, a prefix each": Case(count, subscribers=PREFIXES, prefixes=PREFIXES, each=True),
    }
    found: dict[str, list[Figures]] = {name: [] for name in cases}
    for _ in range(run.rounds):
        for name, case in cases.items():
            try:
                found[name].append(measure(OURS, case))
            except (Failed, NotStarted) as error:
                print(f"{name}: {error}", file=sys.stderr)
    costs = {name: _cost(figures) for name, figures in found.items()}
    one, many = list(costs.values())[:2]
    rows = [
        [name, f"{cases[name].count:,}", f"{_rate(figures):,.0f}", f"{costs[name]:.3f}", f"{costs[name] / one:.2f}x"]
        for name, figures in found.items()
    ]
    heads = ["zambezi", "messages", "messages/s", "us of processor per delivery", "to one prefix"]
    _show(f"Prefixes: keys of {PREFIXES:,} kinds in turn, 100 B, {count:,} deliveries in all, raw sockets", heads, rows)
    run.below("1,000 prefixes cost at most twice one (same messages to the same connection)", many / one, 2)


MEASUREMENTS: Final = ("cost", "once", "clients", "replay", "latency", "prefixes")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often to measure each; the result is the median")
    parser.add_argument(
        "--quick", action="store_true", help="measure one round with a tenth of the messages, to see that it runs"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=MEASUREMENTS,
        default=MEASUREMENTS,
        metavar="NAME",
        help=f"the measurements to run: {', '.join(MEASUREMENTS)} (default: all)",
    )
    parser.add_argument("--replay", type=int, default=5_000_000, help="messages of the replay")
    arguments: Any = parser.parse_args()
    # End by an exception, so that the brokers and processes are ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before it was done"))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    run = Run(1 if arguments.quick else arguments.rounds, 0.1 if arguments.quick else 1)
    print(environment(run.versions))
    for problem in run.left_out:
        print(problem)
    for name in arguments.only:
        match name:
            case "cost":
                cost(run)
            case "once":
                once(run)
            case "clients":
                clients(run)
            case "replay":
                replay(run, run.count(arguments.replay))
            case "latency":
                latency(run)
            case "prefixes":
                prefixes(run)
    run.bars.show()


if __name__ == "__main__":
    main()
