"""Our sockets of both faces, called in the same way by tests that block, because libzmq blocks on the other side."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar, Unpack, cast

import zambezi.zmtp.asyncio as aio
from tests.interop.libzmq import PATIENCE
from zambezi.zmtp import TimedOut, sync
from zambezi.zmtp.events import SocketEvent
from zambezi.zmtp.face import Sendable, SocketArguments
from zambezi.zmtp.transport import Counters

T = TypeVar("T")
E = TypeVar("E", bound=SocketEvent)

AnySocket = sync.Socket | aio.Socket
FaceName = Literal["asyncio", "sync"]


class Face(Protocol):
    """The place where our sockets are called."""

    def do(self, call: Callable[[], T | Coroutine[Any, Any, T]]) -> T:
        """Make a call, and return its result; if that is a coroutine, wait for it."""

    def end(self) -> None: ...


class Here:
    """The thread of the test, for blocking sockets."""

    def do(self, call: Callable[[], T | Coroutine[Any, Any, T]]) -> T:
        return cast("T", call())

    def end(self) -> None:
        pass


class Loop:
    """A loop in another thread, for asyncio sockets: it runs while the test waits for libzmq."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()

    def do(self, call: Callable[[], T | Coroutine[Any, Any, T]]) -> T:
        async def inside() -> T:
            result = call()
            return await result if inspect.iscoroutine(result) else cast("T", result)

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result(2 * PATIENCE)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class Our:
    """One of our sockets, of either face. Nothing waits longer than `PATIENCE`."""

    def __init__(self, face: Face, make: Callable[[], AnySocket]) -> None:
        self._face = face
        self.socket: AnySocket = cast("AnySocket", face.do(make))

    def bind(self, endpoint: str = "tcp://127.0.0.1:*") -> str:
        return self._face.do(lambda: self.socket.bind(endpoint))

    def connect(self, endpoint: str) -> None:
        self._face.do(lambda: self.socket.connect(endpoint))

    def send(self, message: Sendable) -> None:
        self._face.do(lambda: self.socket.send(message, PATIENCE))

    def send_each(self, messages: Sequence[Sendable]) -> None:
        """Send messages one by one."""

        def here(socket: sync.Socket) -> None:
            for message in messages:
                socket.send(message, PATIENCE)

        async def inside(socket: aio.Socket) -> None:
            for message in messages:
                await socket.send(message, PATIENCE)

        self._face.do(lambda: _either(self.socket, here, inside))

    def send_batch(self, messages: Sequence[Sendable]) -> None:
        self._face.do(lambda: self.socket.send_batch(messages, PATIENCE))

    def send_to(self, identity: bytes, messages: Sequence[Sendable]) -> None:
        socket = self.socket
        assert isinstance(socket, sync.Router | aio.Router)
        self._face.do(lambda: socket.send_to(identity, messages, PATIENCE))

    def recv(self, timeout: float = PATIENCE) -> list[bytes]:
        return self._face.do(lambda: self.socket.recv(timeout))

    def polled(self) -> list[bytes] | None:
        """Return the next message, or None."""
        try:
            return self.recv(0.01)
        except TimedOut:
            return None

    def recv_each(self, count: int) -> list[list[bytes]]:
        """Receive messages one by one."""

        def here(socket: sync.Socket) -> list[list[bytes]]:
            return [socket.recv(PATIENCE) for _ in range(count)]

        async def inside(socket: aio.Socket) -> list[list[bytes]]:
            return [await socket.recv(PATIENCE) for _ in range(count)]

        return self._face.do(lambda: _either(self.socket, here, inside))

    def recv_batches(self, count: int) -> list[list[bytes]]:
        """Receive at least `count` messages with `recv_batch`, without the identities that a ROUTER adds."""
        messages: list[list[bytes]] = []
        while len(messages) < count:
            messages += self._face.do(lambda: self.socket.recv_batch(PATIENCE))
        return messages

    def subscribe(self, prefix: bytes) -> None:
        socket = self.socket
        assert isinstance(socket, sync.XSub | aio.XSub)
        self._face.do(lambda: socket.subscribe(prefix))

    def unsubscribe(self, prefix: bytes) -> None:
        socket = self.socket
        assert isinstance(socket, sync.XSub | aio.XSub)
        self._face.do(lambda: socket.unsubscribe(prefix))

    def wait_for(self, kind: type[E]) -> E:
        """Return the next event of a type; ignore others."""
        while True:
            event = self._face.do(lambda: self.socket.next_event(PATIENCE))
            if isinstance(event, kind):
                return event

    def events_so_far(self) -> list[SocketEvent]:
        """Return all events that have happened, without waiting."""
        events: list[SocketEvent] = []
        with contextlib.suppress(TimedOut):
            while True:
                events.append(self._face.do(lambda: self.socket.next_event(0)))
        return events

    @property
    def counters(self) -> Counters:
        return self.socket.counters

    def close(self, linger: float = 0) -> None:
        self._face.do(lambda: self.socket.close(linger))


def _either(
    socket: AnySocket,
    here: Callable[[sync.Socket], T],
    inside: Callable[[aio.Socket], Coroutine[Any, Any, T]],
) -> T | Coroutine[Any, Any, T]:
    return here(socket) if isinstance(socket, sync.Socket) else inside(socket)


class Ours:
    """A maker of our sockets, all of one face, which it closes at the end."""

    def __init__(self, name: FaceName) -> None:
        self._package = aio if name == "asyncio" else sync
        self._face: Face = Loop() if name == "asyncio" else Here()
        self._sockets: list[Our] = []

    def dealer(self, **options: Unpack[SocketArguments]) -> Our:
        return self._add(lambda: self._package.Dealer(**options))

    def router(
        self,
        *,
        unroutable: Literal["drop", "error"] = "drop",
        handover: bool = False,
        **options: Unpack[SocketArguments],
    ) -> Our:
        return self._add(lambda: self._package.Router(unroutable=unroutable, handover=handover, **options))

    def pub(self, **options: Unpack[SocketArguments]) -> Our:
        return self._add(lambda: self._package.Pub(**options))

    def xpub(self, **options: Unpack[SocketArguments]) -> Our:
        return self._add(lambda: self._package.XPub(**options))

    def sub(self, *prefixes: bytes, **options: Unpack[SocketArguments]) -> Our:
        return self._subscribed(self._add(lambda: self._package.Sub(**options)), prefixes)

    def xsub(self, *prefixes: bytes, **options: Unpack[SocketArguments]) -> Our:
        return self._subscribed(self._add(lambda: self._package.XSub(**options)), prefixes)

    def _add(self, make: Callable[[], AnySocket]) -> Our:
        one = Our(self._face, make)
        self._sockets.append(one)
        return one

    def _subscribed(self, one: Our, prefixes: Sequence[bytes]) -> Our:
        for prefix in prefixes:
            one.subscribe(prefix)
        return one

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._sockets:
            one.close()
        self._face.end()
