"""`quality`, on small tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.pipelines.frames import NOON, messages, stream, table
from zambezi.spark.errors import SchemaError
from zambezi.spark.limits import Limits, QualityLimits
from zambezi.spark.pipelines import quality
from zambezi.spark.pipelines.body_profile import Declaration
from zambezi.spark.pipelines.pipeline import Cache, Settings
from zambezi.spark.pipelines.results import compute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READINGS = Declaration("readings", "json", "celsius double not null, room string")
SETTINGS = Settings(window=60, declared=(READINGS,))
BODIES = [b'{"celsius": 20, "room": "hall"}', b'{"celsius": 21.5, "room": null}', b'{"celsius": "hot"}', b"{oops"]


def test_streams_problems_fields_and_the_verdict(spark: SparkSession, cache: Cache) -> None:
    rows = stream([(float(place), f"k{place}", body) for place, body in enumerate(BODIES)], "readings")
    rows += stream([(0.0, "<b>", b"\xff"), (90.0, "k", b"text")], "others")
    # Two batches add up.
    halves = [quality.reduce(messages(spark, some), SETTINGS) for some in (rows[::2], rows[1::2])]
    reduced = cache(halves[0].unionByName(halves[1]))
    assert table(quality.streams(reduced, SETTINGS), "stream", "declared", "messages", "good", "bad", "of_bad") == [
        ("readings", "json", 4, 2, 2, 50.0),
        ("others", "", 2, 0, 0, None),
    ]
    assert table(quality.problems(reduced), "stream", "verdict", "kind", "messages", "sequence", "key", "example") == [
        ("readings", "bad", "celsius is not a double", 1, 3, "k2", '{"celsius": "hot"}'),
        ("readings", "bad", "not JSON", 1, 4, "k3", "{oops"),
        ("others", "not judged", "binary", 1, 1, "<b>", "\\xff"),
        ("others", "not judged", "text", 1, 2, "k", "text"),
    ]
    assert table(quality.fields(reduced)) == [
        ("readings", "$", 3, 100.0, 0, "object (3)", "1", "2"),
        ("readings", "celsius", 3, 100.0, 0, "integer (1), number (1), string (1)", "20", "21.5"),
        ("readings", "room", 2, 66.7, 1, "string (1), null (1)", "hall", "hall"),
    ]
    results = compute(quality.reports(reduced, SETTINGS))
    found = {one.name: one.found for one in results}
    verdict = quality.judge(found, SETTINGS)
    told = "50 % of the bodies of readings are not json as declared (2 messages; mostly: celsius is not a double)"
    assert verdict.lines() == [f"healthy: no, because {told}"]
    loose = Settings(declared=(READINGS,), limits=Limits(quality=QualityLimits(bad=50.0)))
    assert quality.judge(found, loose).lines() == ["healthy: yes (1 declared stream, 4 messages)"]
    (figure,) = quality.figures(reduced, SETTINGS)
    assert "readings: bad" in figure.chart.svg


def test_numbers_beyond_all_integers_and_a_field_without_a_name(spark: SparkSession) -> None:
    bodies = [b'{"": 18446744073709551615}', b'{"": 1e300}', b'{"": 7}']
    reduced = quality.reduce(messages(spark, stream([(0.0, "k", body) for body in bodies], "u64")), SETTINGS)
    assert table(quality.streams(reduced, SETTINGS), "stream", "messages") == [("u64", 3)]
    assert table(quality.fields(reduced), "field", "values", "least", "most") == [
        ('""', 3, "7", "1.0E300"),
        ("$", 3, "1", "1"),
    ]


def test_a_message_with_a_time_in_the_future_hides_nothing(spark: SparkSession) -> None:
    settings = Settings(window=60, declared=(READINGS,), read_up_to=NOON + 60)
    rows = stream([(0.0, "k", b"{oops")], "readings") + stream([(30 * 86400.0, "k", b"1")], "others")
    reduced = quality.reduce(messages(spark, rows), settings)
    assert table(quality.streams(reduced, settings), "stream", "bad", "recent_bad") == [
        ("readings", 1, 1),
        ("others", 0, 0),
    ]


def test_a_wrong_schema_is_found_before_a_task_runs(spark: SparkSession) -> None:
    settings = Settings(declared=(Declaration("s", "avro", '{"type": "unheard"}'),))
    with pytest.raises(SchemaError):
        quality.reduce(messages(spark, []), settings)
