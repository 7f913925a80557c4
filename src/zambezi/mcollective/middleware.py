"""The middleware on its transport: a ROUTER whose peers are the engine's sessions. It never waits; the faces do.

Messages that go to many subscribers go into the queue of each as one object, whose bytes are the same for all. Three
things bound what a client can make the middleware hold:

- A subscriber that does not read has a queue of `send_bound` bytes. When it is full, the clients that send to it wait
  for some seconds in a minute (`pressure`). If it does not read meanwhile, it misses messages; that is counted, told
  as an event, and told to the subscriber as soon as it has read.
- A client that sends commands and does not read the answers is paused until it has read them; so is a client with too
  many pending answers.
- `Bounds` bounds what the engine remembers of a client.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from zambezi.mcollective import messages
from zambezi.mcollective.archive import Archive
from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.events import CaughtUp, ClientGone, CommandDenied, SlowSubscriber
from zambezi.mcollective.messages import NOOP
from zambezi.mcollective.middleware_engine import Engine
from zambezi.mcollective.missed import MissedLog
from zambezi.mcollective.outputs import Deliver, Drop, Happened, Play, Send
from zambezi.mcollective.pressure import Pressure
from zambezi.mcollective.register_file import RegisterFile
from zambezi.mcollective.rules import Rules
from zambezi.mcollective.session import Session
from zambezi.wire.text import quoted
from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.connection import Heartbeat, Limits
from zambezi.zmtp.events import SocketEvent
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.identities import Identities
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.refusals import RefusalLog, writer
from zambezi.zmtp.security import Null
from zambezi.zmtp.transport import CHANCE, Transport

_log: Final = logging.getLogger("zambezi.mcollective")
_REPLAY: Final = 256 * 1024  # bytes of the archive that go out in one step
_UPKEEP: Final = 2.0  # seconds
PENDING: Final = 1000  # answers of one client that wait for the archive

DEFAULT_LIMITS: Final = Limits(frame=1 << 24, message=1 << 24)
DEFAULT_BOUND: Final = Bound(octets=4 * 1024 * 1024)
# Hosts that vanish say nothing, and the kernel does not notice. libzmq answers PING by itself.
DEFAULT_HEARTBEAT: Final = Heartbeat(30.0, 60.0)


class MiddlewareShell:
    """A middleware on a reactor."""

    def __init__(
        self,
        reactor: Reactor,
        options: Options,
        chance: random.Random | None = None,
        *,
        rules: Rules | None = None,
        archive: Archive | None = None,
        bounds: Bounds | None = None,
        sessions: Path | None = None,
    ) -> None:
        self._file = RegisterFile(sessions) if sessions is not None else None
        self.engine = Engine(rules=rules, archive=archive, bounds=bounds, store=self._file)
        self.engine.on_answer = self._pump
        # A client that comes back takes its identity over from its old connection. An identity is only a claim, so it
        # belongs to the user that claims it: another user can have the same one, and takes over nothing.
        self._identities = Identities(chance or CHANCE, handover=True, by_user=True)
        self.transport = Transport(
            reactor,
            "ROUTER",
            self,
            options,
            chance=chance,
            counters=self.engine.counters,
            eager=False,  # the messages of one read go out together, in one write to each subscriber
            admit=self._identities.admit,
            identify=self._identities.identify,
        )
        self.on_readable: Callable[[], object] = lambda: None
        self.on_writable: Callable[[], object] = lambda: None
        self._reactor = reactor
        self._sessions: dict[Peer, Session] = {}
        self._choked: set[Peer] = set()  # paused until they have read their answers
        self._pressure = Pressure(self.engine.bounds, self.transport.send_bytes)
        self._relief = Alarm(reactor, self._relieve)
        self._alarm = Alarm(reactor, self._tick)
        self._missed = MissedLog(reactor, partial(_log.warning, "%s"))
        self._warnings = RefusalLog(reactor, writer(_log.warning))
        self._departures = RefusalLog(reactor, writer(_log.info))
        self._pumping = False
        self._warned = False
        self._upkeep = Alarm(reactor, self._keep_up)
        self._open_register()

    def _open_register(self) -> None:
        """Read the sessions that were there before this process was started."""
        now = self._reactor.time()
        if self._file is not None:
            register = self.engine.register
            register.restore(self._file.open(now))
            self._file.rewrite(register.records.values())
        self._upkeep.set(now + _UPKEEP)

    def _keep_up(self) -> None:
        """Forget absent clients, and note on the disk that we are alive."""
        now = self._reactor.time()
        self.engine.register.expire(now)
        if self._file is not None:
            self._file.flush()
            self._file.touch()
            if self._file.bloated:
                self._file.rewrite(self.engine.register.records.values())
        self._upkeep.set(now + _UPKEEP)

    @property
    def readable(self) -> bool:
        """Whether a message can be received: never, a middleware handles all messages itself."""
        return False

    @property
    def on_event(self) -> Callable[[SocketEvent], object]:
        """The watcher of events."""
        return self.transport.on_event

    @on_event.setter
    def on_event(self, watcher: Callable[[SocketEvent], object]) -> None:
        self.transport.on_event = watcher

    def bind(self, endpoint: str) -> str:
        """Serve clients at an endpoint; return it as bound."""
        bound = self.transport.bind(endpoint)
        if isinstance(self.transport.options.security, Null) and bound.startswith("tcp://") and not self._warned:
            self._warned = True
            _log.warning(
                "no CURVE at %s: every host that can reach it can command all clients, and read all messages", bound
            )
        return bound

    def replace_rules(self, rules: Rules) -> None:
        """Use other rules from now on, for connected clients too."""
        self.engine.replace_rules(rules)
        self._pump()

    # Called by the transport

    def attached(self, peer: Peer) -> None:
        self._identities.add(peer)
        now = self._reactor.time()
        session = self._sessions[peer] = self.engine.opened(peer, peer.identity, peer.user, peer.address, now)
        if session.returning is not None:
            self._arm()

    def received(self, peer: Peer, batch: Batch) -> None:
        session = self._sessions.get(peer)
        if session is None:
            return  # its session has ended
        self.engine.receive(session, batch, self._reactor.time())
        self._pump()
        if len(session.pending) >= PENDING:
            self._choke(peer)
        if session.replays:
            self._replay(peer)

    def writable(self, peer: Peer) -> None:
        session = self._sessions.get(peer)
        if session is None:
            return
        bound = self.transport.send_bytes
        if peer in self._choked and peer.queued <= bound // 2 and len(session.pending) <= PENDING // 2:
            self._choked.discard(peer)
            if not session.paused:
                peer.resume()
        if self._pressure:
            self._free(self._pressure.drained(session, peer.queued, self._reactor.time()))
        if session.missed and peer.queued <= bound // 2 and not session.is_held:
            peer.send(self.engine.caught_up(session))
            self._reactor.call_soon(self._pump)
        if session.replays:
            self._reactor.call_soon(self._replay, peer)
        elif session.record is not None and session.sequence > session.record.position:
            self._advance(peer, session)

    def _advance(self, peer: Peer, session: Session) -> None:
        """Note the position of a client in the kept topics, if all its messages have left this process."""
        if peer.drained and not session.is_held:
            self.engine.register.advance(session)

    def lost(self, peer: Peer, reason: str) -> None:
        self._identities.remove(peer)
        self._choked.discard(peer)
        session = self._sessions.pop(peer, None)
        if session is not None:
            self._free(self._pressure.closed(session, self._reactor.time()))
            self.engine.closed(session, "its connection ended")
            self._pump()

    def _choke(self, peer: Peer) -> None:
        """Read nothing more from a client that does not read: its answers must not pile up."""
        if peer.connected:
            self._choked.add(peer)
            peer.pause()

    def _replay(self, peer: Peer) -> None:
        """Play the archive to a client, a step at a time: the next one comes when this one has gone out."""
        session = self._sessions.get(peer)
        if session is None or not session.replays or session.is_held or peer.queued:
            return  # answers and queued messages go out first, then `writable` is called again
        self.engine.feed(session, min(_REPLAY, self.transport.send_bytes))
        self._pump()
        if session.replays and not peer.queued:
            self._reactor.call_soon(self._replay, peer)

    # Called for the engine

    def _pump(self) -> None:
        """Do what the engine says."""
        if self._pumping:
            return  # the archive answered at once, while we were sending: the loop below goes on
        self._pumping = True
        now = self._reactor.time()
        try:
            while outputs := self.engine.take():
                for output in outputs:
                    if isinstance(output, Deliver):
                        self._deliver(output, now)
                    elif isinstance(output, Send):
                        self._send(output, now)
                    elif isinstance(output, Play):
                        self._reactor.call_soon(self._replay, _peer(output.session))
                    elif isinstance(output, Drop):
                        _peer(output.session).abort(output.reason)
                    else:
                        self._tell(output)
        finally:
            self._pumping = False
            if self._file is not None:
                self._file.flush()
            self._arm()

    def _send(self, output: Send, now: float) -> None:
        session, frames = output.session, output.frames
        peer = _peer(session)
        if not peer.connected:
            return
        if peer.queued >= self.transport.send_bytes:
            if frames[-1] == NOOP:
                return  # the queued messages are signs of life too
            self._choke(peer)
        session.said = now
        if output.answer:
            peer.send_first(frames)
        else:
            peer.send(frames if len(frames) > 1 else frames[0])

    def _deliver(self, output: Deliver, now: float) -> None:
        shared = output.shared
        bound = self.transport.send_bytes
        delivered = 0
        for session in output.sessions:
            peer = _peer(session)
            if not peer.connected:
                continue
            special = session.missed or session.replaying or peer.queued >= bound
            if special and not self._has_room(peer, session, output, now):
                missed = self.engine.skipped(session, output)
                if missed:
                    self._missed.add(_name(session), missed)
                continue
            peer.send(shared)
            session.said = now
            delivered += 1
        delivered *= len(shared.messages)
        if output.topic is not None:
            output.topic.deliveries += delivered
        self.engine.counters.deliveries += delivered

    def _has_room(self, peer: Peer, session: Session, output: Deliver, now: float) -> bool:
        """Make room in a full queue: write, or let the sender wait. Return False if the client misses the messages."""
        bound = self.transport.send_bytes
        topic = output.topic
        if topic is not None and topic.name in session.replaying:
            return False  # it has fallen behind, and gets these messages from the archive
        if session.missed:
            if peer.queued > bound // 2:
                return False  # it is told what it missed before it gets more
            peer.send(self.engine.caught_up(session))
            return True
        if peer.queued >= bound:
            peer.flush()  # the kernel may have room since we tried
        if peer.queued < bound or not peer.connected:
            return peer.connected
        if topic is not None and topic.kept:
            return False  # it gets them from the archive, and nobody has to wait
        if not self._pressure.accept(session, peer.queued, output.sender, now):
            self._free(self._pressure.give_up(session, now))
            return False
        assert output.sender is not None
        _peer(output.sender).pause()
        self._relief.set(self._pressure.deadline)
        return True

    def _relieve(self) -> None:
        """Let no sender wait any longer for the clients that did not read in time."""
        self._free(self._pressure.due(self._reactor.time()))
        self._relief.set(self._pressure.deadline)

    def _free(self, senders: list[Session]) -> None:
        for session in senders:
            self._reactor.call_soon(self._resume, session)

    def _resume(self, session: Session) -> None:
        peer = _peer(session)
        if session.open and not session.paused and peer not in self._choked:
            session.heard = self._reactor.time()
            peer.resume()

    def _tell(self, output: Happened) -> None:
        event, session = output.event, output.session
        fields = {"client": quoted(session.identity), "user": session.user, "address": session.address}
        # All of these are counted; if there are many, they are logged in sum.
        if isinstance(event, SlowSubscriber):
            told = f"{_name(session)} does not read, and misses messages, first of {quoted(event.topic)}"
            self._warnings.add(told, **fields, topic=quoted(event.topic))
        elif isinstance(event, CaughtUp):
            told = f"{_name(session)} reads again; it missed {event.missed} messages"
            self._warnings.add(told, **fields, missed=event.missed)
        elif isinstance(event, CommandDenied):
            who, where = session.user or "an anonymous client", session.address or quoted(session.identity)
            told = f"{who} ({where}) may not {event.verb} {quoted(event.topic)}"
            self._warnings.add(told, **fields, action=event.verb, topic=quoted(event.topic))
        elif isinstance(event, ClientGone):
            missed = f"; it missed {session.missed} messages" if session.missed else ""
            told = f"{_name(session)} is gone: {event.reason}{missed}"
            self._departures.add(told, **fields, reason=event.reason, missed=session.missed)
        self.transport.tell(replace(event, endpoint=_peer(session).endpoint))

    def queues(self) -> list[tuple[str, int, int]]:
        """Return name, length and bound of each queue. Of queues that every client has, the longest counts."""
        transport, engine = self.transport, self.engine
        return [
            ("connections", len(engine.sessions), transport.options.limits.connections),
            ("topics", len(engine.topics), engine.bounds.topics),
            ("outgoing", transport.longest_queue, transport.send_bytes),
            ("reserve", self._pressure.reserved, engine.bounds.reserve_bytes),
        ]

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
        """Begin to close, with `linger` seconds for queued messages.

        Every client with a TTL gets a last NOOP: so it waits for a whole TTL, and a restart has so much time.
        """
        if self.transport.closing:
            return
        for peer, session in self._sessions.items():
            if session.ttl is not None and not session.is_held and peer.queued < self.transport.send_bytes:
                peer.send(messages.noop(session.delimited))
        self._alarm.end()
        self._relief.end()
        self._upkeep.end()
        self._missed.close()
        self._warnings.close()
        self._departures.close()
        self.transport.on_closed = partial(self._close_file, self.transport.on_closed)
        self.transport.close(linger)

    def _close_file(self, closed: Callable[[], object]) -> None:
        if self._file is not None:
            self._file.close()
        closed()


def _peer(session: Session) -> Peer:
    """Return the connection of a session, which is opaque to the engine."""
    return session.connection  # type: ignore[return-value]


def _name(session: Session) -> str:
    name = quoted(session.identity)
    return f"{name} ({session.user})" if session.user else name
