"""The matching of two streams by key, without Spark.

Each message of the left stream is matched with at most one message of the right stream that has the same key and comes
at the same time or later, within a limit. The oldest left message that still can be matched gets the next right one. No
other choice matches more messages: of two left messages, the older one always runs out of time first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

LEFT: Final = "left"
RIGHT: Final = "right"
MATCHED: Final = "matched"
UNMATCHED: Final = "unmatched"
WAITING: Final = "waiting"  # a left message that can still be matched
UNKNOWN: Final = "unknown"  # a right message so early that its left one may not have been read


class Event(NamedTuple):
    """A message. `at` is in microseconds since 1970."""

    key: str
    at: int
    side: str
    sequence: int


class Outcome(NamedTuple):
    """The outcome of a message. `latency` is the time from the left message to the right one in microseconds."""

    event: Event
    state: str
    latency: int | None = None


def match(events: Iterable[Event], within: int, read_up_to: int, known_from: int) -> Iterator[Outcome]:
    """Yield the outcome of each message. Events must be sorted by key, time, side and sequence.

    A left message younger than `read_up_to - within` that is not matched is still waiting. A right message older than
    `known_from` that is not matched is unknown.
    """
    pending: deque[Event] = deque()
    current: str | None = None
    for event in events:
        if event.key != current:
            yield from _expired(pending, len(pending), within, read_up_to)
            current = event.key
        late = 0
        while late < len(pending) and pending[late].at + within < event.at:
            late += 1
        yield from _expired(pending, late, within, read_up_to)
        if event.side == LEFT:
            pending.append(event)
        elif pending:
            left = pending.popleft()
            latency = event.at - left.at
            yield Outcome(left, MATCHED, latency)
            yield Outcome(event, MATCHED)
        else:
            yield Outcome(event, UNKNOWN if event.at < known_from else UNMATCHED)
    yield from _expired(pending, len(pending), within, read_up_to)


def _expired(pending: deque[Event], count: int, within: int, read_up_to: int) -> Iterator[Outcome]:
    for _ in range(count):
        event = pending.popleft()
        yield Outcome(event, WAITING if event.at + within > read_up_to else UNMATCHED)
