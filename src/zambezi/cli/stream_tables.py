"""Tables of streams and of their subscribers, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.table import Table

from zambezi.wire.text import printable
from zambezi.zeps.directory import ClientInfo, StreamInfo

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def stream_table(streams: Sequence[StreamInfo]) -> Table:
    """Return a table of streams.

    It has columns for multicast if a stream has a group, and for the lag of the named reader that is furthest behind,
    connected or not, if a stream has named readers; and for the brokers, if they share their streams. A stream whose
    broker does not answer has no figures.
    """
    table = Table(title="streams", title_justify="left")
    grouped = any(one.multicast for one in streams)
    named = any(one.readers for one in streams)
    owned = any(one.owner for one in streams)
    for name, justify in (
        ("stream", "left"),
        ("messages", "right"),
        ("last", "right"),
        ("size", "right"),
        ("per s", "right"),
        ("readers", "right"),
        *((("lag", "right"),) if named else ()),
        ("newest", "left"),
        ("sync", "left"),
        *((("owner", "left"),) if owned else ()),
        *((("group", "left"), ("multicast", "right"), ("withheld", "right")) if grouped else ()),
    ):
        table.add_column(name, justify=justify, no_wrap=name == "stream")
    for one in streams:
        figures = (f"{one.messages:,}", f"{one.last:,}" if one.messages else "-", size(one.octets))
        live = (f"{one.rate:,.0f}", str(one.subscribers))
        table.add_row(
            printable(one.stream),
            *((*figures, *live) if one.is_described else ("-",) * 5),
            *((f"{one.reader_lag:,}" if one.readers else "-",) if named else ()),
            ago(one.last_at),
            f"held: {printable(one.held)}" if one.held else _sync(one),
            *((printable(one.owner) or "none",) if owned else ()),
            *(_group(one) if grouped else ()),
        )
    return table


def _sync(one: StreamInfo) -> str:
    """Return when the messages of a stream are safe, and how far its copy in an object store is behind."""
    if one.copied is None or one.copied >= one.last:
        return printable(one.sync)
    return f"{printable(one.sync)}, copy {one.last - max(one.copied, one.first - 1):,} behind"


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


def ago(when: datetime | None) -> str:
    """Return how long ago a time is."""
    if when is None:
        return "-"
    return f"{duration((datetime.now(UTC) - when).total_seconds())} ago"


def duration(seconds: float) -> str:
    """Return a time in its largest unit.

    >>> duration(7.4), duration(7200)
    ('7s', '2h')
    """
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"
