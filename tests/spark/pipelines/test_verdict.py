"""Verdicts, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime

from zambezi.spark.pipelines.verdict import MAX_REASONS, Reason, Verdict

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
