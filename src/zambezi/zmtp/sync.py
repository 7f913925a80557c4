# Generated from asyncio.py by `make generate`. Change that file, and generate this one anew.
"""ZeroMQ sockets for threads, in calls that block.

Names, arguments and meaning are those of `zambezi.zmtp.asyncio`.

>>> def main() -> list[bytes]:
...     with Router() as router, Dealer() as dealer:
...         dealer.connect(router.bind("tcp://127.0.0.1:*"))
...         dealer.send(b"hello")
...         identity, text = router.recv()
...         router.send([identity, text.upper()])
...         return dealer.recv()
>>> main()
[b'HELLO']

A call that cannot succeed at once waits. A call that times out loses nothing: a message leaves the
queue only when `recv` returns it, and enters the queue only when `send` succeeds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import ClassVar, Self, TypeVar, Unpack

from zambezi.zmtp import patterns
from zambezi.zmtp.errors import SocketClosed
from zambezi.zmtp.events import SocketEvent
from zambezi.zmtp.face import (
    DEFAULT_LINGER,
    EVENTS_KEPT,
    NO_EVENT,
    NO_MESSAGE,
    NO_ROOM,
    YIELD_AFTER,
    Face,
    Sendable,
    Shell,
    SocketArguments,
    as_message,
    as_messages,
    go_on,
    while_open,
)
from zambezi.zmtp.frames import Batch, Frames
from zambezi.zmtp.options import Options
from zambezi.zmtp.thread_waiter import Waiter
from zambezi.zmtp.transport import Counters

T = TypeVar("T")


class BaseSocket(Face):
    """The base of all sockets, for any form of messages. Any thread may use it at any time."""

    def __init__(self, waiter: Waiter, shell: Shell, linger: float | None) -> None:
        self._waiter = waiter
        self._transport = transport = shell.transport
        self._shell = shell
        self._linger = linger
        self._readable = waiter.sibling(more=lambda: shell.readable)
        self._writable = waiter.sibling()
        self._eventful = waiter.sibling()
        self._ended = waiter.sibling()
        self._events: deque[SocketEvent] = deque(maxlen=EVENTS_KEPT)
        self._sent = 0
        shell.on_readable = self._readable.wake_one
        shell.on_writable = self._writable.wake
        shell.on_event = self._happened
        transport.on_closed = self._ended.wake

    # Endpoints

    def bind(self, endpoint: str) -> str:
        """Accept connections at `tcp://HOST:PORT`, `ipc://PATH` or `inproc://NAME`; return the endpoint as bound.

        The host `*` means every IPv4 interface. The port `*` means any port that the system chooses, and `49152-65535`
        any free port of the range.
        """
        return self._waiter.call(self._while_open(partial(self._shell.bind, endpoint)))

    def unbind(self, endpoint: str) -> None:
        """Accept no more connections at an endpoint that `bind` returned. Existing connections stay."""
        self._waiter.call(self._while_open(partial(self._transport.unbind, endpoint)))

    # Events

    def next_event(self, timeout: float | None = None) -> SocketEvent:
        """Return the next event of the socket's connections. The socket keeps the last thousand for late callers."""
        return self._eventful.until(self._next_event, timeout, NO_EVENT)

    def events(self) -> Iterator[SocketEvent]:
        """Yield the events that the socket kept, then each new one, until the socket is closed."""
        try:
            while True:
                yield self.next_event()
        except SocketClosed:
            return

    def _next_event(self) -> SocketEvent | None:
        if not self._events and self._transport.closing:
            raise SocketClosed("the socket is closed")
        return self._events.popleft() if self._events else None

    def _happened(self, event: SocketEvent) -> None:
        self._events.append(event)
        self._eventful.wake_one()

    @property
    def counters(self) -> Counters:
        """The numbers of messages and connections that the socket dropped, abandoned or refused so far."""
        return self._transport.counters

    # The end

    def close(self, linger: float | str | None = "default") -> None:
        """Close the socket; queued messages have `linger` seconds to go out (None: no time limit; 0: no time)."""
        if self._waiter.disowned:
            return
        self._waiter.call(self._begin_to_close, self._linger if isinstance(linger, str) else linger)
        self._ended.until(lambda: self._transport.closed or None, None, "")

    def _begin_to_close(self, linger: float | None) -> None:
        self._shell.close(linger)
        for waiter in (self._readable, self._writable, self._eventful):
            waiter.wake()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._transport.closing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A program that leaves by an exception does not want to wait for peers that may never connect.
        self.close(0 if kind is not None else "default")

    # Waiting

    def _while_open(self, attempt: Callable[[], T]) -> Callable[[], T]:
        """Return a function that calls `attempt`, but raises `SocketClosed` if the socket is closed."""
        return partial(while_open, self._transport, attempt)

    def _breathe(self) -> None:
        self._sent = 0
        self._waiter.breathe()


class Socket(BaseSocket):
    """A socket whose messages are lists of frames."""

    _pattern: ClassVar[type[patterns.Pattern]]
    _shell: patterns.Pattern

    def __init__(self, *, linger: float | None = DEFAULT_LINGER, **options: Unpack[SocketArguments]) -> None:
        waiter = Waiter()
        self._use(waiter, self._pattern(waiter.reactor, Options(**options)), linger)

    def _use(self, waiter: Waiter, pattern: patterns.Pattern, linger: float | None) -> None:
        super().__init__(waiter, pattern, linger)
        self._try_recv = waiter.fast(pattern.try_recv, self._transport)
        self._try_send = waiter.fast(pattern.try_send, self._transport, pattern.post)
        self._attempt_recv = self._while_open(pattern.try_recv)

    def connect(self, endpoint: str) -> None:
        """Connect in the background, and reconnect whenever the connection is lost. Returns at once."""
        self._waiter.call(self._while_open(partial(self._shell.connect, endpoint)))

    def disconnect(self, endpoint: str) -> None:
        """End a connection that `connect` made, after its queued messages have gone out."""
        self._waiter.call(self._while_open(partial(self._shell.disconnect, endpoint, self._linger)))

    def recv(self, timeout: float | None = None) -> list[bytes]:
        """Return the next message, as the list of its frames. The socket receives from its peers in turn."""
        message = None if self._transport.closing else self._try_recv()
        if message is None:
            return self._readable.until(self._attempt_recv, timeout, NO_MESSAGE)
        return message

    def recv_batch(self, timeout: float | None = None) -> Batch:
        """Return many messages from one peer at once: all messages of one read. The fast way to receive."""
        return self._readable.until(self._while_open(self._shell.try_recv_batch), timeout, NO_MESSAGE)

    def send(self, message: Sendable, timeout: float | None = None) -> None:
        """Queue a message: one frame as `bytes`, or several as a sequence of them."""
        frames = message if type(message) is bytes else as_message(message)
        if self._transport.closing or not self._try_send(frames):
            attempt = self._while_open(lambda: self._shell.try_send(frames) or None)
            self._writable.until(attempt, timeout, NO_ROOM)
        self._sent += 1
        if self._sent > YIELD_AFTER:
            self._breathe()

    def send_batch(self, messages: Iterable[Sendable], timeout: float | None = None) -> None:
        """Queue many messages. The fast way to send: the cost per message is a fraction of that of `send`."""
        self._send_all(self._shell.try_send_batch, as_messages(messages), timeout)

    def _send_all(
        self, attempt: Callable[[list[Frames], int], int], messages: list[Frames], timeout: float | None
    ) -> None:
        position = 0
        while position < len(messages):
            rest = self._while_open(partial(go_on, attempt, messages, position))
            position = self._writable.until(rest, timeout, NO_ROOM)
        self._breathe()

    def __iter__(self) -> Iterator[list[bytes]]:
        return self._messages()

    def _messages(self) -> Iterator[list[bytes]]:
        try:
            while True:
                yield self.recv()
        except SocketClosed:
            return


class Dealer(Socket):
    """DEALER: sends each message to one of its peers, in turn, and receives from all of them in turn."""

    _pattern = patterns.Dealer


class Router(Socket):
    """ROUTER: the first frame of a message is the identity of the peer that sent it, or that receives it.

    A message to a peer that does not exist is dropped and counted, or, with `unroutable="error"`, raises `Unroutable`.
    If a second peer claims an identity that is in use, the socket refuses it, or, with `handover=True`, gives it the
    identity and ends the older connection.
    """

    _shell: patterns.Router

    def __init__(
        self,
        *,
        unroutable: patterns.Unroutables = "drop",
        handover: bool = False,
        linger: float | None = DEFAULT_LINGER,
        **options: Unpack[SocketArguments],
    ) -> None:
        options.setdefault("on_full", "drop")
        waiter = Waiter()
        pattern = patterns.Router(waiter.reactor, Options(**options), unroutable=unroutable, handover=handover)
        self._use(waiter, pattern, linger)

    def send_to(self, identity: bytes, messages: Iterable[Sendable], timeout: float | None = None) -> None:
        """Queue many messages for one peer: `send_batch` for a ROUTER."""
        self._send_all(partial(self._shell.try_send_to, identity), as_messages(messages), timeout)


class Pub(Socket):
    """PUB: each message goes to all peers that subscribed to a prefix of its first frame.

    A subscriber whose queue is full misses messages, which the publisher counts; with `on_full="block"` the publisher
    waits for the slowest subscriber.
    """

    _pattern: ClassVar[type[patterns.Pattern]] = patterns.Pub

    def __init__(self, *, linger: float | None = DEFAULT_LINGER, **options: Unpack[SocketArguments]) -> None:
        options.setdefault("on_full", "drop")
        super().__init__(linger=linger, **options)


class XPub(Pub):
    """XPUB: a PUB that receives subscriptions as messages: `\\x01` (subscribe) or `\\x00` (cancel), then the prefix."""

    _pattern = patterns.XPub


class XSub(Socket):
    """XSUB: a SUB that can also send subscriptions as messages: `\\x01` or `\\x00`, then the prefix."""

    _pattern = patterns.XSub
    _shell: patterns.XSub

    def subscribe(self, prefix: bytes) -> None:
        """Ask for the messages that begin with `prefix`; an empty prefix asks for all messages."""
        self._waiter.call(self._while_open(partial(self._shell.subscribe, prefix)))

    def unsubscribe(self, prefix: bytes) -> None:
        """Cancel one `subscribe` of this prefix."""
        self._waiter.call(self._while_open(partial(self._shell.unsubscribe, prefix)))


class Sub(XSub):
    """SUB: receives the messages that it subscribed to, from all publishers that it is connected to."""

    _pattern = patterns.Sub
