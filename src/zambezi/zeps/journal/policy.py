"""How a stream is kept: when it is written to the disk, in which pieces, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from zambezi.zeps.errors import JournalError

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a stream is kept.

    `sync` says what the barrier (PING-OK) waits for: `always` for the disk, `interval` and `never` for the operating
    system alone, which is then told to write every `interval` seconds, or left to itself. A killed process loses
    nothing under any of them.
    """

    sync: Literal["always", "interval", "never"] = "interval"
    interval: float = 1.0
    segment: int = 256 * MIB  # octets of the log, after which a new segment is begun
    batch: int = MIB  # octets that one entry of the index stands for at most, unless one message is larger
    keep_octets: int | None = None  # of the logs of a stream; older segments go, whole
    keep_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.sync not in ("always", "interval", "never"):
            raise JournalError(f"sync is {self.sync!r}: it can be always, interval or never")
        for name in ("interval", "segment", "batch"):
            value = getattr(self, name)
            if not value > 0:
                raise JournalError(f"{name} is {value!r}: it must be more than 0")
        for name in ("keep_octets", "keep_seconds"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise JournalError(f"{name} is {value!r}: it must be 0 or more, or None to keep all")
