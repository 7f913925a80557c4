"""Kill the brokers of a store again and again, under load: each confirmed message is in its stream once, in one order.

    python -m tests.zeps.store.kills --times 100 [--store weed|DIRECTORY] [--seed N]

Three `zambezi serve` share the store. After each SIGKILL the server starts again, at once or when another one has its
streams, often with an empty disk. After every fourth kill a server is stopped by SIGSTOP for longer than the limit of
heartbeats, and goes on. After every third a server that has streams is cut off from the store for longer than that, in
one direction or both (see `gate`), and loses its streams: it must not confirm a message until it is back. After every
tenth kill the store itself is restarted. Publishers publish and flush all the while, and subscribers read. In the end

- each message of a publisher is in its stream once, in its order, and every confirmed one is there;
- every subscriber saw a prefix of that, each sequence once;
- publishes and deliveries, with their times, are linearizable (see `history`);
- every byte in the store is as its CRC says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeAlias

from tests.zeps.broker_process import BrokerProcess
from tests.zeps.store.gate import Cut, Gate
from tests.zeps.store.history import History
from tests.zeps.store.weed import Weed, running_weed, weed_path
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker.depot import StoreOptions
from zambezi.zeps.errors import ZepsError
from zambezi.zeps.store.catalog import list_streams
from zambezi.zeps.store.checking import check_stream
from zambezi.zeps.store.cluster import find_owner
from zambezi.zeps.store.commands import Get, List
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings
from zambezi.zeps.sync import Client as SyncClient
from zambezi.zmtp.backoff import Backoff

PATIENCE = 600.0  # seconds; a loaded machine takes its time
SERVERS = 3
STREAMS = ("readings", "alarms", "orders")
PUBLISHERS = 2  # of each stream
SUBSCRIBERS = 2
PARCEL = 10  # messages between two flushes
FAST = Backoff(0.01, 0.2)
CUTS = (Cut.ANSWERS, Cut.BOTH, Cut.REQUESTS, Cut.REFUSED, Cut.LATE)
Message: TypeAlias = tuple[bytes, int]  # a publisher, and the number of its message


@dataclass(frozen=True)
class Pace:
    """In each round there is a fault of a kind if its number can be divided by this."""

    kill: int = 1
    stop: int = 4
    cut: int = 3
    restart: int = 10


PACE = Pace()


class Server(Protocol):
    """A process that can be killed, stopped and started again."""

    endpoint: str

    @property
    def pid(self) -> int: ...

    def start(self) -> None: ...

    def check(self) -> None:
        """Raise AssertionError if the process has ended by itself, and not because it found no store."""

    def kill(self) -> None: ...

    def close(self) -> None: ...


class Serve:
    """A `zambezi serve`."""

    def __init__(self, data: Path, store: StoreOptions) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.endpoint = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self._config = data.with_suffix(".toml")
        options = ", ".join(f'{name} = "{value}"' for name, value in store.options.items())
        self._config.write_text(
            f'[server]\ndata = "{data}"\n[zeps]\nendpoint = "{self.endpoint}"\n[zeps.journal]\nsync = "store"\n'
            f'[zeps.store]\nurl = "{store.url}"\noptions = {{ {options} }}\nheartbeat = "{store.period}s"\n'
            + "".join(f"[{name}]\nenabled = false\n" for name in ("mcollective", "zre", "log", "console"))
        )
        self.start()

    def start(self) -> None:
        with self._config.with_suffix(".log").open("ab") as log:
            command = [sys.executable, "-m", "zambezi", "serve", "--config", str(self._config)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        if self._process.poll() in (None, -signal.SIGKILL):
            return
        said = self._config.with_suffix(".log").read_text()[-2000:]
        assert "does not answer" in said[-500:], f"a server has ended by itself: {said}"
        self.start()  # as a supervisor does: the store was down for long when the server started

    def kill(self) -> None:
        self.check()
        self._process.kill()
        self._process.wait(PATIENCE)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(PATIENCE)


@dataclass
class Told:
    """The events of a run."""

    begun: dict[tuple[str, Message], float] = field(default_factory=dict)
    confirmed: dict[tuple[str, Message], float] = field(default_factory=dict)
    seen: list[tuple[str, list[tuple[int, Message]], list[float]]] = field(default_factory=list)  # by subscriber
    kills: int = 0
    stops: int = 0
    restarts: int = 0
    cuts: Counter[str] = field(default_factory=Counter)  # by kind
    refused: int = 0  # messages that servers were given while they were cut off, and did not confirm
    lost_disks: int = 0
    # Seconds after a fault until all publishers were confirmed again, by kind.
    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


async def publish(endpoints: list[str], stream: str, name: bytes, told: Told, enough: asyncio.Event) -> None:
    """Publish numbers, and flush after each parcel, until it is enough."""
    async with Client.connect(endpoints, backoff=FAST) as client:
        target = client.stream(stream)
        number = 0
        while not enough.is_set():
            messages = [(name, number + index) for index in range(1, PARCEL + 1)]
            number += PARCEL
            now = time.monotonic()
            told.begun |= dict.fromkeys([(stream, message) for message in messages], now)
            await target.publish_many([(name.decode(), b"%d" % one) for _, one in messages], PATIENCE)
            await target.flush(PATIENCE)
            now = time.monotonic()
            told.confirmed |= dict.fromkeys([(stream, message) for message in messages], now)
            await asyncio.sleep(0.01)


async def follow(endpoints: list[str], stream: str, told: Told) -> None:
    """Read a stream from its beginning, and note each message with its time."""
    seen: list[tuple[int, Message]] = []
    times: list[float] = []
    told.seen.append((stream, seen, times))
    async with Client.connect(endpoints, backoff=FAST) as client:
        async for message in client.stream(stream).subscribe(since="earliest"):
            seen.append((message.sequence, (message.key.encode(), int(message.body))))
            times.append(time.monotonic())


async def read_all(endpoints: list[str], stream: str) -> dict[int, Message]:
    """Return all messages of a stream by sequence."""
    async with Client.connect(endpoints, backoff=FAST) as client, asyncio.timeout(PATIENCE):
        found = client.stream(stream).subscribe(since="earliest", until="now")
        return {one.sequence: (one.key.encode(), int(one.body)) async for one in found}


class Run:
    """The servers, their clients, and the faults."""

    def __init__(
        self,
        servers: list[Server],
        data: list[Path],
        weed: Weed | None,
        options: StoreOptions,
        gates: Sequence[Gate],
        pace: Pace,
        seed: int,
    ) -> None:
        self.servers = servers
        self._pace = pace
        self.told = Told()
        self._data = data
        self._weed = weed
        self._options = options
        self._gates = gates  # of the servers to the store; none if the store is a directory
        self._limit = options.limit
        self._chance = random.Random(seed)
        self._endpoints = [server.endpoint for server in servers]
        self._clients: list[asyncio.Future[None]] = []

    async def run(self, times: int, say: Callable[[str], object]) -> dict[str, dict[int, Message]]:
        """Kill the servers so many times, and return all messages by stream and sequence."""
        enough = asyncio.Event()
        names = [(stream, b"%s-%d" % (stream.encode(), n)) for stream in STREAMS for n in range(PUBLISHERS)]
        publishing = [
            asyncio.ensure_future(publish(self._endpoints, stream, name, self.told, enough)) for stream, name in names
        ]
        following = [
            asyncio.ensure_future(follow(self._endpoints, stream, self.told))
            for stream in STREAMS
            for _ in range(SUBSCRIBERS)
        ]
        self._clients = [*publishing, *following]
        try:
            await self._progress()
            for number in range(1, times + 1):
                await self._disturb(number, say)
            enough.set()
            await asyncio.gather(*publishing)
            logs = {stream: await read_all(self._endpoints, stream) for stream in STREAMS}
            await self._until(lambda: all(len(seen) >= len(logs[stream]) for stream, seen, _ in self.told.seen))
        finally:
            for task in (*publishing, *following):
                task.cancel()
            await asyncio.gather(*publishing, *following, return_exceptions=True)
        return logs

    async def _disturb(self, number: int, say: Callable[[str], object]) -> None:
        faults: dict[str, Callable[[], Callable[[], object]]] = {}
        if number % self._pace.kill == 0:
            faults["kill"] = self._kill
        if number % self._pace.stop == 0:
            faults["stop"] = self._stop
        if number % self._pace.cut == 0 and self._gates:
            faults["cut"] = self._cut
        if number % self._pace.restart == 0 and self._weed is not None:
            faults["restart of the store"] = partial(self._restart, self._weed)
        for name, fault in faults.items():
            await asyncio.sleep(self._chance.uniform(0, 0.3))
            recover = await asyncio.to_thread(fault)
            began = time.monotonic()
            recovering = asyncio.ensure_future(asyncio.to_thread(recover))
            await self._progress()
            wait = time.monotonic() - began
            self.told.waits[name].append(wait)
            await recovering
            say(f"{name} {number}: all publishers confirmed after {wait:.1f} s; {len(self.told.confirmed):,} messages")

    def _kill(self) -> Callable[[], object]:
        server = self._chance.choice(self.servers)
        server.kill()
        self.told.kills += 1
        if self._chance.random() < 0.5:
            shutil.rmtree(self._data[self.servers.index(server)], ignore_errors=True)
            self.told.lost_disks += 1
        pause = 1.5 * self._limit if self._chance.random() < 0.5 else 0.0  # then another server takes the streams

        def start() -> None:
            time.sleep(pause)
            server.start()

        return start

    def _stop(self) -> Callable[[], object]:
        server = self._chance.choice(self.servers)
        os.kill(server.pid, signal.SIGSTOP)
        self.told.stops += 1

        def go_on() -> None:
            try:
                time.sleep(2 * self._limit)
            finally:
                os.kill(server.pid, signal.SIGCONT)

        return go_on

    def _cut(self) -> Callable[[], object]:
        owned, owners = self._owned()
        chosen = self._chance.choice(owners)
        gate, server = self._gates[chosen], self.servers[chosen]
        kind = list(CUTS)[self.told.cuts.total() % len(CUTS)]
        self.told.cuts[kind.value] += 1
        gate.set(kind)

        def open_again() -> None:
            try:
                time.sleep(1.5 * self._limit)
                if kind is not Cut.LATE:
                    self._tempt(server, owned[server.endpoint])
            finally:
                gate.set(Cut.NONE)

        return open_again

    def _owned(self) -> tuple[dict[str, list[str]], list[int]]:
        """Return the streams by server, and the servers that have some: on a busy machine, none has for a moment."""
        deadline = time.monotonic() + PATIENCE
        while True:
            owned = owned_streams(self._options)
            owners = [number for number, one in enumerate(self.servers) if one.endpoint in owned]
            if owners:
                return owned, owners
            assert time.monotonic() < deadline, f"no server has a stream: {owned}"
            time.sleep(0.05)

    def _tempt(self, server: Server, streams: Sequence[str]) -> None:
        """Publish to a server that is cut off, and to no other one: it must not confirm the messages."""
        for stream in streams:
            message = (b"tempted-%d" % self.told.refused, 1)
            self.told.begun[stream, message] = time.monotonic()
            client = SyncClient.connect(server.endpoint, backoff=FAST)
            target = client.stream(stream)
            try:
                target.publish(message[0].decode(), b"1", timeout=self._limit / 2)
                target.flush(self._limit / 2)
            except ZepsError:
                self.told.refused += 1
            else:
                raise AssertionError(f"{stream}: a server that is cut off from the store has confirmed {message}")
            finally:
                with suppress(ZepsError):
                    client.close(0)

    def _restart(self, weed: Weed) -> Callable[[], object]:
        weed.stop()
        self.told.restarts += 1
        return weed.start

    async def _progress(self) -> None:
        """Wait until each publisher has got a confirmation for messages that it begins to publish now."""
        now = time.monotonic()
        begun = self.told.begun
        names = {(stream, name) for stream in STREAMS for name in self._names(stream)}

        def is_confirmed() -> bool:
            found = {
                (stream, message[0])
                for (stream, message) in list(self.told.confirmed)[-2000:]
                if begun[stream, message] > now
            }
            return found == names

        await self._until(is_confirmed)

    def _names(self, stream: str) -> list[bytes]:
        return [b"%s-%d" % (stream.encode(), n) for n in range(PUBLISHERS)]

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                for server in self.servers:
                    server.check()
                for task in self._clients:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.05)


def owned_streams(options: StoreOptions) -> dict[str, list[str]]:
    """Return the names of the streams that each server has, by endpoint, as the store tells."""
    store = ObjectStore(options.url, options.options)
    try:
        listed = [one.key for one in store.execute(List("brokers")) if one.key.endswith(".json")]
        answers = [store.execute(Get(key)) for key in listed]
        beats = [json.loads(answer) for answer in answers if isinstance(answer, bytes)]  # others were removed meanwhile
        found: dict[str, list[str]] = {}
        for stream in store.run(list_streams()):
            owner = store.run(find_owner(stream.place)).owner.hex()
            for endpoint in [one["endpoints"][0] for one in beats if one["id"] == owner and one["endpoints"]]:
                found.setdefault(endpoint, []).append(stream.name)
    finally:
        store.close()
    return found


def through(options: StoreOptions, gate: Gate) -> StoreOptions:
    """Return the options of a server that reaches the store through a gate."""
    return replace(options, options={**options.options, "endpoint": f"http://127.0.0.1:{gate.port}"})


def check(told: Told, logs: Mapping[str, Mapping[int, Message]]) -> None:
    """Raise AssertionError if an invariant does not hold."""
    for stream, log in logs.items():
        assert list(log) == list(range(1, len(log) + 1)), f"{stream}: a sequence is missing or twice"
        found: dict[bytes, list[int]] = {}
        for name, number in log.values():
            found.setdefault(name, []).append(number)
        for name, numbers in found.items():
            assert numbers == list(range(1, len(numbers) + 1)), f"{name!r}: a message is missing, twice or too early"
        places = {message: sequence for sequence, message in log.items()}
        missing = [message for one, message in told.confirmed if one == stream and message not in places]
        assert not missing, f"{stream}: confirmed and lost: {missing[:10]}"
        history = History()
        for (one, (name, number)), when in told.begun.items():
            if one == stream:
                history.begin(name, number, when)
        for (one, (name, number)), when in told.confirmed.items():
            if one == stream:
                history.confirm(name, number, places[name, number], when)
        for one, seen, times in told.seen:
            if one == stream:
                assert seen == list(log.items())[: len(seen)], f"{stream}: a subscriber saw something else"
                for (sequence, _), when in zip(seen, times, strict=True):
                    history.read(sequence, float("-inf"), when)
        problem = history.problem(log)
        assert not problem, f"{stream}: {problem}"


def check_store(options: StoreOptions) -> int:
    """Check every byte of the store; return the number of objects."""
    store = ObjectStore(options.url, options.options)
    try:
        checks = [check_stream(store, stream) for stream in store.run(list_streams())]
    finally:
        store.close()
    problems = [problem for found in checks for problem in found.problems]
    assert not problems, problems
    return sum(found.objects for found in checks)


def run(
    times: int,
    seed: int,
    place: Path,
    weed: Weed | None,
    *,
    period: float = 1.0,
    pace: Pace = PACE,
    forked: bool = False,
    say: Callable[[str], object] = print,
) -> Told:
    """Kill the servers so many times; raise AssertionError if an invariant does not hold."""
    url, settings = (weed.url("kills"), dict(weed.options)) if weed is not None else (str(place / "store"), {})
    settings |= {"timeout": "10s"} if weed is not None else {}
    log = LogSettings(chunks=24) if forked else LogSettings()
    options = StoreOptions(url=url, options=settings, log=log, period=period, limit=period * 10 / 3)
    data = [place / f"server-{number}" for number in range(SERVERS)]
    with ExitStack() as stack:
        servers: list[Server] = []
        gates = [stack.enter_context(Gate(weed.port)) for _ in data] if weed is not None else []
        for number, path in enumerate(data):
            path.mkdir()
            own = through(options, gates[number]) if gates else options
            server: Server = BrokerProcess(path, store=own, sync="store") if forked else Serve(path, own)
            stack.callback(server.close)
            servers.append(server)
        story = Run(servers, data, weed, options, gates, pace, seed)
        logs = asyncio.run(story.run(times, say))
        check(story.told, logs)
    objects = check_store(options)
    told = story.told
    say(
        f"{told.kills} kills ({told.lost_disks} with the disk), {told.stops} stops, {told.restarts} restarts of the "
        f"store: {len(told.confirmed):,} confirmed messages, {sum(map(len, logs.values())):,} in {len(logs)} streams, "
        f"each once; {sum(len(seen) for _, seen, _ in told.seen):,} delivered; {objects} objects without damage"
    )
    if told.cuts:
        kinds = ", ".join(f"{kind}: {count}" for kind, count in told.cuts.items())
        say(f"cuts: {kinds}; {told.refused} messages were given to servers that were cut off, and none was confirmed")
    for name, waits in told.waits.items():
        waits.sort()
        say(f"confirmed again after a {name}: {waits[len(waits) // 2]:.1f} s (median), {waits[-1]:.1f} s at most")
    return told


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--heartbeat", type=float, default=1.0)
    parser.add_argument("--stop-after", type=int, default=PACE.stop, help="kills between two stops")
    parser.add_argument("--cut-after", type=int, default=PACE.cut, help="kills between two cuts")
    parser.add_argument("--store", choices=["weed", "directory"], default="weed" if weed_path() else "directory")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 32)
    print(f"seed {seed}, {arguments.store}", flush=True)
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="zambezi-store-kills-")))
        (place / "weed").mkdir()
        weed = stack.enter_context(running_weed(place / "weed")) if arguments.store == "weed" else None
        pace = Pace(stop=arguments.stop_after, cut=arguments.cut_after)
        run(arguments.times, seed, place, weed, pace=pace, period=arguments.heartbeat, say=_say)


if __name__ == "__main__":
    main()
