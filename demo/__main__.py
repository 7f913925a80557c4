"""The whole system at work, told as it happens. Everything stays on loopback, in a directory that is removed.

make demo                 a minute or two, then it stops by itself
DEMO_STAY=1 make demo     stays until Ctrl-C, so that the console can be looked at
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from demo.fleet import three_machines
from demo.sensors import Sensors
from demo.server import ServerProcess
from demo.told import say, title
from zambezi.mcollective.asyncio import Connector, Fleet
from zambezi.zeps.asyncio import Client, Subscription

SENSORS = 20
PATIENCE = 60.0
ENOUGH = 3000  # messages that the slow reader lags


async def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="zambezi-demo-"))
    try:
        await play(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    title("That was it. Nothing was left behind.")


async def play(directory: Path) -> None:
    began = time.monotonic()
    title("1. A server")
    server = ServerProcess(directory)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        await server.start()
        say(f"zambezi serve is up: {', '.join(server.endpoints)}")
        say(f"the console: {server.console}")

        title(f"2. {SENSORS} sensors find it by themselves")
        sensors = await stack.enter_async_context(Sensors(SENSORS, server.beacon_port))
        await sensors.find_each_other(PATIENCE)
        say(f"each of the {SENSORS} nodes sees the {SENSORS - 1} others and the server, by beacons alone")
        await sensors.find_streams(PATIENCE)
        say("each learnt from the server's greeting where streams are published, and publishes its readings now")

        client = await stack.enter_async_context(Client.connect(server.endpoints["zeps"]))
        title("3. A slow reader, and one that comes late")
        await a_slow_reader(client, sensors)
        await a_late_joiner(client)

        title("4. The server is killed, and nothing that was confirmed is lost")
        await a_crash(server, client, sensors)

        title("5. A fleet is asked something")
        await a_fleet(stack, server)

        title("6. Spark reads all of it")
        await sensors.stop_publishing()
        await pipelines(server, directory)

        title(f"All of it took {time.monotonic() - began:.0f} s. The console is at {server.console}")
        if os.environ.get("DEMO_STAY"):
            await sensors.go_on_publishing()
            say("It stays until you press Ctrl-C.")
            await asyncio.Event().wait()


async def a_slow_reader(client: Client, sensors: Sensors) -> None:
    stream = client.stream("telemetry")
    async with stream.subscribe("", since="earliest", window=2048) as slow:
        await slow.recv(timeout=PATIENCE)
        while (lag := await lag_of(client)) < ENOUGH:  # noqa: ASYNC110 - the server is asked: nobody tells us
            await asyncio.sleep(0.1)
        say(f"it has stopped reading, and lags {lag:,} messages: the server feeds it from the journal, not from memory")
        await read_until(slow, sensors.published)
        say("it reads again, has caught up, and missed nothing")


async def lag_of(client: Client) -> int:
    return max([one.lag for one in await client.clients() if one.patterns], default=0)


async def read_until(subscription: Subscription, last: int) -> int:
    """Read up to a sequence, and see that none is missing."""
    position = None
    async for batch in subscription.batches():
        for sequence in batch.sequences():
            assert position is None or sequence == position + 1, f"{sequence} came after {position}"
            position = sequence
        if position is not None and position >= last:
            return position
    raise AssertionError("the stream ended")


async def a_late_joiner(client: Client) -> None:
    stream = client.stream("telemetry")
    began = time.perf_counter()
    count = 0
    async with stream.subscribe("glob:*.temperature", since="earliest", until="now") as late:
        async for batch in late.batches():
            count += len(batch)
    took = time.perf_counter() - began
    say(f"one that joins now replays all {count:,} temperatures of the past in {took * 1000:.0f} ms")


async def a_crash(server: ServerProcess, client: Client, sensors: Sensors) -> None:
    stream = client.stream("telemetry")
    await sensors.flush(PATIENCE)
    confirmed = sensors.published
    async with stream.subscribe("", since="earliest") as reader:
        await server.kill()
        say("SIGKILL. The sensors go on publishing: what is not confirmed waits in them.")
        await server.start()
        await sensors.flush(PATIENCE)
        last = await read_until(reader, sensors.published)
    say(f"it is back, at the same place. {confirmed:,} messages were confirmed before, and {last:,} are there now:")
    say("every sequence once, in order; the reader noticed nothing but a pause")


async def a_fleet(stack: AsyncExitStack, server: ServerProcess) -> None:
    endpoint = server.endpoints["mcollective"]
    await three_machines(stack, endpoint)
    connector = await stack.enter_async_context(Connector(endpoint))
    fleet = Fleet(connector)
    outcome = await fleet.call("machine", "uptime", nodes=["web1", "web2", "db1", "db2"], timeout=3.0)
    for node, reply in sorted(outcome.replies.items()):
        say(f"{node}: up {reply.result['seconds']} s")
    say(f"no answer from {', '.join(outcome.silent)}, which is not there: that is told, too")


async def pipelines(server: ServerProcess, directory: Path) -> None:
    if os.environ.get("DEMO_SPARK") == "0":
        say("left out, as DEMO_SPARK=0 says")
        return
    results = directory / "results"
    # On a terminal a pipeline shows there how far it is.
    told = None if sys.stderr.isatty() else asyncio.subprocess.PIPE
    for name in ("traffic", "network-health", "fleet-audit"):
        say(f"zambezi pipeline run {name} (Spark takes some seconds to start)")
        command = [sys.executable, "-m", "zambezi", "pipeline", "run", name, "--rows", "5"]
        command += ["--endpoint", server.endpoints["zeps"], "--out", str(directory / "tables")]
        command += ["--results", str(results), "--patience", "2s"]  # db2 had longer than that to answer
        process = await asyncio.create_subprocess_exec(*command, stderr=told)
        _, errors = await process.communicate()
        if process.returncode:
            say(f"it did not run: {(errors or b'').decode(errors='replace').strip()[-500:]}")
            return
    say("the same tables are on the console's page, under Results")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print()
