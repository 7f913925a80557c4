"""How far a streaming query is behind its streams, as Spark shows it in the progress of the query.

Spark lets no source in Python add metrics or a description. But it shows what the source reports as its latest offset
(`sources[].latestOffset`), and uses it for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zambezi.spark.backend import StreamState
from zambezi.spark.offsets import Offsets


def unread_positions(streams: Mapping[str, StreamState], planned: Offsets) -> dict[str, int]:
    """Return, for each stream with messages after the planned batch, the last sequence that is read."""
    found = {}
    for name, state in streams.items():
        position = planned.get(name)
        is_known = position is not None and position.incarnation == state.incarnation
        after = max(position.sequence, state.first - 1) if is_known and position is not None else state.first - 1
        if after < state.last:
            found[name] = after
    return found


def progress_report(
    place: str,
    streams: Mapping[str, StreamState],
    unread: Mapping[str, int],
    times: Mapping[str, int],
    lost: int,
    now: float,
) -> dict[str, Any]:
    """Return the ends of the streams, and how far the query is behind.

    `unread` are the positions of `unread_positions`, `times` the times of the first messages after them, in
    microseconds since 1970, and `now` is the time in seconds.
    """
    by_stream: dict[str, dict[str, Any]] = {
        name: {
            "sequence": state.last,
            "incarnation": state.incarnation,
            "behindMessages": state.last - unread[name] if name in unread else 0,
            "behindSeconds": _seconds_behind(times.get(name, 0), now) if name in unread else 0.0,
        }
        for name, state in sorted(streams.items())
    }
    messages = sum(one["behindMessages"] for one in by_stream.values())
    seconds = max((one["behindSeconds"] for one in by_stream.values()), default=0.0)
    count = f"{len(streams)} stream{'' if len(streams) == 1 else 's'}"
    return {
        "description": f"{count} at {place}: {messages} messages and {seconds:g} s behind, {lost} messages lost",
        "behindMessages": messages,
        "behindSeconds": seconds,
        "lostMessages": lost,
        "streams": by_stream,
    }


def _seconds_behind(time: int, now: float) -> float:
    return round(max(0.0, now - time / 1e6), 1) if time else 0.0
