"""Plots of results: the rates of streams over time, and the messages between nodes. Needs the extra `zambezi[plots]`.

Each function takes rows of a pipeline's tables, and returns a figure of matplotlib. `save` writes it to a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib import dates
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK: Final = "#334155"
FAINT: Final = "#e2e8f0"
COLOURS: Final = ("#0f766e", "#b45309", "#6d28d9", "#be123c", "#1d4ed8", "#4d7c0f", "#0e7490", "#a21caf")
_MAX_LABELLED: Final = 24  # nodes; with more, the numbers in the cells would be too small to read


def rates(rows: Iterable[Mapping[str, Any]], title: str = "Messages per second", window: float | None = None) -> Figure:
    """Plot the rate of each stream over time. `rows` have `start`, `stream` and `per_s`, as in `traffic.rates`.

    `window` is the length of a window in seconds; without it, the shortest time between two windows is taken.
    """
    series: dict[str, dict[datetime, float]] = {}
    for row in rows:
        start: datetime = row["start"]
        series.setdefault(row["stream"], {})[start.astimezone(UTC)] = float(row["per_s"])
    starts = sorted({start for points in series.values() for start in points})
    length = timedelta(seconds=window) if window else _window(starts)
    figure = Figure(figsize=(9, 3.6), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for number, (stream, points) in enumerate(sorted(series.items())):
        moments, values = steps(points, length, starts[0], starts[-1] + length)
        times = np.array([moment.replace(tzinfo=None) for moment in moments], "datetime64[us]")
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(times, values, color=colour, linewidth=1.8, label=stream, drawstyle="steps-post")
        axes.fill_between(times, values, color=colour, alpha=0.10, linewidth=0, step="post")
    _plain(axes, title)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    axes.grid(axis="y", color=FAINT)
    locator = dates.AutoDateLocator(minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    is_long = len(starts) > 1 and (starts[-1] - starts[0]).days >= 2
    axes.xaxis.set_major_formatter(dates.DateFormatter("%m-%d %H:%M" if is_long else "%H:%M:%S"))  # type: ignore[no-untyped-call]
    axes.set_xlabel("UTC", color=INK, fontsize=8, loc="right")
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    if series:
        axes.legend(
            loc="lower right",
            bbox_to_anchor=(1, 1),
            frameon=False,
            labelcolor=INK,
            fontsize=9,
            ncols=min(4, len(series)),
        )
    return figure


def steps(
    points: Mapping[datetime, float], window: timedelta, begin: datetime, end: datetime
) -> tuple[list[datetime], list[float]]:
    """Return the times at which a rate changes, and the rates from there on.

    A window that is not in `points` had no messages: its rate is zero. So a burst is as long as its windows, with zero
    before and after it.
    """
    moments, values = [begin], [points.get(begin, 0.0)]
    for start, value in sorted(points.items()):
        if start > moments[-1]:
            moments.append(start)
            values.append(value)
        if start + window not in points and start + window < end:
            moments.append(start + window)
            values.append(0.0)
    return [*moments, end], [*values, values[-1]]


def _window(starts: Sequence[datetime]) -> timedelta:
    """Return the shortest time between two windows; a minute if there is only one."""
    return min((later - earlier for earlier, later in pairwise(starts)), default=timedelta(minutes=1))


def talk_matrix(
    rows: Iterable[Mapping[str, Any]],
    names: Mapping[str, str] | None = None,
    title: str = "Who talks to whom",
) -> Figure:
    """Plot the messages by sender and receiver.

    `rows` have `sender`, `receiver`, `whispers_received` and `shouts_received`, as in `network_health.talk`. `names`
    are the names of hashes. Pairs that lost whispers have a red frame.
    """
    counts: dict[tuple[str, str], int] = {}
    lossy: set[tuple[str, str]] = set()
    for row in rows:
        pair = row["sender"], row["receiver"]
        counts[pair] = int(row["whispers_received"]) + int(row["shouts_received"])
        if row["missing"]:
            lossy.add(pair)
    name_of = names or {}
    nodes = sorted({node for pair in counts for node in pair}, key=lambda node: (name_of.get(node, node), node))
    index = {node: number for number, node in enumerate(nodes)}
    matrix = np.full((len(nodes), len(nodes)), np.nan)
    for (sender, receiver), count in counts.items():
        matrix[index[sender], index[receiver]] = count or np.nan
    if not nodes:
        return _empty(title)
    side = max(3.6, 0.45 * len(nodes) + 2.0)
    figure = Figure(figsize=(side + 0.3, side), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    most = float(np.nanmax(matrix)) if np.isfinite(matrix).any() else 1.0
    image = axes.imshow(matrix, cmap="YlGnBu", vmin=0, vmax=most)
    labels = [name_of.get(node, node) for node in nodes]
    axes.set_xticks(range(len(nodes)), labels, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(nodes)), labels)
    note = "\nmessages received; red frame: whispers are missing" if lossy else "\nmessages received"
    axes.set_xlabel(f"receiver{note}", color=INK, fontsize=9)
    axes.set_ylabel("sender", color=INK, fontsize=9)
    if len(nodes) <= _MAX_LABELLED:
        for (row_number, column_number), value in np.ndenumerate(matrix):
            if np.isfinite(value):
                colour = "white" if value > 0.55 * most else INK
                axes.text(
                    column_number, row_number, f"{value:,.0f}", ha="center", va="center", color=colour, fontsize=7
                )
    for sender, receiver in lossy:
        x, y = index[receiver] - 0.5, index[sender] - 0.5
        axes.plot([x, x + 1, x + 1, x, x], [y, y, y + 1, y + 1, y], color="#be123c", linewidth=1.6)
    _plain(axes, title)
    axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, colors=INK, labelsize=8)
    bar.ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return figure


def save(figure: Figure, path: Path | str) -> Path:
    """Write a figure as PNG, and return the path."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor="white", bbox_inches="tight", pad_inches=0.15)
    return Path(path)


def _empty(title: str) -> Figure:
    """Return a figure that says that there are no messages."""
    figure = Figure(figsize=(4, 2), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.text(0.5, 0.5, "no messages", ha="center", va="center", color=INK)
    axes.set_axis_off()
    _plain(axes, title)
    return figure


def _plain(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold")
    axes.tick_params(colors=INK, labelsize=8)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(FAINT)
