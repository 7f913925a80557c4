"""A demonstration of the whole system, which explains each step. It uses only loopback and a temporary directory.

make demo                           takes a minute or two
make demo OPTIONS=--keep            leaves the server running until Ctrl-C, so that you can look at the console
make demo OPTIONS=--without-spark   skips Spark
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from demo.fleet import three_machines
from demo.sensors import Sensors
from demo.server import ServerProcess
from demo.told import elapsed, say, title
from demo.two_servers import a_takeover
from zambezi.mcollective.asyncio import Connector, Fleet
from zambezi.zeps.asyncio import Client, Subscription

SENSORS = 20
PATIENCE = 60.0
ENOUGH = 3000  # messages that the slow subscriber lags behind


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make demo", description="Show the whole system at work, on loopback and in a temporary directory."
    )
    parser.add_argument("--keep", action="store_true", help="leave the server running until Ctrl-C, to look at it")
    parser.add_argument("--without-spark", action="store_true", help="leave the pipelines out")
    return parser.parse_args()


async def main(options: argparse.Namespace) -> int:
    """Play the demo, and return its status."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # so that nothing is left behind
    directory = Path(tempfile.mkdtemp(prefix="zambezi-demo-"))
    try:
        status = await play(directory, options)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    title("The demo is over, and its files are removed.")
    return status


async def play(directory: Path, options: argparse.Namespace) -> int:
    status = 0
    title("1. A server")
    server = ServerProcess(directory)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        await server.start()
        say(f"zambezi serve runs these services: {', '.join(server.endpoints)}")
        say(f"the console: {server.console}")

        title(f"2. {SENSORS} sensors find the server")
        sensors = await stack.enter_async_context(Sensors(SENSORS, server.beacon_port))
        await sensors.find_each_other(PATIENCE)
        say(f"each of the {SENSORS} nodes has found the {SENSORS - 1} others and the server, only by beacons")
        await sensors.find_streams(PATIENCE)
        say("each node found the endpoint of the broker in the server's HELLO, and publishes its readings now")

        client = await stack.enter_async_context(Client.connect(server.endpoints["zeps"]))
        title("3. A slow subscriber and a late subscriber")
        await a_slow_reader(client, sensors)
        await a_late_joiner(client)

        title("4. The server is killed, and no confirmed message is lost")
        await a_crash(server, client, sensors)

        title("5. A server is lost, and another one takes its streams")
        await a_takeover(directory)

        title("6. A fleet is called")
        await a_fleet(stack, server)

        title("7. Spark analyses the streams")
        await sensors.stop_publishing()
        if options.without_spark:
            say("skipped, because of --without-spark")
        else:
            status = await pipelines(server, directory, with_plots=options.keep)

        title(f"The demo took {elapsed():.0f} s. The console is at {server.console}")
        if options.keep:
            await sensors.go_on_publishing()
            say("The demo runs until you press Ctrl-C.")
            await asyncio.Event().wait()
    return status


async def a_slow_reader(client: Client, sensors: Sensors) -> None:
    stream = client.stream("telemetry")
    async with stream.subscribe("", since="earliest", window=2048) as slow:
        await slow.recv(timeout=PATIENCE)
        while (lag := await lag_of(client)) < ENOUGH:  # noqa: ASYNC110 - no event reports the lag
            await asyncio.sleep(0.1)
        say(f"a subscriber stopped reading and lags {lag:,} messages: the journal keeps them, not the server's memory")
        await read_until(slow, sensors.published)
        say("it reads again, has caught up, and missed no message")


async def lag_of(client: Client) -> int:
    return max([one.lag for one in await client.clients() if one.patterns], default=0)


async def read_until(subscription: Subscription, last: int) -> int:
    """Read up to a sequence, check that no message is missing, and return the last sequence."""
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
    say(f"a new subscriber replays all {count:,} past temperatures in {took * 1000:.0f} ms")


async def a_crash(server: ServerProcess, client: Client, sensors: Sensors) -> None:
    stream = client.stream("telemetry")
    await sensors.flush(PATIENCE)
    confirmed = sensors.published
    async with stream.subscribe("", since="earliest") as reader:
        await server.kill()
        say("SIGKILL. The sensors continue to publish, and keep the messages that are not confirmed.")
        await server.start()
        await sensors.flush(PATIENCE)
        last = await read_until(reader, sensors.published)
    say(f"the server is back. {confirmed:,} messages were confirmed before, and the stream has {last:,} now:")
    say("every sequence once, in order; the subscriber saw only a pause")


async def a_fleet(stack: AsyncExitStack, server: ServerProcess) -> None:
    endpoint = server.endpoints["mcollective"]
    await three_machines(stack, endpoint)
    connector = await stack.enter_async_context(Connector(endpoint))
    fleet = Fleet(connector)
    outcome = await fleet.call("machine", "uptime", nodes=["web1", "web2", "db1", "db2"], timeout=3.0)
    for node, reply in sorted(outcome.replies.items()):
        say(f"{node}: up {reply.result['seconds']} s")
    say(f"no answer from {', '.join(outcome.silent)}, which does not exist: the outcome lists silent nodes, too")


async def pipelines(server: ServerProcess, directory: Path, *, with_plots: bool) -> int:
    say("Spark needs some seconds to start")
    # On a terminal, a pipeline shows its progress on standard error.
    stderr = None if sys.stderr.isatty() else asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "demo.analysis", server.endpoints["zeps"], str(directory)]
    if with_plots:
        command.append("--plots")  # the console stays, and shows them
    environment = os.environ | {"DEMO_SECONDS": f"{elapsed():.1f}"}
    process = await asyncio.create_subprocess_exec(*command, stderr=stderr, env=environment)
    try:
        _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if process.returncode:
        sys.stderr.write((errors or b"").decode(errors="replace"))
        say(f"the pipelines failed with status {process.returncode}; the reason is above")
    else:
        say("the console shows the same verdicts and tables under Pipelines")
    return 1 if process.returncode else 0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(parse())))
    except KeyboardInterrupt:
        print()
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)
