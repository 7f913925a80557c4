"""A middleware's engine with clients, a clock and no sockets."""

from __future__ import annotations

from zambezi.mcollective.archive import Archive
from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.events import ClientEvent
from zambezi.mcollective.middleware_engine import Engine
from zambezi.mcollective.outputs import Deliver, Drop, Happened, Play, Send
from zambezi.mcollective.register import Store
from zambezi.mcollective.rules import Rules
from zambezi.zmtp.frames import parts_of

E = b""  # the empty frame


class Client:
    """A client that sends frames, and keeps the messages that it gets."""

    def __init__(self, stage: Stage, name: bytes, user: str) -> None:
        self.stage = stage
        self.heard: list[tuple[bytes, ...]] = []
        self.dropped = ""
        self.session = stage.engine.opened(self, name, user, "", stage.now)

    def say(self, *frames: bytes) -> list[tuple[bytes, ...]]:
        """Send one message; return the messages that came to this client since the last call."""
        return self.say_all([list(frames)])

    def say_all(self, messages: list[list[bytes]]) -> list[tuple[bytes, ...]]:
        """Send several messages that the engine gets in one read."""
        self.stage.engine.receive(self.session, messages, self.stage.now)
        self.stage.pump()
        return self.take()

    def take(self) -> list[tuple[bytes, ...]]:
        heard, self.heard = self.heard, []
        return heard

    def connect(self, ttl: int | None = None) -> None:
        headers = [b"VERSION", b"0.2"] + ([b"TTL", b"%d" % ttl] if ttl is not None else [])
        assert self.say(E, b"CONNECT", *headers) == []

    def sub(self, *topics: bytes) -> None:
        assert self.say(E, b"SUB", E, *topics) == []

    def leave(self) -> None:
        """End the connection."""
        self.stage.engine.closed(self.session, "its connection ended")
        self.stage.pump()


class Stage:
    """An engine, its clients, and a clock that stands still until `pass_time`."""

    def __init__(
        self,
        *,
        rules: Rules | None = None,
        archive: Archive | None = None,
        bounds: Bounds | None = None,
        store: Store | None = None,
    ) -> None:
        self.archive = archive
        self.engine = Engine(rules=rules, archive=archive, bounds=bounds, store=store)
        self.engine.on_answer = self.pump
        self.now = 1000.0
        self.events: list[ClientEvent] = []
        self.full: set[Client] = set()  # clients whose queues are full
        self._pumping = False

    def client(self, name: bytes = b"client", user: str = "") -> Client:
        return Client(self, name, user)

    def pump(self) -> None:
        if self._pumping:
            return
        self._pumping = True
        while outputs := self.engine.take():
            for output in outputs:
                if isinstance(output, Send):
                    client = output.session.connection
                    assert isinstance(client, Client)
                    client.heard.append(output.frames)
                    output.session.said = self.now
                elif isinstance(output, Deliver):
                    self._deliver(output)
                elif isinstance(output, Play):
                    while output.session.replays and not output.session.is_held:
                        self.engine.feed(output.session, 1 << 20)
                elif isinstance(output, Drop):
                    client = output.session.connection
                    assert isinstance(client, Client)
                    client.dropped = output.reason
                    self.engine.closed(output.session, output.reason)
                else:
                    assert isinstance(output, Happened)
                    self.events.append(output.event)
        self._pumping = False

    def _deliver(self, output: Deliver) -> None:
        for session in output.sessions:
            client = session.connection
            assert isinstance(client, Client)
            if client in self.full:
                self.engine.skipped(session, output)
                continue
            if session.missed:
                client.heard.append(self.engine.caught_up(session))
            client.heard += map(parts_of, output.shared.messages)
            session.said = self.now
            self.engine.register.advance(session)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and the engine's timers fire when they are due."""
        end = self.now + seconds
        while self.engine.deadline <= end:
            self.now = max(self.now, self.engine.deadline)
            self.engine.tick(self.now)
            self.pump()
        self.now = end
