"""Verdicts: whether what a pipeline found is healthy, and if not, why.

A pipeline has a function `judge`. It gets the rows of the pipeline's reports, and the settings with the limits, and
returns a `Verdict`. It runs after the reports, on small results, and needs no Spark:

    def judge(found: Found, settings: Settings) -> Verdict:
        limits = settings.limits.traffic
        reasons = [
            Reason(
                about=row["key"],
                kind="silent",
                text=f"{row['key']} was silent for {duration(row['silent_s'])}",
                since=row["last"],
                values={"silent_s": row["silent_s"]},
            )
            for row in found["traffic-keys"].records()
            if row["silent_s"] > limits.silent
        ]
        return Verdict.of("traffic", reasons, judged=f"{counted(3, 'key')} of 1 stream")

The report that `judge` reads must have the worst rows first, because `compute` keeps only the first rows of a report.

A reason has an identity: its pipeline, its kind, what it is about, and since when (or `incident`, if that time moves
with each run). The next run finds the same reason again, with another text ("silent for 9 min"). It is the same
incident, so `alarms` publishes it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from zambezi.spark.pipelines.pipeline import Rows

NOT_HEALTHY: Final = 3  # the exit status of a command
MAX_REASONS: Final = 100  # of a verdict; the others are counted
_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))

Found: TypeAlias = Mapping[str, Rows]  # the rows of each report, by its name


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why something is not healthy."""

    about: str  # such as the name of a key or a node; the key of the alarm
    kind: str  # a word for programs, such as "silent"
    text: str  # a clause for people: "sensor-7 was silent for 4 min (12 messages expected)"
    since: str = ""  # the time when the problem began, if it is known
    values: Mapping[str, Any] = field(default_factory=dict)  # figures for programs
    incident: str = ""  # a mark that stays the same in later runs; without it, `since` must do so

    def identity(self, pipeline: str, table: str = "") -> str:
        """Return the id of the incident: the same in every run that finds it in a table."""
        parts = "\0".join((table, pipeline, self.kind, self.about, self.incident or self.since))
        return blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=16, person=b"zambezi alarm").hexdigest()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of a pipeline: healthy or not, and the reasons."""

    pipeline: str
    reasons: tuple[Reason, ...] = ()  # the worst first
    more: int = 0  # reasons that were left out
    judged: str = ""  # what was judged, such as "3 streams, 40 keys"

    @classmethod
    def of(cls, pipeline: str, reasons: Sequence[Reason], judged: str = "") -> Verdict:
        """Return a verdict with at most `MAX_REASONS` reasons, and the number of the others."""
        return cls(pipeline, tuple(reasons[:MAX_REASONS]), max(0, len(reasons) - MAX_REASONS), judged)

    @property
    def is_healthy(self) -> bool:
        """Whether there is no reason against it."""
        return not self.reasons

    @property
    def status(self) -> int:
        """The exit status of a command: 0, or 3 for "not healthy"."""
        return 0 if self.is_healthy else NOT_HEALTHY

    def lines(self, most: int = 10) -> list[str]:
        """Return the verdict for people: a line, and one for each further reason, up to `most` reasons.

        >>> Verdict("traffic", judged="2 streams").lines()
        ['healthy: yes (2 streams)']
        >>> reasons = tuple(Reason(name, "silent", f"{name} was silent for 4 min") for name in ("a", "b", "c"))
        >>> Verdict("traffic", reasons).lines(2)
        ['healthy: no, because a was silent for 4 min', '  and b was silent for 4 min', '  and 1 more reason']
        """
        if self.is_healthy:
            return [f"healthy: yes ({self.judged})" if self.judged else "healthy: yes"]
        shown = self.reasons[: max(1, most)]
        left = len(self.reasons) - len(shown) + self.more
        told = [f"healthy: no, because {shown[0].text}", *(f"  and {one.text}" for one in shown[1:])]
        return [*told, f"  and {counted(left, 'more reason')}"] if left else told

    def document(self) -> dict[str, Any]:
        """Return the verdict as JSON values."""
        return {
            "pipeline": self.pipeline,
            "healthy": self.is_healthy,
            "verdict": self.lines(1)[0],
            "judged": self.judged,
            "reasons": [reason_as_json(one) for one in self.reasons],
            "more_reasons": self.more,
        }


def reason_as_json(reason: Reason) -> dict[str, Any]:
    """Return a reason as JSON values."""
    return {
        "about": reason.about,
        "kind": reason.kind,
        "reason": reason.text,
        "since": reason.since,
        **reason.values,
    }


def day_of(time: float) -> str:
    """Return the day of a time since 1970, as the mark of an incident that can come back on each day.

    >>> day_of(86401.0)
    '1970-01-02'
    """
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d}"


def counted(number: int, what: str, plural: str = "") -> str:
    """Return a number and what it counts.

    >>> counted(1, "message"), counted(1200, "message"), counted(2, "key of a stream", "keys of a stream")
    ('1 message', '1,200 messages', '2 keys of a stream')
    """
    return f"{number:,} {what if number == 1 else plural or f'{what}s'}"


def epoch(shown: str | None) -> float:
    """Return a time of a report in seconds since 1970; 0 for none.

    >>> epoch("1970-01-02 00:00:01"), epoch(None)
    (86401.0, 0.0)
    """
    return datetime.fromisoformat(shown).replace(tzinfo=UTC).timestamp() if shown else 0.0


def duration(seconds: float) -> str:
    """Return a time for people, in one unit.

    >>> duration(0.25), duration(6), duration(240), duration(5400), duration(172800)
    ('0.25 s', '6 s', '4 min', '1.5 h', '2 d')
    """
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{_short(seconds / size)} {unit}"
    return f"{seconds:.3g} s"


def _short(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")
