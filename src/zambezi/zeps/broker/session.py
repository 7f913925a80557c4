"""One connection to the broker: the rules of the protocol, as a table of states and commands (see `session_state`).

A session handles a few commands at once. If a client sends more, or does not read its answers, the session pauses the
connection and keeps the rest: for a later turn, or until the client reads. So TCP holds the client back.

A session does no I/O and needs no clock: it calls methods of its `Connection`, its stream and the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from zambezi.wire import WireError
from zambezi.zeps.block import end_of_publishes, is_publish_run, is_valid_publish
from zambezi.zeps.broker.claims import confirm_acknowledged, taken
from zambezi.zeps.broker.client_connection import Connection
from zambezi.zeps.broker.cursor import Cursor, Outgoing, Outlet
from zambezi.zeps.broker.delivery import Delivery, fell_behind_reason
from zambezi.zeps.broker.desk import Desk
from zambezi.zeps.broker.extensions import COMMANDS, ignore
from zambezi.zeps.broker.publishers import Publisher
from zambezi.zeps.broker.readers import Reader
from zambezi.zeps.broker.reserved import attach_reserved
from zambezi.zeps.broker.resumption import count_refused, is_publish, publish_rest
from zambezi.zeps.broker.session_state import SessionState, forbidden, misplaced, undecodable
from zambezi.zeps.broker.stream import BrokerStream, Waiter
from zambezi.zeps.broker.turns import INLINE, SUBSCRIBE
from zambezi.zeps.directory import subject_of
from zambezi.zeps.errors import Absent, JournalError, ZepsError
from zambezi.zeps.layout import key_and_body
from zambezi.zeps.messages import (
    Attach,
    AttachOk,
    Credit,
    Detach,
    DetachOk,
    Fenced,
    Ping,
    PingOk,
    Publish,
    Resume,
    Subscribe,
    SubscribeOk,
    Zeps,
    invalid,
)
from zambezi.zmtp.runs import Run

if TYPE_CHECKING:
    from zambezi.zeps.broker.engine import Engine
    from zambezi.zeps.broker.reports import Report

_log: Final = logging.getLogger("zambezi.zeps")

FAULTS: Final = 1000  # messages that are not ZEPS, after which a client is disconnected
_UNANSWERED: Final = 1000  # PINGs that may wait for the disk before the client's input waits, too
_FAULTY: Final = frozenset({"malformed", "misplaced", "multipart"})
GOODBYE: Final = 5.0  # seconds that a client has to read its answers after DETACH
_ATTACH_OK: Final = AttachOk().encode()[0]
_PING_OK: Final = PingOk().encode()[0]
_SUBSCRIBE_OK: Final = SubscribeOk().encode()[0]
_KNOWN: Final[Mapping[bytes, Zeps]] = {Ping().encode()[0]: Ping()}  # a frequent message that is always the same


class Session:
    """One connection of a client to the broker."""

    def __init__(
        self, engine: Engine, connection: Connection, number: int, address: str, user: str, trusted: bool = False
    ) -> None:
        self.engine = engine
        self._connection = connection
        self.number = number
        self.address = address
        self.user = user
        self.trusted = trusted
        self.state = SessionState.NEW
        self.stream: BrokerStream | None = None
        self.delivery = Delivery(engine, connection, self._on_fell_behind)
        self.published = 0
        self.publisher: Publisher | None = None  # that it holds, after RESUME
        self.resumption: Waiter | None = None
        self.reader: Reader | None = None  # whose name it holds, after CLAIM
        self.stream_name = ""
        self._desk: Desk | None = None  # for a client that gives orders, or sends requests or replies
        self.may_publish = False
        self._deferred: list[bytes] = []  # messages that wait: for the stream, for a turn, or until the client reads
        self._handling = False  # whether deferred messages are being handled now
        self._in_line = False  # whether the session waits for its turn
        self._is_looking_up = False
        self._spent = 0  # units of work since its turn began
        self._paused_by_stream = False
        self._connection_lost = False
        self._unanswered_pings = self._faults = 0

    # Messages of the client

    def receive_run(self, run: Run) -> bool:
        """Handle a run of PUBLISH messages as a whole, and return True; return False if it is anything else."""
        accepted = self.may_publish and not self._deferred and is_publish_run(run)
        if accepted:
            self._publish(run.cut(), run.size)
        return accepted

    def receive(self, frames: Sequence[bytes]) -> None:
        """Handle messages of one frame each, in order."""
        if self._deferred:
            self._deferred += frames
        elif len(frames) == 1 and self.may_publish and is_valid_publish(frames[0]):
            self._publish(frames)  # most reads, if there is little to do
        elif (done := self._handle_some(frames)) < len(frames):
            self._deferred = list(frames[done:])
            self._await_input()

    def _handle_some(self, frames: Sequence[bytes]) -> int:
        """Handle messages until their work is enough for one turn, or must wait; return how many were handled."""
        position, count = 0, len(frames)
        self._spent = 0
        while position < count:
            if self._spent >= INLINE:
                return position
            self._spent += 1
            if self.may_publish:  # first, because it is the most frequent message by far
                stop = end_of_publishes(frames, position)
                if stop > position:
                    self._publish(frames[position:stop])
                    position = stop
                    continue
            if self.state is SessionState.CLOSED or self.state is SessionState.PARTING:
                break  # nothing that the client says counts any more
            if self._must_wait or self._backed_up:
                return position
            try:
                self._handle(frames[position])
            except Absent as absent:
                self._is_looking_up = True
                self.engine.fetch(absent, partial(self._on_found, frames[position]))
            except Exception:
                # A mistake of the broker's own. Without a word, the client would wait for ever.
                _log.exception("a message of %s could not be handled, and its connection is closed", self.address)
                self.refuse("the broker could not handle a message, by a mistake of its own: see its log", "failed")
                break
            position += 1
        return count

    @property
    def _must_wait(self) -> bool:
        """Whether the next message must wait: for a stream that is created, an order, or a look into the store."""
        desk = self._desk
        return self.state is SessionState.ATTACHING or self._is_looking_up or (desk is not None and desk.is_busy)

    @property
    def _backed_up(self) -> bool:
        """Whether too many answers wait: until the client reads, or until the disk has confirmed."""
        return self._connection.full or self._unanswered_pings >= _UNANSWERED

    def _on_found(self, frame: bytes, problem: ZepsError | None) -> None:
        """Handle a message again: what it needs was in the store only."""
        self._is_looking_up = False
        if problem is None:
            self._deferred.insert(0, frame)
        else:
            self.reject("unreadable", str(problem))
        self._handle_deferred()

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
        self.engine.unread.pop(self, None)
        if self.state is SessionState.ATTACHING:
            self._connection.pause()
        elif self._connection_lost:
            self._finish_lost()
        elif self._must_wait:
            self._connection.pause()
        elif self._deferred:
            self._connection.pause()
            if self._backed_up:
                self.engine.unread[self] = 0
            elif not (self._paused_by_stream or self._in_line):
                self._in_line = True
                self.engine.turns.wait(self._take_turn)
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
        publish_rest(self, frames, self._publish)
        self._end()

    def _publish(self, frames: Sequence[bytes], size: int = 0) -> None:
        assert self.stream is not None
        self.published += len(frames)
        self.engine.counters.published += len(frames)
        self.stream.publish(frames, self, size)

    def _handle(self, frame: bytes) -> None:
        if self._desk is not None and is_valid_publish(frame):
            if self.state is SessionState.OPEN:  # else it was sent before the client has got our DETACH
                self._desk.order(*key_and_body(frame))
            return
        try:
            message = _KNOWN.get(frame) or Zeps.decode(frame)
        except WireError as error:
            if is_publish(frame):  # only a PUBLISH can be too long
                count_refused(self)
            self._send_invalid(*undecodable(frame, error, self.engine.limits.message))
            return
        handler = self._table.get((self.state, type(message)))
        if handler is not None:
            handler(self, message)
        elif self.state is not SessionState.DISMISSED:
            self._send_invalid("misplaced", misplaced(self.state, type(message).__name__))

    def _attach(self, message: Attach) -> None:
        name = message.stream
        if not name:
            self._send_invalid("attach", "a stream needs a name; this one is empty")
        elif name.startswith("$"):
            attach_reserved(self, name)
        else:
            self._request(name, self.engine.request_stream)

    def _request(self, name: str, request: Callable[[Session, str], BrokerStream | None]) -> None:
        try:
            stream = request(self, name)
        except ZepsError as error:
            self._send_invalid("attach", str(error))
            return
        if stream is not None:
            self._attach_to(stream)
        else:
            self.await_stream()

    def await_stream(self) -> None:
        """Let everything that the client sends wait for the stream."""
        self.state = SessionState.ATTACHING
        self._connection.pause()

    def go_on_attaching(self, attach: Callable[[], object]) -> None:
        """Attach, after the client has waited."""
        if self.state is SessionState.ATTACHING:
            self.state = SessionState.NEW
            attach()
            self._handle_deferred()

    @property
    def outlet(self) -> Outlet:
        return self._connection

    def open_desk(self, desk: Desk, name: str) -> None:
        """Attach to a reserved stream to which clients publish."""
        self._desk = desk
        self._confirm_attach(name)

    def open_report(self, report: Report, name: str) -> None:
        """Attach to a report."""
        report.on_complete = self._confirm_all
        self.delivery.report = report
        self.engine.report_readers[self] = None
        self._confirm_attach(name)

    @property
    def cursor(self) -> Cursor | None:
        """The cursor of its subscriptions, if it has any."""
        return self.delivery.cursor

    @property
    def _reads_report(self) -> bool:
        """Whether its stream is a reserved one."""
        return self.delivery.report is not None

    @property
    def user_name(self) -> str:
        return self.user or "anybody"

    def _attach_to(self, stream: BrokerStream) -> None:
        self.stream = self.delivery.stream = stream
        stream.attached += 1
        self.may_publish = self.engine.allows(self, "publish", stream.name)
        self._confirm_attach(stream.name)

    def _confirm_attach(self, name: str) -> None:
        self.stream_name = name
        self.state = SessionState.OPEN
        self._send(_ATTACH_OK)

    def on_stream_ready(self, stream: BrokerStream) -> None:
        """Attach to the stream that the session waits for."""
        self.go_on_attaching(lambda: self._attach_to(stream))

    def on_stream_refused(self, reason: str) -> None:
        """Answer INVALID: the stream that the session waits for could not be created."""
        self.go_on_attaching(lambda: self._send_invalid("attach", reason))

    def on_stream_missing(self, name: str) -> None:
        """Create the stream, as if the client had asked for it now."""
        self.go_on_attaching(lambda: self._request(name, self.engine.request_new_stream))

    def _subscribe(self, message: Subscribe) -> None:
        self._spent += SUBSCRIBE
        try:
            if self._desk is not None:
                self._desk.subscribe(message.pattern)
            elif self._reads_report:
                self.delivery.subscribe_report(message.pattern, message.latest)
            else:
                self._subscribe_stream(message)
                return
            self._send(_SUBSCRIBE_OK)
        except Absent:
            raise
        except (ZepsError, OSError) as error:
            self._send_invalid("subscribe", str(error))

    def _subscribe_stream(self, message: Subscribe) -> None:
        engine = self.engine
        stream = self.stream
        assert stream is not None
        if not engine.allows(self, "subscribe", stream.name):
            self._send_invalid("forbidden", f"{self.user_name} may not subscribe to the stream {stream.name}")
            return
        if self.delivery.subscriptions >= engine.limits.subscriptions:
            self._send_invalid("limit", f"a connection has at most {engine.limits.subscriptions} subscriptions")
            return
        self._spent += self.delivery.subscriptions  # its patterns become one filter
        engine.matchers.parse(message.pattern)  # raises PatternError before anything is changed
        stream.flush()
        if self.state is SessionState.CLOSED:
            return  # the flush wrote to this connection, and found it broken
        self.delivery.subscribe(message.pattern, message.latest)
        self._send(_SUBSCRIBE_OK)  # last, because it may close the session; the messages follow later in any case

    def _credit(self, message: Credit) -> None:
        (self.delivery if self._desk is None else self._desk).add_credit(message.credit)

    def reject_publish(self, message: Publish | Resume) -> None:
        """Answer INVALID to a valid PUBLISH, or a RESUME, that is not allowed."""
        count_refused(self)
        own = self.stream_name in self.engine.options.own
        self._send_invalid("forbidden", forbidden(self.user_name, self.stream_name, own))

    def lose_publisher(self, epoch: int) -> None:
        publisher, self.publisher = self.publisher, None
        if publisher is not None and publisher.epoch < epoch:
            self.fence(epoch)
        else:
            self._end()
            self._connection.abort("the client has resumed its publisher on another connection")

    def fence(self, epoch: int) -> None:
        """End: the publisher has a newer epoch."""
        self.engine.counters.fenced += 1
        self._end_with(Fenced(epoch).encode()[0])

    def lose_reader(self, by: str) -> None:
        self.engine.counters.readers_taken += 1
        self._end_with(taken(by))

    def abandon_reader(self) -> None:
        self._end()
        self._connection.abort("the client has claimed its name on another connection")

    def _end_with(self, message: bytes) -> None:
        """Send a last message, and close the connection."""
        self._send(message)
        self._end()
        self._connection.close(GOODBYE)

    def _ping(self, message: Ping) -> None:
        self._unanswered_pings += 1
        stream = self.stream if self._desk is None else self._desk.used
        if stream is not None:
            confirm_acknowledged(self, stream)
        elif self.delivery.report is None or self.delivery.report.complete:
            self._confirm_all()

    def spend(self, units: int) -> None:
        """Count work for the client, so that other clients get their turn."""
        self._spent += units

    def answer(self, message: bytes) -> None:
        """Send a message, unless the session has ended."""
        if self.state is not SessionState.CLOSED:
            self._send(message)

    def reject(self, kind: str, reason: str) -> None:
        """Tell the client that a request has failed, unless the session has ended."""
        if self.state is not SessionState.CLOSED:
            self._send_invalid(kind, reason)

    def end_order(self, problem: str) -> None:
        """Go on after an order: it is executed, or has failed."""
        if problem:
            self.reject("order", problem)
        if self.state is not SessionState.CLOSED:
            self._handle_deferred()

    def _confirm_all(self) -> None:
        self.confirm(self._unanswered_pings)

    def _detach(self, message: Zeps) -> None:
        if self.stream is not None:
            self.stream.flush()
        if self._unanswered_pings and self.stream is not None and not (self.stream.held or self.stream.readers.problem):
            # The disk is being asked, and will answer soon. A client of a full disk would wait too long, and may leave.
            self.state = SessionState.PARTING
            self.may_publish = False
            self.delivery.close()
        else:
            self._finish_detach()

    def _finish_detach(self) -> None:
        self._end_with(DetachOk().encode()[0])

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

    def refuse(self, reason: str, kind: str = "stopped") -> None:
        """Tell the client why it is disconnected, and disconnect it."""
        self._send_invalid(kind, reason)
        self.detach()

    def dismiss(self) -> None:
        self.engine.counters.dismissed += 1
        self._detach_deaf()

    def lose_stream(self, reason: str) -> None:
        """Disconnect the client: an operator takes its stream away."""
        if self._reads_report:
            self.delivery.stop()
        self._send_invalid("removed", reason)
        self._detach_deaf()

    def _detach_deaf(self) -> None:
        """Detach, and ignore everything but the answer."""
        self.may_publish = False
        self.detach()
        if self.state is SessionState.LEAVING:
            self.state = SessionState.DISMISSED

    # Messages to the client

    def pull(self) -> Outgoing | None:
        """Return the next messages for the client, or None."""
        try:
            return self.delivery.pull() if self._desk is None else self._desk.pull()
        except (JournalError, OSError) as error:
            self.delivery.stop()
            self._send_invalid("unreadable", f"the journal cannot be read here: {error}")
            self.detach()  # the client may connect again after a repair
            return None

    def apply_rules(self) -> None:
        """Apply changed permissions: end the subscriptions that are forbidden now, and tell the client."""
        if self.state is not SessionState.OPEN:
            return
        allows = self.engine.allows
        self.may_publish = self.stream is not None and allows(self, "publish", self.stream.name)
        if self._desk is not None:
            self._desk.apply_rules()
        about = self.stream.name if self.stream is not None else subject_of(self.stream_name)
        reads = self.delivery.subscriptions > 0 or (self._reads_report and about != self.stream_name)
        if reads and not allows(self, "subscribe", about):
            self.delivery.stop()
            self._leave_reader()
            self._send_invalid("forbidden", f"{self.user_name} may not subscribe to the stream {about} any more")

    def _on_fell_behind(self, wanted: int, oldest: int) -> bool:
        self.engine.counters.fell_behind += 1
        if self.engine.options.behind == "oldest" or self.reader is not None:
            return True
        self.delivery.stop()  # before INVALID is sent, as a send can call `pull`
        self._send_invalid("behind", fell_behind_reason(wanted, oldest, self.delivery.stream))
        return False

    # The end

    def detach(self) -> None:
        """End the peering from this side. (ZEP-07)"""
        if self.state is SessionState.OPEN:
            self.state = SessionState.LEAVING
            self.delivery.close()
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
        self.engine.counters.unread += 1
        self._connection.abort("the client does not read its answers")

    def _end(self) -> None:
        if self.state is SessionState.CLOSED:
            return
        self.state = SessionState.CLOSED
        self.may_publish = False
        self.delivery.close()
        self.delivery.report = None
        if self._desk is not None:
            self._desk.close()
        self._deferred = []
        self.engine.unread.pop(self, None)
        if self.stream is not None:
            if self.publisher is not None:
                self.stream.publishers.leave(self.publisher, self)
            self._leave_reader()
            self.delivery.leave_group()
            self.stream.attached -= 1
            self.stream.forget_publisher(self)
            self.stream = None
        self.engine.session_ended(self)

    def _leave_reader(self) -> None:
        reader, self.reader = self.reader, None
        if reader is not None and self.stream is not None:
            self.stream.readers.leave(reader, self)

    def _send(self, message: bytes) -> None:
        self._connection.send(message)

    def _send_invalid(self, kind: str, reason: str) -> None:
        self.engine.counters.invalid[kind] += 1
        self._faults += kind in _FAULTY
        if self._faults < FAULTS:
            self._send(invalid(reason))
        elif self.state is not SessionState.CLOSED:
            self.engine.counters.expelled += 1
            reason = f"this is message {FAULTS} of this connection that is malformed or out of place: {reason}"
            self._end_with(invalid(reason))

    _table: ClassVar[Mapping[tuple[SessionState, type], Callable[..., None]]] = {
        (SessionState.NEW, Attach): _attach,
        (SessionState.NEW, PingOk): ignore,
        (SessionState.NEW, Detach): _detach,
        (SessionState.OPEN, Subscribe): _subscribe,
        (SessionState.OPEN, Credit): _credit,
        (SessionState.OPEN, Publish): reject_publish,
        (SessionState.OPEN, Ping): _ping,
        (SessionState.OPEN, PingOk): ignore,
        (SessionState.OPEN, Detach): _detach,
        (SessionState.DISMISSED, Detach): _detach,
        (SessionState.DISMISSED, DetachOk): _on_detach_ok,
        (SessionState.LEAVING, Subscribe): ignore,
        (SessionState.LEAVING, Credit): ignore,
        (SessionState.LEAVING, Ping): _ping,
        (SessionState.LEAVING, PingOk): ignore,
        (SessionState.LEAVING, Detach): _detach,
        (SessionState.LEAVING, DetachOk): _on_detach_ok,
        **COMMANDS,
    }
