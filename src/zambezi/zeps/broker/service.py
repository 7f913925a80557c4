"""The broker on asyncio: the engine with sockets, a clock, and threads for the disk.

The server composes it with other services, and looks into it; programs use the small face `Broker`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Final, Self, Unpack

from zambezi.errors import described
from zambezi.wire.text import printable
from zambezi.zeps.about import about
from zambezi.zeps.broker.client_connection import MULTIPART
from zambezi.zeps.broker.depot import TAKEN_AT_ONCE, Depot, StoreOptions
from zambezi.zeps.broker.engine import BrokerArguments, BrokerCounters, BrokerOptions, Engine
from zambezi.zeps.broker.fetching import THREADS as FETCHES
from zambezi.zeps.broker.fetching import Fetcher
from zambezi.zeps.broker.session import Session
from zambezi.zeps.broker.shared_streams import SharedStreams
from zambezi.zeps.broker.stream import WAITING, BrokerStream
from zambezi.zeps.broker.sync_pool import SyncPool
from zambezi.zeps.broker.sync_threads import SyncThreads
from zambezi.zeps.errors import Absent, BrokerError, GroupError, JournalError, ZepsError
from zambezi.zeps.histogram import Histogram
from zambezi.zeps.journal import Policy, Span, Store
from zambezi.zeps.journal.compaction import RATE as COMPACTION_RATE
from zambezi.zeps.journal.compaction import Compactor
from zambezi.zeps.journal.scrub import RATE, Scrub
from zambezi.zeps.messages import ADMIN, BROKERS, EXTENSIONS, ONCE, POSITIONS, RANGES, REQUESTS, SHARED, TIMES
from zambezi.zeps.multicast.feed import FeedCounters
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.sender import GroupSender
from zambezi.zeps.store.driver import Driver
from zambezi.zmtp import connection
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.connection import Heartbeat
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import AsyncioReactor, Timer
from zambezi.zmtp.security import Null, Security
from zambezi.zmtp.source import Framed, Stored
from zambezi.zmtp.transport import Counters as SocketCounters
from zambezi.zmtp.transport import Transport

_log: Final = logging.getLogger("zambezi.zeps")

TICK: Final = 1.0  # seconds between two rounds of periodic work
REST: Final = 0.004  # seconds that compaction rests after a few milliseconds of work, so that clients get their turn
GOODBYE: Final = 1.0  # seconds that clients have to answer DETACH when the broker closes
STALL: Final = 5.0  # seconds without a round, after which other brokers may have taken streams
RELEASE: Final = 10.0  # seconds to store everything when the broker closes
THREADS: Final = 4
BEATS: Final = 8  # threads for heartbeats, scans and look-ups in an object store
# Only answers are queued for a client that does not read; messages stay in the journal. At the bound its input waits.
ANSWERS: Final = Bound(messages=1000, octets=128 * 1024)
SLACK: Final = 64 * 1024  # bytes that are still read from a paused publisher
EXTENDED: Final = (ONCE, ADMIN, TIMES, POSITIONS, REQUESTS, SHARED, RANGES)
HEARTBEAT: Final = Heartbeat(interval=10.0, timeout=30.0)


class BrokerService:
    """A broker, with all that the parts of a server use of it. Make it inside a running event loop."""

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
        scrub: int = RATE,
        store: StoreOptions | None = None,
        own: Container[str] = (),
        **options: Unpack[BrokerArguments],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(THREADS, "zambezi-disk")
        self._syncer = SyncPool(THREADS)
        self._maker = ThreadPoolExecutor(1, "zambezi-maker")  # its own, so that new streams do not delay other work
        self._long = ThreadPoolExecutor(1, "zambezi-long")  # for work that can take minutes
        self._syncing: set[BrokerStream] = set()
        self._waking: set[BrokerStream] = set()
        self._making: set[asyncio.Future[object]] = set()
        self.syncs = Histogram()  # how long each sync of a journal took
        self._closing = False
        # Bytes per second that the scrub reads, on a thread of its own; 0: it does not run.
        self._scrub_rate = scrub
        self._scrubber = ThreadPoolExecutor(1, "zambezi-scrub")
        self._scrubbing = False
        self._compacter = ThreadPoolExecutor(1, "zambezi-compact")
        self._compacting = False
        self._searcher = ThreadPoolExecutor(2, "zambezi-search")
        self._remote = ThreadPoolExecutor(TAKEN_AT_ONCE, "zambezi-take")  # for streams in an object store
        self._storage_closing = False  # no thread may sync or wake a journal any more
        settings = BrokerOptions(own=own, **options)
        default = policy or Policy()
        self._fetchers = ThreadPoolExecutor(FETCHES, "zambezi-fetch")
        self._evicting = False
        self._copy_thread = ThreadPoolExecutor(1, "zambezi-copy")
        self._copying = False
        self.fetcher = Fetcher(self)
        self._store = (
            Store(path, policy=default)
            if store is None
            else Depot(path, store, policy=default, policies=settings.policies, own=settings.own)
        )
        self.scrub = Scrub(self._store.journals)
        self.compactor = Compactor(self._store.journals)
        try:
            self._engine = Engine(self._store, settings, self)
        except BaseException:
            self._store.close()
            raise
        self._sync_threads = SyncThreads(self._loop, THREADS)
        self._driver: Driver | None = None
        self._beats: Driver | None = None
        self._shared: SharedStreams | None = None
        if isinstance(self._store, Depot):
            self._driver = Driver(self._store.remote.execute)
            # Threads of their own: a heartbeat must not wait for the chunks of many streams.
            self._beats = Driver(self._store.remote.execute, BEATS)
            self._store.start(self._driver, self._beats)
            self._store.read_ahead = self.fetcher.read_ahead
            self._shared = SharedStreams(self._engine, self._store, self._beats)
        limits = self._engine.limits
        reactor = self._reactor = AsyncioReactor(self._loop)
        self._security = security or Null()
        # On the wire the broker is a ROUTER, and its peers are DEALERs. Each peer has a session.
        self._transport = Transport(
            reactor,
            "ROUTER",
            self,
            Options(
                security=self._security,
                authenticator=authenticator,
                send_bound=ANSWERS,
                limits=connection.Limits(
                    frame=limits.message, message=limits.message, skip=True, connections=limits.connections
                ),
                heartbeat=heartbeat,
                properties={EXTENSIONS: ", ".join(EXTENDED if self._driver is None else (*EXTENDED, BROKERS)).encode()},
            ),
            slack=SLACK,
        )
        self._sessions: dict[Peer, Session] = {}
        self._empty = asyncio.Event()
        self._engine.on_empty = self._empty.set
        self._closed = asyncio.Event()
        self._transport.on_closed = self._closed.set
        self._groups: dict[str, Group] = {}
        self._group_key = group_key
        self._senders: dict[str, GroupSender] = {}
        try:
            for name, group in (multicast or {}).items():
                self._start_group(name, Group.parse(group))
        except BaseException:
            self._close_storage()
            raise
        self._engine.on_open = self._send_to_group_again
        self._engine.on_taken = self._stop_sending
        self._ticked = reactor.time()
        self._timer: Timer = reactor.call_at(self._ticked + TICK, self._tick)
        if self._shared is not None:
            self._loop.call_soon(self._shared.start)  # after `bind`, so that the first heartbeat has the endpoints

    def _start_group(self, name: str, group: Group) -> None:
        self._groups[name] = group
        if not isinstance(self._security, Null) and not self._group_key:
            raise GroupError(
                f"the stream {name} is encrypted, and {group} would carry it in clear; give a group key, or no group"
            )
        try:
            stream = self._engine.find_or_make(name)
        except (BrokerError, JournalError):
            return  # `problems` says why
        self._send_to_group(stream, group)

    def _send_to_group(self, stream: BrokerStream, group: Group) -> None:
        """Send the live messages of a stream to a multicast group too. (ZEP-16)"""
        journal = stream.journal
        sender = GroupSender(self._reactor, group, journal.incarnation, journal.last, self._group_key)
        self._senders[stream.name] = stream.multicast = sender

    def _send_to_group_again(self, stream: BrokerStream) -> None:
        """Send a stream that was cut, or created again, to its group: with its new incarnation."""
        group = self._groups.get(stream.name)
        if group is not None:
            try:
                self._send_to_group(stream, group)
            except GroupError as error:
                _log.error(
                    "stream %s is not sent to its group any more: %s",
                    printable(stream.name),
                    error,
                    extra=about(stream.name, error),
                )

    def _stop_sending(self, stream: BrokerStream) -> None:
        sender = self._senders.pop(stream.name, None)
        if sender is not None:
            sender.close()

    def _close_storage(self) -> None:
        """Close the groups, the threads and the journals. Blocks."""
        for sender in self._senders.values():
            sender.close()
        self.scrub.stop()
        self.compactor.stop()
        for pool in (
            self._sync_threads,
            self._pool,
            self._maker,
            self._long,
            self._scrubber,
            self._compacter,
            self._searcher,
            self._remote,
        ):
            pool.shutdown()
        self._fetchers.shutdown(cancel_futures=True)
        self._copy_thread.shutdown(cancel_futures=True)
        self._sync_threads.close()
        self._engine.close()

    def bind(self, endpoint: str) -> str:
        """Serve at `tcp://HOST:PORT`, `ipc://PATH` or `inproc://NAME`, and return the endpoint as bound."""
        bound = self._transport.bind(endpoint)
        if self._shared is not None:
            self._shared.announce(bound)
        return bound

    def set_policies(self, default: Policy, policies: Mapping[str, Policy]) -> None:
        """Change the storage policies: `default` for all streams, except those in `policies`, by name."""
        self._engine.set_policies(default, policies)

    @property
    def counters(self) -> BrokerCounters:
        """Counters of the broker."""
        return self._engine.counters

    @property
    def socket_counters(self) -> SocketCounters:
        """Counters of connections that did not become clients."""
        return self._transport.counters

    @property
    def feeds(self) -> dict[str, FeedCounters]:
        """Counters of the multicast groups, by the name of the stream."""
        return {name: sender.counters for name, sender in self._senders.items()}

    @property
    def groups(self) -> dict[str, str]:
        """The multicast groups, by the name of the stream."""
        return {name: sender.group for name, sender in self._senders.items()}

    @property
    def queues(self) -> list[tuple[str, int, int]]:
        """The queues of the broker: name, length and bound of each; the longest one, of all clients or streams."""
        engine, limits = self._engine, self._engine.limits
        streams = engine.streams
        waiting = max((stream.pending_bytes for stream in streams), default=0)
        return [
            ("connections", len(engine.sessions), limits.connections),
            ("streams", len(streams), limits.streams),
            ("unwritten", waiting, WAITING),
            ("outgoing", self._transport.longest_queue, self._transport.send_bytes),
        ]

    @property
    def problems(self) -> list[str]:
        """The problems with journals that an operator must solve: streams that cannot be used, and damage."""
        engine = self._engine
        unusable = [f"stream {name}: {problem}" for name, problem in engine.unusable.items()]
        others = [problem for problem in engine.problems if problem not in engine.unusable.values()]
        failing = self._store.remote.problem if isinstance(self._store, Depot) else ""
        store = [f"the object store does not answer, and is asked again: {failing}"] if failing else []
        if isinstance(self._store, Depot) and (why := self._store.why_untaken):
            store.append(f"streams are not served until the object store has room: {why}")
        if self.fetcher.problem:
            store.append(f"readers wait for messages of the store: {self.fetcher.problem}")
        uncompacted = [f"stream {name}: {problem}" for name, problem in list(self.compactor.problems.items())]
        copier = self._store.copier if isinstance(self._store, Depot) else None
        problems = dict(copier.problems) if copier is not None else {}
        uncopied = [f"stream {name} is not copied to the store: {problem}" for name, problem in problems.items()]
        damaged = self.scrub.problems
        gaps = [f"stream {journal.name}: {gap}" for journal in self._store.journals() for gap in journal.gaps]
        known = "\n".join(damaged) if gaps else ""
        damaged = [*[gap for gap in gaps if gap.partition(": ")[2] not in known], *damaged]
        return [*store, *uncopied, *others, *unusable, *damaged, *uncompacted]

    @property
    def cache_state(self) -> dict[str, int]:
        """The state and the counters of the disk as a cache of the object store; empty if there is no store."""
        return {**self._store.cache_state, **self.fetcher.state} if isinstance(self._store, Depot) else {}

    @property
    def copy_state(self) -> dict[str, int]:
        """The lag and the counters of copies of streams in the object store; empty if there are none."""
        return self._store.copy_state if isinstance(self._store, Depot) else {}

    @property
    def puts(self) -> Histogram | None:
        """How long each put into the object store took; None if there is no store."""
        return self._store.remote.puts if isinstance(self._store, Depot) else None

    @property
    def engine(self) -> Engine:
        """The streams and sessions, for the parts of the server that show or use them."""
        return self._engine

    # Calls from the transport

    def attached(self, peer: Peer) -> None:
        session = self._sessions[peer] = self._engine.new_session(peer, peer.address, peer.user, peer.local)
        peer.feed_from(_SessionSource(session))

    def received(self, peer: Peer, batch: Batch) -> None:
        session = self._sessions.get(peer)
        if session is None:
            return  # the connection ended while its held messages were handled
        if batch.ends is None:
            if batch.run is None or not session.receive_run(batch.run):
                session.receive(batch.frames)
            return
        for message in batch:
            if len(message) == 1:
                session.receive(message)
            else:
                session.receive([MULTIPART])

    def writable(self, peer: Peer) -> None:
        """Tell a session that waits for it. For messages the connection asks its session with `pull`."""
        if self._engine.unread and (session := self._sessions.get(peer)) in self._engine.unread:
            session.on_writable()

    def lost(self, peer: Peer, reason: str) -> None:
        # Messages that were received before the end still count: the stream keeps them until there is room. But if the
        # connection ends while `resume` handles them, there is nobody left to answer, and the rest is dropped.
        while peer.held and peer.paused:
            peer.resume()
        self._sessions.pop(peer).on_connection_lost()

    # Calls from the engine

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._loop.call_soon(callback)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> object:
        return self._loop.call_later(seconds, callback)

    def warm(self, span: Span, callback: Callable[[], object]) -> None:
        def warmed(done: asyncio.Future[None]) -> None:
            if not done.cancelled() and done.exception() is not None:
                _log.error("a journal cannot be read: %s", done.exception())
            callback()

        self._loop.run_in_executor(self._pool, span.warm).add_done_callback(warmed)

    def fetch(self, absent: Absent, callback: Callable[[ZepsError | None], object]) -> None:
        self.fetcher.fetch(absent, callback)

    def load(self, action: Callable[[], object], done: Callable[[ZepsError | None], object]) -> None:
        self._work_on(self._fetchers, action, done)

    def sync_journal(self, stream: BrokerStream) -> None:
        if stream not in self._syncing and not self._storage_closing:
            self._syncing.add(stream)
            self._sync_threads.submit(partial(self._sync, stream, self._loop.time()))

    def _sync(self, stream: BrokerStream, began: float) -> Callable[[], None]:
        """Sync a journal, in a thread; return what the loop does then."""
        error: Exception | None = None
        try:
            stream.journal.sync(self._syncer)
        except Exception as found:  # the loop raises it
            error = found
        return partial(self._on_synced, stream, began, error)

    def wake_journal(self, stream: BrokerStream) -> None:
        if stream not in self._waking and not self._storage_closing:
            self._waking.add(stream)
            done = self._loop.run_in_executor(self._pool, stream.journal.wake)
            done.add_done_callback(partial(self._on_woken, stream))

    def work(self, action: Callable[[], object], callback: Callable[[ZepsError | None], object]) -> None:
        self._work_on(self._maker, action, callback)

    def work_long(self, action: Callable[[], object], callback: Callable[[ZepsError | None], object]) -> None:
        self._work_on(self._long, action, callback)

    def work_remote(self, action: Callable[[], object], callback: Callable[[ZepsError | None], object]) -> None:
        self._work_on(self._remote, action, callback)

    def search(self, action: Callable[[], object], callback: Callable[[ZepsError | None], object]) -> None:
        self._work_on(self._searcher, action, callback)

    def _work_on(
        self, pool: ThreadPoolExecutor, action: Callable[[], object], callback: Callable[[ZepsError | None], object]
    ) -> None:
        done = self._loop.run_in_executor(pool, action)
        self._making.add(done)
        done.add_done_callback(partial(self._on_made, callback))

    clock = staticmethod(time.time)

    def _on_woken(self, stream: BrokerStream, done: asyncio.Future[None]) -> None:
        self._waking.discard(stream)
        if done.cancelled():
            return
        error = done.exception()
        if error is None or isinstance(error, JournalError):
            stream.on_woken(str(error or ""))
        else:
            raise error

    def _on_made(self, callback: Callable[[ZepsError | None], object], done: asyncio.Future[object]) -> None:
        self._making.discard(done)
        error = None if done.cancelled() else done.exception()
        if isinstance(error, OSError):
            error = JournalError(f"{error.filename or self._store.path}: {error.strerror or error}")
        if error is None or isinstance(error, ZepsError):
            callback(error)
        else:
            raise error

    def _on_synced(self, stream: BrokerStream, began: float, error: Exception | None) -> None:
        self._syncing.discard(stream)
        self.syncs.add(self._loop.time() - began)
        if error is None:
            stream.confirm_barriers()
        elif isinstance(error, JournalError):
            if self._engine.find(stream.name) is stream:  # if not, it was deleted while its journal was synced
                _log.error("stream %s is stopped: %s", printable(stream.name), error, extra=about(stream.name, error))
                stream.stop()
        else:
            raise error

    # Time

    def _tick(self) -> None:
        now = self._reactor.time()
        self._timer = self._reactor.call_at(now + TICK, self._tick)
        if self._shared is not None:
            self._shared.tick(now, now > self._ticked + STALL)
        self._ticked = now
        self._engine.tick()
        self._scrub_some()
        self._compact_some()
        self._evict_some()
        self._copy_some()

    def _scrub_some(self) -> None:
        """Check a part of the journals on another thread, unless the part before is still being checked."""
        if self._scrub_rate and not self._scrubbing:
            self._scrubbing = True
            octets = int(self._scrub_rate * TICK)
            step = self._loop.run_in_executor(self._scrubber, self.scrub.step, octets, self._loop.time())
            step.add_done_callback(self._on_scrubbed)

    def _evict_some(self) -> None:
        """Keep the cache within its limit, on another thread."""
        if isinstance(self._store, Depot) and not self._evicting:
            self._evicting = True
            step = self._loop.run_in_executor(self._pool, self._store.cache.step)
            step.add_done_callback(self._on_evicted)

    def _copy_some(self) -> None:
        """Copy streams on another thread, unless copies before are still under way."""
        copier = self._store.copier if isinstance(self._store, Depot) else None
        if copier is not None and not self._copying:
            self._copying = True
            step = self._loop.run_in_executor(self._copy_thread, copier.step, self.clock())
            step.add_done_callback(self._on_copied)

    def _on_copied(self, done: asyncio.Future[None]) -> None:
        self._copying = False
        if not done.cancelled() and (error := done.exception()) is not None:
            _log.error("the copies of streams to the store failed, and begin again: %s", described(error))

    def _on_evicted(self, done: asyncio.Future[None]) -> None:
        self._evicting = False
        if not done.cancelled() and (error := done.exception()) is not None:
            _log.error("the cache could not be kept within its limit, and is looked at again: %s", described(error))

    def _compact_some(self) -> None:
        """Compact a part of the journals on another thread, unless the part before is still being compacted."""
        if not self._compacting:
            self._compacting = True
            work = partial(self.compactor.step, int(COMPACTION_RATE * TICK), self.clock(), partial(time.sleep, REST))
            step = self._loop.run_in_executor(self._compacter, work)
            step.add_done_callback(self._on_compacted)

    def _on_compacted(self, done: asyncio.Future[bool]) -> None:
        self._compacting = False
        if not done.cancelled() and (error := done.exception()) is not None:
            _log.error("the compaction of journals failed, and begins again: %s", described(error))

    def _on_scrubbed(self, done: asyncio.Future[None]) -> None:
        self._scrubbing = False
        if not done.cancelled() and (error := done.exception()) is not None:
            _log.error("the scrub of journals failed, and begins again: %s", described(error))

    # The end

    async def close(self) -> None:
        """Send DETACH to the clients, wait a second for them, and write everything that was published to the disk."""
        if self._closing:
            await self._closed.wait()
            return
        self._closing = True
        self._timer.cancel()
        self.fetcher.close()
        self._transport.unbind_all()
        if self._shared is not None:
            self._shared.leave()
        self._empty.clear()  # it may be set from an earlier time without clients
        self._engine.detach_all()
        if self._engine.sessions:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE):
                    await self._empty.wait()
        self._transport.close(GOODBYE)
        await self._closed.wait()
        if self._making:
            await asyncio.wait(self._making)  # messages for streams that are being created must not be lost
        await self._release_streams()
        self._storage_closing = True
        await self._finish_copies()
        self.scrub.stop()
        self.compactor.stop()
        for pool in (self._sync_threads, self._pool, self._scrubber, self._compacter):
            await asyncio.to_thread(pool.shutdown)
        self._close_storage()

    async def _finish_copies(self) -> None:
        """Copy what is not copied yet."""
        copier = self._store.copier if isinstance(self._store, Depot) else None
        if copier is not None:
            copier.stop()
            await self._loop.run_in_executor(self._copy_thread, copier.finish, self.clock())

    async def _release_streams(self) -> None:
        """Store everything that was published, and give the streams in the object store up, within some seconds."""
        if self._driver is None or self._shared is None or not isinstance(self._store, Depot):
            return
        released = asyncio.Event()
        self._store.release(released.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RELEASE):
                await released.wait()
        self._shared.stop()
        await self._driver.close()
        if self._beats is not None:
            await self._beats.close()
        await asyncio.to_thread(self._store.leave)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _SessionSource:
    """A session as the source that its connection pulls from."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def pull(self) -> Framed | Stored | None:
        """Return the next messages for the client, or None."""
        more = self._session.pull()
        if isinstance(more, Span):
            return Stored(more.fd, more.offset, more.length, more.read)
        return more
