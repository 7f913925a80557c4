"""A link over a stream (TCP or a Unix socket): it moves bytes between the kernel and the engine.

Latency and throughput need opposite ways of writing. A message that is sent alone should go out at once; but when a
program sends many messages in a row, each should cost only a fraction of a system call. So the call that sends the
first message after a quiet moment also writes it. Messages that follow closely wait until the event loop turns, or
until `FLUSH` bytes are queued, and go out together.

At most one block of encoded bytes is on its way to the kernel at any time, and the link remembers its messages. If the
connection breaks, the link puts the messages that did not reach the kernel whole back into the peer's queue. Messages
from a source or an offer are not put back: their owner can read them again.
"""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Sequence
from itertools import count
from time import thread_time
from typing import TYPE_CHECKING, Final

from zambezi.zmtp import intake
from zambezi.zmtp.busy_links import MUCH
from zambezi.zmtp.connection import Closed, Connection, Event, Failed, Ready, Subscription
from zambezi.zmtp.frames import Batch, Message
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Timer
from zambezi.zmtp.source import Framed, Source, Stored

if TYPE_CHECKING:
    from zambezi.zmtp.transport import Transport

# The bounds of the read buffer. To allocate a large buffer for little data costs more than the read itself; so the
# buffer grows while reads fill it, and shrinks when they do not. A peer that sends what is much work for its size, such
# as commands by the thousand, gets a smaller one, and takes turns with others of its kind (see `busy_links`): the other
# links wait while its bytes are handled.
READ_SLOW: Final = 4 * 1024
READ_LEAST: Final = 16 * 1024
READ_MOST: Final = 256 * 1024
SLOW: Final = 0.002  # seconds of processor time for a read, after which the next one is smaller
QUICK: Final = SLOW / 4  # seconds; four times as many bytes would not be slow
TIMED: Final = 1024  # bytes of a read whose time is measured; larger reads wait if there was much work in a turn
FLUSH: Final = 64 * 1024  # queued bytes that are written without waiting for the loop
QUIET: Final = 50e-6  # seconds without a write after which a message is written at once
TURNS: Final = 16  # writes before other links get their turn
PULLS: Final = 2  # questions to a source before other links get their turn: a source may have to read from a disk
KEEPALIVES: Final = 3  # unanswered probes after which the kernel ends a connection
FAREWELL: Final = 1.0  # seconds that a peer has to close its side


class StreamLink:
    """One connected stream socket, with its engine. When the handshake is complete, it becomes the link of its peer."""

    __slots__ = (
        "_blocked",
        "_gone",
        "_incoming",
        "_inflight",
        "_last_flush",
        "_paused",
        "_read",
        "_scheduled",
        "_sock",
        "_timer",
        "_transport",
        "_unsent",
        "address",
        "connection",
        "endpoint",
        "peer",
        "source",
    )

    def __init__(
        self, transport: Transport, sock: socket.socket, connection: Connection, endpoint: str, address: str, peer: Peer
    ) -> None:
        self._transport = transport
        self._sock = sock
        self.connection = connection
        self.endpoint = endpoint
        self.address = address
        self.peer = peer
        self.source: Source | None = None
        self._unsent: bytes | memoryview | Stored | None = None
        self._inflight: Sequence[Message] = ()
        self._blocked = False
        self._scheduled = False
        self._last_flush = 0.0
        self._paused = False
        self._read = READ_LEAST
        self._gone = False
        self._incoming = 0  # bytes of a message that is not whole yet, as the intake knows them
        self._timer: Timer | None = None

    def call(self) -> None:
        """Begin the handshake of a connection that we made."""
        self._begin(accepted=False)
        self.flush()

    def answer(self) -> None:
        """Begin the handshake of a connection that we accepted.

        Often the peer's greeting has arrived already: then our greeting and the next command go out in one write.
        """
        self._begin(accepted=True)
        self._readable()
        if self.connection.output and not self._blocked:
            self.flush()

    def _begin(self, accepted: bool) -> None:
        self._transport.links.add(self)
        self._transport.handshakes.begin(self, accepted)
        self._transport.reactor.add_reader(self._sock, self._readable)

    @property
    def local(self) -> bool:
        return False

    @property
    def ready(self) -> bool:
        return self.peer._link is self

    @property
    def pending(self) -> bool:
        return self._scheduled or self._blocked

    @property
    def idle(self) -> bool:
        return self._unsent is None

    @property
    def unsent(self) -> int:
        return 0 if self._unsent is None else len(self._unsent)

    # In

    def _readable(self) -> None:
        try:
            self._receive()
        except Exception:
            raise
        except BaseException:  # a signal: this thread waits in a call of the program, see `watch`
            # Bytes that were read may not have reached the engine, which would take what follows for something else.
            self._lost("a signal interrupted this side while it received")
            raise

    def _receive(self) -> None:
        if self._gone:
            return
        size = self._read if self._read <= READ_LEAST else self.connection.read_size(self._read)
        wanted = size
        if self._transport.busy.spent > MUCH:
            size = TIMED
        try:
            data = self._sock.recv(size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(self.connection.explain_loss(_text_of(error)))
            return
        is_full = len(data) == wanted
        is_timed = len(data) >= TIMED
        began = thread_time() if is_timed else 0.0
        if self._read != READ_LEAST and len(data) < self._read // 8:
            self._read = max(self._read // 4, READ_LEAST)
        if not data:
            self._lost(self.connection.explain_loss("the peer closed the connection"))
            return
        self._last_flush = 0.0  # a peer that is heard may wait for an answer: the next message goes out at once
        connection = self.connection
        events = connection.receive(data, self._transport.reactor.time())
        if len(events) == 1 and type(events[0]) is Batch:
            self.peer._deliver(events[0])
        else:
            self._handle(events)
        if connection.partial or self._incoming:
            self._note_unfinished(bool(events))
        if connection.output and not self._blocked:
            self.flush()
            if self.ready:
                self._arm()  # a PING may have set a time to live
        if is_timed:
            self._note_time(thread_time() - began, is_full)

    def _note_time(self, took: float, is_full: bool) -> None:
        """Change the size of the next read by the time that a read took, and wait in the queue if it was not quick."""
        is_quick = took < QUICK
        if is_full:
            if took > SLOW:
                self._read = max(self._read // 4, READ_SLOW)
            elif self._read > READ_SLOW or is_quick:
                self._read = min(self._read * 4, READ_MOST)
        if not is_quick and not (self._gone or self._paused or self._transport.reactor.threaded):
            self._transport.reactor.remove_reader(self._sock)
            self._transport.busy.add(self, took)

    def read_in_turn(self) -> None:
        """Read, as a link of the queue. If it does not wait there again, it is watched again."""
        self._readable()
        if not (self._gone or self._paused or self in self._transport.busy):
            self._transport.reactor.add_reader(self._sock, self._readable)

    def _note_unfinished(self, began: bool) -> None:
        """Count the bytes of an unfinished message, and limit the time for which the peer can be silent in it."""
        if self._gone:
            return
        octets = self.connection.unfinished
        if octets < intake.SMALL:
            octets = 0
        if octets or self._incoming:
            self._incoming = octets
            intake.PROCESS.note(self, octets, self._transport.reactor.time(), began)
        if self._timer is None:
            self._arm()

    def cut_off_soon(self, reason: str) -> None:
        self._transport.reactor.call_soon(self._cut_off, reason)

    def _cut_off(self, reason: str) -> None:
        if self.ready:
            self._transport.cut_off(self.peer, reason)

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Batch):
                self.peer._deliver(event)
            elif isinstance(event, Ready):
                self._transport.handshakes.end(self)
                self._transport.link_ready(self, event)
                self._arm()
                self._keep_alive(event.version)
                if not self._blocked and (self.connection.output or self.peer._outbox or self.source is not None):
                    self.flush()  # the messages that waited for the handshake go out with our last command
            elif isinstance(event, Subscription):
                self._transport.subscribed(self.peer, event)
            elif isinstance(event, Failed):
                self._end(event)
            elif isinstance(event, Closed):
                self._lost(event.reason)
            if self._gone:
                return

    def _keep_alive(self, version: tuple[int, int]) -> None:
        """Let the kernel find out whether the peer's host is alive, if heartbeats are wanted and ZMTP has none."""
        beat = self._transport.options.heartbeat
        if beat is not None and version < (3, 1) and self.address and not self._gone:
            with contextlib.suppress(OSError):  # the connection has ended already: the next read says so
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in (
                    (socket.TCP_KEEPIDLE, math.ceil(beat.interval)),
                    (socket.TCP_KEEPINTVL, math.ceil(beat.timeout / KEEPALIVES)),
                    (socket.TCP_KEEPCNT, KEEPALIVES),
                ):
                    self._sock.setsockopt(socket.IPPROTO_TCP, option, min(value, 32767))

    def pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.busy.discard(self)
            self._transport.reactor.remove_reader(self._sock)

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._transport.reactor.add_reader(self._sock, self._readable)

    # Out

    def nudge(self) -> None:
        if self._blocked:
            return
        if self.peer.queued >= FLUSH:
            self.flush()
        elif not self._scheduled:
            reactor = self._transport.reactor
            if self._transport.eager and reactor.time() - self._last_flush > QUIET:
                self.flush()
            else:
                self._schedule()

    def wake(self) -> None:
        """Ask the source when the event loop turns: it may have messages."""
        if not self._blocked:
            self._schedule()

    def subscribe(self, prefix: bytes, cancel: bool) -> None:
        """Send the publisher a subscription, or its cancellation."""
        if cancel:
            self.connection.cancel(prefix)
        else:
            self.connection.subscribe(prefix)
        if not self._blocked:
            self.flush()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._transport.reactor.defer(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._scheduled = False
        if not self._blocked:
            self.flush()

    def flush(self) -> None:
        """Write until nothing is left, or the kernel accepts no more, or it is the turn of other links."""
        connection = self.connection
        peer = self.peer
        sock = self._sock
        if self._gone:
            return
        wrote = False
        pulls = 0
        for turn in count():
            unsent = self._unsent
            if unsent is None:
                if turn >= TURNS:
                    self._schedule()
                    break
                control = connection.take_output() if connection.output else b""
                if peer._mailbox:
                    peer._collect()
                if peer._outbox and peer._link is self:
                    messages, singles = peer._take()
                    self._inflight = messages
                    block = connection.encode(messages, singles)
                    if control:
                        block = control + block
                    wrote = True  # the outbox has room now
                elif control:
                    block = control
                elif self.source is None:
                    break
                elif pulls >= PULLS:
                    self._schedule()
                    break
                elif (more := self.source.pull()) is not None:
                    pulls += 1
                    if isinstance(more, Stored) and not connection.sealed:
                        self._unsent = more
                        continue
                    block = self._framed(more.read() if isinstance(more, Stored) else more)
                else:
                    break
                unsent = self._unsent = block
            try:
                if isinstance(unsent, Stored):
                    taken = unsent.send(sock)
                else:
                    sent = sock.send(unsent)
                    taken = sent == len(unsent)
                    unsent = b"" if taken else memoryview(unsent)[sent:]
            except (BlockingIOError, InterruptedError):
                taken = False
            except OSError as error:
                self._lost(_text_of(error))
                return
            if taken and not len(unsent):
                self._unsent = None
                self._inflight = ()
                wrote = True  # all of it has left this process: a close may wait for that
            else:
                self._unsent = unsent
                if not taken:
                    self._wait_for_room()
                    break
        self._last_flush = self._transport.reactor.time()
        if wrote:
            self._transport.departed(peer)

    def _wait_for_room(self) -> None:
        if not self._blocked:
            self._blocked = True
            self._transport.reactor.add_writer(self._sock, self._writable)

    def _framed(self, messages: Framed) -> bytes:
        return self.connection.encode(messages.bodies, True) if self.connection.sealed else messages.octets

    def offer(self, messages: Framed) -> bool:
        """Pass messages to the kernel now, ahead of the outbox; return False if the kernel accepts nothing of them.

        If the kernel accepts a part, the rest goes out next, and the offer has succeeded.
        """
        if self._blocked or self._gone:
            return False
        if self._unsent is not None or self.peer._outbox or self.connection.output:
            self.flush()
            if self._unsent is not None or self._gone:
                return False
        octets = messages.octets if not self.connection.sealed else self._framed(messages)
        try:
            sent = self._sock.send(octets)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._lost(_text_of(error))
            return False
        if sent < len(octets):
            if not sent and not self.connection.sealed:
                self._wait_for_room()
                return False
            self._unsent = memoryview(octets)[sent:]  # boxes that were sealed have used their nonces, and must go out
            self._wait_for_room()
        return True

    def _writable(self) -> None:
        self._blocked = False
        self.flush()
        if not self._blocked and not self._gone:
            self._transport.reactor.remove_writer(self._sock)

    # Time

    def _arm(self) -> None:
        """Set the timer for the engine's deadline.

        An early tick does no harm, so the timer is not moved at every read.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.connection.deadline if not self._gone else None
        if deadline is not None:
            self._timer = self._transport.reactor.call_at(deadline, self.tick)

    def tick(self) -> None:
        self._timer = None
        if self._gone:
            return
        # A congested peer does not read our PING either. With a source we tolerate that: no queue grows on this side.
        congested = self._blocked and self.source is not None
        try:
            self._handle(self.connection.tick(self._transport.reactor.time(), not (self._paused or congested)))
            if not self._blocked:
                self.flush()
        finally:
            if self.ready:
                self._arm()

    # The end

    def finish(self) -> None:
        """Close this side of the connection, and the socket when the peer has read everything."""
        self._part("closed by this side")

    def abort(self, reason: str) -> None:
        self._lost(reason)

    def _end(self, failed: Failed) -> None:
        """Close after a failed handshake; first send the command that tells the peer the reason."""
        output = self.connection.take_output()
        try:
            if output and self._unsent is None:
                self._sock.send(output)
        except OSError:
            pass  # the peer has closed already
        if failed.silent:
            self._unhook()
            self._transport.leave_outside(self._sock)
            self._transport.link_lost(self, failed.reason, failed.key)
        else:
            self._part(failed.reason, failed.key)

    def _part(self, reason: str, key: str = "") -> None:
        """Close in order. The transport must know the farewell before it learns that the link is gone."""
        if self._gone:
            return
        self._unhook()
        Farewell(self._transport, self._sock)
        self._transport.link_lost(self, reason, key)

    def _lost(self, reason: str) -> None:
        if self._gone:
            return
        self._unhook()
        self._transport.reactor.release(self._sock)
        self._transport.link_lost(self, reason)

    def _unhook(self) -> None:
        transport = self._transport
        self._gone = True
        if self._incoming:
            self._incoming = 0
            intake.PROCESS.note(self, 0, 0.0, began=False)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport.busy.discard(self)
        transport.reactor.remove_reader(self._sock)
        transport.reactor.remove_writer(self._sock)
        transport.links.discard(self)
        transport.handshakes.end(self)
        if self._inflight and not isinstance(self._unsent, Stored | None):
            self.peer._put_back(self._unfinished(self._unsent))
        self._unsent = None
        self._inflight = ()

    def _unfinished(self, unsent: bytes | memoryview) -> list[Message]:
        """Return the messages of the block that did not reach the kernel whole.

        To learn their sizes it encodes them once more: the connection is over, so nonces do not matter any more.
        """
        messages = list(self._inflight)
        sizes = [len(self.connection.encode([message])) for message in messages]
        left = len(unsent)
        keep = len(messages)
        while keep and left > 0:
            keep -= 1
            left -= sizes[keep]
        return messages[keep:]


class Farewell:
    """A socket that reads and discards until the peer has closed its side, too, or a second has passed.

    If a program closes a socket with unread bytes, the kernel resets the connection, and the peer loses the bytes that
    it has not read yet.
    """

    __slots__ = ("_sock", "_timer", "_transport")

    def __init__(self, transport: Transport, sock: socket.socket) -> None:
        self._transport = transport
        self._sock = sock
        transport.farewells.add(self)
        try:
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._timer: Timer | None = None
            self.end()
            return
        transport.reactor.add_reader(sock, self._readable)
        self._timer = transport.reactor.call_at(transport.reactor.time() + FAREWELL, self.end)

    def _readable(self) -> None:
        try:
            if self._sock.recv(READ_LEAST):
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            pass  # the peer reset the connection, so it is closed
        self.end()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport.reactor.release(self._sock)
        self._transport.farewells.discard(self)
        self._transport.settle()


def _text_of(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
