"""A report as one HTML file. It needs no other file and no network, runs no program, and follows the light or dark
setting of its reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zambezi.spark.report.charts import STYLE, Chart
from zambezi.spark.report.markup import Markup, element, escaped, joined

MOST_ROWS: Final = 100  # of a table on the page
_LONG: Final = 28  # characters; a longer cell is wrapped
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = (
    STYLE
    + """
* { box-sizing:border-box; }
body { margin:0; background:var(--ground); color:var(--ink);
  font:14px/1.5 system-ui,"Segoe UI","DejaVu Sans",sans-serif; }
main { max-width:1040px; margin:0 auto; padding:24px 20px 64px; }
h1 { font-size:22px; margin:0 0 2px; } h2 { font-size:16px; margin:0 0 10px; }
.about, .notes { color:var(--faint); margin:4px 0 0; } .about { overflow-wrap:anywhere; }
.verdict, section { background:var(--panel); border:1px solid var(--edge); border-radius:8px; padding:16px 18px;
  margin:18px 0 0; }
.verdict { border-left:6px solid var(--faint); } .verdict.good { border-left-color:var(--good); }
.verdict.bad { border-left-color:var(--bad); }
.verdict strong { font-size:17px; }
.verdict.good strong { color:var(--good); } .verdict.bad strong { color:var(--bad); }
.verdict ul { margin:6px 0 0; padding-left:20px; overflow-wrap:anywhere; }
.drawn { overflow-x:auto; } .drawn svg { min-width:720px; }  /* a phone scrolls: smaller texts cannot be read */
@media (max-width:760px) {
  .drawn::before { content:"wider than this screen: scroll to the right"; color:var(--faint); } }
.wide { overflow:auto; max-height:480px; } thead th { position:sticky; top:0; background:var(--panel); }
table { border-collapse:collapse; font-size:13px; font-variant-numeric:tabular-nums; }
th { text-align:left; color:var(--faint); font-weight:600; border-bottom:1px solid var(--edge); vertical-align:bottom; }
th, td { padding:4px 18px 4px 0; } td { border-bottom:1px solid var(--grid); vertical-align:top; white-space:nowrap; }
td.long { white-space:normal; overflow-wrap:anywhere; min-width:220px; } .number { text-align:right; }
@media print { .wide { max-height:none; } section { break-inside:avoid; } body { background:none; } }
"""
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its title, and notes in addition to those of the chart."""

    title: str
    chart: Chart
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts and numbers. `more` says that there are further rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    numbers: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    more: bool = False
    where: str = ""  # the file that has more rows


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of a pipeline: whether all is well, and the reasons if it is not; None if nothing was judged."""

    healthy: bool | None
    reasons: tuple[str, ...] = ()


def page(
    title: str,
    about: Mapping[str, str],
    judgement: Judgement,
    figures: Sequence[Figure],
    tables: Sequence[Table],
) -> str:
    """Return a report: the verdict first, then the charts and the tables. `about` says what was read, and when."""
    told = Markup(" · ").join(escaped(f"{name}: {value}", 1000) for name, value in about.items())
    body = joined(
        element("h1", title),
        element("p", Markup(told), class_="about"),
        _verdict(judgement),
        *[_figure(one) for one in figures],
        *[_table(one) for one in tables],
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{element('title', title)}<style>{_STYLE}</style></head>\n<body><main>{body}</main></body></html>\n"
    )


def _verdict(judgement: Judgement) -> Markup:
    words = {True: "healthy: yes", False: "healthy: no", None: "no verdict"}[judgement.healthy]
    kind = {True: "verdict good", False: "verdict bad", None: "verdict"}[judgement.healthy]
    reasons = [element("li", escaped(one, 1000)) for one in judgement.reasons]
    return element("div", element("strong", words), element("ul", *reasons) if reasons else Markup(), class_=kind)


def _figure(figure: Figure) -> Markup:
    notes = _notes((*figure.chart.notes, *figure.notes))
    return element("section", element("h2", figure.title), element("div", figure.chart.svg, class_="drawn"), notes)


def _table(table: Table) -> Markup:
    rows = table.rows[:MOST_ROWS]
    notes = [*table.notes]
    left = len(table.rows) - len(rows)
    if left or table.more:
        known = f"{left:,} more rows" if not table.more else f"at least {left + 1:,} more rows"
        notes.append(f"the first {len(rows):,} rows; {known}{f' in {table.where}' if table.where else ''}")
    head = element("tr", *[element("th", name.replace("_", " "), class_=_class(name, table)) for name in table.columns])
    body = [
        element("tr", *[_cell(cell, _class(name, table)) for name, cell in zip(table.columns, row, strict=True)])
        for row in rows
    ]
    shown = (
        element("div", element("table", element("thead", head), element("tbody", *body)), class_="wide")
        if rows
        else element("p", "none", class_="notes")
    )
    return element("section", element("h2", table.title), shown, _notes(notes))


def _class(name: str, table: Table) -> str | None:
    return "number" if name in table.numbers else None


def _cell(value: Any, kind: str | None) -> Markup:
    text = shown(value)
    return element("td", text, class_="long" if len(text) > _LONG else kind)


def shown(value: Any) -> str:
    """Return a cell for people.

    >>> shown(None), shown(True), shown(1234567), shown(0.5), shown("a")
    ('-', 'yes', '1,234,567', '0.5', 'a')
    """
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return str(value)


def _notes(notes: Sequence[str]) -> Markup:
    return element("p", escaped("; ".join(notes), 2000), class_="notes") if notes else Markup()
