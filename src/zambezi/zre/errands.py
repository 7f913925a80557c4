"""The errands of a node: it does what its engine says, with its sockets and beacons, and queues events."""

from __future__ import annotations

from collections.abc import Callable

from zambezi.zmtp.errors import EndpointError
from zambezi.zre import outputs
from zambezi.zre.engine import Engine
from zambezi.zre.events import Enter, Event, Exit
from zambezi.zre.hub import Hub
from zambezi.zre.mailbox import Dealers
from zambezi.zre.reporter import Reporter
from zambezi.zre.trace import Trace
from zambezi.zre.unread import Unread


class Errands:
    """Does what an engine says. `broadcast` sends a beacon; `events` are those that the program has not read."""

    def __init__(
        self,
        engine: Engine,
        dealers: Dealers,
        broadcast: Callable[[bytes], object],
        events: Unread,
        reporter: Reporter | None,
    ) -> None:
        self.trace: Trace | None = None
        self.hub: Hub | None = None
        self._engine = engine
        self._dealers = dealers
        self._broadcast = broadcast
        self._events = events
        self._reporter = reporter

    def run(self, stopping: bool) -> tuple[bool, bool]:
        """Do everything; return whether the program has new events, and whether a DEALER was closed.

        The program of a node that is `stopping` reads no more events.
        """
        happened = closed = False
        engine, dealers, trace = self._engine, self._dealers, self.trace
        while batch := engine.take():
            for output in batch:
                if trace is not None:
                    trace.done(output)
                if isinstance(output, outputs.Send):
                    if not dealers.send(output.peer, output.frames):
                        engine.unresponsive(output.peer)
                elif isinstance(output, Event):
                    if not stopping:
                        self._events.append(output)
                        happened = True
                        if self._reporter is not None or self.hub is not None:
                            self._note(output)
                elif isinstance(output, outputs.Broadcast):
                    self._broadcast(output.octets)
                elif isinstance(output, outputs.Connect):
                    try:
                        dealers.open(output.peer, output.endpoint)
                    except EndpointError:
                        engine.unreachable(output.peer)
                elif isinstance(output, outputs.Adopt):
                    dealers.adopt(output.seed, output.peer)
                else:
                    dealers.shut(output.peer)
                    closed = True
        return happened, closed

    def _note(self, event: Event) -> None:
        """Tell the log services and the hub of zgossip of an event."""
        if self._reporter is not None:
            self._reporter.note(event)
        if self.hub is not None and isinstance(event, Enter):
            self.hub.entered(event.peer)
        elif self.hub is not None and isinstance(event, Exit):
            self.hub.ended(event.peer)
