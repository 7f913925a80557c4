"""The storage policy of a stream: when it is written to the disk, in which pieces, and how long it is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.entry import HIGHEST, LARGEST_BATCH

KIB = 1024
MIB = 1024 * KIB
PARTS: Final = 8  # segments into which the messages to keep are divided: retention removes one at a time
LEAST_BYTES: Final = 64 * KIB  # of a segment whose size follows from `keep_bytes`
COMPACTED: Final = 8 * MIB  # bytes of a segment that is compacted as soon as it is full
LEAST_SECONDS: Final = 5.0  # of a segment whose time follows from `keep_seconds`

# The least and the greatest value that operators can give, in a configuration or by an order.
SIZES: Final = (64 * KIB, 1 << 50)  # bytes
AGES: Final = (1, 100 * 366 * 86400)  # seconds
COUNTS: Final = (1, 10_000_000)  # publishers


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The storage policy of a stream.

    `sync` decides what the confirmation (PING-OK) of a message waits for. With `always` it waits for the disk. With
    `interval` and `never` it waits for the operating system only; `interval` also syncs the disk every `interval`
    seconds. A killed process loses nothing under any of them. With `store` it waits for an object store, which the
    broker must have.

    >>> Policy(keep_seconds=7 * 24 * 3600).sync
    'always'
    """

    sync: Literal["always", "interval", "never", "store"] = "always"
    interval: float = 1.0
    segment: int = 256 * MIB  # bytes of a log, after which a new segment begins at the latest
    batch: int = MIB  # bytes that one entry of the index covers at most, unless one message is larger
    keep_bytes: int | None = None  # bytes of messages that are kept at least; older segments are removed, whole
    keep_seconds: float | None = None  # the age at which segments are removed, whole
    compact: bool = False  # whether the last message of each key stays, instead of none of the old messages
    keep_tombstones: float = 24 * 3600.0  # seconds that a last message without a body stays, if the stream is compacted
    publishers: int = 100_000  # whose counts are kept; then the one that was silent for longest is forgotten
    keep_publishers: float = 7 * 24 * 3600.0  # seconds of silence, after which a publisher is forgotten
    readers: int = 10_000  # named readers of the stream; further ones are refused
    segment_bytes: int = field(init=False, repr=False, compare=False)  # after which a new segment begins in fact
    segment_microseconds: int = field(init=False, repr=False, compare=False)  # the same, as a time

    def __post_init__(self) -> None:
        if self.sync not in ("always", "interval", "never", "store"):
            raise JournalError(f"sync is {self.sync!r}: it must be always, interval, never or store")
        if self.sync == "store" and self.compact:
            raise JournalError("a stream in an object store cannot be compacted: choose another sync, or no compact")
        for name in ("interval", "segment", "batch", "publishers", "keep_publishers", "keep_tombstones", "readers"):
            value = getattr(self, name)
            if not value > 0:
                raise JournalError(f"{name} is {value!r}: it must be more than 0")
        if self.batch > LARGEST_BATCH:
            raise JournalError(f"batch is {self.batch!r}: it must be at most {LARGEST_BATCH}")
        for name in ("keep_bytes", "keep_seconds"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise JournalError(f"{name} is {value!r}: it must be 0 or more, or None to keep all")
        object.__setattr__(self, "segment_bytes", self._segment_bytes())
        object.__setattr__(self, "segment_microseconds", self._segment_microseconds())

    def _segment_bytes(self) -> int:
        """Return the size of segments: small enough that little more is kept than `keep_bytes`, and compacted soon."""
        if self.keep_bytes is not None:
            return min(self.segment, max(LEAST_BYTES, self.keep_bytes // PARTS))
        return min(self.segment, COMPACTED) if self.compact and self.keep_seconds is None else self.segment

    def _segment_microseconds(self) -> int:
        """Return the time that a segment covers at most: a small part of `keep_seconds`."""
        if self.keep_seconds is None:
            return HIGHEST
        return int(max(LEAST_SECONDS, self.keep_seconds / PARTS) * 1_000_000)
