"""The connector on its transport: a DEALER with one peer, the middleware. It never waits; the faces do.

Messages are received as they come, so that answers and heartbeats among them are never stuck behind messages that the
program has not read. When too many wait, nothing more is received, and the middleware sees a slow subscriber.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final
from uuid import uuid4

from zambezi.mcollective.archive import Since
from zambezi.mcollective.connector_engine import (
    Became,
    Complained,
    ConnectorEngine,
    HangUp,
    Message,
    Say,
    State,
    Ticket,
)
from zambezi.mcollective.errors import McollectiveError
from zambezi.mcollective.events import Complaint, SessionLost, SessionReady
from zambezi.mcollective.messages import ID, PUT, Frames
from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.events import HandshakeFailed, Retrying, SocketEvent
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.options import Options
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.transport import Transport

_log: Final = logging.getLogger("zambezi.mcollective")

DEFAULT_TTL: Final = 30.0
QUIET: Final = 2.0  # seconds without a session, after which a warning says so
DEFAULT_LINGER: Final = 1.0


def default_identity() -> bytes:
    """Return host, process and a random part: how the middleware's operators see us."""
    host = socket.gethostname().encode("utf-8", "replace")[:200]
    return b"%s %d %s" % (host or b"host", os.getpid(), secrets.token_hex(4).encode())


class ConnectorShell:
    """A connector on a reactor."""

    def __init__(
        self,
        reactor: Reactor,
        options: Options,
        chance: random.Random | None = None,
        *,
        endpoint: str,
        ttl: float | None = DEFAULT_TTL,
    ) -> None:
        if ttl is not None and ttl <= 0:
            raise McollectiveError(f"a TTL must be more than zero seconds, or None for no heartbeats, not {ttl}")
        self.endpoint = endpoint
        self.engine = ConnectorEngine(ttl, lambda: str(uuid4()))
        self.transport = Transport(reactor, "DEALER", self, options, chance=chance)
        self.transport.on_event = self._happened
        self.on_readable: Callable[[], object] = lambda: None
        self.on_writable: Callable[[], object] = lambda: None
        self.on_event: Callable[[SocketEvent], object] = lambda _: None
        self.messages: deque[Message] = deque()
        self._octets = 0  # of these messages
        self._reactor = reactor
        self._peer: Peer | None = None
        self._connections = 0
        self._saved: list[Frames] = []  # PUTs that had not gone out when the connection was lost
        self._problem = "it has not answered yet"
        self._been_ready = False
        self._alarm = Alarm(reactor, self._tick)
        self._waiting_since = 0.0
        self._quiet_alarm = Alarm(reactor, self._warn)

    def bind(self, endpoint: str) -> str:
        """Refuse: a connector is a client."""
        raise McollectiveError(f"a connector connects to a middleware, and cannot be bound to {endpoint}")

    def start(self) -> None:
        """Connect to the middleware, and keep connecting."""
        self._warn_later()
        self.transport.connect(self.endpoint)

    def _warn_later(self) -> None:
        """Log a warning if there is no session soon: so a program never waits for it in silence."""
        self._waiting_since = self._reactor.time()
        self._quiet_alarm.set(self._waiting_since + QUIET)

    def _warn(self) -> None:
        if self.ready or self.transport.closing:
            return
        due = self._waiting_since + QUIET
        if self._reactor.time() < due:
            self._quiet_alarm.set(due)
        else:
            _log.warning("waiting for a session: %s", self.problem)

    # Called by the transport

    def attached(self, peer: Peer) -> None:
        self._peer = peer
        self._problem = "it accepts connections, but does not answer as a middleware"
        self._connections += 1
        self.engine.up(self._reactor.time())
        self._pump()

    def received(self, peer: Peer, batch: Batch) -> None:
        self.engine.receive(batch, self._reactor.time())
        self._pump()
        bound = self.transport.options.receive_bound
        if len(self.messages) >= bound.messages or self._octets >= bound.octets:
            self.engine.paused = True
            peer.pause()

    def writable(self, peer: Peer) -> None:
        self.on_writable()

    def lost(self, peer: Peer, reason: str) -> None:
        for message in peer.take_queue():
            if isinstance(message, tuple) and message[1] == PUT and message[2] != ID:
                self._saved.append(message)
        self.engine.down(reason)
        self._pump()

    def _happened(self, event: SocketEvent) -> None:
        # For callers that wait too long: the latest event is the most likely reason.
        match event:
            case HandshakeFailed(_, _, reason) | Retrying(_, _, _, reason) | SessionLost(_, reason):
                self._problem = reason
            case Complaint(_, text):
                self._problem = f"it says: {text}"
        self.on_event(event)

    # For the program

    @property
    def ready(self) -> bool:
        """Whether there is a session."""
        return self.engine.state is State.READY

    @property
    def problem(self) -> str:
        """The state of the session, with the problem that it has, for errors."""
        if self.ready:
            return f"there is a session with the middleware at {self.endpoint}"
        return f"there is no session with the middleware at {self.endpoint}: {self._problem}"

    @property
    def readable(self) -> bool:
        """Whether there is a message to receive."""
        return bool(self.messages)

    def next_message(self) -> Message | None:
        """Return the next message; receive again when half of those that waited have gone."""
        if not self.messages:
            return None
        message = self.messages.popleft()
        self._octets -= sum(map(len, message.frames))
        bound = self.transport.options.receive_bound
        if self.engine.paused and len(self.messages) <= bound.messages // 2 and self._octets <= bound.octets // 2:
            self.engine.resumed(self._reactor.time())
            if self._peer is not None:
                self._peer.resume()
            self._arm()
        return message

    def subscribe(self, topics: Frames, since: Since | None) -> Ticket:
        """Subscribe to topics, now or as soon as there is a session."""
        ticket = self.engine.subscribe(topics, since, self._reactor.time())
        self._pump()
        return ticket

    def unsubscribe(self, topics: Frames) -> Ticket:
        """Unsubscribe from topics."""
        ticket = self.engine.unsubscribe(topics, self._reactor.time())
        self._pump()
        return ticket

    def try_request(self, verb: bytes, headers: Mapping[bytes, bytes], positional: Frames) -> Ticket | None:
        """Send a command with an ID; return None if there is no session or no room."""
        if self._room() is None:
            return None
        ticket = self.engine.request(verb, headers, positional, self._reactor.time())
        self._pump()
        return ticket

    def try_put(self, topic: bytes, headers: Mapping[bytes, bytes], body: Frames) -> bool:
        """Queue a PUT; return False if there is no session or no room."""
        peer = self._room()
        if peer is None:
            return False
        peer.send(self.engine.put(topic, headers, body, self._reactor.time()))
        return True

    def _room(self) -> Peer | None:
        peer = self._peer
        ready = self.engine.state is State.READY and peer is not None and peer.connected and not peer.full
        return peer if ready else None

    # Called for the engine

    def _pump(self) -> None:
        """Do what the engine says."""
        changed = False
        peer = self._peer
        for output in self.engine.take():
            if isinstance(output, Message):
                self.messages.append(output)
                self._octets += sum(map(len, output.frames))
                self.on_readable()
            elif isinstance(output, Say):
                if peer is not None and peer.connected:
                    peer.send(output.frames)
            elif isinstance(output, HangUp):
                # Later, so that the messages before it go out first.
                self._reactor.call_soon(self._hang_up, self._connections)
            elif isinstance(output, Became):
                self._became(output)
                changed = True
            elif isinstance(output, Complained):
                self.transport.tell(Complaint(self.endpoint, output.text))
            else:
                changed = True
        if changed:
            self.on_writable()  # for callers that wait for a session, or for the outcome of a command
        self._arm()

    def _became(self, output: Became) -> None:
        if output.ready:
            self.transport.tell(SessionReady(self.endpoint, self._been_ready))
            self._been_ready = True
            saved, self._saved = self._saved, []
            if self._peer is not None:
                for frames in saved:
                    self._peer.send(frames)
        else:
            self._warn_later()
            self.transport.tell(SessionLost(self.endpoint, output.reason))

    def _hang_up(self, connection: int) -> None:
        if self._peer is not None and connection == self._connections:
            self._peer.hang_up()

    # Time

    def _arm(self) -> None:
        if not self.transport.closing:
            self._alarm.set(self.engine.deadline)

    def _tick(self) -> None:
        if not self.transport.closing:
            try:
                self.engine.tick(self._reactor.time())
            finally:
                self._pump()  # sets the alarm again

    def close(self, linger: float | None) -> None:
        """Send DISCONNECT, if there is time for it, and begin to close."""
        if not self.transport.closing:
            if linger is None or linger > 0:
                self.engine.leave(self._reactor.time())
                self._pump()
            self._alarm.end()
            self._quiet_alarm.end()
        self.transport.close(linger)
