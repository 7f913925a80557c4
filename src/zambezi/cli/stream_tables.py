"""Tables of streams and of their subscribers, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from zambezi.cli.fitting import JSON, NARROW, FittingTable
from zambezi.wire.text import printable
from zambezi.zeps.directory import ClientInfo, StreamInfo

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_NUMBERS: Final = frozenset(
    {"messages", "last", "size", "per s", "readers", "lag", "multicast", "withheld", "client", "credit", "delivered"}
)


def stream_table(streams: Sequence[StreamInfo]) -> FittingTable:
    """Return a table of streams, with the reasons of those that are held below it.

    It has columns for multicast if a stream has a group, and for the lag of the named reader that is furthest behind,
    connected or not, if a stream has named readers; and for the brokers, if they share their streams. A stream whose
    broker does not answer has no figures.
    """
    grouped = any(one.multicast for one in streams)
    named = any(one.readers for one in streams)
    owned = any(one.owner for one in streams)
    columns = (
        *("stream", "messages", "last", "size", "per s", "readers"),
        *(("lag",) if named else ()),
        *("newest", "sync"),
        *(("owner",) if owned else ()),
        *(("group", "multicast", "withheld") if grouped else ()),
    )
    rows = []
    for one in streams:
        figures = (f"{one.messages:,}", f"{one.last:,}" if one.messages else "-", size(one.octets))
        live = (f"{one.rate:,.0f}", str(one.subscribers))
        row = (
            printable(one.stream),
            *((*figures, *live) if one.is_described else ("-",) * 5),
            *((f"{one.reader_lag:,}" if one.readers else "-",) if named else ()),
            ago(one.last_at),
            "held" if one.held else _sync(one),
            *((printable(one.owner) or "none",) if owned else ()),
            *(_group(one) if grouped else ()),
        )
        rows.append(row)
    held = [(one.stream, held_reason(one.stream, one.held)) for one in streams if one.held]
    reasons = [printable(f"{name} is held: {reason}") for name, reason in held]
    return FittingTable(columns, _numbers(columns), rows, JSON, title="streams", notes=reasons, cut={0}, folded=NARROW)


def _numbers(columns: Sequence[str]) -> set[int]:
    """Return the indexes of the columns with numbers."""
    return {index for index, name in enumerate(columns) if name in _NUMBERS}


def held_reason(stream: str, held: str) -> str:
    """Return why a stream is held, without the name of the stream at its beginning."""
    return held.removeprefix(f"stream {stream!a}: ")


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


def client_table(clients: Sequence[ClientInfo]) -> FittingTable:
    """Return a table of subscribers."""
    columns = ("client", "stream", "patterns", "gear", "lag", "delivered", "address", "user", "credit")
    rows = [
        (
            str(one.client),
            printable(one.stream),
            ", ".join(printable(pattern) or "all" for pattern in one.patterns),
            printable(one.gear),
            f"{one.lag:,}",
            f"{one.delivered:,}",
            printable(one.address),
            printable(one.user) or "-",
            size(max(0, one.credit)),
        )
        for one in clients
    ]
    elsewhere = "a pipe gets all columns"
    return FittingTable(
        columns, _numbers(columns), rows, elsewhere, title="subscribers", cut={columns.index("stream")}, folded=NARROW
    )


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


def moment(when: datetime, *, to_the_second: bool) -> str:
    """Return a time in UTC: to the second where there is little room, as in a terminal, or to the millisecond.

    >>> moment(datetime(2026, 1, 31, 12, tzinfo=UTC), to_the_second=True)
    '2026-01-31 12:00:00Z'
    """
    return f"{when:%Y-%m-%d %H:%M:%S}Z" if to_the_second else when.isoformat(timespec="milliseconds")


def duration(seconds: float) -> str:
    """Return a time in its largest unit.

    >>> duration(7.4), duration(7200)
    ('7s', '2h')
    """
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"
