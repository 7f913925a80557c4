"""`zambezi streams`: list the streams of a broker, and their subscribers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.table import Table

from zambezi.cli.client import add_client_options, client_of
from zambezi.cli.quantity import seconds
from zambezi.cli.terminal import Console
from zambezi.wire.text import printable
from zambezi.zeps.directory import ClientInfo, StreamInfo

if TYPE_CHECKING:
    import argparse

    from zambezi.zeps.sync import Client

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "streams",
        help="list the streams of a broker, and their subscribers",
        description="List the streams of a broker: their messages, size and rate, and the subscribers with their lag.",
    )
    parser.add_argument("--watch", action="store_true", help="update the table until Ctrl-C")
    parser.add_argument(
        "--interval", metavar="TIME", type=seconds, default=1.0, help="the time between updates (default: 1s)"
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    console = Console()
    with client_of(arguments) as client:
        if not arguments.watch:
            console.print(_page(client))
            return 0
        try:
            with Live(_page(client), console=console, auto_refresh=False) as live:
                while True:
                    time.sleep(arguments.interval)
                    live.update(_page(client), refresh=True)
        except KeyboardInterrupt:
            return 0


def _page(client: Client) -> Group:
    streams = client.streams()
    clients = [one for one in client.clients() if one.patterns]
    parts: list[Table | str] = [stream_table(streams) if streams else "no streams yet: zambezi pub creates one"]
    if clients:
        parts.append(client_table(clients))
    return Group(*parts)


def stream_table(streams: Sequence[StreamInfo]) -> Table:
    """Return a table of streams. It has columns for multicast if a stream has a group."""
    table = Table(title="streams", title_justify="left")
    grouped = any(one.multicast for one in streams)
    for name, justify in (
        ("stream", "left"),
        ("messages", "right"),
        ("last", "right"),
        ("size", "right"),
        ("per s", "right"),
        ("readers", "right"),
        ("newest", "left"),
        ("sync", "left"),
        *((("group", "left"), ("multicast", "right"), ("withheld", "right")) if grouped else ()),
    ):
        table.add_column(name, justify=justify)
    for one in streams:
        table.add_row(
            printable(one.stream),
            f"{one.messages:,}",
            f"{one.last:,}" if one.messages else "-",
            size(one.octets),
            f"{one.rate:,.0f}",
            str(one.subscribers),
            _ago(one.last_at),
            f"held: {printable(one.held)}" if one.held else printable(one.sync),
            *(_group(one) if grouped else ()),
        )
    return table


def _group(one: StreamInfo) -> tuple[str, str, str]:
    """Return the group of a stream, the messages sent to it, and the messages that its rate limit withheld."""
    if not one.multicast:
        return "-", "-", "-"
    seal = " (sealed)" if one.sealed else ""
    return f"{printable(one.multicast)}{seal}", f"{one.feed.get('messages', 0):,}", f"{one.feed.get('withheld', 0):,}"


def client_table(clients: Sequence[ClientInfo]) -> Table:
    """Return a table of subscribers."""
    table = Table(title="subscribers", title_justify="left")
    for name, justify in (
        ("client", "right"),
        ("address", "left"),
        ("user", "left"),
        ("stream", "left"),
        ("patterns", "left"),
        ("gear", "left"),
        ("lag", "right"),
        ("credit", "right"),
        ("delivered", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for one in clients:
        table.add_row(
            str(one.client),
            printable(one.address),
            printable(one.user) or "-",
            printable(one.stream),
            ", ".join(printable(pattern) or "all" for pattern in one.patterns),
            printable(one.gear),
            f"{one.lag:,}",
            size(max(0, one.credit)),
            f"{one.delivered:,}",
        )
    return table


def size(octets: float) -> str:
    """Return a number of bytes with a unit.

    >>> size(0), size(2048), size(5 * 1024**3)
    ('0 B', '2.0 KiB', '5.0 GiB')
    """
    for unit in _UNITS:
        if octets < 1024 or unit == _UNITS[-1]:
            return f"{octets:.0f} {unit}" if unit == "B" else f"{octets:.1f} {unit}"
        octets /= 1024
    raise AssertionError("the last unit takes all")


def _ago(when: datetime | None) -> str:
    if when is None:
        return "-"
    passed = (datetime.now(UTC) - when).total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if passed >= length:
            return f"{passed // length:.0f}{unit} ago"
    return f"{max(0.0, passed):.0f}s ago"
