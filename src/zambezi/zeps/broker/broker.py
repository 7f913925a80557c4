"""The broker, on asyncio: the engine with sockets, a clock and threads for the disk.

>>> import asyncio, tempfile
>>> async def main() -> str:
...     with tempfile.TemporaryDirectory() as directory:
...         async with Broker(directory) as broker:
...             endpoint = broker.bind("tcp://127.0.0.1:*")
...             return endpoint.rpartition(":")[0]
>>> asyncio.run(main())
'tcp://127.0.0.1'
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Final, Self, Unpack

from zambezi.zeps.block import Block
from zambezi.zeps.broker.engine import BrokerArguments, BrokerOptions, Counters, Engine
from zambezi.zeps.broker.session import Session
from zambezi.zeps.broker.stream import WAITING, BrokerStream
from zambezi.zeps.errors import GroupError, JournalError, ZepsError
from zambezi.zeps.journal import Policy, Span, Store
from zambezi.zeps.multicast.feed import FeedCounters
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.sender import Sender
from zambezi.zmtp import connection
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.connection import Heartbeat
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import AsyncioReactor, Timer
from zambezi.zmtp.security import Null, Security
from zambezi.zmtp.source import Stored
from zambezi.zmtp.transport import Counters as SocketCounters
from zambezi.zmtp.transport import Transport

_log: Final = logging.getLogger("zambezi.zeps")

TICK: Final = 1.0
GOODBYE: Final = 1.0  # how long clients have to answer DETACH when the broker stops
THREADS: Final = 4
# What waits for a client that does not read are answers only; messages wait in the journal.
ANSWERS: Final = Bound(messages=10_000, octets=4 * 1024 * 1024)
SLACK: Final = 64 * 1024  # bytes that are still read of a publisher that is paused
HEARTBEAT: Final = Heartbeat(interval=10.0, timeout=30.0)


class Broker:
    """Keeps streams in `path`, and serves them at the endpoints that it is bound to."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        policy: Policy | None = None,
        security: Security | None = None,
        authenticator: Authenticator | None = None,
        heartbeat: Heartbeat | None = HEARTBEAT,
        multicast: Mapping[str, str] | None = None,
        group_key: bytes = b"",
        **options: Unpack[BrokerArguments],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(THREADS, "zambezi-disk")
        self._maker = ThreadPoolExecutor(1, "zambezi-maker")  # so that nobody waits behind many new streams but they
        self._syncing: set[BrokerStream] = set()
        self._waking: set[BrokerStream] = set()
        self._making: set[asyncio.Future[None]] = set()
        self.syncs = 0  # how often a journal was brought onto the disk,
        self.sync_seconds = 0.0  # and how long that took in all
        self._closing = False
        self._over = False  # nothing more goes to the disk, but by closing the journals
        self._store = Store(path, policy=policy or Policy())
        try:
            self._engine = Engine(self._store, BrokerOptions(**options), self)
        except BaseException:
            self._store.close()
            raise
        limits = self._engine.limits
        reactor = self._reactor = AsyncioReactor(self._loop)
        self._security = security or Null()
        # On the wire the broker is a ROUTER, whose peers are DEALERs. Each has a session of its own.
        self._transport = Transport(
            reactor,
            "ROUTER",
            self,
            Options(
                security=self._security,
                authenticator=authenticator,
                send_bound=ANSWERS,
                limits=connection.Limits(frame=limits.message, message=limits.message, connections=limits.connections),
                heartbeat=heartbeat,
            ),
            slack=SLACK,
        )
        self._sessions: dict[Peer, Session] = {}
        self._empty = asyncio.Event()
        self._engine.on_empty = self._empty.set
        self._closed = asyncio.Event()
        self._transport.on_closed = self._closed.set
        self._senders: dict[str, Sender] = {}
        try:
            for name, group in (multicast or {}).items():
                self._multicast(name, Group.parse(group), group_key)
        except BaseException:
            self._stop()
            raise
        self._timer: Timer = reactor.call_at(reactor.time() + TICK, self._tick)

    def _multicast(self, name: str, group: Group, key: bytes) -> None:
        """Send what is published to a stream to a group too. (ZEP-16)"""
        if not isinstance(self._security, Null) and not key:
            raise GroupError(
                f"the stream {name} is encrypted, and {group} would carry it in clear; give a group key, or no group"
            )
        stream = self._engine.find(name, create=True)
        assert stream is not None
        journal = stream.journal
        sender = self._senders[name] = Sender(self._reactor, group, journal.incarnation, journal.last, key)
        stream.feed = sender

    def _stop(self) -> None:
        for sender in self._senders.values():
            sender.close()
        self._pool.shutdown()
        self._maker.shutdown()
        self._engine.close()

    def bind(self, endpoint: str) -> str:
        """Serve at `tcp://HOST:PORT`, `ipc://PATH` or `inproc://NAME`; the endpoint as bound."""
        return self._transport.bind(endpoint)

    def set_policies(self, default: Policy, policies: Mapping[str, Policy]) -> None:
        """Keep streams by other rules from now on: `default`, and some by their own."""
        self._engine.set_policies(default, policies)

    @property
    def counters(self) -> Counters:
        """What happened, counted."""
        return self._engine.counters

    @property
    def socket_counters(self) -> SocketCounters:
        """Counters of connections that did not become clients."""
        return self._transport.counters

    @property
    def feeds(self) -> dict[str, FeedCounters]:
        """What went to multicast groups, by the name of the stream."""
        return {name: sender.counters for name, sender in self._senders.items()}

    @property
    def groups(self) -> dict[str, str]:
        """The multicast groups, by the name of the stream."""
        return {name: sender.group for name, sender in self._senders.items()}

    @property
    def queues(self) -> list[tuple[str, int, int]]:
        """The queues of the broker: name, length and bound of each. Of clients and streams, the longest counts."""
        engine, limits = self._engine, self._engine.limits
        streams = engine.streams
        waiting = max((stream.pending_octets for stream in streams), default=0)
        return [
            ("connections", len(engine.sessions), limits.connections),
            ("streams", len(streams), limits.streams),
            ("octets that wait for the disk, of a stream", waiting, WAITING),
            ("octets of answers, to a client", self._transport.longest_queue, self._transport.send_octets),
        ]

    @property
    def engine(self) -> Engine:
        """The streams and sessions: for those who show them."""
        return self._engine

    # What the transport tells

    def attached(self, peer: Peer) -> None:
        session = self._sessions[peer] = self._engine.session(peer, peer.address, peer.user, peer.local)
        peer.feed_from(_Feeding(session))

    def received(self, peer: Peer, batch: Batch) -> None:
        session = self._sessions[peer]
        if batch.ends is None:
            session.receive(batch.frames)
            return
        for message in batch:
            if len(message) == 1:
                session.receive(message)
            else:
                session.receive_multipart()

    def writable(self, peer: Peer) -> None:
        """Do nothing: a session is asked for more by `pull`."""

    def lost(self, peer: Peer, reason: str) -> None:
        # What came before the end still counts: it waits for room with the stream.
        while peer.held:
            peer.resume()
        self._sessions.pop(peer).lost()

    # What the engine asks for

    def soon(self, callback: Callable[[], object]) -> None:
        self._loop.call_soon(callback)

    def warm(self, span: Span, callback: Callable[[], object]) -> None:
        def warmed(done: asyncio.Future[None]) -> None:
            if not done.cancelled() and done.exception() is not None:
                _log.error("a journal cannot be read: %s", done.exception())
            callback()

        self._loop.run_in_executor(self._pool, span.warm).add_done_callback(warmed)

    def sync(self, stream: BrokerStream) -> None:
        if stream not in self._syncing and not self._over:
            self._syncing.add(stream)
            done = self._loop.run_in_executor(self._pool, stream.journal.sync)
            done.add_done_callback(partial(self._synced, stream, self._loop.time()))

    def wake(self, stream: BrokerStream) -> None:
        if stream not in self._waking and not self._over:
            self._waking.add(stream)
            done = self._loop.run_in_executor(self._pool, stream.journal.wake)
            done.add_done_callback(partial(self._woken, stream))

    def make(self, name: str, callback: Callable[[ZepsError | None], object]) -> None:
        done = self._loop.run_in_executor(self._maker, self._store.make, name)
        self._making.add(done)
        done.add_done_callback(partial(self._made, callback))

    def clock(self) -> float:
        return time.time()

    def _woken(self, stream: BrokerStream, done: asyncio.Future[None]) -> None:
        self._waking.discard(stream)
        if done.cancelled():
            return
        error = done.exception()
        if error is None or isinstance(error, JournalError):
            stream.woken(str(error or ""))
        else:
            raise error

    def _made(self, callback: Callable[[ZepsError | None], object], done: asyncio.Future[None]) -> None:
        self._making.discard(done)
        error = None if done.cancelled() else done.exception()
        if error is None or isinstance(error, ZepsError):
            callback(error)
        else:
            raise error

    def _synced(self, stream: BrokerStream, began: float, done: asyncio.Future[int]) -> None:
        self._syncing.discard(stream)
        self.syncs += 1
        self.sync_seconds += self._loop.time() - began
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            stream.settle()
        elif isinstance(error, JournalError):
            _log.error("stream %s is stopped: %s", stream.name, error)
            stream.stop()
        else:
            raise error

    # Time

    def _tick(self) -> None:
        self._timer = self._reactor.call_at(self._reactor.time() + TICK, self._tick)
        self._engine.tick()

    # The end

    async def close(self) -> None:
        """Say goodbye to the clients, and leave all that was published on the disk."""
        if self._closing:
            await self._closed.wait()
            return
        self._closing = True
        self._timer.cancel()
        self._transport.unbind_all()
        self._empty.clear()  # it was empty before, perhaps
        self._engine.detach()
        if self._engine.sessions:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE):
                    await self._empty.wait()
        self._transport.close(GOODBYE)
        await self._closed.wait()
        if self._making:
            await asyncio.wait(self._making)  # what was published to streams that were being made counts, too
        self._over = True
        await asyncio.to_thread(self._pool.shutdown)
        self._stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Feeding:
    """A session, as the source of its connection."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def pull(self) -> Block | Stored | None:
        """Return what goes to the client next."""
        more = self._session.pull()
        if isinstance(more, Span):
            return Stored(more.fd, more.offset, more.length, more.read)
        return more
