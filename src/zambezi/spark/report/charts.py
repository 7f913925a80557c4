"""Charts in SVG, from plain values: rates over time, a matrix, a distribution, and lines of time.

A chart shows what is known. A step without messages is zero, not a line between its neighbours; a time that was not
read, or in which messages are missing, is marked. A chart has a bounded size: it says how much it leaves out.

The colours are variables of the style sheet, so that a chart is right on a light and on a dark ground.

A chart also has its `data`: the values that it shows, as JSON values with a `kind`. The console draws the same chart
from them, for any width of a screen (`console/static/plots.js`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from zambezi.spark.report.markup import Markup, cut, element, joined, shortened
from zambezi.spark.report.scales import by_number, decade, moment, nice_top, short, span, time_marks

WIDTH: Final = 960
_LEFT: Final = 190  # for names
_RIGHT: Final = 120  # for numbers
_DATE: Final = 20  # a label nearer to the left end would touch the date
_STRIP: Final = 44  # the height of a series
_LINE: Final = 20  # the height of a line of time
_NAME: Final = 26  # characters of a name
MOST_SERIES: Final = 12
MOST_STEPS: Final = 400
MOST_LINES: Final = 60
MOST_BARS: Final = 2_000  # of one line of time
MOST_CELLS: Final = 40  # rows of a matrix
LONGEST_LABEL: Final = 200  # characters of a text in the data of a chart
_SLANTED: Final = 18  # characters of a name above a column
_NUMBERED: Final = 20  # rows of a matrix that has numbers in its cells

STYLE: Final = """
:root { --ground:#f6f7f9; --panel:#ffffff; --ink:#1c2530; --faint:#5d6b7a; --edge:#d9dfe6; --grid:#e8ecf1;
  --plot:#0f766e; --on-plot:#ffffff; --good:#15803d; --bad:#b91c1c; --warn:#b45309; color-scheme:light dark; }
@media (prefers-color-scheme: dark) { :root { --ground:#11161c; --panel:#19212a; --ink:#e4eaf0; --faint:#9aa8b6;
  --edge:#2d3945; --grid:#26313c; --plot:#2dd4bf; --on-plot:#06231f; --good:#4ade80; --bad:#f87171; --warn:#fbbf24; } }
svg { display:block; width:100%; height:auto; fill:var(--ink);
  font:12px system-ui,"Segoe UI","DejaVu Sans",sans-serif; }
svg .faint { fill:var(--faint); } svg .mark { stroke:var(--grid); } svg .base { stroke:var(--edge); }
svg .plot { fill:var(--plot); } svg .on-plot { fill:var(--on-plot); } svg .track { fill:var(--grid); }
svg .bad { fill:var(--bad); } svg .good { fill:var(--good); } svg .warn { fill:var(--warn); }
svg .framed { fill:none; stroke:var(--bad); stroke-width:2; } svg .unknown { fill:var(--warn); fill-opacity:.18; }
svg .limit { stroke:var(--ink); stroke-dasharray:3 3; }
"""


@dataclass(frozen=True, slots=True)
class Steps:
    """A regular division of time. `begin` is the start of the first step, in seconds since 1970."""

    begin: float
    length: float  # of a step
    count: int

    @property
    def end(self) -> float:
        """The end of the last step."""
        return self.begin + self.length * self.count

    def number(self, time: float) -> int | None:
        """Return the number of the step that contains a time; None if none does."""
        number = math.floor((time - self.begin) / self.length + 1e-6)
        return number if 0 <= number < self.count else None


def steps_between(begin: float, end: float, window: float, most: int = MOST_STEPS) -> Steps:
    """Return steps that cover a time: each is one window, or a whole number of windows if there would be too many.

    >>> steps_between(60, 300, 60)
    Steps(begin=60, length=60, count=5)
    >>> steps_between(0, 6000, 60, 10)
    Steps(begin=0, length=660, count=10)
    """
    windows = max(1, math.floor((end - begin) / window + 1e-6) + 1)
    each = -(-windows // most)
    return Steps(begin, window * each, -(-windows // each))


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a line of time, in seconds since 1970. `kind` is a class of the style sheet, `text` a remark."""

    begin: float
    end: float
    kind: str = "plot"
    text: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing, and what a reader must know to read it right."""

    svg: Markup
    notes: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)  # the values of the drawing; empty: nothing to draw

    def file(self) -> str:
        """Return the drawing as an SVG file of its own, with its colours."""
        style = Markup(f"<style>{STYLE} svg {{ background:var(--panel); }}</style>")
        return self.svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(">", f">{style}", 1)

    def _repr_svg_(self) -> str:
        """Return the drawing for a notebook."""
        return self.file()


def strips(
    series: Mapping[str, Mapping[int, float]],
    steps: Steps,
    unit: str = "messages/s",
    unknown: Iterable[int] = (),
    left_out: int = 0,
) -> Chart:
    """Draw one strip for each series, the largest first. Each has a scale of its own, from zero to its peak.

    `series` has values by the number of the step; a step without a value is zero. In steps that are `unknown`,
    messages are missing. `left_out` is the number of series that are not in `series`.
    """
    order = sorted(series, key=lambda name: (-sum(series[name].values()), name))
    shown, hidden = order[:MOST_SERIES], len(order[MOST_SERIES:]) + left_out
    if not shown:
        return nothing()
    bottom = 8 + _STRIP * len(shown)
    missing = sorted({number for number in unknown if 0 <= number < steps.count})
    parts = [_time_axis(steps.begin, steps.end, bottom)]
    parts += [_unknown(number, steps, bottom) for number in missing]
    parts += [_strip(name, series[name], steps, 8 + _STRIP * place, unit) for place, name in enumerate(shown)]
    notes = [f"each step is {span(steps.length)}; a step without messages is zero; each strip has a scale of its own"]
    if missing:
        notes.append("in the shaded steps, sequences are missing: the numbers there are too small")
    if hidden:
        notes.append(f"{hidden:,} smaller series are not drawn")
    data = {
        "kind": "strips",
        "begin": steps.begin,
        "length": steps.length,
        "count": steps.count,
        "unit": unit,
        "unknown": missing,
        "series": [{"name": _label(name), "values": _values(series[name], steps)} for name in shown],
    }
    return _chart(bottom + 24, parts, notes, data)


def _values(values: Mapping[int, float], steps: Steps) -> list[tuple[int, float]]:
    return [(number, values[number]) for number in sorted(values) if values[number] > 0 and 0 <= number < steps.count]


def _strip(name: str, values: Mapping[int, float], steps: Steps, top: float, unit: str) -> Markup:
    peak = max(values.values(), default=0.0)
    base = top + _STRIP - 8
    scale = (_STRIP - 14) / nice_top(peak)
    path, total = [], 0.0
    for number in sorted(values):
        value = values[number]
        if value > 0 and 0 <= number < steps.count:
            x = _x(steps.begin + number * steps.length, steps.begin, steps.end)
            path.append(f"M{x:.2f} {base:.2f}v{-value * scale:.2f}h{_step_width(steps):.2f}V{base:.2f}z")
            total += value
    busiest = max(values, key=lambda number: (values[number], -number)) if values else 0
    told = f"{name}: at most {short(peak)} {unit}, at {moment(steps.begin + busiest * steps.length)}"
    return joined(
        _name(name, base - 8),
        element("line", class_="base", x1=_LEFT, x2=WIDTH - _RIGHT, y1=base, y2=base),
        element("path", element("title", told), class_="plot", d=Markup("".join(path))),
        element("text", f"peak {short(peak)}", x=WIDTH - _RIGHT + 8, y=base - 14),
        element("text", unit, class_="faint", x=WIDTH - _RIGHT + 8, y=base),
    )


def _unknown(number: int, steps: Steps, bottom: float) -> Markup:
    x = _x(steps.begin + number * steps.length, steps.begin, steps.end)
    return element(
        "rect",
        element("title", "sequences are missing here"),
        class_="unknown",
        x=x,
        y=4,
        width=max(2.0, _step_width(steps)),
        height=bottom - 4,
    )


def _step_width(steps: Steps) -> float:
    return (WIDTH - _LEFT - _RIGHT) / steps.count


def timeline(
    lines: Sequence[tuple[str, Sequence[Bar], str]],
    begin: float,
    end: float,
    legend: Mapping[str, str],
    left_out: int = 0,
) -> Chart:
    """Draw a line of time for each name, in the given order. A line has its bars, and a text at its end.

    `legend` says what the kinds of bars mean. Where a line has no bar, nothing was heard.
    """
    shown, hidden = lines[:MOST_LINES], len(lines[MOST_LINES:]) + left_out
    if not shown:
        return nothing()
    if end <= begin:
        end = begin + 1.0
    bottom = 8 + _LINE * len(shown)
    parts = [_time_axis(begin, end, bottom)]
    cut_bars = 0
    for place, (name, bars, text) in enumerate(shown):
        top = 8 + _LINE * place
        parts.append(_name(name, top + 13))
        parts.append(
            element("rect", class_="track", x=_LEFT, y=top + 4, width=WIDTH - _LEFT - _RIGHT, height=_LINE - 9)
        )
        parts += [_bar(name, bar, begin, end, top) for bar in bars[:MOST_BARS] if bar.end >= begin and bar.begin <= end]
        parts.append(element("text", cut(text, 18), class_="faint", x=WIDTH - _RIGHT + 8, y=top + 13))
        cut_bars += len(bars[MOST_BARS:])
    parts.append(_legend(legend, bottom + 38))
    notes = [f"{hidden:,} more are not drawn"] if hidden else []
    if cut_bars:
        notes.append(f"{cut_bars:,} bars are not drawn")
    data = {
        "kind": "timeline",
        "begin": begin,
        "end": end,
        "legend": dict(legend),
        "lines": [
            {"name": _label(name), "text": text, "bars": [_as_data(bar, begin) for bar in bars[:MOST_BARS]]}
            for name, bars, text in shown
        ],
    }
    return _chart(bottom + 46, parts, notes, data)


def _as_data(bar: Bar, begin: float) -> tuple[float, float, str, str]:
    """Return a bar with the seconds since the beginning of the chart, which are short."""
    return round(bar.begin - begin, 3), round(bar.end - begin, 3), bar.kind, cut(bar.text, LONGEST_LABEL)


def _bar(name: str, bar: Bar, begin: float, end: float, top: float) -> Markup:
    left, right = _x(max(bar.begin, begin), begin, end), _x(min(bar.end, end), begin, end)
    return element(
        "rect",
        element("title", ": ".join(filter(None, (name, f"{moment(bar.begin)} to {moment(bar.end)}", bar.text)))),
        class_=bar.kind,
        x=left,
        y=top + 4,
        width=max(1.5, right - left),
        height=_LINE - 9,
    )


def _legend(kinds: Mapping[str, str], y: float) -> Markup:
    parts, x = [], float(_LEFT)
    for kind, meaning in kinds.items():
        parts.append(element("rect", class_=kind, x=x, y=y - 9, width=10, height=10))
        parts.append(element("text", meaning, class_="faint", x=x + 15, y=y))
        x += 40 + 6.6 * len(meaning)
    return joined(*parts)


def distribution(bins: Mapping[int, int], per_decade: int, marks: Mapping[str, float], unit: str = "messages") -> Chart:
    """Draw how often times occur, with an axis that has a decade for each factor of ten.

    `bins` has a count for each bin; bin `n` begins at 10 ** (n / per_decade) seconds. `marks` are times in seconds with
    names, such as the median.
    """
    counts = {number: count for number, count in bins.items() if count > 0}
    if not counts:
        return nothing()
    first = math.floor(min(counts) / per_decade) * per_decade
    last = math.ceil((max(counts) + 1) / per_decade) * per_decade
    left, right, top, base = 60, WIDTH - 50, 62, 210
    top_count = nice_top(max(counts.values()))

    def at(exponent: float) -> float:
        return left + (exponent - first) / (last - first) * (right - left)

    parts = []
    for share in (0.0, 0.5, 1.0):
        y = base - share * (base - top)
        parts.append(element("line", class_="base" if share == 0 else "mark", x1=left, x2=right, y1=y, y2=y))
        parts.append(element("text", short(share * top_count), class_="faint", x=left - 8, y=y + 4, text_anchor="end"))
    decades = range(first // per_decade, last // per_decade + 1)
    every = -(-len(decades) // 10)
    for exponent in decades[::every]:
        x = at(exponent * per_decade)
        parts.append(element("line", class_="mark", x1=x, x2=x, y1=top, y2=base))
        parts.append(element("text", decade(exponent), class_="faint", x=x, y=base + 16, text_anchor="middle"))
    for number, count in sorted(counts.items()):
        height = count / top_count * (base - top)
        told = f"{span(10 ** (number / per_decade))} to {span(10 ** ((number + 1) / per_decade))}: {count:,} {unit}"
        width = at(number + 1) - at(number)
        parts.append(
            element(
                "rect",
                element("title", told),
                class_="plot",
                x=at(number),
                y=base - height,
                width=max(0.8, width - 1),
                height=height,
            )
        )
    for place, (name, value) in enumerate(sorted(marks.items(), key=lambda one: one[1])):
        x = min(max(at(math.log10(max(value, 1e-9)) * per_decade), left), right)
        y = 12 + 13 * (place % 4)
        anchor = "end" if x > right - 100 else "start"
        parts.append(element("line", class_="limit", x1=x, x2=x, y1=y - 8, y2=base))
        shift = -5 if anchor == "end" else 5
        parts.append(element("text", f"{name} {span(value)}", x=x + shift, y=y, text_anchor=anchor))
    data = {
        "kind": "distribution",
        "per_decade": per_decade,
        "unit": unit,
        "marks": dict(marks),
        "bins": sorted(counts.items()),
    }
    return _chart(base + 24, parts, [f"{sum(counts.values()):,} {unit}; a decade has {per_decade} bars"], data)


def matrix(
    cells: Mapping[tuple[str, str], float],
    rows: str,
    columns: str,
    marked: Iterable[tuple[str, str]] = (),
    marked_note: str = "",
    labels: Mapping[str, str] | None = None,
    unit: str = "messages",
) -> Chart:
    """Draw values by row and column: the stronger the colour, the more. Names are those of `labels`, or the rows' own.

    `marked` cells have a frame, and `marked_note` says why. If there are many names, those with the smallest sums are
    not drawn.
    """
    names = labels or {}
    down, across = _largest(cells, 0, names), _largest(cells, 1, names)
    if not down:
        return nothing()
    shown = {pair: value for pair, value in cells.items() if pair[0] in down and pair[1] in across and value > 0}
    most = max(shown.values(), default=1.0)
    size = max(16.0, min(44.0, (WIDTH - _LEFT - 40) / len(across)))
    top = 30 + 4.9 * max(len(shortened(names.get(name, name), _SLANTED)) for name in across)
    parts = [
        element("text", f"{rows} ↓ {columns} →", class_="faint", x=_LEFT - 10, y=top - 8, text_anchor="end"),
        element("rect", class_="track", x=_LEFT, y=top, width=size * len(across), height=size * len(down)),
    ]
    parts += [_name(names.get(name, name), top + (place + 0.5) * size + 4) for name, place in down.items()]
    parts += [_slanted(names.get(name, name), _LEFT + (place + 0.5) * size, top - 6) for name, place in across.items()]
    for (row, column), value in sorted(shown.items()):
        told = f"{names.get(row, row)} to {names.get(column, column)}: {value:,.0f} {unit}"
        number = short(value) if len(across) <= _NUMBERED else ""
        parts.append(_cell(_LEFT + across[column] * size, top + down[row] * size, size, value / most, told, number))
    framed = [pair for pair in sorted(set(marked)) if pair[0] in down and pair[1] in across]
    parts += [
        element(
            "rect",
            class_="framed",
            x=_LEFT + across[column] * size + 1,
            y=top + down[row] * size + 1,
            width=size - 2,
            height=size - 2,
        )
        for row, column in framed
    ]
    notes = [
        f"the strongest colour is {short(most)} {unit.removesuffix('s') if most == 1 else unit}; an empty cell has none"
    ]
    if framed:
        notes.append(f"framed: {marked_note}")
    hidden = [len({pair[side] for pair in cells}) - len(kept) for side, kept in enumerate((down, across))]
    if any(hidden):
        notes.append(f"{hidden[0]:,} rows and {hidden[1]:,} columns with fewer {unit} are not drawn")
    data = {
        "kind": "matrix",
        "down": rows,
        "across": columns,
        "unit": unit,
        "rows": [_label(names.get(name, name)) for name in down],
        "columns": [_label(names.get(name, name)) for name in across],
        "cells": [(down[row], across[column], value) for (row, column), value in sorted(shown.items())],
        "marked": [(down[row], across[column]) for row, column in framed],
    }
    return _chart(top + size * len(down) + 10, parts, notes, data)


def _largest(cells: Mapping[tuple[str, str], float], side: int, names: Mapping[str, str]) -> dict[str, int]:
    """Return the names with the largest sums of one side, in the order of their labels, with their places."""
    sums: dict[str, float] = {}
    for pair, value in cells.items():
        sums[pair[side]] = sums.get(pair[side], 0.0) + value
    kept = sorted(sums, key=lambda name: (-sums[name], name))[:MOST_CELLS]
    in_order = sorted(kept, key=lambda name: (by_number(names.get(name, name)), name))
    return {name: place for place, name in enumerate(in_order)}


def _cell(x: float, y: float, size: float, share: float, told: str, number: str) -> Markup:
    opacity = 0.12 + 0.88 * share
    box = element(
        "rect",
        element("title", told),
        class_="plot",
        fill_opacity=opacity,
        x=x + 0.5,
        y=y + 0.5,
        width=size - 1,
        height=size - 1,
    )
    if not number:
        return box
    kind = "on-plot" if opacity > 0.6 else None
    return joined(box, element("text", number, class_=kind, x=x + size / 2, y=y + size / 2 + 4, text_anchor="middle"))


def nothing() -> Chart:
    """Draw that there is nothing to draw."""
    return _chart(40, [element("text", "nothing to draw", class_="faint", x=16, y=24)], [])


def _slanted(text: str, x: float, y: float) -> Markup:
    return element(
        "text",
        element("title", text),
        shortened(text, _SLANTED),
        transform=Markup(f"translate({x:.1f} {y:.1f}) rotate(-45)"),
    )


def _name(text: str, y: float) -> Markup:
    return element(
        "text",
        element("title", text or "(empty)"),
        shortened(text, _NAME) or "(empty)",
        x=_LEFT - 10,
        y=y,
        text_anchor="end",
    )


def _x(time: float, begin: float, end: float) -> float:
    return _LEFT + (time - begin) / (end - begin) * (WIDTH - _LEFT - _RIGHT)


def _time_axis(begin: float, end: float, bottom: float) -> Markup:
    parts = []
    for time, label in time_marks(begin, end):
        x = _x(time, begin, end)
        parts.append(element("line", class_="mark", x1=x, x2=x, y1=4, y2=bottom))
        anchor = "start" if x - _LEFT < _DATE else "middle"
        parts.append(element("text", label, class_="faint", x=x, y=bottom + 15, text_anchor=anchor))
    day = moment(begin)[:10]
    parts.append(element("text", f"{day} UTC", class_="faint", x=_LEFT - 10, y=bottom + 15, text_anchor="end"))
    return joined(*parts)


def _label(text: str) -> str:
    return cut(text, LONGEST_LABEL) or "(empty)"


def _chart(
    height: float, parts: Sequence[Markup], notes: Sequence[str], data: Mapping[str, Any] | None = None
) -> Chart:
    return Chart(element("svg", *parts, viewBox=f"0 0 {WIDTH} {height:.0f}", role="img"), tuple(notes), data or {})
