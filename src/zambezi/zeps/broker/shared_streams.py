"""The streams of a broker that shares a prefix of an object store with other brokers.

`zambezi.zeps.store.cluster` finds out which streams this broker must take, hand over or give up. This module does so.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from zambezi.wire.text import printable
from zambezi.zeps.about import about
from zambezi.zeps.broker.depot import Depot
from zambezi.zeps.broker.engine import Engine
from zambezi.zeps.broker.stored_stream import StoredStream
from zambezi.zeps.errors import Moved
from zambezi.zeps.store.cluster import Back, Cut, Expected, Found
from zambezi.zeps.store.driver import Driver
from zambezi.zeps.store.members import Member

_log: Final = logging.getLogger("zambezi.zeps")
PATIENCE: Final = 2.0  # seconds for a connection to another broker
AGAIN: Final = 5.0  # seconds between attempts to take streams, if the store has no room


class SharedStreams:
    """Takes, hands over and gives up streams."""

    def __init__(self, engine: Engine, depot: Depot, driver: Driver) -> None:
        self._engine = engine
        self._depot = depot
        self._driver = driver
        self._roll = depot.cluster.roll
        self._take_at = 0.0  # when to look again at streams that could not be taken
        self._knocks: set[asyncio.Task[None]] = set()
        depot.knock = self._knock

    def start(self) -> None:
        """Begin with the heartbeats."""
        self._driver.add(self._depot.cluster, self._on_events)

    def announce(self, endpoint: str) -> None:
        """Tell the other brokers an endpoint of this one."""
        self._depot.announce(endpoint)
        self._driver.advance(self._depot.cluster)

    def leave(self) -> None:
        """Tell the other brokers that this one gives its streams up."""
        self._depot.cluster.leave()
        self._driver.advance(self._depot.cluster)

    def stop(self) -> None:
        """End the heartbeats."""
        for task in self._knocks:
            task.cancel()
        self._driver.remove(self._depot.cluster)

    def _knock(self, server: Member) -> None:
        """Find out whether a broker refuses connections: then it does not run."""
        task = asyncio.ensure_future(self._connect(server))
        self._knocks.add(task)
        task.add_done_callback(self._knocks.discard)

    async def _connect(self, server: Member) -> None:
        host, _, port = server.endpoint.removeprefix("tcp://").rpartition(":")
        if not server.endpoint.startswith("tcp://") or not port.isdecimal():
            return
        try:
            async with asyncio.timeout(PATIENCE):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except ConnectionRefusedError:
            self._depot.cluster.note_refused(server, self._driver.time())
            self._on_events()
        except (OSError, OverflowError, ValueError):
            return  # that says nothing about the broker
        else:
            writer.close()

    def tick(self, now: float, is_late: bool) -> None:
        """Find out which streams other brokers have taken. `is_late` says that this process did not run for long."""
        if is_late:
            self._depot.check(now)
        self._depot.check_idle(now)
        if self._depot.untaken and now >= self._take_at:
            self._take_at = now + AGAIN
            self._depot.cluster.rescan()

    def _on_events(self) -> None:
        seeking = self._engine.seeking
        assert seeking is not None
        for event in self._depot.cluster.take_events():
            if isinstance(event, Cut):
                self._give_up()
                seeking.look_again()
            elif isinstance(event, Back):
                self._depot.check(self._driver.time())
            elif isinstance(event, Expected):
                seeking.prepare(event.names)
            elif isinstance(event, Found):
                self._depot.note_streams({*event.streams, *self._depot.cluster.owners})
                self._depot.note_orphans({scanned.stream.name for scanned in event.orphans})
                for name, home in event.guests:
                    self._hand_over(name, home)
                seeking.take(event.orphans)
                self._depot.preparations.stop(keep=[scanned.stream.name for scanned in event.orphans])
                seeking.look_again()
        if self._roll is not self._depot.cluster.roll:
            self._roll = self._depot.cluster.roll
            seeking.look_again()

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
            _log.info("stream %s goes to the broker at %s", printable(name), home.endpoint, extra=about(name))
            stream.send_all_positions()
            self._engine.drop_stream(stream, Moved(home.endpoint))
            self._depot.hand_over(stream.log, name)
