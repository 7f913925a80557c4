"""`zambezi top`: the state of a server in a terminal, which the command gets from the server's console.

A terminal shows one screen that changes and is never higher than the terminal: if not all rows fit, it shows the
busiest. A pipe, a file or a terminal with TERM=dumb gets one state after the other. If the server goes away, the
command waits until it is back.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from rich import box
from rich.live import Live
from rich.table import Table
from rich.text import Text

from zambezi.cli.counts import so_many
from zambezi.cli.notices import warn
from zambezi.cli.quantity import console_url, seconds
from zambezi.cli.stream_tables import held_reason, size
from zambezi.cli.surroundings import add_context_option, setting_of
from zambezi.cli.terminal import Console, say, table_console
from zambezi.errors import ZambeziError
from zambezi.wire.text import printable

if TYPE_CHECKING:
    import argparse

    from rich import console as rich_console
    from rich.console import ConsoleOptions, RenderResult

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

VARIABLE: Final = "ZAMBEZI_TOKEN"  # of the environment, which other users cannot see, unlike options
URL: Final = "http://127.0.0.1:8470"
PATIENCE: Final = 5.0
BARS: Final = "▁▂▃▄▅▆▇█"
KEPT: Final = 24  # values in a sparkline
FRAME: Final = 5  # lines of a table besides its rows: the title, the head, a rule, blank lines
_GEARS: Final = {"live": "green", "history": "yellow", "idle": "dim"}
Row: TypeAlias = "list[str | Text]"


class TopError(ZambeziError):
    """The console of the server does not answer as expected."""


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "top",
        description=(
            "Show the streams, subscribers, peers and topics of a server, and keep them up to date. Ctrl-C ends it. If "
            "the output is not a terminal, each state is printed below the last one. If the server goes away, the "
            "command waits until it is back."
        ),
    )
    parser.add_argument(
        "--console",
        metavar="URL",
        type=console_url,
        help=f"the URL of the console (default: $ZAMBEZI_CONSOLE, or that of the context, or {URL})",
    )
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help=f"the token of the console, if it has one (default: ${VARIABLE}, or that of the context)",
    )
    add_context_option(parser)
    parser.add_argument(
        "--interval", metavar="TIME", type=seconds, default=1.0, help="the time between updates (default: 1s)"
    )
    parser.add_argument("--once", action="store_true", help="show the state once, and end")
    parser.add_argument("--json", action="store_true", help="print each state as a line of JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    console = table_console()
    screen = Screen(is_whole=not console.is_terminal)
    url = arguments.console or setting_of(arguments, "console") or URL
    token = arguments.token if arguments.token is not None else setting_of(arguments, "token")
    look = Look(lambda: ask(url, token))
    state = look.first()
    if arguments.once:
        _say_state(state) if arguments.json else console.print(screen.draw(state))
        return 0
    try:
        if arguments.json:
            _print_json(look, arguments.interval)
        elif console.is_terminal and not console.is_dumb_terminal:
            _show(console, screen, look, arguments.interval)
        else:
            _print(console, screen, look, arguments.interval)
    except KeyboardInterrupt:
        return 0


def _show(console: Console, screen: Screen, look: Look, interval: float) -> NoReturn:
    first = screen.draw(look.state, console.height)
    with Live(first, console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
        while True:
            time.sleep(interval)
            look.again()
            live.update(screen.draw(look.state, console.height, look.trouble), refresh=True)


def _print(console: Console, screen: Screen, look: Look, interval: float) -> NoReturn:
    while True:
        console.print(Text(look.trouble) if look.trouble else screen.draw(look.state))
        console.file.flush()
        time.sleep(interval)
        look.again()


def _print_json(look: Look, interval: float) -> NoReturn:
    """Print states as JSON. While the server does not answer, standard error says so once, and nothing is printed."""
    told = ""
    while True:
        if not look.trouble:
            _say_state(look.state)
        elif look.trouble != told:
            warn(look.trouble)
        told = look.trouble
        time.sleep(interval)
        look.again()


def _say_state(state: dict[str, Any]) -> None:
    say(json.dumps(state))


class Look:
    """The last known state of a server, and the reason if it is not new."""

    def __init__(self, ask: Callable[[], dict[str, Any]]) -> None:
        self._ask = ask
        self.state: dict[str, Any] = {}
        self.trouble = ""

    def first(self) -> dict[str, Any]:
        """Get the first state. Raise `TopError` if the server does not answer."""
        self.state = self._ask()
        return self.state

    def again(self) -> None:
        """Get a new state, or note in `trouble` why the server does not answer."""
        try:
            self.state = self._ask()
            self.trouble = ""
        except TopError as error:
            self.trouble = str(error)


def ask(url: str, token: str) -> dict[str, Any]:
    """Get the state of a server from its console."""
    if not url.startswith(("http://", "https://")):
        raise TopError(f"{url} is not the URL of a console; use one such as {URL}")
    try:
        request = urllib.request.Request(f"{url.rstrip('/')}/api/state")  # noqa: S310 - http(s) only, see above
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
            state = json.load(answer)
    except urllib.error.HTTPError as error:
        advice = f"; give its token with --token or ${VARIABLE}" if error.code == 401 else ""
        raise TopError(f"the console at {url} answers {error.code} {error.reason}{advice}") from None
    except (http.client.BadStatusLine, json.JSONDecodeError, UnicodeDecodeError):
        raise TopError(f"what answers at {url} is no console, but perhaps the endpoint of another service") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise TopError(f"no console answers at {url}: {_text_of(reason)}; is zambezi serve running there?") from None
    if not isinstance(state, dict) or not {"process", "endpoints", "zeps", "zre", "mcollective"} <= state.keys():
        raise TopError(f"the server at {url} is not a console of Zambezi")
    return state


def _text_of(reason: object) -> str:
    return printable(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__)


@dataclass(frozen=True, slots=True)
class Section:
    """The data of a table: its rows, each with a number that says how busy it is.

    A column whose name ends in # is aligned to the right; the cells of one whose name ends in ~ can be cut.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[float, Row]]

    def table(self, most: int | None, *, is_whole: bool = False) -> Table:
        """Return the table with at most `most` rows: the busiest, in their order. A whole one has no cut cells."""
        rows, title = list(self.rows), self.title
        if most is not None and len(rows) > most:
            busiest = sorted(range(len(rows)), key=lambda index: -rows[index][0])[:most]
            rows, title = [rows[index] for index in sorted(busiest)], f"{title}: {most} of {len(rows):,}"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, expand=not is_whole)
        for name in self.columns:
            table.add_column(
                name.rstrip("#~"), justify="right" if name.endswith("#") else "left", no_wrap=not name.endswith("~")
            )
        for _, row in rows:
            # Cells that can be cut must not be wrapped.
            table.add_row(
                *[Text(cell, no_wrap=True, overflow="ellipsis") if isinstance(cell, str) else cell for cell in row]
            )
        return table


@dataclass(frozen=True, slots=True)
class Page:
    """A drawn state: an overview, the problems in full, and tables with the rows for which there is room."""

    overview: Text
    problems: Sequence[str]
    sections: Sequence[Section]
    height: int | None  # lines; None: no limit
    is_whole: bool

    def __rich_console__(self, console: rich_console.Console, options: ConsoleOptions) -> RenderResult:
        problems = self._problems(console, options.max_width)
        yield self.overview
        yield from problems
        yield ""
        if self.height is None:
            yield from (section.table(None, is_whole=self.is_whole) for section in self.sections)
            return
        left = self.height - len(self.overview.plain.splitlines()) - len(problems) - 1
        rows = shares([len(section.rows) for section in self.sections], left)
        yield from (section.table(most) for section, most in zip(self.sections, rows, strict=True) if most)

    def _problems(self, console: rich_console.Console, width: int) -> list[Text]:
        """Return the lines of the problems: at most a third of the height, but the first problem in any case."""
        found: list[Text] = []
        for number, problem in enumerate(self.problems):
            lines = [*Text(printable(problem), "red", overflow="fold").wrap(console, width)]
            for line in lines:
                line.rstrip()
            if found and self.height is not None and len(found) + len(lines) > self.height // 3:
                more = so_many(len(self.problems) - number, "more problem")
                return [*found, Text(f"and {more}: see /readyz", "red", no_wrap=True, overflow="ellipsis")]
            found += lines
        return found


class Screen:
    """The drawing of states; it remembers the values of sparklines. A whole one is as wide as its texts."""

    def __init__(self, *, is_whole: bool = False) -> None:
        self._is_whole = is_whole
        self._rates: dict[str, deque[float]] = {}

    def draw(self, state: dict[str, Any], height: int | None = None, trouble: str = "") -> Page:
        """Draw a state, at most `height` lines high. `trouble` says why the state is not new."""
        sections = [section for section in self._sections(state) if section.rows]
        problems = [*([trouble] if trouble else []), *_problems(state)]
        return Page(_overview(state), problems, sections, height, self._is_whole)

    def _sections(self, state: dict[str, Any]) -> Iterable[Section]:
        if state["zeps"] is not None:
            yield self._streams(state["zeps"]["streams"])
            yield _subscribers(state["zeps"]["clients"])
        if state["zre"] is not None:
            yield _peers(state["zre"]["peers"])
        if state["mcollective"] is not None:
            yield _topics(state["mcollective"]["topics"])

    def _streams(self, streams: Iterable[dict[str, Any]]) -> Section:
        rows: list[tuple[float, Row]] = []
        before, self._rates = self._rates, {}
        for one in streams:
            rates = self._rates[one["stream"]] = before.get(one["stream"]) or deque(maxlen=KEPT)
            rates.append(one["rate"])
            row: Row = [
                printable(one["stream"]),
                f"{max(0, one['last'] - one['first'] + 1):,}",
                size(one["octets"]),
                f"{one['rate']:,.0f}",
                Text(sparkline(rates), "cyan", no_wrap=True, overflow="crop"),
                str(one["subscribers"]),
                Text("held", "red") if one["held"] else printable(one["sync"]),
            ]
            rows.append((float("inf") if one["held"] else one["rate"], row))
        columns = ["stream~", "messages#", "size#", "per s#", "rate~", "readers#", "state~"]
        return Section("streams", columns, rows)


def shares(wanted: Sequence[int], lines: int) -> list[int]:
    """Share lines among tables: return how many rows each gets, equally many unless it wants fewer.

    >>> shares([40, 5, 0], 30), shares([3, 2], 60), shares([9, 9], 6)
    ([15, 5, 0], [3, 2], [1, 0])
    """
    left = lines
    given = [0] * len(wanted)
    for index, rows in enumerate(wanted):
        if rows and left > FRAME:  # a table without room for one row is not shown
            given[index], left = 1, left - FRAME - 1
    while left > 0 and any(0 < given[index] < rows for index, rows in enumerate(wanted)):
        for index, rows in enumerate(wanted):
            if left > 0 and 0 < given[index] < rows:
                given[index], left = given[index] + 1, left - 1
    return given


def _problems(state: dict[str, Any]) -> list[str]:
    """Return the problems of a server, and the reasons of held streams that are not among them."""
    problems: list[str] = [*state.get("problems", [])]
    for one in state["zeps"]["streams"] if state["zeps"] is not None else ():
        reason = held_reason(one["stream"], one["held"])
        if reason and not any(reason in problem for problem in problems):
            problems.append(f"stream {one['stream']}: {reason}")
    return problems


def _overview(state: dict[str, Any]) -> Text:
    process = state["process"]
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append(
        f"up {lasting(state['time'] - state['started'])}   memory {size(process['memory'])}   descriptors "
        f"{process['descriptors']}   loop lag {process['loop_lag'] * 1000:.1f} ms\n",
        "bold",
    )
    head.append(", ".join(map(printable, state["endpoints"])) or "no service runs")
    return head


def lasting(seconds: float) -> str:
    """Return a time in its two largest units.

    >>> lasting(59.9), lasting(3 * 3600 + 61), lasting(400 * 86400)
    ('59 s', '3 h 1 m', '400 d 0 h')
    """
    whole = max(0, int(seconds))
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} m"
    return f"{minutes} m {whole % 60} s" if minutes else f"{whole} s"


def _subscribers(clients: Iterable[dict[str, Any]]) -> Section:
    rows: list[tuple[float, Row]] = [
        (
            one["lag"],
            [
                str(one["client"]),
                printable(one["user"] or one["address"]) or "this process",
                printable(one["stream"]),
                ", ".join(printable(pattern) or "all" for pattern in one["patterns"]),
                Text(printable(one["gear"]), _GEARS.get(one["gear"], "")),
                f"{one['lag']:,}",
                f"{one['delivered']:,}",
            ],
        )
        for one in clients
        if "lag" in one
    ]
    return Section("subscribers", ["client#", "from~", "stream~", "pattern~", "gear", "lag#", "delivered#"], rows)


def _peers(peers: Iterable[dict[str, Any]]) -> Section:
    rows: list[tuple[float, Row]] = [
        (0.0, [printable(one["name"]), printable(", ".join(one["groups"])), printable(one["endpoint"])])
        for one in sorted(peers, key=lambda peer: (peer["name"], peer["uuid"]))
    ]
    return Section("mesh", ["node~", "groups~", "endpoint~"], rows)


def _topics(topics: Iterable[dict[str, Any]]) -> Section:
    rows: list[tuple[float, Row]] = [
        (
            one["messages"],
            [printable(one["topic"]), f"{one['subscribers']:,}", f"{one['messages']:,}", f"{one['deliveries']:,}"],
        )
        for one in topics
    ]
    return Section("topics", ["topic~", "subscribers#", "messages#", "deliveries#"], rows)


def sparkline(values: Iterable[float]) -> str:
    """Return numbers as a row of bars.

    >>> sparkline([0, 1, 2, 4])
    '▁▃▅█'
    """
    figures = list(values)
    most = max([*figures, 1e-9])
    return "".join(BARS[min(len(BARS) - 1, int(value / most * (len(BARS) - 1) + 0.5))] for value in figures)
