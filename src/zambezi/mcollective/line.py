"""The connector on its socket: a DEALER with one peer, the middleware. The faces add the waiting, and nothing else.

Messages are taken from the socket as they come, so that answers and heartbeats among them are never stuck behind what
the program has not read yet. When that is too much, nothing more is read, and the middleware sees a slow subscriber.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
from collections import deque
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from zambezi.mcollective.archive import Since
from zambezi.mcollective.connector import Became, Complained, ConnectorEngine, HangUp, Message, Say, State, Ticket
from zambezi.mcollective.errors import McollectiveError
from zambezi.mcollective.events import Complaint, SessionLost, SessionReady
from zambezi.mcollective.messages import ID, PUT, Frames
from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.core import AnyLink, Core, Options
from zambezi.zmtp.errors import TimedOut
from zambezi.zmtp.events import HandshakeFailed, Retrying, SocketEvent
from zambezi.zmtp.pipe import Link, Pipe
from zambezi.zmtp.reactor import Reactor

DEFAULT_TTL: Final = 30.0
DEFAULT_LINGER: Final = 1.0


def default_identity() -> bytes:
    """Host, process and a random part: what the middleware's operators see of us."""
    host = socket.gethostname().encode("utf-8", "replace")[:200]
    return b"%s %d %s" % (host or b"host", os.getpid(), secrets.token_hex(4).encode())


class ConnectorCore(Core):
    """A connector on a reactor."""

    socket_type = "DEALER"

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
            raise McollectiveError(f"a TTL is a time above zero seconds, or None for no heartbeats: not {ttl}")
        super().__init__(reactor, options, chance)
        self.endpoint = endpoint
        self.engine = ConnectorEngine(ttl, lambda: str(uuid4()))
        self.messages: deque[Message] = deque()
        self._octets = 0  # of these messages
        self._pipe: Pipe | None = None
        self._saved: list[Frames] = []  # PUTs that had not gone out when the connection was lost
        self._reason = ""
        self._problem = "nothing was heard of it yet"
        self._been_ready = False
        self._alarm = Alarm(reactor, self._tick)

    def start(self) -> None:
        self.connect(self.endpoint)

    # The connection

    def attach(self, pipe: Pipe) -> None:
        super().attach(pipe)
        self._pipe = pipe
        self.engine.up(self.reactor.time())
        self._pump()

    def link_lost(self, link: AnyLink, reason: str) -> None:
        self._reason = reason
        super().link_lost(link, reason)

    def detach(self, pipe: Pipe) -> None:
        super().detach(pipe)
        for message in pipe.outbox:
            if isinstance(message, tuple) and message[1] == PUT and message[2] != ID:
                self._saved.append(message)
        pipe.clear_outbox()
        self.engine.down(self._reason)
        self._pump()

    # What comes

    def arrived(self, pipe: Pipe) -> None:
        now = self.reactor.time()
        while (batch := pipe.pop_batch()) is not None:
            self.engine.receive(batch, now)
        self._pump()
        bound = self.options.receive_bound
        if len(self.messages) >= bound.messages or self._octets >= bound.octets:
            self.engine.paused = True
            pipe.paused = True
            if pipe.link is not None:
                pipe.link.pause()

    def next_message(self) -> Message | None:
        if not self.messages:
            return None
        message = self.messages.popleft()
        self._octets -= sum(map(len, message.frames))
        bound = self.options.receive_bound
        if self.engine.paused and len(self.messages) <= bound.messages // 2 and self._octets <= bound.octets // 2:
            self.engine.resumed(self.reactor.time())
            pipe = self._pipe
            if pipe is not None and pipe.paused:
                pipe.paused = False
                if pipe.link is not None:
                    pipe.link.resume()
            self._arm()
        return message

    # What the program asks

    @property
    def ready_now(self) -> bool:
        return self.engine.state is State.READY

    def no_session(self, timeout: float | None) -> TimedOut:
        """What to raise where a session was waited for in vain."""
        return TimedOut(f"no session with the middleware at {self.endpoint} after {timeout:g} s: {self._problem}")

    def happened(self, event: SocketEvent) -> None:
        # For those who wait: the latest is the likeliest to be why.
        match event:
            case HandshakeFailed(_, _, reason) | Retrying(_, _, _, reason) | SessionLost(_, reason):
                self._problem = reason
            case Complaint(_, text):
                self._problem = f"it says: {text}"
        super().happened(event)

    def subscribe(self, topics: Frames, since: Since | None) -> Ticket:
        ticket = self.engine.subscribe(topics, since, self.reactor.time())
        self._pump()
        return ticket

    def unsubscribe(self, topics: Frames) -> Ticket:
        ticket = self.engine.unsubscribe(topics, self.reactor.time())
        self._pump()
        return ticket

    def try_request(self, verb: bytes, headers: Mapping[bytes, bytes], positional: Frames) -> Ticket | None:
        """Say a command with an ID, if there is a session and room; None otherwise."""
        if not self._room:
            return None
        ticket = self.engine.request(verb, headers, positional, self.reactor.time())
        self._pump()
        return ticket

    def try_put(self, topic: bytes, headers: Mapping[bytes, bytes], body: Frames) -> bool:
        """Queue a PUT, if there is a session and room."""
        pipe = self._room
        if pipe is None:
            return False
        pipe.push(self.engine.put(topic, headers, body, self.reactor.time()))
        return True

    @property
    def _room(self) -> Pipe | None:
        pipe = self._pipe
        ready = self.engine.state is State.READY and pipe is not None and pipe.link is not None and not pipe.full
        return pipe if ready else None

    # What goes

    def _pump(self) -> None:
        changed = False
        for output in self.engine.take():
            if isinstance(output, Message):
                self.messages.append(output)
                self._octets += sum(map(len, output.frames))
                self.on_readable()
            elif isinstance(output, Say):
                if self._pipe is not None and self._pipe.link is not None:
                    self._pipe.push(output.frames)
            elif isinstance(output, HangUp):
                if self._pipe is not None and self._pipe.link is not None:
                    # After what was said last: that is on its way when the loop comes round.
                    self.reactor.call_soon(self._hang_up, self._pipe.link)
            elif isinstance(output, Became):
                self._became(output)
                changed = True
            elif isinstance(output, Complained):
                self.happened(Complaint(self.endpoint, output.text))
            else:
                changed = True
        if changed:
            self.on_writable()  # who waits for a session, or for the outcome of a command
        self._arm()

    def _became(self, output: Became) -> None:
        if output.ready:
            self.happened(SessionReady(self.endpoint, self._been_ready))
            self._been_ready = True
            saved, self._saved = self._saved, []
            if self._pipe is not None:
                for frames in saved:
                    self._pipe.push(frames)
        else:
            self.happened(SessionLost(self.endpoint, output.reason))

    def _hang_up(self, link: Link) -> None:
        if self._pipe is not None and self._pipe.link is link:
            link.finish()

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
        if not self.closing:
            if linger is None or linger > 0:
                self.engine.leave(self.reactor.time())
                self._pump()
            self._alarm.end()
        super().close(linger)
