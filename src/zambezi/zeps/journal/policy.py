"""The storage policy of a stream: when it is written to the disk, in which pieces, and how long it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.entry import LARGEST_BATCH

KIB = 1024
MIB = 1024 * KIB

# The least and the greatest value that operators can give, in a configuration or by an order.
SIZES: Final = (64 * KIB, 1 << 50)  # bytes
AGES: Final = (1, 100 * 366 * 86400)  # seconds
COUNTS: Final = (1, 10_000_000)  # publishers


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The storage policy of a stream.

    `sync` decides what the confirmation (PING-OK) of a message waits for. With `always` it waits for the disk. With
    `interval` and `never` it waits for the operating system only; `interval` also syncs the disk every `interval`
    seconds. A killed process loses nothing under any of them.

    >>> Policy(keep_seconds=7 * 24 * 3600).sync
    'always'
    """

    sync: Literal["always", "interval", "never"] = "always"
    interval: float = 1.0
    segment: int = 256 * MIB  # bytes of a log, after which a new segment begins
    batch: int = MIB  # bytes that one entry of the index covers at most, unless one message is larger
    keep_bytes: int | None = None  # bytes of all logs of the stream; the oldest segments are removed, whole
    keep_seconds: float | None = None  # the age at which segments are removed, whole
    publishers: int = 100_000  # whose counts are kept; then the one that was silent for longest is forgotten
    keep_publishers: float = 7 * 24 * 3600.0  # seconds of silence, after which a publisher is forgotten

    def __post_init__(self) -> None:
        if self.sync not in ("always", "interval", "never"):
            raise JournalError(f"sync is {self.sync!r}: it must be always, interval or never")
        for name in ("interval", "segment", "batch", "publishers", "keep_publishers"):
            value = getattr(self, name)
            if not value > 0:
                raise JournalError(f"{name} is {value!r}: it must be more than 0")
        if self.batch > LARGEST_BATCH:
            raise JournalError(f"batch is {self.batch!r}: it must be at most {LARGEST_BATCH}")
        for name in ("keep_bytes", "keep_seconds"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise JournalError(f"{name} is {value!r}: it must be 0 or more, or None to keep all")
