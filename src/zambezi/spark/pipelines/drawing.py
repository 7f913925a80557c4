"""Charts of the tables of pipelines: Spark computes the few values that a chart shows, however large the table is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from zambezi.spark.pipelines.pipeline import Settings
from zambezi.spark.report.charts import (
    MOST_BARS,
    MOST_LINES,
    MOST_SERIES,
    Bar,
    Steps,
    distribution,
    matrix,
    nothing,
    steps_between,
    strips,
    timeline,
)
from zambezi.spark.report.markup import cut
from zambezi.spark.report.page import Figure
from zambezi.spark.report.scales import moment, span

PER_DECADE: Final = 8  # bars of a distribution
SHORTEST: Final = 1e-6  # seconds; a distribution only counts shorter times
_MOST_NODES: Final = 200  # of a matrix that is collected; the chart shows fewer
_MARKS: Final = {"median": 0.5, "p95": 0.95, "p99": 0.99}


def rate_figure(title: str, counts: DataFrame, settings: Settings, gaps: DataFrame | None = None) -> Figure:
    """Draw messages per second over time, from `start` of a window, `label` and `messages`.

    `gaps` has the `start` of windows in which messages are missing.
    """
    ends = counts.agg(sql.unix_micros(sql.min("start")), sql.unix_micros(sql.max("start"))).first()
    if ends is None or ends[0] is None:
        return Figure(title, nothing())
    begin, newest = ends[0] / 1e6, ends[1] / 1e6
    end, note = _end(begin, newest, settings)
    steps = steps_between(begin, end, settings.window)
    totals = counts.groupBy("label").agg(sql.sum("messages").alias("total"))
    largest = totals.orderBy(sql.desc("total"), "label").limit(MOST_SERIES)
    number = _step(steps).alias("step")
    rows = (
        counts.join(sql.broadcast(largest.select("label")), "label")
        .groupBy("label", number)
        .agg(sql.sum("messages").alias("messages"))
        .collect()
    )
    series: dict[str, dict[int, float]] = {}
    for label, step, messages in rows:
        series.setdefault(label or "", {})[int(step)] = messages / steps.length
    missing = [] if gaps is None else [int(row[0]) for row in gaps.select(number).distinct().collect()]
    hidden = totals.count() - len(series)
    return Figure(title, strips(series, steps, unknown=missing, left_out=hidden), note)


def _step(steps: Steps) -> Column:
    length, begin = round(steps.length * 1e6), round(steps.begin * 1e6)
    return sql.floor((sql.unix_micros("start") - begin) / sql.lit(length))


def _end(begin: float, newest: float, settings: Settings) -> tuple[float, tuple[str, ...]]:
    """Return where a chart ends, and a note: at the time of reading, unless the silence before is far too long."""
    silence = settings.read_up_to - newest
    if silence <= settings.window:
        return newest, ()
    if silence <= max(newest - begin, 10 * settings.window):
        return settings.read_up_to, ()
    return newest, (f"the newest message is of {moment(newest)}, {span(silence)} before the streams were read",)


def distribution_figure(title: str, times: DataFrame, unit: str) -> Figure:
    """Draw how often times occur, from a column `seconds`."""
    known = times.where("seconds is not null")
    number = sql.floor(sql.log10("seconds") * PER_DECADE + 1e-9)
    long = known.where(sql.col("seconds") >= SHORTEST)
    bins = {int(row[0]): int(row[1]) for row in long.groupBy(number).count().collect()}
    shares = sql.percentile_approx("seconds", sql.array(*map(sql.lit, _MARKS.values())), 10_000)
    row = known.agg(shares, sql.max("seconds"), sql.sum((sql.col("seconds") < SHORTEST).cast("long"))).first()
    assert row is not None
    if not bins:
        return Figure(title, nothing(), (f"all {row[2]:,} {unit} are shorter than {span(SHORTEST)}",) if row[2] else ())
    marks = dict(zip(_MARKS, row[0], strict=True)) | {"longest": row[1]}
    notes = (f"{row[2]:,} more {unit} are shorter than {span(SHORTEST)} and not drawn",) if row[2] else ()
    return Figure(
        title, distribution(bins, PER_DECADE, {name: float(value) for name, value in marks.items()}, unit), notes
    )


def timeline_figure(title: str, bars: DataFrame, legend: Mapping[str, str], settings: Settings, of: int = 0) -> Figure:
    """Draw a line of time for each `label`, from bars with `began`, `ended`, `kind` and `text`.

    The first line is the one whose last sign of life is the oldest: bars of the kind "bad" are none. So a large
    installation shows its silent nodes. `of` is the number of all lines, if `bars` has only some of them.
    """
    ends = bars.agg(sql.unix_micros(sql.min("began")), sql.unix_micros(sql.max("ended"))).first()
    if ends is None or ends[0] is None:
        return Figure(title, nothing())
    begin, newest = ends[0] / 1e6, ends[1] / 1e6
    end, note = _end(begin, newest, settings)
    most = MOST_LINES * MOST_BARS // 4
    alive = sql.unix_micros(sql.max(sql.when(sql.col("kind") != "bad", sql.col("ended"))))
    silent = bars.groupBy(sql.coalesce("label", sql.lit("")).alias("label")).agg(alive.alias("alive"))
    shown = {
        row[0]: row[1] for row in silent.orderBy(sql.asc_nulls_first("alive"), "label").limit(MOST_LINES).collect()
    }
    found = (
        bars.select(sql.coalesce("label", sql.lit("")).alias("label"), "began", "ended", "kind", "text")
        .where(sql.col("label").isin(list(shown)))
        .select("label", sql.unix_micros("began"), sql.unix_micros("ended"), "kind", "text")
        .orderBy("label", "began")
        .limit(most + 1)
        .collect()
    )
    lines: dict[str, list[Bar]] = {label: [] for label in shown}
    for label, began, ended, kind, text in found[:most]:
        lines[label].append(Bar(began / 1e6, ended / 1e6, kind, text or ""))
    drawn = [
        (label, _joined(some, (end - begin) / 1000), _silence(shown[label], end, settings))
        for label, some in lines.items()
    ]
    notes = (*note, "the line that was silent longest is the first one")
    if len(found) > most:
        notes = (*notes, f"only the first {most:,} bars were read")
    return Figure(title, timeline(drawn, begin, end, legend, max(0, of - len(drawn))), notes)


def _silence(alive: int | None, end: float, settings: Settings) -> str:
    """Return how long a line was silent at the end of its chart, if it was."""
    if alive is None:
        return "never heard"
    silence = end - alive / 1e6
    return f"silent {span(silence)}" if silence > settings.window else ""


def _joined(bars: list[Bar], shortest: float) -> list[Bar]:
    """Join bars of one kind if the space between them is too small to be seen."""
    joined: list[Bar] = []
    for bar in bars:
        last = joined[-1] if joined else None
        if last is not None and last.kind == bar.kind and bar.begin - last.end <= shortest:
            joined[-1] = Bar(last.begin, max(last.end, bar.end), bar.kind)
        else:
            joined.append(bar)
    return joined


def heard_bars(counts: DataFrame, settings: Settings) -> DataFrame:
    """Return bars for `timeline_figure` from `label` and `start` of windows that have messages."""
    length = sql.make_dt_interval(secs=sql.lit(settings.window))
    return (
        counts.select("label", "start")
        .distinct()
        .select(
            "label",
            sql.col("start").alias("began"),
            (sql.col("start") + length).alias("ended"),
            sql.lit("plot").alias("kind"),
            sql.lit("").alias("text"),
        )
    )


def matrix_figure(
    title: str,
    cells: DataFrame,
    rows: str,
    columns: str,
    marked_note: str = "",
    labels: Mapping[str, str] | None = None,
    unit: str = "messages",
) -> Figure:
    """Draw a matrix of `row`, `column`, `value` and `marked`. The largest values are collected, and drawn."""
    most = _MOST_NODES * _MOST_NODES // 4
    found = cells.orderBy(sql.desc("value"), "row", "column").limit(most + 1).collect()
    values = {(row or "", column or ""): float(value or 0) for row, column, value, _ in found[:most]}
    marked = [(row or "", column or "") for row, column, _, mark in found[:most] if mark]
    names = {one: cut(name, 60) for one, name in (labels or {}).items()}
    chart = matrix(values, rows, columns, marked, marked_note, names, unit)
    return Figure(title, chart, (f"only the {most:,} largest values were read",) if len(found) > most else ())
