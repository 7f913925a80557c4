"""Verdicts, without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.zeps.serving import serving
from zambezi.spark.errors import OptionError
from zambezi.spark.pipelines.verdict import MAX_REASONS, Reason, Verdict, publish_alarms
from zambezi.zeps.sync import Client

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def silent(about: str, seconds: int = 240, since: str = "2025-12-31 23:56:00") -> Reason:
    return Reason(about, "silent", f"{about} was silent for {seconds} s", since, {"silent_s": seconds})


def test_the_status_follows_from_the_reasons() -> None:
    assert (Verdict("traffic").status, Verdict("traffic").is_healthy) == (0, True)
    assert (Verdict("traffic", (silent("a"),)).status, Verdict("traffic", (silent("a"),)).is_healthy) == (3, False)


def test_reasons_are_bounded_and_the_others_are_counted() -> None:
    verdict = Verdict.of("traffic", [silent(str(number)) for number in range(MAX_REASONS + 7)])
    assert (len(verdict.reasons), verdict.more) == (MAX_REASONS, 7)
    assert verdict.lines(2)[2] == f"  and {MAX_REASONS + 5} more reasons"
    assert verdict.document()["more_reasons"] == 7


def test_an_incident_has_one_identity_however_its_text_changes() -> None:
    first = silent("a").identity("traffic")
    assert silent("a", 540).identity("traffic") == first
    assert silent("a").identity("traffic", "another table") != first
    others = {
        silent("b").identity("traffic"),
        silent("a").identity("x"),
        silent("a", since="later").identity("traffic"),
    }
    assert len(others | {first}) == 4


def test_each_incident_is_published_once(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as (_, endpoint), Client.connect(endpoint) as client:
        options = {"endpoint": endpoint, "stream": "alarms"}
        assert publish_alarms(Verdict("traffic", (silent("a"), silent("b"))), options, NOW) == 2
        assert publish_alarms(Verdict("traffic", (silent("a", 540), silent("c"))), options, NOW) == 1
        assert publish_alarms(Verdict("traffic"), options, NOW) == 0
        found = list(client.stream("alarms").subscribe(since="earliest", until="now"))
    assert [one.key for one in found] == ["a", "b", "c"]
    assert json.loads(found[0].body) == {
        "pipeline": "traffic",
        "about": "a",
        "kind": "silent",
        "reason": "a was silent for 240 s",
        "since": "2025-12-31 23:56:00",
        "silent_s": 240,
        "reported": "2026-01-01T00:00:00+00:00",
    }


def test_a_wrong_key_is_refused() -> None:
    options = {"endpoint": "tcp://127.0.0.1:1", "stream": "alarms", "serverKey": "x"}
    with pytest.raises(OptionError, match="serverKey"):
        publish_alarms(Verdict("traffic", (silent("a"),)), options)
