"""One connection to the broker: the rules of the protocol, as a table of states and commands.

    state      ATTACH    SUBSCRIBE  CREDIT  PUBLISH  PING     PING-OK  DETACH     DETACH-OK
    new        -> open   invalid    invalid invalid  invalid  -        -> closed  invalid
    attaching  whatever comes waits until the stream is made
    open       invalid   yes        yes     yes      barrier  -        -> closed  invalid
    leaving    invalid   -          -       yes      barrier  -        -> closed  -> closed
    parting    whatever comes is ignored: DETACH has come, and PINGs before it are still to be answered
    closed     whatever comes is ignored

(`-` is ignored; ATTACH leads to `attaching` where the stream is not there and has to be made.) What is not allowed, not
understood or not possible is answered INVALID with a reason, and the connection stays open. (ZEP-01, ZEP-08)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from zambezi.wire import WireError
from zambezi.zeps.block import Block, end_of_publishes
from zambezi.zeps.broker.cursor import Cursor, Outlet
from zambezi.zeps.broker.reports import Report
from zambezi.zeps.broker.stream import BrokerStream, where_to_start
from zambezi.zeps.directory import INDEX
from zambezi.zeps.errors import JournalError, OutOfRange, ZepsError
from zambezi.zeps.filters import Filter
from zambezi.zeps.journal import Span
from zambezi.zeps.messages import (
    Attach,
    AttachOk,
    Credit,
    Detach,
    DetachOk,
    Invalid,
    Ping,
    PingOk,
    Publish,
    Subscribe,
    SubscribeOk,
    Zeps,
)

if TYPE_CHECKING:
    from zambezi.zeps.broker.engine import Engine

_REASON: Final = 255  # octets
_MOST_CREDIT: Final = 1 << 62
PART: Final = 5.0  # seconds for a client that said DETACH to read what was said to it
_ATTACH_OK: Final = AttachOk().encode()[0]
_PING_OK: Final = PingOk().encode()[0]
_SUBSCRIBE_OK: Final = SubscribeOk().encode()[0]


class Connection(Outlet, Protocol):
    """The connection of a client, as its session sees it: a `zambezi.zmtp.peer.Peer`."""

    @property
    def full(self) -> bool:
        """Whether too many answers wait for the client already."""

    def send(self, message: bytes) -> None:
        """Queue a message to the client."""

    def pause(self) -> None:
        """Give the session nothing more that the client sends, until `resume`."""

    def resume(self) -> None:
        """Give the session what the client sends again."""

    def close(self, linger: float | None) -> None:
        """Close when all that was sent has gone out, or `linger` is over."""

    def abort(self, reason: str) -> None:
        """Close at once."""


class State(Enum):
    NEW = "new"
    ATTACHING = "attaching"
    OPEN = "open"
    LEAVING = "leaving"
    PARTING = "parting"
    CLOSED = "closed"


class Session:
    """What the broker knows of one connection."""

    def __init__(
        self, engine: Engine, connection: Connection, number: int, address: str, user: str, trusted: bool = False
    ) -> None:
        self._engine = engine
        self._connection = connection
        self.number = number
        self.address = address
        self.user = user
        self.trusted = trusted
        self.state = State.NEW
        self.stream: BrokerStream | None = None
        self.cursor: Cursor | None = None
        self.published = 0
        self.stream_name = ""
        self._report: Report | None = None
        self._may_publish = False
        self._later: list[bytes | None] = []  # what came while the stream is made; None for a message of several frames
        self._held = False  # by the stream
        self._lost = False  # while the stream is made
        self._unanswered = 0  # PINGs

    # In

    def receive(self, frames: Sequence[bytes]) -> None:
        """Take messages of one frame each, in their order."""
        position = 0
        count = len(frames)
        while position < count and not self._is_over:
            if self._may_publish:
                stop = end_of_publishes(frames, position)
                if stop > position:
                    self._publish(list(frames[position:stop]) if position or stop < count else list(frames))
                    position = stop
                    continue
            if self.state is State.ATTACHING:
                self._later += frames[position:]
                return
            self._command(frames[position])
            position += 1

    @property
    def _is_over(self) -> bool:
        """Whether nothing more from the client counts."""
        return self.state is State.CLOSED or self.state is State.PARTING

    def _publish(self, frames: list[bytes]) -> None:
        assert self.stream is not None
        self.published += len(frames)
        self._engine.counters.published += len(frames)
        self.stream.publish(frames, self)

    def receive_multipart(self) -> None:
        """A message of several frames has come: there is none in ZEPS."""
        if self.state is State.ATTACHING:
            self._later.append(None)
        elif not self._is_over:
            self._invalid("multipart", "a message of this protocol has one frame")

    def _command(self, frame: bytes) -> None:
        try:
            message = Zeps.decode(frame)
        except WireError as error:
            self._invalid("malformed", str(error))
            return
        handler = self._table.get((self.state, type(message)))
        if handler is None:
            self._invalid("misplaced", _misplaced(self.state, type(message).__name__))
            return
        handler(self, message)

    def _attach(self, message: Attach) -> None:
        name = message.stream
        engine = self._engine
        if not name:
            self._invalid("attach", "a stream has a name; this one is empty")
            return
        if name.startswith("$"):
            about = name.removeprefix(INDEX)
            if about != name and not engine.allows(self, "subscribe", about):
                self._invalid("forbidden", f"{self.user or 'anybody'} may not subscribe to the stream {about}")
                return
            report = engine.reports.open(name, self._connection)
            if report is None:
                self._invalid("attach", f"there is no reserved stream {name}, or not the stream that it is about")
                return
            report.on_complete = self._report_complete
            self._report = report
            engine.readers[self] = None
            self._grant(name)
            return
        try:
            stream = engine.admit(self, name)
        except ZepsError as error:
            self._invalid("attach", str(error))
            return
        if stream is not None:
            self._enter(stream)
        else:
            self.state = State.ATTACHING
            self._connection.pause()

    def _enter(self, stream: BrokerStream) -> None:
        self.stream = stream
        stream.attached += 1
        self._may_publish = self._engine.allows(self, "publish", stream.name)
        self._grant(stream.name)

    def _grant(self, name: str) -> None:
        self.stream_name = name
        self.state = State.OPEN
        self._say(_ATTACH_OK)

    def admitted(self, stream: BrokerStream) -> None:
        """The stream that the session waits for is there."""
        if self.state is State.ATTACHING:
            self._enter(stream)
            self._catch_up()

    def refused(self, reason: str) -> None:
        """The stream that the session waits for could not be made."""
        if self.state is State.ATTACHING:
            self.state = State.NEW
            self._invalid("attach", reason)
            self._catch_up()

    def _catch_up(self) -> None:
        """Take what came meanwhile: also if the connection is over, as it would have counted in time."""
        later, self._later = self._later, []
        for frame in later:
            if frame is not None:
                self.receive([frame])
            else:
                self.receive_multipart()
        if self.state is State.ATTACHING:
            return  # it was refused, and asks for another stream
        if self._lost:
            self._end()
        elif not self._held:
            self._connection.resume()

    def _subscribe(self, message: Subscribe) -> None:
        engine = self._engine
        try:
            if self._report is not None:
                self._report.subscribe(Filter([message.pattern], engine.matchers), message.latest)
                self._say(_SUBSCRIBE_OK)
            else:
                self._subscribe_stream(message)
        except (ZepsError, OSError) as error:
            self._invalid("subscribe", str(error))

    def _subscribe_stream(self, message: Subscribe) -> None:
        engine = self._engine
        stream = self.stream
        assert stream is not None
        if not engine.allows(self, "subscribe", stream.name):
            self._invalid("forbidden", f"{self.user or 'anybody'} may not subscribe to the stream {stream.name}")
            return
        if self.cursor is not None and len(self.cursor.selections) >= engine.limits.subscriptions:
            self._invalid("limit", f"a connection has at most {engine.limits.subscriptions} subscriptions")
            return
        engine.matchers.parse(message.pattern)  # before anything is changed
        stream.flush()
        if self.state is State.CLOSED:
            return  # the connection was found broken over what was handed out
        after, due = where_to_start(stream.journal, message.latest)
        oldest = stream.journal.first
        skipped = max(0, oldest - 1 - after)
        if skipped:
            engine.counters.fell_behind += 1
            if engine.options.behind == "invalid":
                raise OutOfRange(_behind(after + 1, oldest), oldest)
            after = oldest - 1
        if self.cursor is None:
            self.cursor = Cursor(stream, self._connection, self._fell_behind)
        self.cursor.skipped += skipped
        self.cursor.subscribe(message.pattern, after, due)
        self._say(_SUBSCRIBE_OK)  # in the end, for it may be the end; what was asked for comes later in any case

    def _credit(self, message: Credit) -> None:
        if self._report is not None:
            self._report.add_credit(min(message.credit, _MOST_CREDIT - self._report.credit))
            return
        if self.cursor is None:
            assert self.stream is not None
            self.cursor = Cursor(self.stream, self._connection, self._fell_behind)
        self.cursor.add_credit(min(message.credit, _MOST_CREDIT - self.cursor.credit))

    def _refused_publish(self, message: Publish) -> None:
        """A PUBLISH without fault that may not be."""
        if self._report is not None:
            self._invalid("forbidden", f"{self.stream_name} is told by the broker: nobody publishes to it")
        else:
            self._invalid("forbidden", f"{self.user or 'anybody'} may not publish to the stream {self.stream_name}")

    def _ping(self, message: Ping) -> None:
        self._unanswered += 1
        if self._report is not None:
            if self._report.complete:
                self._report_complete()
        else:
            assert self.stream is not None
            self.stream.barrier(self)

    def _report_complete(self) -> None:
        self.confirm(self._unanswered)

    def _ignore(self, message: Zeps) -> None:
        """Nothing follows from it."""

    def _detach(self, message: Zeps) -> None:
        if self.stream is not None:
            self.stream.flush()
        if self._unanswered and self.stream is not None and not self.stream.held:
            # The disk is asked right now. Where it has no room nobody knows how long it takes, and it may leave.
            self.state = State.PARTING
            self._may_publish = False
            if self.cursor is not None:
                self.cursor.close()
        else:
            self._part()

    def _part(self) -> None:
        self._say(DetachOk().encode()[0])
        self._end()
        self._connection.close(PART)

    def _detached(self, message: Zeps) -> None:
        self._end()
        self._connection.close(PART)

    # What the stream tells its publishers

    def pause(self) -> None:
        self._held = True
        self._connection.pause()

    def resume(self) -> None:
        self._held = False
        self._connection.resume()

    def confirm(self, barriers: int) -> None:
        self._unanswered -= barriers
        for _ in range(barriers):
            if self.state is State.CLOSED:
                return  # it does not read them, and was ended over that
            self._say(_PING_OK)
        if self.state is State.PARTING and not self._unanswered:
            self._part()

    def refuse(self, reason: str) -> None:
        self._invalid("stopped", reason)
        self.detach()

    def dismiss(self) -> None:
        self._engine.counters.dismissed += 1
        self.detach()

    # Out

    def pull(self) -> Block | Span | None:
        """What goes to the client next."""
        try:
            if self.cursor is not None:
                return self.cursor.pull()
            return self._report.pull() if self._report is not None else None
        except (JournalError, OSError) as error:
            self._stop_delivering()
            self._unreadable(error)
            return None

    def report_changes(self) -> None:
        """Send what has changed on a reserved stream."""
        if self._report is not None:
            self._report.report_changes()

    def apply_rules(self) -> None:
        """Apply rules that have changed: end what this client may not do any more, and tell it."""
        if self.state is not State.OPEN:
            return
        allows = self._engine.allows
        self._may_publish = self.stream is not None and allows(self, "publish", self.stream.name)
        about = self.stream.name if self.stream is not None else self.stream_name.removeprefix(INDEX)
        reads = self.cursor is not None and bool(self.cursor.selections)
        reads |= self._report is not None and about != self.stream_name
        if reads and not allows(self, "subscribe", about):
            self._stop_delivering()
            self._invalid("forbidden", f"{self.user or 'anybody'} may not subscribe to the stream {about} any more")

    def _fell_behind(self, wanted: int, oldest: int) -> bool:
        self._engine.counters.fell_behind += 1
        if self._engine.options.behind == "oldest":
            return True
        self._stop_delivering()
        self._invalid("behind", _behind(wanted, oldest))
        return False

    def _stop_delivering(self) -> None:
        """End all subscriptions, before the client is told: to tell it may bring the next `pull`. Its credit stays."""
        if self.cursor is not None:
            credit = self.cursor.credit
            self.cursor.close()
            assert self.stream is not None
            self.cursor = Cursor(self.stream, self._connection, self._fell_behind)
            self.cursor.credit = credit
        elif self._report is not None:
            self._report.stop()

    def _unreadable(self, error: Exception) -> None:
        """The journal, or the disk, is damaged where the client wants to read. It may come back, and find it mended."""
        self._invalid("unreadable", f"the journal cannot be read here: {error}")
        self.detach()

    # The end

    def detach(self) -> None:
        """End the peering from this side. (ZEP-07)"""
        if self.state is State.OPEN:
            self.state = State.LEAVING
            if self.cursor is not None:
                self.cursor.close()
            self._say(Detach().encode()[0])
        elif self.state is State.PARTING:
            self._part()
        elif self.state is State.NEW:
            self._end()
            self._connection.close(PART)
        elif self.state is State.ATTACHING and not self._lost:
            self._lost = True  # what it has published counts, when the stream is made
            self._connection.close(PART)

    def lost(self) -> None:
        """The connection is gone."""
        if self.state is State.ATTACHING:
            self._lost = True
        else:
            self._end()

    def _end(self) -> None:
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._may_publish = False
        if self.cursor is not None:
            self.cursor.close()
            self.cursor = None
        self._report = None
        self._later = []
        if self.stream is not None:
            self.stream.attached -= 1
            self.stream.forget(self)
            self.stream = None
        self._engine.ended(self)

    def _say(self, message: bytes) -> None:
        connection = self._connection
        if connection.full:
            self._engine.counters.unread += 1
            connection.abort("it does not read its answers")
        else:
            connection.send(message)

    def _invalid(self, kind: str, reason: str) -> None:
        self._engine.counters.invalid[kind] += 1
        self._say(Invalid(_printable(reason)).encode()[0])

    _table: ClassVar[Mapping[tuple[State, type], Callable[..., None]]] = {
        (State.NEW, Attach): _attach,
        (State.NEW, PingOk): _ignore,
        (State.NEW, Detach): _detach,
        (State.OPEN, Subscribe): _subscribe,
        (State.OPEN, Credit): _credit,
        (State.OPEN, Publish): _refused_publish,
        (State.OPEN, Ping): _ping,
        (State.OPEN, PingOk): _ignore,
        (State.OPEN, Detach): _detach,
        (State.LEAVING, Subscribe): _ignore,
        (State.LEAVING, Credit): _ignore,
        (State.LEAVING, Ping): _ping,
        (State.LEAVING, PingOk): _ignore,
        (State.LEAVING, Detach): _detach,
        (State.LEAVING, DetachOk): _detached,
    }


def _misplaced(state: State, name: str) -> str:
    if name in ("AttachOk", "SubscribeOk", "Deliver", "Invalid"):
        return f"{name} is for servers to send"
    if state is State.NEW:
        return f"{name} came before ATTACH; say first which stream it is about"
    return f"{name} has no place here: a connection attaches once, and answers only what it was asked"


def _behind(wanted: int, oldest: int) -> str:
    return (
        f"messages {wanted} to {oldest - 1} are not kept any more; the oldest is {oldest}: "
        f"subscribe from 0 or {oldest - 1}"
    )


def _printable(reason: str) -> str:
    """What may stand in INVALID: printable, and not too long."""
    shown = "".join(char if char.isprintable() else "?" for char in reason)
    encoded = shown.encode("utf-8", "replace")
    if len(encoded) <= _REASON:
        return encoded.decode()
    return encoded[: _REASON - 3].decode("utf-8", "ignore") + "..."
