"""`quality`: it reads the bodies of streams, and tells how many are as declared.

A declaration says which format the bodies of a stream have: JSON, with or without a schema, Avro with a schema, or
text. Bodies of streams without a declaration are only described: whether they look like JSON, text or other bytes. The
table has rows for windows, streams and fields, with partial sums; `body_profile` makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from zambezi.spark.avro import Avro
from zambezi.spark.lake.frames import arrow_schema
from zambezi.spark.pipelines.body_profile import BODY, COLUMNS, Profile
from zambezi.spark.pipelines.drawing import rate_figure
from zambezi.spark.pipelines.pipeline import Cache, Pipeline, Report, Settings, now_or, percent, uncached, utc_date
from zambezi.spark.pipelines.verdict import Found, Reason, Verdict, counted
from zambezi.spark.report.page import Figure

_NUMBERS: Final = ("integer", "number", "decimal")
_TEXTS: Final = ("string", "timestamp", "date", "time")


def reduce(messages: DataFrame, settings: Settings) -> DataFrame:
    """Profile the bodies by window, stream and field."""
    window = max(1, round(settings.window * 1_000_000))
    declared = settings.declared
    schemas = {one.schema: StructType.fromDDL(one.schema) for one in declared if one.format == "json" and one.schema}
    for one in declared:
        if one.format == "avro":
            Avro(one.schema, 0, one.framing)  # a wrong schema is found here, not in a task
    made = arrow_schema(COLUMNS)

    def profile(batches: Iterator[Any]) -> Iterator[Any]:
        found = Profile(window, declared, schemas)
        for batch in batches:
            found.add(batch)
            if found.is_full:
                yield _batch(found, made)
        yield _batch(found, made)

    chosen = messages.select(
        sql.make_valid_utf8("stream").alias("stream"),
        "timestamp",
        "sequence",
        sql.make_valid_utf8("key").alias("key"),
        "body",
    )
    return chosen.mapInArrow(profile, COLUMNS).withColumn("date", utc_date("start"))


def _batch(found: Profile, schema: Any) -> Any:
    rows = found.take()
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.RecordBatch.from_arrays(
        [pa.array(list(column), one.type) for column, one in zip(columns, schema, strict=True)], schema=schema
    )


def streams(table: DataFrame, settings: Settings) -> DataFrame:
    """Return how many bodies of each stream are as declared, those with the largest share of bad ones first.

    The columns that begin with `recent_` are about the last time before the newest window, as the limits say. A message
    with a time in the future does not count for that.
    """
    last = sql.max("start")
    newest = table.agg(sql.least(last, now_or(last, settings)).alias("_newest"))
    since = sql.unix_micros("_newest") - round(settings.limits.quality.recent * 1e6)
    is_recent = sql.unix_micros("start") >= since
    is_bad = ~sql.col("good")
    found = (
        table.where("field = ''")
        .crossJoin(newest)
        .groupBy("stream", "declared")
        .agg(
            sql.sum("messages").alias("messages"),
            _sum(sql.col("good")).alias("good"),
            _sum(is_bad).alias("bad"),
            _sum(sql.col("good").isNull()).alias("not_judged"),
            _sum(is_recent & sql.col("good").isNotNull()).alias("recent"),
            _sum(is_recent & is_bad).alias("recent_bad"),
            sql.max(sql.when(is_bad, sql.col("date"))).alias("last_bad"),
            sql.min("low").cast("long").alias("smallest"),
            sql.max("high").cast("long").alias("largest"),
        )
    )
    return (
        found.withColumn("of_bad", percent(sql.col("bad"), sql.nullif(sql.col("good") + sql.col("bad"), sql.lit(0))))
        .withColumn("recent_of_bad", percent(sql.col("recent_bad"), sql.nullif(sql.col("recent"), sql.lit(0))))
        .select(
            "stream",
            "declared",
            "messages",
            "good",
            "bad",
            "of_bad",
            "not_judged",
            "recent_bad",
            "recent_of_bad",
            "last_bad",
            "smallest",
            "largest",
        )
        .orderBy(sql.desc_nulls_last("recent_of_bad"), sql.desc_nulls_last("of_bad"), "stream", "declared")
    )


def problems(table: DataFrame) -> DataFrame:
    """Return what is wrong with bad bodies, and what undeclared bodies look like, with an example of each."""
    return (
        table.where("field = '' and (good is null or not good)")
        .groupBy("stream", "kind", "good")
        .agg(
            sql.sum("messages").alias("messages"),
            sql.max("start").alias("newest_window"),
            sql.min("sequence").alias("sequence"),
            sql.min_by("key", "sequence").alias("key"),
            sql.min_by("example", "sequence").alias("example"),
        )
        .select(
            "stream",
            sql.when(sql.col("good").isNull(), "not judged").otherwise("bad").alias("verdict"),
            "kind",
            "messages",
            "newest_window",
            "sequence",
            "key",
            "example",
        )
        .orderBy("verdict", sql.desc("messages"), "stream", "kind")
    )


def fields(table: DataFrame) -> DataFrame:
    """Return the fields of each stream: in how many bodies they are, their types, nulls, and the range of values.

    `$` is the whole body. The range is that of the most frequent type: all numbers, the first and last text in their
    order, or lengths.
    """
    bodies = table.where(sql.col("field") == BODY).groupBy("stream").agg(sql.sum("messages").alias("bodies"))
    kinds = (
        table.where("field <> ''")
        .groupBy("stream", "field", "kind")
        .agg(
            sql.sum("messages").alias("messages"),
            sql.min("low").alias("low"),
            sql.max("high").alias("high"),
            sql.min("first_text").alias("first_text"),
            sql.max("last_text").alias("last_text"),
        )
    )
    is_null = sql.col("kind") == "null"
    is_number = sql.col("kind").isin(*_NUMBERS)
    one = sql.struct(is_null.alias("is_null"), (-sql.col("messages")).alias("order"), "kind")
    found = (
        kinds.groupBy("stream", "field")
        .agg(
            sql.sum("messages").alias("values"),
            sql.sum(sql.when(is_null, sql.col("messages")).otherwise(0)).alias("nulls"),
            sql.array_sort(sql.collect_list(one)).alias("_kinds"),
            sql.min(sql.when(is_number, sql.col("low"))).alias("low"),
            sql.max(sql.when(is_number, sql.col("high"))).alias("high"),
            sql.min(sql.when(~is_number, sql.col("low"))).alias("shortest"),
            sql.max(sql.when(~is_number, sql.col("high"))).alias("longest"),
            sql.min("first_text").alias("first_text"),
            sql.max("last_text").alias("last_text"),
        )
        .withColumn("kind", sql.get("_kinds", sql.lit(0))["kind"])
    )
    is_single = ~sql.col("field").contains("[]")
    return (
        found.join(bodies, "stream", "left")
        .select(
            "stream",
            "field",
            "values",
            sql.when(is_single, percent(sql.col("values"), sql.col("bodies"))).alias("of_bodies"),
            "nulls",
            sql.array_join(sql.transform("_kinds", _told), ", ").alias("types"),
            _end("low", "first_text", "shortest").alias("least"),
            _end("high", "last_text", "longest").alias("most"),
        )
        .orderBy("stream", sql.desc("values"), "field")
    )


def _told(one: Column) -> Column:
    return sql.concat(one["kind"], sql.lit(" ("), sql.format_number(-one["order"], 0), sql.lit(")"))


def _end(number: str, text: str, length: str) -> Column:
    """Return an end of the range of the most frequent type, as text."""
    return (
        sql.when(sql.col("kind").isin(*_NUMBERS), _plain(number))
        .when(sql.col("kind").isin(*_TEXTS), sql.col(text))
        .otherwise(_plain(length))
    )


def _plain(number: str) -> Column:
    """Return a number as text, without a fraction that is zero."""
    is_whole = (sql.col(number) % 1 == 0) & (sql.abs(number) < 1e15)
    return sql.when(is_whole, sql.col(number).cast("long").cast("string")).otherwise(sql.col(number).cast("string"))


def _sum(condition: Column) -> Column:
    return sql.sum(sql.when(condition, sql.col("messages")).otherwise(0))


def reports(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Report]:  # noqa: ARG001 - the signature of `reports`
    """Return the reports."""
    return (
        Report("quality-streams", "Quality: bodies as declared", streams(table, settings)),
        Report(
            "quality-problems",
            "Quality: bodies that are bad or not judged, with an example of each kind",
            problems(table),
        ),
        Report(
            "quality-fields",
            "Quality: fields",
            fields(table),
            ("the range is that of the most frequent type; of arrays, objects and binary values it is the length",),
        ),
    )


def judge(found: Found, settings: Settings) -> Verdict:
    """Judge bodies: at most the allowed share of the recent ones may differ from their declaration."""
    rows = found["quality-streams"].records()
    limits = settings.limits.quality
    examples = {
        row["stream"]: row["kind"] for row in reversed(found["quality-problems"].records()) if row["verdict"] == "bad"
    }
    reasons = [
        Reason(
            about=row["stream"],
            kind="bad bodies",
            text=(
                f"{row['recent_of_bad']:g} % of the bodies of {row['stream']} are not {row['declared']} as declared "
                f"({counted(row['recent_bad'], 'message')}; mostly: {examples.get(row['stream'], 'unknown')})"
            ),
            since=str(row["last_bad"]),
            values={"bad": row["recent_bad"], "of_bad": row["recent_of_bad"]},
        )
        for row in rows
        if row["declared"] and (row["recent_bad"] or 0) > 0 and row["recent_of_bad"] > limits.bad
    ]
    messages = sum(row["good"] + row["bad"] for row in rows)
    declared = counted(sum(bool(row["declared"]) for row in rows), "declared stream")
    return Verdict.of(QUALITY.name, reasons, f"{declared}, {counted(messages, 'message')}")


def figures(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Figure]:  # noqa: ARG001 - the signature of `figures`
    """Return the charts: messages of each stream that are right, bad and not judged, over time."""
    word = sql.when(sql.col("good").isNull(), "not judged").when(sql.col("good"), "good").otherwise("bad")
    counts = table.where("field = ''").select(
        "start", sql.concat("stream", sql.lit(": "), word).alias("label"), "messages"
    )
    return (rate_figure("Bodies by stream and judgement", counts, settings),)


QUALITY: Final = Pipeline(
    name="quality",
    summary="which bodies are as declared (JSON, Avro), their fields with types and ranges, examples of bad ones",
    reduce=reduce,
    reports=reports,
    judge=judge,
    figures=figures,
    columns=COLUMNS,
    table="quality",
    fixed=("window",),
    streams={"streamPattern": ""},
)
