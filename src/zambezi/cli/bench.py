"""`zambezi bench`: how fast a running server is for this machine, with the messages that one has in mind."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import secrets
import struct
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from zambezi.cli.client import add_client_options, add_timeout_option, endpoint_of
from zambezi.cli.counts import so_many
from zambezi.cli.errors import OptionsError
from zambezi.cli.notices import show_warnings, warn
from zambezi.cli.quantity import count, octets
from zambezi.cli.security import security_of
from zambezi.cli.terminal import say, table_console
from zambezi.zeps.asyncio import Client, Subscription
from zambezi.zeps.errors import BrokerError, TimedOut

if TYPE_CHECKING:
    from zambezi.cli.fitting import FittingTable

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

AT_ONCE: Final = 500  # messages of one call
TIME: Final = struct.Struct("!d")  # at the beginning of a body, if latencies are measured
SHARES: Final = (50.0, 90.0, 99.0, 99.9)
MOST_SUBSCRIBERS: Final = 1000
LARGEST_RUN: Final = 10 << 30  # bytes that one run publishes at most


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of a run."""

    work: str
    messages: int
    size: int  # bytes of a body
    seconds: float
    latencies: Sequence[float] = ()  # in seconds, sorted
    subscribers: int = 0  # that each message is delivered to, if deliveries are measured

    @property
    def deliveries(self) -> int:
        """The messages that were measured: each one counts once for each subscriber."""
        return self.messages * max(1, self.subscribers)

    @property
    def unit(self) -> str:
        """The thing that `rate` counts."""
        return "deliveries" if self.subscribers else "messages"

    @property
    def rate(self) -> float:
        """Messages per second, or deliveries per second if those are measured."""
        return self.deliveries / self.seconds if self.seconds else math.inf

    def describe(self) -> dict[str, Any]:
        """Return the figures, as JSON has them."""
        figures: dict[str, Any] = {
            "work": self.work,
            "messages": self.messages,
            **({"subscribers": self.subscribers, "deliveries": self.deliveries} if self.subscribers else {}),
            "size": self.size,
            "seconds": round(self.seconds, 4),
            f"{self.unit}_per_second": round(self.rate),
            "megabytes_per_second": round(self.rate * self.size / 1e6, 3),
        }
        for share in SHARES if self.latencies else ():
            figures[f"p{share:g}_ms"] = round(percentile(self.latencies, share) * 1000, 3)
        if self.latencies:
            figures["max_ms"] = round(self.latencies[-1] * 1000, 3)
        return figures


Measure: TypeAlias = Callable[[Client, str, argparse.Namespace], Coroutine[Any, Any, Result]]


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below or at which a share of the values is: one of the values, nothing between them."""
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "bench",
        description="Measure how fast a running server takes and delivers messages. The command makes a stream for "
        "that, and deletes it at the end. The figures are those of this machine and the way to the server, together.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text = "Publish as fast as possible; with --each, wait for the confirmation of each message."
    _add_command(commands, "pub", publish, "publish messages", text)
    _add_command(commands, "sub", replay, "replay messages", "Publish messages, and then replay them.")
    text = "Publish at a steady rate, and measure how long each message takes to each subscriber."
    _add_command(commands, "fan", fan_out, "publish to many subscribers", text)


def _add_command(commands: Subparsers, name: str, measure: Measure, short: str, description: str) -> None:
    command = commands.add_parser(name, help=short, description=description)
    usual = 5000 if name == "fan" else 100_000
    command.add_argument(
        "--messages", metavar="N", type=count, default=usual, help=f"how many messages (default: {usual})"
    )
    command.add_argument("--size", metavar="BYTES", type=octets, default=100, help="bytes of a message (default: 100)")
    if name == "pub":
        command.add_argument("--each", action="store_true", help="wait for the confirmation of each message")
    if name == "fan":
        command.add_argument(
            "--subscribers", metavar="N", type=count, default=10, help="how many subscribers (default: 10)"
        )
        command.add_argument(
            "--rate",
            metavar="N",
            type=count,
            default=1000,
            help="messages that are published per second (default: 1000)",
        )
    command.add_argument("--json", action="store_true", help="print a JSON object")
    add_timeout_option(command)
    add_client_options(command)
    command.set_defaults(run=_run, measure=measure)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.messages * max(arguments.size, 1) > LARGEST_RUN:
        raise OptionsError("the messages have more than 10 GiB together: measure with fewer")
    if getattr(arguments, "subscribers", 1) > MOST_SUBSCRIBERS:
        raise OptionsError(f"there can be at most {MOST_SUBSCRIBERS} subscribers")
    show_warnings()
    result = asyncio.run(_measure(arguments))
    if arguments.json:
        say(json.dumps(result.describe()))
    else:
        table_console().print(_table(result))
    return 0


async def _measure(arguments: argparse.Namespace) -> Result:
    name = f"bench-{secrets.token_hex(4)}"
    async with Client.connect(endpoint_of(arguments), security=security_of(arguments)) as client:
        await client.streams(arguments.timeout)  # so that a server that is not there is an error at once
        try:
            measured: Result = await arguments.measure(client, name, arguments)
        finally:
            await _delete(client, name, arguments.timeout)
    return measured


async def _delete(client: Client, name: str, timeout: float) -> None:
    """Delete the stream of the run, after its publisher has left it."""
    with suppress(TimedOut):
        await client.stream(name).close(timeout)
        try:
            await client.delete(name, timeout=timeout)
        except BrokerError as error:
            if "there is no stream" not in str(error):
                warn(f"the stream {name} stays: {error}")


async def publish(client: Client, name: str, arguments: argparse.Namespace) -> Result:
    """Publish messages, all at once or one after another."""
    stream = client.stream(name)
    body = bytes(arguments.size)
    await stream.publish("bench", body)
    await stream.flush(arguments.timeout)  # the stream is made, and its file
    if arguments.each:
        latencies = []
        began = time.perf_counter()
        for _ in range(arguments.messages):
            sent = time.perf_counter()
            await stream.publish("bench", body)
            await stream.flush(arguments.timeout)
            latencies.append(time.perf_counter() - sent)
        took = time.perf_counter() - began
        return Result("publish, each confirmed", arguments.messages, arguments.size, took, sorted(latencies))
    return Result("publish", arguments.messages, arguments.size, await _publish_all(client, name, arguments))


async def _publish_all(client: Client, name: str, arguments: argparse.Namespace) -> float:
    """Publish all messages, wait until they are confirmed, and return the seconds."""
    stream = client.stream(name)
    some = [("bench", bytes(arguments.size))] * AT_ONCE
    began = time.perf_counter()
    for done in range(0, arguments.messages, AT_ONCE):
        await stream.publish_many(some[: arguments.messages - done], arguments.timeout)
    await stream.flush(arguments.timeout)
    return time.perf_counter() - began


async def replay(client: Client, name: str, arguments: argparse.Namespace) -> Result:
    """Publish messages, and read them again."""
    await _publish_all(client, name, arguments)
    began = time.perf_counter()
    read = 0
    async with client.stream(name).subscribe(since="earliest", until="now") as subscription:
        async for batch in subscription.batches():
            read += len(batch)
    return Result("replay", read, arguments.size, time.perf_counter() - began)


async def fan_out(client: Client, name: str, arguments: argparse.Namespace) -> Result:
    """Publish at a steady rate to subscribers that follow the stream."""
    stream = client.stream(name)
    padding = bytes(max(0, arguments.size - TIME.size))
    await stream.publish("bench", TIME.pack(0.0))
    await stream.flush(arguments.timeout)
    latencies: list[float] = []
    subscriptions = [stream.subscribe(since=0) for _ in range(arguments.subscribers)]
    readers: list[asyncio.Future[None]] = []
    try:
        for subscription in subscriptions:
            await subscription.recv(arguments.timeout)  # the first message: now it follows
        readers += [
            asyncio.ensure_future(_read(subscription, arguments.messages, arguments.timeout, latencies))
            for subscription in subscriptions
        ]
        began = time.perf_counter()
        for number in range(arguments.messages):
            pause = began + number / arguments.rate - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            await stream.publish("bench", TIME.pack(time.perf_counter()) + padding, arguments.timeout)
        await asyncio.gather(*readers)
        took = time.perf_counter() - began
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)  # so that no error is left for the end of the loop
        for subscription in subscriptions:
            await subscription.close()
    work = f"publish to {so_many(arguments.subscribers, 'subscriber')}"
    size = TIME.size + len(padding)
    return Result(work, arguments.messages, size, took, sorted(latencies), arguments.subscribers)


async def _read(subscription: Subscription, wanted: int, timeout: float, latencies: list[float]) -> None:
    while wanted:
        message = await subscription.recv(timeout)
        latencies.append(time.perf_counter() - TIME.unpack_from(message.body)[0])
        wanted -= 1


def _table(result: Result) -> FittingTable:
    from zambezi.cli.fitting import JSON, FittingTable  # noqa: PLC0415 - only this needs it

    rows = [("messages", f"{result.messages:,} of {result.size:,} bytes")]
    if result.subscribers:
        rows.append(("deliveries", f"{result.deliveries:,}"))
    rows.append(("time", f"{result.seconds:.3f} s"))
    rows.append(("rate", f"{result.rate:,.0f} {result.unit}/s"))
    rows.append(("", f"{result.rate * result.size / 1e6:,.1f} MB/s"))
    if result.latencies:
        rows += [(f"p{share:g}", f"{percentile(result.latencies, share) * 1000:.3f} ms") for share in SHARES]
        rows.append(("max", f"{result.latencies[-1] * 1000:.3f} ms"))
    return FittingTable(("figure", "value"), {1}, rows, JSON, title=result.work)
