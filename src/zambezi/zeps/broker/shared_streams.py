"""The streams of a broker that shares a prefix of an object store with other brokers.

`zambezi.zeps.store.cluster` finds out which streams this broker must take, hand over or give up. This module does so.
"""

from __future__ import annotations

import logging
from typing import Final

from zambezi.wire.text import printable
from zambezi.zeps.broker.depot import Depot
from zambezi.zeps.broker.engine import Engine
from zambezi.zeps.broker.stored_stream import StoredStream
from zambezi.zeps.errors import Moved
from zambezi.zeps.store.cluster import Back, Cut, Found
from zambezi.zeps.store.driver import Driver
from zambezi.zeps.store.members import Member

_log: Final = logging.getLogger("zambezi.zeps")


class SharedStreams:
    """Takes, hands over and gives up streams."""

    def __init__(self, engine: Engine, depot: Depot, driver: Driver) -> None:
        self._engine = engine
        self._depot = depot
        self._driver = driver

    def start(self) -> None:
        """Begin with the heartbeats."""
        self._driver.add(self._depot.cluster, self._on_events)

    def announce(self, endpoint: str) -> None:
        """Tell the other brokers an endpoint of this one."""
        self._depot.announce(endpoint)
        self._driver.advance(self._depot.cluster)

    def stop(self) -> None:
        """End the heartbeats."""
        self._driver.remove(self._depot.cluster)

    def tick(self, now: float, is_late: bool) -> None:
        """Find out which streams other brokers have taken. `is_late` says that this process did not run for long."""
        if is_late:
            self._depot.check(now)
        self._depot.check_idle(now)

    def _on_events(self) -> None:
        for event in self._depot.cluster.take_events():
            if isinstance(event, Cut):
                self._give_up()
            elif isinstance(event, Back):
                self._depot.check(self._driver.time())
            elif isinstance(event, Found):
                self._depot.note_streams(event.streams)
                for name, home in event.guests:
                    self._hand_over(name, home)
                assert self._engine.seeking is not None
                self._engine.seeking.take(event.orphans)

    def _give_up(self) -> None:
        """Let the clients go to other brokers, which take the streams: the store does not answer, or we were paused."""
        streams = [stream for stream in self._engine.streams if isinstance(stream, StoredStream)]
        if streams:
            _log.warning("no heartbeat was stored for too long: %d streams go to other brokers", len(streams))
        for stream in streams:
            self._engine.drop_stream(stream, Moved())

    def _hand_over(self, name: str, home: Member) -> None:
        stream = self._engine.find(name)
        if isinstance(stream, StoredStream) and stream.log.is_owner:
            _log.info("stream %s goes to the broker at %s", printable(name), home.endpoint)
            stream.send_all_positions()
            self._engine.drop_stream(stream, Moved(home.endpoint))
            self._depot.hand_over(stream.log, name)
