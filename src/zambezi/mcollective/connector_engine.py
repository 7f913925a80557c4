"""The connector's side of the protocol, without I/O: how a client keeps its session.

    DOWN          there is no connection to the middleware
    CONNECTING    CONNECT is sent, and the answer is awaited
    SUBSCRIBING   SUB is sent for all topics of the program, and the answers are awaited
    READY         the program can send and receive

On the wire it does what the Ruby connector does: it sends an empty frame first, an ID with every command but PUT, and a
NOOP when it has sent nothing for 0.85 of the TTL. If the middleware is silent for a whole TTL, it sends DISCONNECT,
makes a new connection, and sends CONNECT and one SUB with all topics. It improves on the Ruby connector in two ways: it
does not take the next message for the answer, but compares the ID; and it remembers its position in kept topics, and
asks for the rest after a lost connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final, TypeAlias

from zambezi.mcollective import messages
from zambezi.mcollective.archive import Since
from zambezi.mcollective.errors import CommandRefused, Malformed, McollectiveError, Unconfirmed
from zambezi.mcollective.messages import (
    CONNECT,
    DESCRIPTION,
    DISCONNECT,
    ERROR,
    EXPECTED,
    ID,
    MESSAGE,
    MISSED,
    NOOP,
    PUT,
    SEQUENCE,
    SINCE,
    SUB,
    TOPIC,
    TTL,
    UNSUB,
    VERSION,
    Command,
    Frames,
)
from zambezi.mcollective.vigil import BEAT, GRACE
from zambezi.wire.text import as_text, quoted

SPOKEN: Final = b"0.2"
PATIENCE: Final = 10.0  # seconds for the answers to CONNECT and to the first SUB, unless the TTL is shorter
_NEVER: Final = float("inf")


class State(Enum):
    """The state of the session."""

    DOWN = "down"
    CONNECTING = "connecting"
    SUBSCRIBING = "subscribing"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Message:
    """A message that a client PUT to a topic. `frames` is its body, usually of one frame."""

    topic: str
    frames: Frames
    headers: Mapping[str, str] = field(default_factory=dict)  # only those that begin with X-

    @property
    def body(self) -> bytes:
        """The first frame of the body, which is usually the only one."""
        return self.frames[0]

    @property
    def reply_to(self) -> str | None:
        """The topic on which the sender awaits an answer; None if it does not."""
        return self.headers.get("X-REPLY-TO")

    @property
    def user(self) -> str:
        """The user that sent the message, as the middleware has authenticated it; empty if it is anonymous."""
        return self.headers.get("X-ZAMBEZI-USER", "")

    @property
    def sequence(self) -> int | None:
        """The number of the message, if the topic is kept; None otherwise."""
        return messages.number_of(self.headers.get("X-SEQUENCE", ""))


class Ticket:
    """A command whose outcome is awaited: the headers of the OK, or an error."""

    __slots__ = ("id", "outcome", "topics", "verb")

    def __init__(self, id: bytes, verb: bytes, topics: Frames = ()) -> None:  # noqa: A002
        self.id = id
        self.verb = verb
        self.topics = topics
        self.outcome: Mapping[bytes, bytes] | McollectiveError | None = None

    @property
    def settled(self) -> bool:
        """Whether the outcome is known."""
        return self.outcome is not None

    def result(self) -> Mapping[bytes, bytes]:
        """Return the headers of the OK, or raise the error."""
        if isinstance(self.outcome, McollectiveError):
            raise self.outcome
        return self.outcome or {}


@dataclass(frozen=True, slots=True)
class Say:
    """Send a message to the middleware."""

    frames: Frames


@dataclass(frozen=True, slots=True)
class HangUp:
    """End the connection, after earlier messages have gone out, and make another one."""

    reason: str


@dataclass(frozen=True, slots=True)
class Became:
    """Tell the program that the session is ready, or lost."""

    ready: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Complained:
    """Tell the program of an ERROR that answers no command."""

    text: str


@dataclass(frozen=True, slots=True)
class Settled:
    """Wake the caller of a command: its outcome is known."""

    ticket: Ticket


Output: TypeAlias = Say | HangUp | Became | Complained | Settled | Message


class ConnectorEngine:
    """One session with one middleware, over any number of connections."""

    def __init__(self, ttl: float | None, new_id: Callable[[], str]) -> None:
        self.ttl = ttl
        self.state = State.DOWN
        self.missed = 0  # messages that the middleware could not deliver to us, by its own count
        self.malformed = 0  # messages that are not in the grammar
        self.paused = False  # whether we stopped reading: then the middleware's silence means nothing
        self._new_id = new_id
        self._wanted: dict[bytes, Since | None] = {}  # the topics of the program, with our position in kept ones
        self._tickets: dict[bytes, Ticket] = {}
        self._joining: dict[bytes, tuple[Frames, Since | None]] = {}  # our own SUBs after CONNECT, by ID
        self._greeting = b""  # the ID of CONNECT
        self._unsaid: dict[bytes, Ticket] = {}  # SUBs and UNSUBs of the program while there was no session
        self._heard = 0.0
        self._said = 0.0
        self._out: list[Output] = []

    # The connection

    def up(self, now: float) -> None:
        """Begin a session: a connection was made."""
        self._heard = now
        self._connect(now)

    def _connect(self, now: float) -> None:
        self.state = State.CONNECTING
        self._joining.clear()
        self._greeting = self._new_id().encode()
        headers = {ID: self._greeting}
        if self.ttl is not None:
            headers[TTL] = b"%d" % round(self.ttl * 1000)
        headers[VERSION] = SPOKEN
        self._say(Command(CONNECT, headers), now)

    def down(self, reason: str) -> None:
        """End the session: the connection was lost."""
        if self.state is not State.DOWN:
            self._lose(reason)
            self.state = State.DOWN

    def _lose(self, reason: str) -> None:
        was_ready = self.state is State.READY
        self.state = State.DOWN
        for ticket in list(self._tickets.values()):
            del self._tickets[ticket.id]
            if ticket.verb in (SUB, UNSUB):
                # `_wanted` has its topics, and the next session settles it.
                self._unsaid[ticket.id] = ticket
            else:
                self._settle(ticket, Unconfirmed(f"the answer to {ticket.verb.decode()} did not come: {reason}"))
        if was_ready:
            self._out.append(Became(False, reason))

    # For the program

    def subscribe(self, topics: Iterable[bytes], since: Since | None, now: float) -> Ticket:
        """Subscribe to topics; with `since`, also to messages that were PUT to them before."""
        names = tuple(dict.fromkeys(topics))
        for name in names:
            self._wanted[name] = since
        return self._change_subscriptions(SUB, names, since, now)

    def unsubscribe(self, topics: Iterable[bytes], now: float) -> Ticket:
        """Unsubscribe from topics."""
        names = tuple(dict.fromkeys(topics))
        for name in names:
            self._wanted.pop(name, None)
        return self._change_subscriptions(UNSUB, names, None, now)

    def _change_subscriptions(self, verb: bytes, names: Frames, since: Since | None, now: float) -> Ticket:
        ticket = Ticket(self._new_id().encode(), verb, names)
        if self.state in (State.READY, State.SUBSCRIBING):
            self._tickets[ticket.id] = ticket
            headers = {ID: ticket.id}
            if since is not None:
                headers[SINCE] = _since_value(since)
            self._say(Command(verb, headers, names), now)
        else:
            self._unsaid[ticket.id] = ticket
        return ticket

    def request(self, verb: bytes, headers: Mapping[bytes, bytes], positional: Frames, now: float) -> Ticket:
        """Send a command with an ID. The session must be ready."""
        ticket = Ticket(self._new_id().encode(), verb)
        self._tickets[ticket.id] = ticket
        self._say(Command(verb, {ID: ticket.id, **headers}, positional), now)
        return ticket

    def forget(self, ticket: Ticket) -> None:
        """Forget a command: its caller does not wait any more."""
        self._tickets.pop(ticket.id, None)
        self._unsaid.pop(ticket.id, None)

    def put(self, topic: bytes, headers: Mapping[bytes, bytes], body: Frames, now: float) -> Frames:
        """Return the frames of a PUT without an ID, which the caller sends."""
        self._said = now
        return Command(PUT, {TOPIC: topic, **headers}, body).encode()

    def leave(self, now: float) -> None:
        """End the session with DISCONNECT: the program closes the connector."""
        if self.state is not State.DOWN:
            self._say(Command(DISCONNECT), now)
            self.state = State.DOWN

    def topics(self) -> list[bytes]:
        """Return the topics that the program subscribed to."""
        return list(self._wanted)

    # Messages in

    def receive(self, batch: Iterable[Sequence[bytes]], now: float) -> None:
        """Receive the messages of one read, in order. No message raises."""
        self._heard = now
        for frames in batch:
            try:
                command = messages.decode(frames)
                messages.check(command, "middleware")
            except Malformed:
                self.malformed += 1
                continue
            if command.verb == MESSAGE:
                self._receive_message(command)
            elif command.verb != NOOP:
                self._receive_answer(command, now)

    def _receive_message(self, command: Command) -> None:
        topic = command.headers[TOPIC]
        sequence = messages.number_of(command.headers.get(SEQUENCE, b""))
        if sequence is not None and self._wanted.get(topic) is not None:
            self._wanted[topic] = sequence
        headers = {as_text(key): as_text(value) for key, value in command.headers.items() if key.startswith(b"X-")}
        self._out.append(Message(as_text(topic), command.positional, headers))

    def _receive_answer(self, command: Command, now: float) -> None:
        id = command.id  # noqa: A001 - the header's own name
        refusal = as_text(command.headers.get(DESCRIPTION, b"no reason given")) if command.verb == ERROR else ""
        if command.verb == ERROR and command.headers.get(EXPECTED) == CONNECT and self.state is not State.CONNECTING:
            self._lose(refusal)
            self._connect(now)
            return
        if id == self._greeting and self.state is State.CONNECTING:
            if refusal:
                self._out.append(Complained(refusal))
                self._hang_up(f"CONNECT was refused: {refusal}", now)
            else:
                self._resubscribe(now)
        elif id in self._joining:
            self._joined(*self._joining.pop(id), refusal, now)
        elif id is not None and (ticket := self._tickets.pop(id, None)) is not None:
            if refusal and ticket.verb == SUB:
                for name in ticket.topics:
                    self._wanted.pop(name, None)
            self._settle(ticket, CommandRefused(refusal) if refusal else command.headers)
        elif refusal:
            number = command.headers.get(MISSED, b"")
            self.missed += messages.number_of(number) or 0
            self._out.append(Complained(refusal))

    # After CONNECT

    def _resubscribe(self, now: float) -> None:
        """Send one SUB with all live topics, and one for each topic that we follow through an archive."""
        self.state = State.SUBSCRIBING
        live = tuple(name for name, since in self._wanted.items() if since is None)
        if live:
            self._join(live, None, now)
        for name, since in list(self._wanted.items()):
            if since is not None:
                self._join((name,), since, now)
        self._perhaps_ready()

    def _join(self, names: Frames, since: Since | None, now: float) -> None:
        id = self._new_id().encode()  # noqa: A001
        self._joining[id] = (names, since)
        headers = {ID: id}
        if since is not None:
            headers[SINCE] = _since_value(since)
        self._say(Command(SUB, headers, names), now)

    def _joined(self, names: Frames, since: Since | None, refusal: str, now: float) -> None:
        if refusal and len(names) > 1:
            for name in names:  # one of them was refused: try each alone
                self._join((name,), None, now)
        elif refusal:
            self._drop_refused(names[0], since, refusal, now)
        self._perhaps_ready()

    def _drop_refused(self, name: bytes, since: Since | None, refusal: str, now: float) -> None:
        asked = [ticket for ticket in self._unsaid.values() if ticket.verb == SUB and name in ticket.topics]
        for ticket in asked:
            self._settle(ticket, CommandRefused(refusal))
            del self._unsaid[ticket.id]
        if since is not None and not asked:
            # The archive is not the one that we knew. Subscribe to the messages from now on at least.
            self._out.append(Complained(f"the missed messages of {quoted(name)} cannot be replayed: {refusal}"))
            self._wanted[name] = None
            self._join((name,), None, now)
            return
        self._wanted.pop(name, None)
        if not asked:
            self._out.append(Complained(f"no longer subscribed to {quoted(name)}: {refusal}"))

    def _perhaps_ready(self) -> None:
        if self._joining or self.state is not State.SUBSCRIBING:
            return
        self.state = State.READY
        for ticket in self._unsaid.values():
            self._settle(ticket, {})
        self._unsaid.clear()
        self._out.append(Became(True))

    # Silence

    @property
    def deadline(self) -> float:
        """The time at which `tick` must be called; infinity if never."""
        if self.state is State.DOWN:
            return _NEVER
        times = []
        if self.ttl is not None:
            times.append(self._said + BEAT * self.ttl)
            if not self.paused:
                times.append(self._heard + self.ttl)
        if self.state is not State.READY and not self.paused:
            times.append(self._heard + PATIENCE)
        return min(times, default=_NEVER)

    def tick(self, now: float) -> None:
        """Send NOOP when it is due (MCO-06), and give up a middleware that is silent for the TTL."""
        if self.state is State.DOWN:
            return
        if self.ttl is not None and now - self.deadline > GRACE * self.ttl:
            # We were away ourselves: messages of the middleware can wait in the socket to be read.
            self._heard = max(self._heard, now - (1 - GRACE) * self.ttl)
        if self.state is not State.READY and not self.paused and now >= self._heard + PATIENCE:
            self._hang_up(f"no answer to CONNECT within {PATIENCE:g} s", now)
        elif self.ttl is not None and not self.paused and now >= self._heard + self.ttl:
            self._hang_up(f"the middleware was silent for the TTL of {self.ttl:g} s", now)
        elif self.ttl is not None and now >= self._said + BEAT * self.ttl:
            self._say(Command(NOOP), now)

    def resumed(self, now: float) -> None:
        """Note that we read again, after a pause."""
        self.paused = False
        self._heard = now

    def _hang_up(self, reason: str, now: float) -> None:
        self._say(Command(DISCONNECT), now)
        self._out.append(HangUp(reason))
        self._lose(reason)

    # Outputs

    def _settle(self, ticket: Ticket, outcome: Mapping[bytes, bytes] | McollectiveError) -> None:
        ticket.outcome = outcome
        self._out.append(Settled(ticket))

    def _say(self, command: Command, now: float) -> None:
        self._said = now
        self._out.append(Say(command.encode()))

    def take(self) -> list[Output]:
        """Return what to do, in order, and forget it."""
        outputs, self._out = self._out, []
        return outputs


def _since_value(since: Since) -> bytes:
    if isinstance(since, datetime):
        return since.isoformat().encode()
    return b"%d" % since
