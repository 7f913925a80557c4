"""One connection to the broker: the rules of the protocol, as a table of states and commands.

    state      ATTACH    SUBSCRIBE  CREDIT  PUBLISH  PING     PING-OK  DETACH     DETACH-OK
    new        -> open   invalid    invalid invalid  invalid  -        -> closed  invalid
    attaching  everything waits until the stream is created
    open       invalid   yes        yes     yes      barrier  -        -> closed  invalid
    leaving    invalid   -          -       yes      barrier  -        -> closed  -> closed
    parting    everything is ignored: the client has sent DETACH, and PINGs before it are not answered yet
    closed     everything is ignored

(`-` means ignored; ATTACH leads to `attaching` if the stream does not exist and must be created.) The session answers a
message that is not allowed, not valid or not possible with INVALID and a reason, and the connection stays open.
(ZEP-01, ZEP-08) Only a client that sends `FAULTS` messages which are not ZEPS is disconnected.

A session handles a few commands at once. If a client sends more, or does not read its answers, the session pauses the
connection and keeps the rest: for a later turn, or until the client reads. So TCP holds the client back.

A session does no I/O and needs no clock: it calls methods of its `Connection`, its stream and the engine.
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
from zambezi.zeps.broker.turns import INLINE, SUBSCRIBE
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
    Ping,
    PingOk,
    Publish,
    Subscribe,
    SubscribeOk,
    Zeps,
    invalid,
)
from zambezi.zmtp.frames import Oversize

if TYPE_CHECKING:
    from zambezi.zeps.broker.engine import Engine

FAULTS: Final = 1000  # messages that are not ZEPS, after which a client is disconnected
_UNANSWERED: Final = 1000  # PINGs that may wait for the disk before the client's input waits, too
_FAULTY: Final = frozenset({"malformed", "misplaced", "multipart"})
_MOST_CREDIT: Final = 1 << 62
GOODBYE: Final = 5.0  # seconds that a client has to read its answers after DETACH
_ATTACH_OK: Final = AttachOk().encode()[0]
_PING_OK: Final = PingOk().encode()[0]
_SUBSCRIBE_OK: Final = SubscribeOk().encode()[0]


class _Multipart(bytes):
    """The place of a message of several frames among those of one frame. ZEPS has none, so the frames do not matter."""

    __slots__ = ()


_MULTIPART: Final = _Multipart()


class Connection(Outlet, Protocol):
    """The connection of a client, as its session sees it: a `zambezi.zmtp.peer.Peer`."""

    @property
    def full(self) -> bool:
        """Whether the queue of answers to the client is full."""

    def send(self, message: bytes) -> None:
        """Queue a message to the client."""

    def pause(self) -> None:
        """Pass no more messages of the client to the session until `resume`."""

    def resume(self) -> None:
        """Pass the messages of the client to the session again."""

    def close(self, linger: float | None) -> None:
        """Close when all queued messages have gone out, or after `linger` seconds."""

    def abort(self, reason: str) -> None:
        """Close at once."""


class SessionState(Enum):
    """The states of a session. The table is in the docstring of this module."""

    NEW = "new"
    ATTACHING = "attaching"
    OPEN = "open"
    LEAVING = "leaving"
    PARTING = "parting"
    CLOSED = "closed"


class Session:
    """One connection of a client to the broker."""

    def __init__(
        self, engine: Engine, connection: Connection, number: int, address: str, user: str, trusted: bool = False
    ) -> None:
        self._engine = engine
        self._connection = connection
        self.number = number
        self.address = address
        self.user = user
        self.trusted = trusted
        self.state = SessionState.NEW
        self.stream: BrokerStream | None = None
        self.cursor: Cursor | None = None
        self.published = 0
        self.stream_name = ""
        self._report: Report | None = None
        self._may_publish = False
        self._deferred: list[bytes] = []  # messages that wait: for the stream, for a turn, or until the client reads
        self._handling = False  # whether deferred messages are being handled now
        self._in_line = False  # whether the session waits for its turn
        self._spent = 0  # units of work since its turn began
        self._paused_by_stream = False
        self._connection_lost = False
        self._unanswered_pings = 0
        self._faults = 0

    # Messages of the client

    def receive(self, frames: Sequence[bytes]) -> None:
        """Handle messages of one frame each, in order."""
        if self._deferred:
            self._deferred += frames
            return
        done = self._handle_some(frames)
        if done < len(frames):
            self._deferred = list(frames[done:])
            self._await_input()

    def _handle_some(self, frames: Sequence[bytes]) -> int:
        """Handle messages until their work is enough for one turn, or must wait; return how many were handled."""
        position = 0
        count = len(frames)
        self._spent = 0
        while position < count and not self._ignores_input:
            if self._spent >= INLINE:
                return position
            self._spent += 1
            if self._may_publish:
                stop = end_of_publishes(frames, position)
                if stop > position:
                    self._publish(list(frames[position:stop]) if position or stop < count else list(frames))
                    position = stop
                    continue
            if self.state is SessionState.ATTACHING or self._backed_up:
                return position
            self._handle(frames[position])
            position += 1
        return count

    @property
    def _backed_up(self) -> bool:
        """Whether too many answers wait: until the client reads, or until the disk has confirmed."""
        return self._connection.full or self._unanswered_pings >= _UNANSWERED

    def _handle_deferred(self) -> None:
        """Handle some of the deferred messages, then wait for the rest or for new ones."""
        if self._handling:
            return  # an answer went out while they are being handled
        self._handling = True
        try:
            done = self._handle_some(self._deferred)
        finally:
            self._handling = False
        del self._deferred[:done]
        self._await_input()

    def _await_input(self) -> None:
        """Resume the connection if no message is deferred; otherwise pause it, and wait for whatever holds them up."""
        self._engine.unread.pop(self, None)
        if self.state is SessionState.ATTACHING:
            self._connection.pause()
        elif self._connection_lost:
            self._finish_lost()
        elif self._deferred:
            self._connection.pause()
            if self._backed_up:
                self._engine.unread[self] = 0
            elif not (self._paused_by_stream or self._in_line):
                self._in_line = True
                self._engine.turns.wait(self._take_turn)
        elif not self._paused_by_stream:
            self._connection.resume()

    def _take_turn(self) -> int:
        self._in_line = False
        self._handle_deferred()
        return self._spent

    def on_writable(self) -> None:
        """Go on with the deferred messages: the client has read answers."""
        if not self._backed_up:
            self._handle_deferred()

    def _finish_lost(self) -> None:
        """End a session whose connection is lost. Deferred PUBLISH messages still count: they were sent before that."""
        frames, self._deferred = self._deferred, []
        published: list[bytes] = []
        position = 0
        while self._may_publish and position < len(frames):
            stop = end_of_publishes(frames, position)
            published += frames[position:stop]
            position = max(stop, position + 1)
        if published:
            self._publish(published)
        self._end()

    @property
    def _ignores_input(self) -> bool:
        """Whether messages of the client are ignored."""
        return self.state is SessionState.CLOSED or self.state is SessionState.PARTING

    def _publish(self, frames: list[bytes]) -> None:
        assert self.stream is not None
        self.published += len(frames)
        self._engine.counters.published += len(frames)
        self.stream.publish(frames, self)

    def receive_multipart(self) -> None:
        """Answer a message of several frames with INVALID: ZEPS has none."""
        self.receive([_MULTIPART])

    def _handle(self, frame: bytes) -> None:
        try:
            message = Zeps.decode(frame)
        except WireError as error:
            self._reject(frame, error)
            return
        handler = self._table.get((self.state, type(message)))
        if handler is None:
            self._send_invalid("misplaced", _misplaced(self.state, type(message).__name__))
            return
        handler(self, message)

    def _reject(self, frame: bytes, error: WireError) -> None:
        """Answer INVALID to a message that cannot be decoded."""
        if isinstance(frame, _Multipart):
            self._send_invalid("multipart", "a message of ZEPS must have one frame")
        elif isinstance(frame, Oversize):
            limit = self._engine.limits.message
            self._send_invalid("oversize", f"a message of {frame.size} bytes is over the limit of {limit} bytes")
        else:
            self._send_invalid("malformed", str(error))

    def _attach(self, message: Attach) -> None:
        name = message.stream
        engine = self._engine
        if not name:
            self._send_invalid("attach", "a stream needs a name; this one is empty")
            return
        if name.startswith("$"):
            self._attach_reserved(name)
            return
        try:
            stream = engine.request_stream(self, name)
        except ZepsError as error:
            self._send_invalid("attach", str(error))
            return
        if stream is not None:
            self._attach_to(stream)
        else:
            self.state = SessionState.ATTACHING
            self._connection.pause()

    def _attach_reserved(self, name: str) -> None:
        engine = self._engine
        about = name.removeprefix(INDEX)
        if about != name and not engine.allows(self, "subscribe", about):
            self._send_invalid("forbidden", f"{self._user_name} may not subscribe to the stream {about}")
            return
        report = engine.reports.open_report(name, self._connection)
        if report is None:
            self._send_invalid("attach", f"there is no reserved stream {name}, or no stream that it could describe")
            return
        report.on_complete = self._confirm_all
        self._report = report
        engine.report_readers[self] = None
        self._confirm_attach(name)

    @property
    def _user_name(self) -> str:
        return self.user or "anybody"

    def _attach_to(self, stream: BrokerStream) -> None:
        self.stream = stream
        stream.attached += 1
        self._may_publish = self._engine.allows(self, "publish", stream.name)
        self._confirm_attach(stream.name)

    def _confirm_attach(self, name: str) -> None:
        self.stream_name = name
        self.state = SessionState.OPEN
        self._send(_ATTACH_OK)

    def on_stream_ready(self, stream: BrokerStream) -> None:
        """Attach to the stream that the session waits for."""
        if self.state is SessionState.ATTACHING:
            self._attach_to(stream)
            self._handle_deferred()

    def on_stream_refused(self, reason: str) -> None:
        """Answer INVALID: the stream that the session waits for could not be created."""
        if self.state is SessionState.ATTACHING:
            self.state = SessionState.NEW
            self._send_invalid("attach", reason)
            self._handle_deferred()

    def _subscribe(self, message: Subscribe) -> None:
        engine = self._engine
        self._spent += SUBSCRIBE
        try:
            if self._report is not None:
                self._report.subscribe(Filter([message.pattern], engine.matchers), message.latest)
                self._send(_SUBSCRIBE_OK)
            else:
                self._subscribe_stream(message)
        except (ZepsError, OSError) as error:
            self._send_invalid("subscribe", str(error))

    def _subscribe_stream(self, message: Subscribe) -> None:
        engine = self._engine
        stream = self.stream
        assert stream is not None
        if not engine.allows(self, "subscribe", stream.name):
            self._send_invalid("forbidden", f"{self._user_name} may not subscribe to the stream {stream.name}")
            return
        if self.cursor is not None and len(self.cursor.selections) >= engine.limits.subscriptions:
            self._send_invalid("limit", f"a connection has at most {engine.limits.subscriptions} subscriptions")
            return
        if self.cursor is not None:
            self._spent += len(self.cursor.selections)  # its patterns become one filter
        engine.matchers.parse(message.pattern)  # raises PatternError before anything is changed
        stream.flush()
        if self.state is SessionState.CLOSED:
            return  # the flush wrote to this connection, and found it broken
        after, due = where_to_start(stream.journal, message.latest)
        oldest = stream.journal.first
        skipped = max(0, oldest - 1 - after)
        if skipped:
            engine.counters.fell_behind += 1
            if engine.options.behind == "invalid":
                raise OutOfRange(_fell_behind_reason(after + 1, oldest), oldest)
            after = oldest - 1
        if self.cursor is None:
            self.cursor = Cursor(stream, self._connection, self._on_fell_behind)
        self.cursor.skipped += skipped
        self.cursor.subscribe(message.pattern, after, due)
        self._send(_SUBSCRIBE_OK)  # last, because it may close the session; the messages follow later in any case

    def _credit(self, message: Credit) -> None:
        if self._report is not None:
            self._report.add_credit(min(message.credit, _MOST_CREDIT - self._report.credit))
            return
        if self.cursor is None:
            assert self.stream is not None
            self.cursor = Cursor(self.stream, self._connection, self._on_fell_behind)
        self.cursor.add_credit(min(message.credit, _MOST_CREDIT - self.cursor.credit))

    def _reject_publish(self, message: Publish) -> None:
        """Answer INVALID to a valid PUBLISH that is not allowed."""
        if self._report is not None:
            self._send_invalid("forbidden", f"{self.stream_name} is a reserved stream: clients cannot publish to it")
        elif self.stream_name in self._engine.options.own:
            self._send_invalid("forbidden", f"only the server itself publishes to its stream {self.stream_name}")
        else:
            self._send_invalid("forbidden", f"{self._user_name} may not publish to the stream {self.stream_name}")

    def _ping(self, message: Ping) -> None:
        self._unanswered_pings += 1
        if self._report is not None:
            if self._report.complete:
                self._confirm_all()
        else:
            assert self.stream is not None
            self.stream.confirm_when_safe(self)

    def _confirm_all(self) -> None:
        self.confirm(self._unanswered_pings)

    def _ignore(self, message: Zeps) -> None:
        """Do nothing."""

    def _detach(self, message: Zeps) -> None:
        if self.stream is not None:
            self.stream.flush()
        if self._unanswered_pings and self.stream is not None and not self.stream.held:
            # The disk is being asked, and will answer soon. A client of a full disk would wait too long, and may leave.
            self.state = SessionState.PARTING
            self._may_publish = False
            if self.cursor is not None:
                self.cursor.close()
        else:
            self._finish_detach()

    def _finish_detach(self) -> None:
        self._send(DetachOk().encode()[0])
        self._end()
        self._connection.close(GOODBYE)

    def _on_detach_ok(self, message: Zeps) -> None:
        self._end()
        self._connection.close(GOODBYE)

    # Calls from the stream

    def pause(self) -> None:
        self._paused_by_stream = True
        self._connection.pause()

    def resume(self) -> None:
        self._paused_by_stream = False
        self._handle_deferred()

    def confirm(self, barriers: int) -> None:
        self._unanswered_pings -= barriers
        for _ in range(barriers):
            if self.state is SessionState.CLOSED:
                return  # the connection broke while an answer was written
            self._send(_PING_OK)
        if self.state is SessionState.PARTING and not self._unanswered_pings:
            self._finish_detach()
        elif self._deferred and not self._backed_up:
            self._handle_deferred()

    def refuse(self, reason: str) -> None:
        self._send_invalid("stopped", reason)
        self.detach()

    def dismiss(self) -> None:
        self._engine.counters.dismissed += 1
        self.detach()

    # Messages to the client

    def pull(self) -> Block | Span | None:
        """Return the next messages for the client, or None."""
        try:
            if self.cursor is not None:
                return self.cursor.pull()
            return self._report.pull() if self._report is not None else None
        except (JournalError, OSError) as error:
            self._stop_delivering()
            self._report_unreadable(error)
            return None

    def report_changes(self) -> None:
        """Send the changes of a reserved stream."""
        if self._report is not None:
            self._report.report_changes()

    def apply_rules(self) -> None:
        """Apply changed permissions: end the subscriptions that are forbidden now, and tell the client."""
        if self.state is not SessionState.OPEN:
            return
        allows = self._engine.allows
        self._may_publish = self.stream is not None and allows(self, "publish", self.stream.name)
        about = self.stream.name if self.stream is not None else self.stream_name.removeprefix(INDEX)
        reads = self.cursor is not None and bool(self.cursor.selections)
        reads |= self._report is not None and about != self.stream_name
        if reads and not allows(self, "subscribe", about):
            self._stop_delivering()
            self._send_invalid("forbidden", f"{self._user_name} may not subscribe to the stream {about} any more")

    def _on_fell_behind(self, wanted: int, oldest: int) -> bool:
        self._engine.counters.fell_behind += 1
        if self._engine.options.behind == "oldest":
            return True
        self._stop_delivering()
        self._send_invalid("behind", _fell_behind_reason(wanted, oldest))
        return False

    def _stop_delivering(self) -> None:
        """End all subscriptions but keep the credit. Call it before INVALID is sent, as a send can call `pull`."""
        if self.cursor is not None:
            credit = self.cursor.credit
            self.cursor.close()
            assert self.stream is not None
            self.cursor = Cursor(self.stream, self._connection, self._on_fell_behind)
            self.cursor.credit = credit
        elif self._report is not None:
            self._report.stop()

    def _report_unreadable(self, error: Exception) -> None:
        """Detach a client that wants to read where the journal is damaged. It may connect again after a repair."""
        self._send_invalid("unreadable", f"the journal cannot be read here: {error}")
        self.detach()

    # The end

    def detach(self) -> None:
        """End the peering from this side. (ZEP-07)"""
        if self.state is SessionState.OPEN:
            self.state = SessionState.LEAVING
            if self.cursor is not None:
                self.cursor.close()
            self._send(Detach().encode()[0])
        elif self.state is SessionState.PARTING:
            self._finish_detach()
        elif self.state is SessionState.NEW:
            self._end()
            self._connection.close(GOODBYE)
        elif self.state is SessionState.ATTACHING and not self._connection_lost:
            self._connection_lost = True  # its messages are still handled when the stream is created
            self._connection.close(GOODBYE)

    def on_connection_lost(self) -> None:
        """End the session; but wait if its stream is being created, or deferred messages are being handled."""
        self._connection_lost = True
        if self.state is not SessionState.ATTACHING and not self._handling:
            self._finish_lost()

    def give_up(self) -> None:
        """Disconnect a client that does not read its answers."""
        self._engine.counters.unread += 1
        self._connection.abort("the client does not read its answers")

    def _end(self) -> None:
        if self.state is SessionState.CLOSED:
            return
        self.state = SessionState.CLOSED
        self._may_publish = False
        if self.cursor is not None:
            self.cursor.close()
            self.cursor = None
        self._report = None
        self._deferred = []
        self._engine.unread.pop(self, None)
        if self.stream is not None:
            self.stream.attached -= 1
            self.stream.forget_publisher(self)
            self.stream = None
        self._engine.session_ended(self)

    def _send(self, message: bytes) -> None:
        self._connection.send(message)

    def _send_invalid(self, kind: str, reason: str) -> None:
        self._engine.counters.invalid[kind] += 1
        self._faults += kind in _FAULTY
        if self._faults < FAULTS:
            self._send(invalid(reason))
        elif self.state is not SessionState.CLOSED:
            self._engine.counters.expelled += 1
            reason = f"this is message {FAULTS} of this connection that is malformed or out of place: {reason}"
            self._send(invalid(reason))
            self._end()
            self._connection.close(GOODBYE)

    _table: ClassVar[Mapping[tuple[SessionState, type], Callable[..., None]]] = {
        (SessionState.NEW, Attach): _attach,
        (SessionState.NEW, PingOk): _ignore,
        (SessionState.NEW, Detach): _detach,
        (SessionState.OPEN, Subscribe): _subscribe,
        (SessionState.OPEN, Credit): _credit,
        (SessionState.OPEN, Publish): _reject_publish,
        (SessionState.OPEN, Ping): _ping,
        (SessionState.OPEN, PingOk): _ignore,
        (SessionState.OPEN, Detach): _detach,
        (SessionState.LEAVING, Subscribe): _ignore,
        (SessionState.LEAVING, Credit): _ignore,
        (SessionState.LEAVING, Ping): _ping,
        (SessionState.LEAVING, PingOk): _ignore,
        (SessionState.LEAVING, Detach): _detach,
        (SessionState.LEAVING, DetachOk): _on_detach_ok,
    }


def _misplaced(state: SessionState, name: str) -> str:
    if name in ("AttachOk", "SubscribeOk", "Deliver", "Invalid"):
        return f"only servers send {name}"
    if state is SessionState.NEW:
        return f"{name} came before ATTACH; attach to a stream first"
    return f"{name} is not allowed here: a connection attaches once, and answers only requests"


def _fell_behind_reason(wanted: int, oldest: int) -> str:
    return (
        f"messages {wanted} to {oldest - 1} are not kept any more; the oldest is {oldest}: "
        f"subscribe from 0 or {oldest - 1}"
    )
