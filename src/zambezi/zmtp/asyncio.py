"""ZeroMQ sockets for asyncio. Names, arguments and meaning are those of `zambezi.zmtp.sync`.

>>> import asyncio
>>> async def main() -> list[bytes]:
...     async with Router() as router, Dealer() as dealer:
...         dealer.connect(router.bind("tcp://127.0.0.1:*"))
...         await dealer.send(b"hello")
...         identity, text = await router.recv()
...         await router.send([identity, text.upper()])
...         return await dealer.recv()
>>> asyncio.run(main())
[b'HELLO']

Calls that do not find what they want at once wait for it. A call that is cancelled, or times out, loses nothing: a
message is taken from the queue only when the call returns it, and put into it only when the call has succeeded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeVar, Unpack

from zambezi.zmtp import patterns
from zambezi.zmtp.core import Core, Counters, Options
from zambezi.zmtp.errors import SocketClosed, TimedOut
from zambezi.zmtp.events import SocketEvent
from zambezi.zmtp.face import DEFAULT_LINGER, EVENTS_KEPT, Face, Sendable, SocketArguments, as_message, as_messages
from zambezi.zmtp.frames import Batch, Message
from zambezi.zmtp.reactor import AsyncioReactor

T = TypeVar("T")

YIELD_AFTER: Final = 500


class BaseSocket(Face):
    """What all the sockets share, whatever their messages look like.

    Made inside a running event loop, and used in it alone.
    """

    _make: ClassVar[Callable[..., Core]]

    def _open(self, linger: float | None, options: Options, **more: Any) -> None:
        self._loop = asyncio.get_running_loop()
        core = self._core = type(self)._make(AsyncioReactor(self._loop), options, **more)
        self._linger = linger
        self._receivers: list[asyncio.Future[None]] = []
        self._senders: list[asyncio.Future[None]] = []
        self._watchers: list[asyncio.Future[None]] = []
        self._events: deque[SocketEvent] = deque(maxlen=EVENTS_KEPT)
        self._closed = self._loop.create_future()
        self._sent = 0
        core.on_readable = self._wake_receiver
        core.on_writable = self._wake_senders
        core.on_event = self._happened
        core.on_closed = self._done

    # Endpoints

    def bind(self, endpoint: str) -> str:
        """Accept connections at `tcp://HOST:PORT`, `ipc://PATH` or `inproc://NAME`; the endpoint as bound.

        The host `*` is every IPv4 interface, the port `*` any that the system gives, and `49152-65535` any of a range.
        """
        return self._checked().bind(endpoint)

    def unbind(self, endpoint: str) -> None:
        """Accept no more connections at an endpoint that `bind` returned. Connections that are there stay."""
        self._checked().unbind(endpoint)

    # What happens

    async def next_event(self, timeout: float | None = None) -> SocketEvent:
        """The next event of the socket's connections. The last thousand are kept for those who come late."""
        return await self._wait(
            self._watchers,
            lambda: self._events.popleft() if self._events else None,
            timeout,
            needs_open=False,
        )

    async def events(self) -> AsyncIterator[SocketEvent]:
        """All events from now on (and those that are kept), until the socket is closed."""
        try:
            while True:
                yield await self.next_event()
        except SocketClosed:
            return

    @property
    def counters(self) -> Counters:
        """What was dropped, unroutable, abandoned or refused so far."""
        return self._core.counters

    # The end

    async def close(self, linger: float | str | None = "default") -> None:
        """Close; what is queued has `linger` seconds to go out (None: as long as it takes; 0: none at all)."""
        core = self._core
        core.close(self._linger if isinstance(linger, str) else linger)
        for waiting in (self._receivers, self._senders, self._watchers):
            for future in waiting:
                if not future.done():
                    future.set_result(None)
        await asyncio.shield(self._closed)

    @property
    def closed(self) -> bool:
        return self._core.closing

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Who leaves by an exception does not want to wait for peers that may never come.
        await self.close(0 if kind is not None else "default")

    # Waiting

    async def _give_way(self) -> None:
        """A program that only sends must let the loop write, too."""
        self._sent = 0
        await asyncio.sleep(0)

    def _checked(self) -> Core:
        if self._core.closing:
            raise SocketClosed("the socket is closed")
        return self._core

    async def _wait(
        self,
        waiting: list[asyncio.Future[None]],
        attempt: Callable[[], T | None],
        timeout: float | None,
        needs_open: bool = True,
    ) -> T:
        """Call `attempt` whenever it may succeed, until it does."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    if self._core.closing and needs_open:
                        raise SocketClosed("the socket is closed")
                    result = attempt()
                    if result is not None:
                        return result
                    if self._core.closing:
                        raise SocketClosed("the socket is closed")
                    future = self._loop.create_future()
                    waiting.append(future)
                    try:
                        await future
                    except asyncio.CancelledError:
                        # The wake-up may have been meant for this call: somebody else gets it then.
                        if future.done() and not future.cancelled():
                            _wake_one(waiting)
                        raise
                    finally:
                        if future in waiting:
                            waiting.remove(future)
        except TimeoutError:
            raise TimedOut(f"nothing came of it within {timeout:g} s") from None
        finally:
            # What woke this call may be enough for the next one in the line.
            if waiting is self._receivers and self._core.ready:
                _wake_one(waiting)

    def _wake_receiver(self) -> None:
        if self._receivers:
            _wake_one(self._receivers)

    def _wake_senders(self) -> None:
        while self._senders:
            _wake_one(self._senders)

    def _happened(self, event: SocketEvent) -> None:
        self._events.append(event)
        _wake_one(self._watchers)

    def _done(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)


def _wake_one(waiting: list[asyncio.Future[None]]) -> None:
    while waiting:
        future = waiting.pop(0)
        if not future.done():
            future.set_result(None)
            return


class Socket(BaseSocket):
    """A socket whose messages are lists of frames."""

    def __init__(self, *, linger: float | None = DEFAULT_LINGER, **options: Unpack[SocketArguments]) -> None:
        self._open(linger, Options(**options))

    def connect(self, endpoint: str) -> None:
        """Connect in the background, and again whenever the connection is lost. Returns at once."""
        self._checked().connect(endpoint)

    def disconnect(self, endpoint: str) -> None:
        """End a connection that `connect` made, when what is queued for it has gone out."""
        self._checked().disconnect(endpoint, self._linger)

    async def recv(self, timeout: float | None = None) -> list[bytes]:
        """The next message, as the list of its frames; fair between peers."""
        core = self._core
        message = core.try_recv() if not core.closing else None
        if message is None:
            return await self._wait(self._receivers, core.try_recv, timeout)
        return message

    async def recv_batch(self, timeout: float | None = None) -> Batch:
        """Many messages from one peer at once: all that came in one read. The fast way to receive."""
        core = self._core
        batch = core.try_recv_batch() if not core.closing else None
        if batch is None:
            return await self._wait(self._receivers, core.try_recv_batch, timeout)
        return batch

    async def send(self, message: Sendable, timeout: float | None = None) -> None:
        """Queue a message: one frame as `bytes`, or several as a sequence of them."""
        frames = message if type(message) is bytes else as_message(message)
        core = self._core
        if core.closing or not core.try_send(frames):
            await self._wait(self._senders, lambda: core.try_send(frames) or None, timeout)
        self._sent += 1
        if self._sent > YIELD_AFTER:
            await self._give_way()

    async def send_batch(self, messages: Iterable[Sendable], timeout: float | None = None) -> None:
        """Queue many messages. The fast way to send: the cost per message is a fraction of that of `send`."""
        await self._send_all(self._core.try_send_batch, as_messages(messages), timeout)

    async def _send_all(
        self, attempt: Callable[[list[Message], int], int], messages: list[Message], timeout: float | None
    ) -> None:
        core = self._core
        position = 0 if core.closing else attempt(messages, 0)
        while position < len(messages) or (core.closing and messages):

            def go_on(start: int = position) -> int | None:
                stop = attempt(messages, start)
                return stop if stop > start else None

            position = await self._wait(self._senders, go_on, timeout)
        await asyncio.sleep(0)

    def __aiter__(self) -> AsyncIterator[list[bytes]]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[list[bytes]]:
        try:
            while True:
                yield await self.recv()
        except SocketClosed:
            return


class Dealer(Socket):
    """DEALER: sends each message to one of its peers, in turn, and receives from all of them fairly."""

    _make: ClassVar[Callable[..., Core]] = patterns.Dealer


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

    async def send_to(self, identity: bytes, messages: Iterable[Sendable], timeout: float | None = None) -> None:
        """Queue many messages for one peer: what `send_batch` is for other sockets."""
        core = self._core
        await self._send_all(
            lambda batch, start: core.try_send_to(identity, batch, start), as_messages(messages), timeout
        )


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
        self._checked()
        self._core.subscribe(prefix)

    def unsubscribe(self, prefix: bytes) -> None:
        """Take one `subscribe` back."""
        self._checked()
        self._core.unsubscribe(prefix)


class Sub(XSub):
    """SUB: receives what it subscribed to, from all the publishers that it is connected to."""

    _make: ClassVar[Callable[..., Core]] = patterns.Sub
