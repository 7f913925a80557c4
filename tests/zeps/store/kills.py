"""Kill the brokers of a store again and again, under load: each confirmed message is in its stream once, in one order.

    python -m tests.zeps.store.kills --times 100 [--store weed|DIRECTORY] [--seed N]

Three `zambezi serve` share the store. After each SIGKILL the server starts again, at once or when another one has its
streams, often with an empty disk. After every fourth kill a server is stopped by SIGSTOP for longer than the limit of
heartbeats, and goes on; after every tenth the store itself is restarted. Publishers publish and flush all the while,
and subscribers read. In the end

- each message of a publisher is in its stream once, in its order, and every confirmed one is there;
- every subscriber saw a prefix of that, each sequence once;
- publishes and deliveries, with their times, are linearizable (see `history`);
- every byte in the store is as its CRC says.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeAlias

from tests.zeps.broker_process import BrokerProcess
from tests.zeps.store.history import History
from tests.zeps.store.weed import Weed, running_weed, weed_path
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker.depot import StoreOptions
from zambezi.zeps.store.catalog import list_streams
from zambezi.zeps.store.checking import check_stream
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings
from zambezi.zmtp.backoff import Backoff

PATIENCE = 600.0  # seconds; a loaded machine takes its time
SERVERS = 3
STREAMS = ("readings", "alarms", "orders")
PUBLISHERS = 2  # of each stream
SUBSCRIBERS = 2
PARCEL = 10  # messages between two flushes
FAST = Backoff(0.01, 0.2)
Message: TypeAlias = tuple[bytes, int]  # a publisher, and the number of its message


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
    lost_disks: int = 0
    waits: list[float] = field(default_factory=list)  # seconds after a fault until all publishers were confirmed again


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
        self, servers: list[Server], data: list[Path], weed: Weed | None, limit: float, stop_after: int, seed: int
    ) -> None:
        self.servers = servers
        self._stop_after = stop_after
        self.told = Told()
        self._data = data
        self._weed = weed
        self._limit = limit
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
        faults: dict[str, Callable[[], Callable[[], object]]] = {"kill": self._kill}
        if number % self._stop_after == 0:
            faults["stop"] = self._stop
        if number % 10 == 0 and self._weed is not None:
            faults["restart of the store"] = partial(self._restart, self._weed)
        for name, fault in faults.items():
            await asyncio.sleep(self._chance.uniform(0, 0.3))
            recover = await asyncio.to_thread(fault)
            began = time.monotonic()
            recovering = asyncio.ensure_future(asyncio.to_thread(recover))
            await self._progress()
            wait = time.monotonic() - began
            self.told.waits.append(wait)
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
    stop_after: int = 4,
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
        for path in data:
            path.mkdir()
            server: Server = BrokerProcess(path, store=options, sync="store") if forked else Serve(path, options)
            stack.callback(server.close)
            servers.append(server)
        story = Run(servers, data, weed, options.limit, stop_after, seed)
        logs = asyncio.run(story.run(times, say))
        check(story.told, logs)
    objects = check_store(options)
    told = story.told
    waits = sorted(told.waits)
    say(
        f"{told.kills} kills ({told.lost_disks} with the disk), {told.stops} stops, {told.restarts} restarts of the "
        f"store: {len(told.confirmed):,} confirmed messages, {sum(map(len, logs.values())):,} in {len(logs)} streams, "
        f"each once; {sum(len(seen) for _, seen, _ in told.seen):,} delivered; {objects} objects without damage; "
        f"confirmed again after {waits[len(waits) // 2]:.1f} s (median), {waits[-1]:.1f} s at most"
    )
    return told


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--heartbeat", type=float, default=1.0)
    parser.add_argument("--stop-after", type=int, default=4, help="kills between two stops")
    parser.add_argument("--store", choices=["weed", "directory"], default="weed" if weed_path() else "directory")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 32)
    print(f"seed {seed}, {arguments.store}", flush=True)
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="zambezi-store-kills-")))
        (place / "weed").mkdir()
        weed = stack.enter_context(running_weed(place / "weed")) if arguments.store == "weed" else None
        run(arguments.times, seed, place, weed, stop_after=arguments.stop_after, period=arguments.heartbeat, say=_say)


if __name__ == "__main__":
    main()
