"""ZeroMQ sockets that block, for scripts and threads. Names, arguments and meaning are those of `zambezi.zmtp.asyncio`.

>>> with Router() as router, Dealer() as dealer:
...     dealer.connect(router.bind("tcp://127.0.0.1:*"))
...     dealer.send(b"hello")
...     identity, text = router.recv()
...     router.send([identity, text.upper()])
...     dealer.recv()
[b'HELLO']

No event loop of the user's is needed: one thread of the process, started with the first socket, does what must happen
while nobody calls (reconnecting, heartbeats, reading). Any thread may call any method at any time, and a call that
waits ends when the socket is closed by another.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeVar, Unpack

from zambezi.zmtp import patterns
from zambezi.zmtp.core import Core, Counters, Options
from zambezi.zmtp.errors import SocketClosed, TimedOut, ZmtpError
from zambezi.zmtp.events import SocketEvent
from zambezi.zmtp.face import DEFAULT_LINGER, EVENTS_KEPT, Face, Sendable, SocketArguments, as_message, as_messages
from zambezi.zmtp.frames import Batch, Message
from zambezi.zmtp.pipe import Pipe
from zambezi.zmtp.reactor import IoThread, ThreadReactor

T = TypeVar("T")

_io_lock = threading.Lock()
_io: IoThread | None = None
_sockets: weakref.WeakSet[BaseSocket] = weakref.WeakSet()
_orphaned: list[IoThread] = []
_NOT_OURS: Final = "this socket belongs to the process that forked this one; make a new one here"


def io_loop() -> asyncio.AbstractEventLoop:
    """The event loop of the process's I/O thread, which is started if it is not there."""
    global _io
    with _io_lock:
        if _io is None:
            _io = IoThread()
        return _io.loop


def _stop_io() -> None:
    global _io
    with _io_lock:
        if _io is not None:
            _io.stop()
            _io = None


def _forget_io() -> None:
    # The thread did not come along through fork(): a child starts its own. Its parent's sockets are not its own, and
    # what it would write to them would go into the middle of what the parent writes.
    global _io, _io_lock
    _io_lock = threading.Lock()
    if _io is not None:
        _orphaned.append(_io)  # the loop shares its selector with the parent's, so that it must not be closed here
    _io = None
    for socket in list(_sockets):
        socket._disown()
    _sockets.clear()


atexit.register(_stop_io)
os.register_at_fork(after_in_child=_forget_io)


class Disowned:
    """Stands in a forked child for the core of a socket of its parent."""

    closing = closed = True
    counters = Counters()
    connectors: dict[Any, Any] = {}
    listeners: dict[Any, Any] = {}
    ready = ()

    def close(self, linger: float | None) -> None:
        """It is the parent's to close."""

    def __getattr__(self, name: str) -> Any:
        raise ZmtpError(_NOT_OURS)


class BaseSocket(Face):
    """What all the blocking sockets share, whatever their messages look like."""

    _make: ClassVar[Callable[..., Core]]

    def _open(self, linger: float | None, options: Options, **more: Any) -> None:
        self._disowned = False  # by a fork: in the child it is the parent's
        lock = self._lock = threading.Lock()
        self._readable = threading.Condition(lock)
        self._writable = threading.Condition(lock)
        self._eventful = threading.Condition(lock)
        self._ended = threading.Condition(lock)
        self._events: deque[SocketEvent] = deque(maxlen=EVENTS_KEPT)
        self._receivers = 0
        self._senders = 0
        self._linger = linger
        core = self._core = type(self)._make(ThreadReactor(io_loop(), lock), options, **more)
        core.on_readable = self._wake_receiver
        core.on_writable = self._wake_senders
        core.on_event = self._happened
        core.on_closed = self._ended.notify_all
        _sockets.add(self)

    def _disown(self) -> None:
        self._disowned = True
        self._orphan = self._core  # kept, so that nothing of the parent's is closed by the garbage collector
        self._core = Disowned()  # type: ignore[assignment]
        lock = self._lock = threading.Lock()  # the parent's may have been held when it forked
        self._ended = threading.Condition(lock)
        self._readable = self._writable = self._eventful = threading.Condition(lock)

    # Endpoints

    def bind(self, endpoint: str) -> str:
        """Accept connections at `tcp://HOST:PORT`, `ipc://PATH` or `inproc://NAME`; the endpoint as bound.

        The host `*` is every IPv4 interface, the port `*` any that the system gives, and `49152-65535` any of a range.
        """
        with self._lock:
            return self._checked().bind(endpoint)

    def unbind(self, endpoint: str) -> None:
        """Accept no more connections at an endpoint that `bind` returned. Connections that are there stay."""
        with self._lock:
            self._checked().unbind(endpoint)
        self._let_go()

    # Waiting for messages, and to send them

    def _receive(self, attempt: Callable[[], T | None], timeout: float | None) -> T:
        with self._lock:
            result = attempt() if not self._core.closing else None
            if result is None:
                self._receivers += 1
                try:
                    result = self._wait(self._readable, attempt, timeout)
                finally:
                    self._receivers -= 1
                    if self._receivers and self._core.ready:
                        self._readable.notify()
            return result

    def _post(self, pipe: Pipe | None, frame: bytes) -> bool:
        """Send a message without the lock, where that is possible. See `Pipe.post`."""
        if pipe is None or not pipe.post(frame):
            return False
        if pipe.looked_after and pipe.attached and not self._core.closing:
            return True
        with self._lock:
            return self._core.settle_post(pipe, frame)

    def _wait_to_send(self, attempt: Callable[[], T | None], timeout: float | None) -> T:
        self._senders += 1
        try:
            return self._wait(self._writable, attempt, timeout)
        finally:
            self._senders -= 1

    # What happens

    def next_event(self, timeout: float | None = None) -> SocketEvent:
        """The next event of the socket's connections. The last thousand are kept for those who come late."""
        with self._lock:
            return self._wait(self._eventful, self._next_event, timeout, needs_open=False)

    def _next_event(self) -> SocketEvent | None:
        return self._events.popleft() if self._events else None

    def events(self) -> Iterator[SocketEvent]:
        """All events from now on (and those that are kept), until the socket is closed."""
        try:
            while True:
                yield self.next_event()
        except SocketClosed:
            return

    @property
    def counters(self) -> Counters:
        """What was dropped, unroutable, abandoned or refused so far."""
        return self._core.counters

    # The end

    def close(self, linger: float | str | None = "default") -> None:
        """Close; what is queued has `linger` seconds to go out (None: as long as it takes; 0: none at all)."""
        with self._lock:
            self._core.close(self._linger if isinstance(linger, str) else linger)
            for condition in (self._readable, self._writable, self._eventful):
                condition.notify_all()
            while not self._core.closed:
                self._ended.wait()
        self._let_go()

    def _let_go(self) -> None:
        """Return when the I/O thread has closed what it was told to: a port can be bound anew after that."""
        io = _io
        if io is not None and not self._disowned:
            io.settle()

    @property
    def closed(self) -> bool:
        return self._core.closing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Who leaves by an exception does not want to wait for peers that may never come.
        self.close(0 if kind is not None else "default")

    # Waiting, with the lock held

    def _checked(self) -> Core:
        if self._core.closing:
            raise self._closed_error()
        return self._core

    def _closed_error(self) -> ZmtpError:
        if self._disowned:
            return ZmtpError(_NOT_OURS)
        return SocketClosed("the socket is closed")

    def _wait(
        self,
        condition: threading.Condition,
        attempt: Callable[[], T | None],
        timeout: float | None,
        needs_open: bool = True,
    ) -> T:
        """Call `attempt` whenever it may succeed, until it does."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._core.closing and needs_open:
                raise self._closed_error()
            result = attempt()
            if result is not None:
                return result
            if self._core.closing:
                raise self._closed_error()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimedOut(f"nothing came of it within {timeout:g} s")
            condition.wait(left)

    def _wake_receiver(self) -> None:
        if self._receivers:
            self._readable.notify()

    def _wake_senders(self) -> None:
        if self._senders:
            self._writable.notify_all()

    def _happened(self, event: SocketEvent) -> None:
        self._events.append(event)
        self._eventful.notify()


class Socket(BaseSocket):
    """A socket whose messages are lists of frames."""

    def __init__(self, *, linger: float | None = DEFAULT_LINGER, **options: Unpack[SocketArguments]) -> None:
        self._open(linger, Options(**options))

    def connect(self, endpoint: str) -> None:
        """Connect in the background, and again whenever the connection is lost. Returns at once."""
        with self._lock:
            self._checked().connect(endpoint)

    def disconnect(self, endpoint: str) -> None:
        """End a connection that `connect` made, when what is queued for it has gone out."""
        with self._lock:
            self._checked().disconnect(endpoint, self._linger)

    def recv(self, timeout: float | None = None) -> list[bytes]:
        """The next message, as the list of its frames; fair between peers."""
        return self._receive(self._core.try_recv, timeout)

    def recv_batch(self, timeout: float | None = None) -> Batch:
        """Many messages from one peer at once: all that came in one read. The fast way to receive."""
        return self._receive(self._core.try_recv_batch, timeout)

    def send(self, message: Sendable, timeout: float | None = None) -> None:
        """Queue a message: one frame as `bytes`, or several as a sequence of them."""
        frames = message if type(message) is bytes else as_message(message)
        with self._lock:
            core = self._core
            if core.closing or not core.try_send(frames):
                self._wait_to_send(lambda: core.try_send(frames) or None, timeout)

    def send_batch(self, messages: Iterable[Sendable], timeout: float | None = None) -> None:
        """Queue many messages. The fast way to send: the cost per message is a fraction of that of `send`."""
        self._send_all(self._core.try_send_batch, as_messages(messages), timeout)

    def _send_all(
        self, attempt: Callable[[list[Message], int], int], messages: list[Message], timeout: float | None
    ) -> None:
        with self._lock:
            core = self._core
            position = 0 if core.closing else attempt(messages, 0)
            while position < len(messages) or (core.closing and messages):

                def go_on(start: int = position) -> int | None:
                    stop = attempt(messages, start)
                    return stop if stop > start else None

                position = self._wait_to_send(go_on, timeout)

    def __iter__(self) -> Iterator[list[bytes]]:
        try:
            while True:
                yield self.recv()
        except SocketClosed:
            return


class Dealer(Socket):
    """DEALER: sends each message to one of its peers, in turn, and receives from all of them fairly."""

    _make: ClassVar[Callable[..., Core]] = patterns.Dealer
    _core: patterns.Dealer

    def send(self, message: Sendable, timeout: float | None = None) -> None:
        """Queue a message: one frame as `bytes`, or several as a sequence of them."""
        if type(message) is not bytes or not self._post(self._core.lone, message):
            super().send(message, timeout)


class Router(Socket):
    """ROUTER: the first frame of a message is the identity of the peer that it came from, or goes to.

    A message to a peer that is not there is dropped and counted, or, with `unroutable="error"`, raises `Unroutable`.
    A second peer with an identity that is in use is refused, or, with `handover=True`, takes the identity over.
    """

    _make: ClassVar[Callable[..., Core]] = patterns.Router
    _core: patterns.Router

    def __init__(
        self,
        *,
        unroutable: patterns.Unroutables = "drop",
        handover: bool = False,
        linger: float | None = DEFAULT_LINGER,
        **options: Unpack[SocketArguments],
    ) -> None:
        options.setdefault("on_full", "drop")
        self._open(linger, Options(**options), unroutable=unroutable, handover=handover)

    def send_to(self, identity: bytes, messages: Iterable[Sendable], timeout: float | None = None) -> None:
        """Queue many messages for one peer: what `send_batch` is for other sockets."""
        core = self._core
        self._send_all(lambda batch, start: core.try_send_to(identity, batch, start), as_messages(messages), timeout)


class Pub(Socket):
    """PUB: each message goes to all who subscribed to a beginning of its first frame.

    A subscriber whose queue is full misses messages, which are counted; with `on_full="block"` the publisher waits for
    the slowest.
    """

    _make: ClassVar[Callable[..., Core]] = patterns.Pub

    def __init__(self, *, linger: float | None = DEFAULT_LINGER, **options: Unpack[SocketArguments]) -> None:
        options.setdefault("on_full", "drop")
        self._open(linger, Options(**options))


class XPub(Pub):
    """XPUB: a PUB that receives its subscriptions: `\\x01` or `\\x00`, then the prefix."""

    _make: ClassVar[Callable[..., Core]] = patterns.XPub


class XSub(Socket):
    """XSUB: a SUB whose subscriptions can also be sent as messages: `\\x01` or `\\x00`, then the prefix."""

    _make: ClassVar[Callable[..., Core]] = patterns.XSub
    _core: patterns.XSub

    def subscribe(self, prefix: bytes) -> None:
        """Want the messages that begin with `prefix`; with an empty one, all."""
        with self._lock:
            self._checked()
            self._core.subscribe(prefix)

    def unsubscribe(self, prefix: bytes) -> None:
        """Take one `subscribe` back."""
        with self._lock:
            self._checked()
            self._core.unsubscribe(prefix)


class Sub(XSub):
    """SUB: receives what it subscribed to, from all the publishers that it is connected to."""

    _make: ClassVar[Callable[..., Core]] = patterns.Sub
