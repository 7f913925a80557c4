"""The limits of pipelines: what is healthy, and what is not. They are the tables [pipelines.NAME] of `zambezi.toml`.

Every limit is declared once, as a field of a dataclass: the field has the default value, its `note` says what the limit
is for, and its type and its `kind` say how the value is read. This module needs no Spark: the configuration of a server
has these tables, too, so that one file serves both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

AGES: Final = (0, 3650 * 86400)  # seconds
COUNTS: Final = (0, 1 << 50)
FACTORS: Final = (0, 1_000_000)
SHARES: Final = (0, 100)  # percent


def limit(note: str, default: Any, bounds: tuple[int, int], kind: str = "") -> Any:
    """Declare a limit. `bounds` are inclusive; `kind` is seconds, octets or empty for a number."""
    return field(default=default, metadata={"note": note, "kind": kind, "bounds": bounds})


def _recent(default: float = 3600.0) -> Any:
    return limit("only problems of this last time count", default, AGES, "seconds")


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """[pipelines.archive]"""

    missing: int = limit("the most sequences that an archived stream may miss", 0, COUNTS)


@dataclass(frozen=True, slots=True)
class TrafficLimits:
    """[pipelines.traffic]"""

    recent: float = _recent()
    messages: int = limit("the least number of messages in the table", 1, COUNTS)
    missing: int = limit("the most missing sequences of a stream", 0, COUNTS)
    silent: float = limit("a key without messages for less than this is not silent", 120.0, AGES, "seconds")
    late_gaps: float = limit("a key is late after this many of its usual gaps", 3.0, FACTORS)
    silent_gaps: float = limit("a key is silent after this many of its usual gaps", 6.0, FACTORS)
    windows: int = limit("a key that was seen in fewer windows is not judged", 5, COUNTS)
    gone: float = limit("a key that was silent for longer is not reported any more", 86400.0, AGES, "seconds")
    deviations: float = limit("a prefix is abnormal from this many deviations off its median", 6.0, FACTORS)


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """[pipelines.network_health]"""

    recent: float = _recent()
    logs: int = limit("the least number of logs in the table", 1, COUNTS)
    lost: float = limit("a node that did not leave properly counts as lost after this time", 60.0, AGES, "seconds")
    forgotten: float = limit("a node that was lost for longer is not reported any more", 86400.0, AGES, "seconds")
    restarts: int = limit("the most restarts of a node in the recent time", 2, COUNTS)
    errors: int = limit("the most errors that a node may log in the recent time", 0, COUNTS)
    clock: float = limit("the most that the clock of a node may differ from the journal's", 60.0, AGES, "seconds")


@dataclass(frozen=True, slots=True)
class FleetLimits:
    """[pipelines.fleet_audit]"""

    recent: float = _recent(86400.0)
    silent: int = limit("the most requests that a node may leave unanswered", 0, COUNTS)
    errors: float = limit("the most replies of an action, in percent, that may be errors", 10.0, SHARES)
    refused: int = limit("the most replies by which nodes refuse the requests of a caller", 0, COUNTS)
    slow: float = limit("the longest time that 95 % of the replies of an action may take", 30.0, AGES, "seconds")


@dataclass(frozen=True, slots=True)
class QualityLimits:
    """[pipelines.quality]"""

    recent: float = limit("only bodies of this last time before the newest one count", 86400.0, AGES, "seconds")
    bad: float = limit("the largest share of bodies that are not as declared, in percent", 1.0, SHARES)


@dataclass(frozen=True, slots=True)
class SessionsLimits:
    """[pipelines.sessions]"""

    longest: float = limit("the longest session; 0: any", 0.0, AGES, "seconds")


@dataclass(frozen=True, slots=True)
class JoinLimits:
    """[pipelines.join]"""

    left: float = limit("the largest share of left messages without a match, in percent", 0.0, SHARES)
    right: float = limit("the largest share of right messages without a match, in percent", 0.0, SHARES)
    p95: float = limit("the longest time that 95 % of the pairs take; 0: any", 0.0, AGES, "seconds")


@dataclass(frozen=True, slots=True)
class Limits:
    """[pipelines]: the limits of each pipeline. Only `zambezi pipeline` uses them."""

    archive: ArchiveLimits = field(default_factory=ArchiveLimits)
    traffic: TrafficLimits = field(default_factory=TrafficLimits)
    network_health: HealthLimits = field(default_factory=HealthLimits)
    fleet_audit: FleetLimits = field(default_factory=FleetLimits)
    quality: QualityLimits = field(default_factory=QualityLimits)
    sessions: SessionsLimits = field(default_factory=SessionsLimits)
    join: JoinLimits = field(default_factory=JoinLimits)
