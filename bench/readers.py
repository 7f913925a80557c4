"""Readers whose position the broker keeps, compared with NATS JetStream and Redis Streams, in one run, on loopback.

    python -m bench.readers [--rounds 3] [--quick] [--only one group]

`one` is one reader under a name that acknowledges each message: Zambezi's named reader (both faces, one message per
step), JetStream's durable pull consumer, and a consumer group of Redis with one consumer. The stream is full before the
reader starts. The time is that from the first request of the reader until it has all messages, and the broker has all
acknowledgements. The Python clients are those that programs use. `reader us` and `broker us` are the processor time of
both processes for each message, in microseconds: they depend less on what else the machine does.

`group` is ten programs that share a stream, each message to one of them: a group of Zambezi's shared readers, ten
subscribers of one durable pull consumer, and a consumer group of ten. Each program is a process, and acknowledges each
message. Zambezi keeps the order of each of a thousand keys, which the others do not. The time is that from the start of
all programs until the last message is acknowledged; then the broker must have all acknowledgements. (Programs of Redis
that acknowledge 500 messages with one XACK are several times as fast; if one dies, others handle all of them again.)

Each client reads and acknowledges in the way that is fastest for it: nats-py fetches a batch and sends an
acknowledgement for each message without waiting; redis-py reads a batch and acknowledges each message of it in one
pipeline. Zambezi's client passes on the last acknowledgement of each turn of its loop. All brokers keep messages and
positions in files, and none waits for an fsync at each acknowledgement.

Each figure is the median of the rounds. The brokers take turns, in another order in each round. Faster brokers get more
messages, so that all are busy for about the same time.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from bench.brokers.body import END, KEY, Case
from bench.brokers.jetstream import STREAM, JetStream
from bench.brokers.run import Failed, Figures, Worker, raw_publish
from bench.brokers.streams import RedisStreams
from bench.brokers.system import NotStarted, System
from bench.brokers.workers import JetStreamTeam, RedisTeam, Team, ZambeziTeam, measure_team
from bench.brokers.zambezi import Zambezi
from bench.report import Bars, environment, table
from zambezi.zeps import sync
from zambezi.zeps.asyncio import Client

try:
    import nats
    import redis
    from nats.js import api
except ImportError:
    pass  # the brokers say so themselves

NAME: Final = "billing"
BATCH: Final = 500  # messages that the other clients ask for at once; more or less is not faster
MESSAGES: Final = 10_000  # for the slowest broker
SIZES: Final = (100, 1024)
BAR: Final = 3.0
MEMBERS: Final = 10
TEAMS: Final[tuple[Team, ...]] = (ZambeziTeam(), JetStreamTeam(), RedisTeam())


class Acknowledging(System):
    """A broker whose readers acknowledge messages."""

    weight: ClassVar[int] = 1  # a faster broker gets more messages

    @abstractmethod
    def read(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        """Connect, call `ready`, receive and acknowledge all messages, and wait until the broker has that."""


class NamedReader(Zambezi, Acknowledging):
    name = "zambezi, asyncio"
    weight = 20

    def read(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        asyncio.run(self._read(port, ready))

    async def _read(self, port: int, ready: Callable[[], object]) -> None:
        async with Client.connect(f"tcp://127.0.0.1:{port}") as client:
            await client.streams()
            await asyncio.to_thread(ready)
            async with client.stream(KEY).subscribe(name=NAME, since="earliest") as subscription:
                async for message in subscription:
                    if message.body.endswith(END):
                        break
            (reader,) = await client.readers(KEY)
            assert reader.lag == 0


class NamedBlockingReader(NamedReader):
    name = "zambezi, blocking"

    def read(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        with sync.Client.connect(f"tcp://127.0.0.1:{port}") as client:
            client.streams()
            ready()
            with client.stream(KEY).subscribe(name=NAME, since="earliest") as subscription:
                for message in subscription:
                    if message.body.endswith(END):
                        break
            (reader,) = client.readers(KEY)
            assert reader.lag == 0


class DurableConsumer(JetStream, Acknowledging):
    name = "JetStream, durable consumer"

    def read(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        asyncio.run(self._read(port, ready))

    async def _read(self, port: int, ready: Callable[[], object]) -> None:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        stream = client.jetstream()
        config = api.ConsumerConfig(ack_policy=api.AckPolicy.EXPLICIT, max_ack_pending=20 * BATCH)
        subscription = await stream.pull_subscribe(KEY, durable=NAME, stream=STREAM, config=config)
        await asyncio.to_thread(ready)
        ended = False
        while not ended:
            for message in await subscription.fetch(BATCH, timeout=10):
                ended = message.data.endswith(END)
                await message.ack()
        await client.flush()
        while (await stream.consumer_info(STREAM, NAME)).num_ack_pending:  # noqa: ASYNC110 (NATS reports no event)
            await asyncio.sleep(0.001)
        await client.close()


class ConsumerGroup(RedisStreams, Acknowledging):
    name = "Redis, consumer group"
    weight = 3

    def read(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        with redis.Redis(port=port) as client:
            client.xgroup_create(KEY, NAME, id="0")
            ready()
            ended = False
            while not ended:
                for _, entries in client.xreadgroup(NAME, "one", {KEY: ">"}, count=BATCH, block=0):
                    pipeline = client.pipeline(transaction=False)
                    for entry, fields in entries:
                        ended = fields[b"b"].endswith(END)
                        pipeline.xack(KEY, NAME, entry)
                    pipeline.execute()
            assert client.xpending(KEY, NAME)["pending"] == 0


OURS: Final[tuple[Acknowledging, ...]] = (NamedReader(), NamedBlockingReader())
RIVALS: Final[tuple[Acknowledging, ...]] = (DurableConsumer(), ConsumerGroup())


@dataclass(frozen=True, slots=True)
class Result:
    """The results of one measurement."""

    rate: float  # messages per second
    reader: float  # processor time of the reader for each message, in microseconds
    broker: float  # the same of the broker


def _timed(read: Callable[[Callable[[], None]], object], ready: Callable[[], None]) -> float:
    """Read, and return the processor time that it took after `ready`."""
    began = 0.0

    def is_ready() -> None:
        nonlocal began
        ready()
        began = time.process_time()

    read(is_ready)
    return time.process_time() - began


def measure(system: Acknowledging, case: Case) -> Result:
    """Publish all messages, then read and acknowledge them."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(system.serve(directory))
        publisher = stack.enter_context(Worker(partial(raw_publish, system, server.port, case)))
        publisher.answer()
        publisher.go()
        publisher.answer()
        reader = stack.enter_context(Worker(partial(_timed, partial(system.read, server.port, case))))
        reader.answer()
        used = server.processor()
        began = time.monotonic()
        reader.go()
        taken = reader.answer()
        seconds = time.monotonic() - began
        micro = 1e6 / case.count
        return Result(case.count / seconds, taken * micro, (server.processor() - used) * micro)


def compare(
    systems: Sequence[Acknowledging],
    rounds: int,
    scale: float,
    size: int,
    take: Callable[[Acknowledging, Case], Result],
) -> dict[Acknowledging, list[Result]]:
    """Measure each broker in each round, in turns."""
    found: dict[Acknowledging, list[Result]] = {system: [] for system in systems}
    for number in range(rounds):
        turn = number % len(systems)
        for system in (*systems[turn:], *systems[:turn]):
            case = Case(max(1000, int(MESSAGES * scale) * system.weight), size)
            try:
                found[system].append(take(system, case))
            except (Failed, NotStarted) as error:
                print(f"{system.name}: {error}", file=sys.stderr)
    return found


def one(systems: Sequence[Acknowledging], rounds: int, scale: float, bars: Bars) -> None:
    """Compare one reader that acknowledges each message."""
    rows = []
    for size in SIZES:
        found = compare(systems, rounds, scale, size, measure)
        rates = {system: median([one.rate for one in found[system]]) for system in systems}
        slower = min(rates[system] for system in OURS)
        for system in systems:
            ratio = slower / rates[system]
            is_rival = system in RIVALS
            costs = [median([one.reader for one in found[system]]), median([one.broker for one in found[system]])]
            shown = [f"{rates[system]:,.0f}", *[f"{cost:.2f}" for cost in costs], f"{ratio:.1f}x" if is_rival else ""]
            rows.append([f"{system.name}, {size} bytes", *shown])
            if is_rival:
                beside = f"{system.name} {rates[system]:,.0f}/s"
                bars.at_least(f"one reader, {size} B", ratio, BAR, result=f"{slower:,.0f}/s", beside=beside)
    heads = ("one reader", "messages/s", "reader us", "broker us", "our slower face is faster by")
    print(f"\n{table(heads, rows)}", flush=True)


def median(values: Sequence[float]) -> float:
    """Return the median; not a number without values."""
    return statistics.median(values) if values else float("nan")


def group(systems: Sequence[Acknowledging], rounds: int, scale: float, bars: Bars) -> None:
    """Compare a group of ten programs that share a stream, and acknowledge each message."""
    teams = [team for team in TEAMS if not team.system.missing()]
    found: dict[Team, list[Figures]] = {team: [] for team in teams}
    for number in range(rounds):
        turn = number % len(teams)
        for team in (*teams[turn:], *teams[:turn]):
            case = Case(max(1000, int(4 * MESSAGES * scale) * team.weight), SIZES[0], MEMBERS)
            try:
                found[team].append(measure_team(team, case))
            except (Failed, NotStarted) as error:
                print(f"{team.name}: {error}", file=sys.stderr)
    rates = {team: median([one.rate for one in found[team]]) for team in teams}
    ours = rates[teams[0]]
    rows = []
    for team in teams:
        costs = [median([one.clients / one.case.count * 1e6 for one in found[team]])]
        costs.append(median([one.processor / one.case.count * 1e6 for one in found[team]]))
        ratio = ours / rates[team]
        is_rival = team is not teams[0]
        shown = [f"{rates[team]:,.0f}", *[f"{cost:.2f}" for cost in costs], f"{ratio:.1f}x" if is_rival else ""]
        rows.append([team.name, *shown])
        if is_rival:
            beside = f"{team.name} {rates[team]:,.0f}/s"
            bars.at_least(f"a group of {MEMBERS}", ratio, BAR, result=f"{ours:,.0f}/s", beside=beside)
    heads = (f"a group of {MEMBERS}, {SIZES[0]} bytes", "messages/s", "members us", "broker us", "zambezi is faster by")
    print(f"\n{table(heads, rows)}", flush=True)


PARTS: Final = {"one": one, "group": group}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, and one round")
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=list(PARTS))
    arguments = parser.parse_args()
    rivals = []
    versions: dict[str, str] = {}
    for rival in RIVALS:
        if problem := rival.missing():
            print(f"left out: {rival.name}: {problem}")
        else:
            rivals.append(rival)
            versions |= rival.versions()
    print(environment(versions))
    bars = Bars("readers")
    rounds, scale = (1, 0.1) if arguments.quick else (arguments.rounds, 1.0)
    for part in arguments.only:
        PARTS[part]([*OURS, *rivals], rounds, scale, bars)
    bars.show()


if __name__ == "__main__":
    main()
