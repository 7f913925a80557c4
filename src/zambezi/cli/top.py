"""`zambezi top`: a server at work, in a terminal. It shows what the console shows, and asks the console for it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from zambezi.cli.quantity import seconds
from zambezi.cli.streams import size
from zambezi.cli.terminal import shown
from zambezi.errors import ZambeziError

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

URL: Final = "http://127.0.0.1:8470"
PATIENCE: Final = 5.0
BARS: Final = "▁▂▃▄▅▆▇█"
KEPT: Final = 24  # figures in a sparkline
_GEARS: Final = {"live": "green", "history": "yellow", "idle": "dim"}


class TopError(ZambeziError):
    """The console of the server does not answer as it should."""


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "top",
        help="watch a server at work, in the terminal",
        description="Show streams, subscribers, peers and topics of a server, as they change. Ctrl-C ends it.",
    )
    parser.add_argument("--console", metavar="URL", default=URL, help=f"the server's console (default: {URL})")
    parser.add_argument("--token", metavar="TOKEN", default="", help="the console's token, if it has one")
    parser.add_argument("--interval", metavar="TIME", type=seconds, default=1.0, help="how often (default: 1s)")
    parser.add_argument("--once", action="store_true", help="show it once, and end")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    screen = Screen()
    console = Console()
    first = screen.draw(ask(arguments.console, arguments.token))
    if arguments.once:
        console.print(first)
        return 0
    try:
        with Live(first, console=console, auto_refresh=False, screen=console.is_terminal) as live:
            while True:
                time.sleep(arguments.interval)
                live.update(screen.draw(ask(arguments.console, arguments.token)), refresh=True)
    except KeyboardInterrupt:
        return 0


def ask(url: str, token: str) -> dict[str, Any]:
    """The state of a server, by its console."""
    if not url.startswith(("http://", "https://")):
        raise TopError(f"{url} is no address of a console; write one such as {URL}")
    request = urllib.request.Request(f"{url.rstrip('/')}/api/state")  # noqa: S310 - http(s) only, see above
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
            state = json.load(answer)
    except urllib.error.HTTPError as error:
        advice = "; say --token" if error.code == 401 else ""
        raise TopError(f"the console at {url} answers {error.code} {error.reason}{advice}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise TopError(f"there is no console at {url}: {reason}; is zambezi serve running there?") from None
    if not isinstance(state, dict) or "process" not in state:
        raise TopError(f"what answers at {url} is no console of Zambezi")
    return state


class Screen:
    """Draws states, and remembers what sparklines need."""

    def __init__(self) -> None:
        self._rates: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))

    def draw(self, state: dict[str, Any]) -> Group:
        parts: list[Table | Text] = [_overview(state)]
        if state["zeps"] is not None:
            parts += [self._streams(state), _subscribers(state["zeps"]["clients"])]
        if state["zre"] is not None and state["zre"]["peers"]:
            parts.append(_peers(state["zre"]["peers"]))
        if state["mcollective"] is not None and state["mcollective"]["topics"]:
            parts.append(_topics(state["mcollective"]["topics"]))
        return Group(*parts)

    def _streams(self, state: dict[str, Any]) -> Table:
        table = _table("streams", ["stream", "messages#", "size#", "per s#", "rate", "readers#", "state"])
        for one in state["zeps"]["streams"]:
            rates = self._rates[one["stream"]]
            rates.append(one["rate"])
            table.add_row(
                shown(one["stream"]),
                f"{max(0, one['last'] - one['first'] + 1):,}",
                size(one["octets"]),
                f"{one['rate']:,.0f}",
                Text(sparkline(rates), "cyan"),
                str(one["subscribers"]),
                Text(shown(one["held"]), "red") if one["held"] else one["sync"],
            )
        return table


def _overview(state: dict[str, Any]) -> Text:
    process = state["process"]
    up = state["time"] - state["started"]
    services = ", ".join(state["endpoints"]) or "nothing"
    return Text(
        f"up {up:,.0f} s   {services}   memory {size(process['memory'])}   descriptors {process['descriptors']}   "
        f"loop lag {process['loop_lag'] * 1000:.1f} ms\n",
        "bold",
    )


def _subscribers(clients: Iterable[dict[str, Any]]) -> Table:
    table = _table("subscribers", ["client#", "from", "stream", "pattern", "gear", "lag#", "delivered#"])
    for one in clients:
        if "lag" in one:
            table.add_row(
                str(one["client"]),
                shown(one["user"] or one["address"]) or "this process",
                shown(one["stream"]),
                ", ".join(shown(pattern) or "all" for pattern in one["patterns"]),
                Text(one["gear"], _GEARS.get(one["gear"], "")),
                f"{one['lag']:,}",
                f"{one['delivered']:,}",
            )
    return table


def _peers(peers: Iterable[dict[str, Any]]) -> Table:
    table = _table("mesh", ["node", "groups", "endpoint"])
    for one in sorted(peers, key=lambda peer: (peer["name"], peer["uuid"])):
        table.add_row(shown(one["name"]), shown(", ".join(one["groups"])), shown(one["endpoint"]))
    return table


def _topics(topics: Iterable[dict[str, Any]]) -> Table:
    table = _table("topics", ["topic", "subscribers#", "messages#", "deliveries#"])
    for one in topics:
        row = [shown(one["topic"]), f"{len(one['subscribers']):,}", f"{one['messages']:,}", f"{one['deliveries']:,}"]
        table.add_row(*row)
    return table


def _table(title: str, columns: Iterable[str]) -> Table:
    """A table; columns whose names end in # are right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, expand=True)
    for name in columns:
        table.add_column(name.removesuffix("#"), justify="right" if name.endswith("#") else "left", no_wrap=True)
    return table


def sparkline(values: Iterable[float]) -> str:
    """Figures as a row of bars.

    >>> sparkline([0, 1, 2, 4])
    '▁▃▅█'
    """
    figures = list(values)
    most = max([*figures, 1e-9])
    return "".join(BARS[min(len(BARS) - 1, int(value / most * (len(BARS) - 1) + 0.5))] for value in figures)
