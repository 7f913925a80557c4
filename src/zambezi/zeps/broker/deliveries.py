"""Counters of the messages that a broker has delivered.

A cursor counts its own deliveries, once for each block. When it ends, its counts move to the stream and to the engine.
So the counters of a stream cost nothing while messages go out: they are added up when an operator looks at them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zambezi.zeps.broker.engine import Engine


@dataclass(slots=True)
class Deliveries:
    """Delivered messages, and their bytes."""

    messages: int = 0
    octets: int = 0

    def add(self, messages: int, octets: int) -> None:
        """Count some deliveries more."""
        self.messages += messages
        self.octets += octets


def deliveries_of(engine: Engine) -> tuple[Deliveries, dict[str, Deliveries]]:
    """Return the deliveries of a broker and of each of its streams, by name, with those of open connections."""
    total = replace(engine.deliveries)
    by_stream = {stream.name: replace(stream.deliveries) for stream in engine.streams}
    for session in engine.sessions:
        cursor = session.cursor
        if cursor is not None and cursor.delivered:
            total.add(cursor.delivered, cursor.octets)
            by_stream.setdefault(cursor.stream.name, Deliveries()).add(cursor.delivered, cursor.octets)
    return total, by_stream
