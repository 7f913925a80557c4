"""The middleware on its sockets: a ROUTER whose peers are the engine's sessions. The faces (`asyncio`, `sync`) add the
waiting, and nothing else.

What goes to many goes into the queue of each as one object, whose octets are the same for all. Three things bound what
a client can make us hold:

- A subscriber that does not read has a queue of `send_bound` octets. When that is full it misses messages, which is
  counted, told as an event, and told to it when it reads again. Nobody waits for it.
- A client that sends commands and does not read the answers is not read any more, until it has; nor one to which too
  many answers are owed.
- What the engine itself remembers of a client is bounded by `Bounds`.
"""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from typing import Final

from zambezi.mcollective.archive import Archive
from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.engine import Engine
from zambezi.mcollective.events import ClientGone, SlowSubscriber
from zambezi.mcollective.messages import ERROR, NOOP, OK, Frames, shown
from zambezi.mcollective.outputs import Deliver, Drop, Happened, Send
from zambezi.mcollective.rules import Rules
from zambezi.mcollective.session import Session
from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.connection import Heartbeat, Limits, Ready
from zambezi.zmtp.core import Options
from zambezi.zmtp.frames import Message, size_of
from zambezi.zmtp.patterns import Router
from zambezi.zmtp.pipe import Bound, Pipe
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.security import Null
from zambezi.zmtp.stream import StreamLink

_log: Final = logging.getLogger("zambezi.mcollective")
_REPLAY: Final = 256 * 1024  # octets of the archive that go out in one step
OWED: Final = 1000  # answers that wait for the archive, of one client

DEFAULT_LIMITS: Final = Limits(frame=1 << 24, message=1 << 24)
DEFAULT_BOUND: Final = Bound(octets=4 * 1024 * 1024)
# Hosts that vanish say nothing, and the kernel does not notice. libzmq answers PING by itself.
DEFAULT_HEARTBEAT: Final = Heartbeat(30.0, 60.0)


class MiddlewareCore(Router):
    """A middleware on a reactor."""

    # What one read of a publisher causes goes out together, a write to each subscriber.
    eager = False

    def __init__(
        self,
        reactor: Reactor,
        options: Options,
        chance: random.Random | None = None,
        *,
        rules: Rules | None = None,
        archive: Archive | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        super().__init__(reactor, options, chance, handover=True)
        self.engine = Engine(rules=rules, archive=archive, bounds=bounds)
        self.engine.on_answer = self._answered
        self.counters = self.engine.counters
        self._sessions: dict[Pipe, Session] = {}
        self._choked: set[Pipe] = set()  # those that are not read until they have read their answers
        self._alarm = Alarm(reactor, self._tick)
        self._pumping = False
        self._warned = False

    def bind(self, text: str) -> str:
        endpoint = super().bind(text)
        if isinstance(self.options.security, Null) and endpoint.startswith("tcp://") and not self._warned:
            self._warned = True
            _log.warning("there is no CURVE at %s: whoever can reach it may command all clients, and listen", endpoint)
        return endpoint

    def replace_rules(self, rules: Rules) -> None:
        self.engine.replace_rules(rules)
        self._pump()

    # Clients come and go

    def identify(self, pipe: Pipe, ready: Ready) -> bool:
        """A client that comes back takes its identity over from its old connection; somebody else's it does not get."""
        before = self.peers.get(ready.identity) if ready.identity else None
        if before is not None and before is not pipe and before.user != pipe.user:
            return False
        return super().identify(pipe, ready)

    def attach(self, pipe: Pipe) -> None:
        super().attach(pipe)
        link = pipe.link
        address = link.address if isinstance(link, StreamLink) else ""
        session = self.engine.opened(pipe, pipe.identity, pipe.user, address, self.reactor.time())
        session.apart = not isinstance(link, StreamLink)
        self._sessions[pipe] = session

    def detach(self, pipe: Pipe) -> None:
        super().detach(pipe)
        self._choked.discard(pipe)
        session = self._sessions.pop(pipe, None)
        if session is not None:
            self.engine.closed(session, "its connection ended")
            self._pump()

    # What comes

    def arrived(self, pipe: Pipe) -> None:
        """Everything is taken at once: a read is a batch."""
        session = self._sessions.get(pipe)
        now = self.reactor.time()
        while (batch := pipe.pop_batch()) is not None:
            if session is not None:
                self.engine.receive(session, batch, now)
        if session is not None:
            self._pump()
            if len(session.owed) >= OWED:
                self._choke(pipe)
            if session.replays:
                self._replay(pipe)

    def departed(self, pipe: Pipe) -> None:
        super().departed(pipe)
        session = self._sessions.get(pipe)
        if session is None:
            return
        if pipe in self._choked and pipe.out_octets <= self.send_octets // 2 and len(session.owed) <= OWED // 2:
            self._choked.discard(pipe)
            pipe.paused = False
            if pipe.link is not None:
                pipe.link.resume()
        if session.replays:
            self.reactor.call_soon(self._replay, pipe)

    def _choke(self, pipe: Pipe) -> None:
        """Read nothing more from a client that does not read: its answers must not pile up."""
        if not pipe.paused and pipe.link is not None:
            self._choked.add(pipe)
            pipe.paused = True
            pipe.link.pause()

    def _replay(self, pipe: Pipe) -> None:
        """Play the archive to a client, a step at a time: the next one comes when this one has gone out."""
        session = self._sessions.get(pipe)
        if session is None or not session.replays or session.owed or pipe.outbox:
            return  # what is in the way goes out, and then it is our turn again
        self.engine.feed(session, min(_REPLAY, self.send_octets))
        self._pump()
        if session.replays and not pipe.outbox:
            self.reactor.call_soon(self._replay, pipe)

    # What goes

    def _answered(self) -> None:
        """An archive has done what was asked of it, now or in the middle of something."""
        if not self._pumping:
            self._pump()

    def _pump(self) -> None:
        """Do what the engine wants done."""
        if self._pumping:
            return
        self._pumping = True
        now = self.reactor.time()
        try:
            while outputs := self.engine.take():
                for output in outputs:
                    if isinstance(output, Deliver):
                        self._deliver(output, now)
                    elif isinstance(output, Send):
                        self._send(output, now)
                    elif isinstance(output, Drop):
                        self._drop(output)
                    else:
                        self._tell(output)
        finally:
            self._pumping = False
        self._arm()

    def _send(self, output: Send, now: float) -> None:
        session, frames = output.session, output.frames
        pipe: Pipe = session.connection  # type: ignore[assignment]
        if pipe.link is None:
            return  # it is leaving
        if pipe.out_octets >= self.send_octets:
            if frames[-1] == NOOP:
                return  # enough is under way that says as much
            self._choke(pipe)
        session.said = now
        if output.answer and pipe.outbox:
            self._overtake(session, pipe, frames)
        else:
            pipe.push(frames if len(frames) > 1 else frames[0])

    def _overtake(self, session: Session, pipe: Pipe, frames: Frames) -> None:
        """Queue an answer before the messages that wait, and after the answers that do."""
        outbox = pipe.outbox
        if session.queue is not outbox:
            # The queue is another since it was last sent from. What is left of the old one may begin with answers.
            session.queue = outbox
            session.answers = next((at for at, each in enumerate(outbox) if not _is_answer(each)), len(outbox))
        outbox.insert(session.answers, frames)
        session.answers += 1
        pipe.out_octets += size_of(frames)
        pipe.singles = False
        if pipe.link is not None:
            pipe.link.nudge()

    def _deliver(self, output: Deliver, now: float) -> None:
        burst = output.burst
        size = burst.size
        bound = self.send_octets
        delivered = 0
        for session in output.sessions:
            pipe: Pipe = session.connection  # type: ignore[assignment]
            link = pipe.link
            if link is None:
                continue  # it is leaving
            if pipe.out_octets >= bound:
                self.engine.skipped(session, output)
                continue
            if session.missed:
                pipe.push(self.engine.caught_up(session))
            if session.apart:
                pipe.outbox += burst.messages
            else:
                pipe.outbox.append(burst)
            pipe.out_octets += size
            pipe.singles = False
            session.said = now
            delivered += 1
            link.nudge()
        delivered *= len(burst.messages)
        if output.topic is not None:
            output.topic.deliveries += delivered
        self.engine.counters.deliveries += delivered

    def _drop(self, output: Drop) -> None:
        pipe: Pipe = output.session.connection  # type: ignore[assignment]
        if pipe.link is not None:
            pipe.link.abort(output.reason)

    def _tell(self, output: Happened) -> None:
        event = output.event
        if isinstance(event, SlowSubscriber):
            _log.warning("%s does not read, and misses messages, of %s first", _who(output.session), shown(event.topic))
        elif isinstance(event, ClientGone):
            _log.info("%s is gone: %s", _who(output.session), event.reason)
        pipe: Pipe = output.session.connection  # type: ignore[assignment]
        self.happened(replace(event, endpoint=pipe.endpoint))

    # Time

    def _arm(self) -> None:
        """Be called when the engine wants to be."""
        if not self.closing:
            self._alarm.set(self.engine.deadline)

    def _tick(self) -> None:
        if not self.closing:
            self.engine.tick(self.reactor.time())
            self._pump()

    def close(self, linger: float | None) -> None:
        self._alarm.end()
        super().close(linger)


def _is_answer(message: Message) -> bool:
    return isinstance(message, tuple) and (message[0] or message[1]) in (OK, ERROR)


def _who(session: Session) -> str:
    name = shown(session.identity)
    return f"{name} ({session.user})" if session.user else name
