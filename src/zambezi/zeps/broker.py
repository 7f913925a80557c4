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
from zambezi.zeps.engine import BrokerArguments, BrokerOptions, Counters, Engine
from zambezi.zeps.errors import GroupError, JournalError, ZepsError
from zambezi.zeps.journal import Policy, Span, Store
from zambezi.zeps.multicast.feed import FeedCounters
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.sender import Sender
from zambezi.zeps.session import Session
from zambezi.zeps.stream import Stream
from zambezi.zmtp import connection, core
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.connection import Heartbeat
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.memory import MemoryLink
from zambezi.zmtp.pipe import Bound, Pipe
from zambezi.zmtp.reactor import AsyncioReactor, Reactor, Timer
from zambezi.zmtp.security import Null, Security
from zambezi.zmtp.source import Stored

_log: Final = logging.getLogger("zambezi.zeps")

TICK: Final = 1.0
GOODBYE: Final = 1.0  # how long clients have to answer DETACH when the broker stops
PART: Final = 5.0  # how long a client that said DETACH has to read what was said to it
THREADS: Final = 4
# What waits for a client that does not read are answers only; messages wait in the journal.
ANSWERS: Final = Bound(messages=10_000, octets=4 * 1024 * 1024)
# What waits of a publisher that is held back: a read, and no more is read.
HELD: Final = Bound(messages=100_000, octets=64 * 1024)
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
        self._syncing: set[Stream] = set()
        self._waking: set[Stream] = set()
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
        self._core = _BrokerCore(
            reactor,
            core.Options(
                security=security or Null(),
                authenticator=authenticator,
                send_bound=ANSWERS,
                receive_bound=HELD,
                limits=connection.Limits(frame=limits.message, message=limits.message, connections=limits.connections),
                heartbeat=heartbeat,
            ),
            self._engine,
        )
        self._empty = asyncio.Event()
        self._engine.on_empty = self._empty.set
        self._closed = asyncio.Event()
        self._core.on_closed = self._closed.set
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
        if not isinstance(self._core.options.security, Null) and not key:
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
        return self._core.bind(endpoint)

    def set_policies(self, default: Policy, policies: Mapping[str, Policy]) -> None:
        """Keep streams by other rules from now on: `default`, and some by their own."""
        self._engine.set_policies(default, policies)

    @property
    def counters(self) -> Counters:
        """What happened, counted."""
        return self._engine.counters

    @property
    def socket_counters(self) -> core.Counters:
        """What happened to connections before they were clients."""
        return self._core.counters

    @property
    def feeds(self) -> dict[str, FeedCounters]:
        """What went to multicast groups, by the name of the stream."""
        return {name: sender.counters for name, sender in self._senders.items()}

    @property
    def groups(self) -> dict[str, str]:
        """The multicast groups, by the name of the stream."""
        return {name: sender.group for name, sender in self._senders.items()}

    @property
    def core(self) -> core.Core:
        """The socket: for those who show its queues."""
        return self._core

    @property
    def engine(self) -> Engine:
        """The streams and sessions: for those who show them."""
        return self._engine

    # What the engine asks for

    def soon(self, callback: Callable[[], object]) -> None:
        self._loop.call_soon(callback)

    def warm(self, span: Span, callback: Callable[[], object]) -> None:
        def warmed(done: asyncio.Future[None]) -> None:
            if not done.cancelled() and done.exception() is not None:
                _log.error("a journal cannot be read: %s", done.exception())
            callback()

        self._loop.run_in_executor(self._pool, span.warm).add_done_callback(warmed)

    def sync(self, stream: Stream) -> None:
        if stream not in self._syncing and not self._over:
            self._syncing.add(stream)
            done = self._loop.run_in_executor(self._pool, stream.journal.sync)
            done.add_done_callback(partial(self._synced, stream, self._loop.time()))

    def wake(self, stream: Stream) -> None:
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

    def _woken(self, stream: Stream, done: asyncio.Future[None]) -> None:
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

    def _synced(self, stream: Stream, began: float, done: asyncio.Future[int]) -> None:
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
        for endpoint in list(self._core.listeners):
            self._core.unbind(endpoint)
        self._empty.clear()  # it was empty before, perhaps
        self._engine.detach()
        if self._engine.sessions:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE):
                    await self._empty.wait()
        self._core.close(GOODBYE)
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


class _BrokerCore(core.Core):
    """On the wire the broker is a ROUTER, whose peers are DEALERs. Each has a line to a session of its own."""

    socket_type = "ROUTER"

    def __init__(self, reactor: Reactor, options: core.Options, engine: Engine) -> None:
        super().__init__(reactor, options)
        self._engine = engine
        self._lines: dict[Pipe, _Line] = {}

    def attach(self, pipe: Pipe) -> None:
        super().attach(pipe)
        link = pipe.link
        assert link is not None
        self._lines[pipe] = line = _Line(self, pipe)
        trusted = isinstance(link, MemoryLink)
        line.session = self._engine.session(line, link.address, pipe.user, trusted)
        link.source = line

    def detach(self, pipe: Pipe) -> None:
        super().detach(pipe)
        self._lines.pop(pipe).lost()

    def arrived(self, pipe: Pipe) -> None:
        line = self._lines.get(pipe)
        if line is not None:
            line.drain()
        else:
            pipe.clear_inbox()  # it has said goodbye

    def unread(self) -> None:
        self._engine.counters.unread += 1


class _Line:
    """A connection as its session sees it, and as its link sees what is to be sent."""

    __slots__ = ("_core", "_held", "_pipe", "session")

    session: Session

    def __init__(self, core: _BrokerCore, pipe: Pipe) -> None:
        self._core = core
        self._pipe = pipe
        self._held = False

    # From the client

    def drain(self) -> None:
        """Give the session what has come, unless it is held back; then TCP holds the client back."""
        while not self._held and (batch := self._pipe.pop_batch()) is not None:
            if batch.ends is None:
                self.session.receive(batch.frames)
            else:
                self._one_by_one(batch)

    def _one_by_one(self, batch: Batch) -> None:
        for message in batch:
            if len(message) == 1:
                self.session.receive(message)
            else:
                self.session.receive_multipart()

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        self.drain()

    def lost(self) -> None:
        """The connection is over. What came before still counts: it waits for room with the stream."""
        while self._held and self._pipe.inbox:
            self.release()
        self.session.lost()

    # To the client

    def say(self, message: bytes) -> None:
        if self._pipe.full:
            if self._pipe.link is not None:
                self._core.unread()
                self._pipe.link.abort("it does not read its answers")
            return
        self._pipe.push(message)

    def offer(self, messages: Block) -> bool:
        link = self._pipe.link
        return link is not None and link.offer(messages)

    def nudge(self) -> None:
        link = self._pipe.link
        if link is not None:
            link.wake()

    def part(self) -> None:
        if self._pipe.attached:
            self._core.leave(self._pipe, PART)

    def pull(self) -> Block | Stored | None:
        """What the link sends next."""
        more = self.session.pull()
        if isinstance(more, Span):
            return Stored(more.fd, more.offset, more.length, more.read)
        return more
