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


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """[pipelines.network_health]"""

    recent: float = _recent()


@dataclass(frozen=True, slots=True)
class FleetLimits:
    """[pipelines.fleet_audit]"""

    recent: float = _recent(86400.0)
    silent: int = limit("the most requests that a node may leave unanswered", 0, COUNTS)


@dataclass(frozen=True, slots=True)
class Limits:
    """[pipelines]: the limits of each pipeline. Only `zambezi pipeline` uses them."""

    archive: ArchiveLimits = field(default_factory=ArchiveLimits)
    traffic: TrafficLimits = field(default_factory=TrafficLimits)
    network_health: HealthLimits = field(default_factory=HealthLimits)
    fleet_audit: FleetLimits = field(default_factory=FleetLimits)
