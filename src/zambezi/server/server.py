"""A server: the services that its configuration enables, run together."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from zambezi.errors import ZambeziError
from zambezi.mcollective.asyncio import Middleware
from zambezi.mcollective.bounds import Bounds
from zambezi.memory import keep_memory
from zambezi.server.archive import StreamArchive
from zambezi.server.config import Config, JournalConfig
from zambezi.server.config.settings import TOPICS_STREAM, ServerConfig, StoreConfig
from zambezi.server.errors import ServerError, SettingError
from zambezi.server.keydir import KeyDirectory
from zambezi.server.logs import LogJournal
from zambezi.server.mirrors import ServerMirror, mirrors_of
from zambezi.server.process import DiskSpace, LoopLag, SyncLatency, raise_descriptor_limit
from zambezi.server.rules import Rules
from zambezi.server.watch import Fields, Watch
from zambezi.zeps.about import about
from zambezi.zeps.broker.depot import StoreOptions
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.broker.stream import BrokerStream
from zambezi.zeps.errors import BrokerError, JournalError
from zambezi.zeps.journal import Policy
from zambezi.zeps.store.members import LIMIT, PERIOD
from zambezi.zeps.store.stream_log import LogSettings
from zambezi.zmtp import intake
from zambezi.zmtp.keys import KeyPair, read_pair
from zambezi.zmtp.options import Bound
from zambezi.zmtp.security import Null
from zambezi.zre.asyncio import LogService, Node
from zambezi.zre.security import allowed_keys

_log: Final = logging.getLogger("zambezi.server")

SERVICES: Final = ("zeps", "mcollective", "zre", "log", "console")
# The headers that announce services to the mesh, by the name of the service.
HEADERS: Final = {"zeps": "X-ZEPS", "mcollective": "X-MCOLLECTIVE"}
GROUPS: Final = "X-ZEPS-MULTICAST"  # the groups of streams: NAME=GROUP, separated by spaces, names quoted as in URLs
LOCAL: Final = "inproc://zambezi-zeps-{}"
SESSIONS: Final = ".mcollective-sessions"  # in the data directory; no stream has a directory with a dot
FEW_DESCRIPTORS: Final = 4096


class Server:
    """All services of one process. They run inside `async with`."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.endpoints: dict[str, str] = {}  # the bound endpoint of each service
        self._groups: dict[str, str] = {}  # the multicast groups since the start, by the name of the stream
        self.rules = Rules(self.config.rules, own=self.config.own_streams)
        self.broker: BrokerService | None = None
        self.mirrors: list[ServerMirror] = []
        self.middleware: Middleware | None = None
        self.node: Node | None = None
        self.logs: LogJournal | None = None
        self.keys: KeyDirectory | None = None
        self.loop_lag = LoopLag()
        self.sync_latency = SyncLatency()
        self.disk = DiskSpace(self.config.server.data, self.config.server.min_free)
        self.started = time.time()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        keep_memory()
        limit = raise_descriptor_limit()
        if limit < FEW_DESCRIPTORS:
            _log.warning("this process can open only %d connections and files; raise the limit with ulimit -n", limit)
        stack.push_async_callback(_end, asyncio.create_task(self.loop_lag.run()))
        server = self.config.server
        intake.PROCESS.bound = server.max_unfinished
        keys = self.keys = KeyDirectory.read(Path(server.keys)) if server.keys else None
        if self.config.zeps.enabled:
            await self._start_zeps(stack, keys)
        if self.config.mcollective.enabled:
            await self._start_mcollective(stack, keys)
        if self.config.zre.enabled:
            await self._start_zre(stack)
            if self.config.log.enabled:
                await self._start_log(stack)
        stack.push_async_callback(_end, asyncio.create_task(Watch(self._look).run()))

    async def _start_zeps(self, stack: AsyncExitStack, keys: KeyDirectory | None) -> None:
        zeps = self.config.zeps
        self._groups = {name: one.multicast for name, one in zeps.streams.items() if one.multicast}
        broker = BrokerService(
            self._data(),
            policy=policy_of(zeps.journal),
            security=keys.security if keys else None,
            authenticator=keys.authenticator if keys else None,
            create=zeps.create,
            streams=list(zeps.streams),
            policies={name: policy_of(one) for name, one in zeps.streams.items()},
            behind=zeps.behind,
            limits=Limits(
                streams=zeps.max_streams,
                subscriptions=zeps.max_subscriptions,
                connections=zeps.max_connections,
                message=zeps.max_message,
                user_streams=zeps.max_user_streams,
                address_streams=zeps.max_address_streams,
            ),
            scrub=zeps.scrub,
            allow=self.rules.allow,
            own=self.rules.own,
            multicast=self._groups,
            group_key=keys.group_key if keys else b"",
            store=store_of(zeps.store, zeps.endpoint),
        )
        self.broker = await stack.enter_async_context(broker)
        self.disk.measure()
        self.endpoints["zeps"] = _bound(("zeps", "endpoint"), broker.bind, zeps.endpoint)
        local = broker.bind(LOCAL.format(id(self)))
        self.mirrors = mirrors_of(zeps.mirrors, local, broker.engine.is_here)
        for mirror in self.mirrors:
            stack.push_async_callback(_end, asyncio.create_task(mirror.run()))

    async def _start_mcollective(self, stack: AsyncExitStack, keys: KeyDirectory | None) -> None:
        mcollective = self.config.mcollective
        archive = None
        if mcollective.journal:
            stream = self._stream(TOPICS_STREAM, "mcollective.journal")
            archive = StreamArchive(stream, mcollective.journal) if stream is not None else None
        middleware = Middleware(
            rules=self.rules.topics,
            archive=archive,
            bounds=Bounds(
                topics=mcollective.max_topics,
                topics_of_client=mcollective.max_topics_per_client,
                topics_of_user=mcollective.max_topics_per_user,
                topics_of_address=mcollective.max_topics_per_address,
                reading_time=mcollective.reading_time,
                reserve_bytes=mcollective.max_reserve,
            ),
            sessions=self.sessions,
            send_bound=Bound(octets=mcollective.max_queue),
            security=keys.security if keys else Null(),
            authenticator=keys.authenticator if keys else None,
        )
        self.middleware = await stack.enter_async_context(middleware)
        self.endpoints["mcollective"] = _bound(("mcollective", "endpoint"), middleware.bind, mcollective.endpoint)

    async def _start_zre(self, stack: AsyncExitStack) -> None:
        zre = self.config.zre
        node = Node(
            zre.name or socket.gethostname(),
            interface=zre.interface or None,
            ipv6=zre.ipv6,
            seeds=zre.seeds,
            gossip_bind=zre.gossip_bind,
            gossip_connect=zre.gossip_connect,
            beacon_port=zre.beacon_port,
            keys=self._mesh_keys(),
            node_keys=read_pair(zre.node_key) if zre.node_key else None,
            allowed=allowed_keys(zre.allowed) if zre.allowed else None,
        )
        for service, header in HEADERS.items():
            if service in self.endpoints:
                await node.announce(header, self.endpoints[service])
        if self.broker is not None and self.broker.groups:
            groups = self.broker.groups
            await node.announce(GROUPS, " ".join(f"{quote(name)}={group}" for name, group in groups.items()))
        self.node = await stack.enter_async_context(node)
        self.endpoints["zre"] = node.endpoint
        if node.gossip_endpoint:
            self.endpoints["zgossip"] = node.gossip_endpoint
        # The server does not use the node's events, but a node whose events are not read stops reading from its peers.
        discarding = asyncio.create_task(self._discard_events(node))
        stack.push_async_callback(_end, discarding)

    def _mesh_keys(self) -> KeyPair | None:
        """Return the keys of the mesh; None if it has none, or this node has keys of its own."""
        zre = self.config.zre
        if zre.key:
            return read_pair(zre.key)
        return self.keys.mesh if self.keys and not zre.node_key else None

    async def _discard_events(self, node: Node) -> None:
        async for _ in node:
            pass

    async def _start_log(self, stack: AsyncExitStack) -> None:
        assert self.node is not None
        stream = self._stream(self.config.log.stream, "log.stream")
        if stream is None:
            return
        service = await stack.enter_async_context(LogService(self.node))
        self.endpoints["log"] = service.endpoint
        self.logs = LogJournal(service, stream)
        stack.push_async_callback(_end, asyncio.create_task(self.logs.run()))

    def reload(self, config: Config) -> list[str]:
        """Apply the rules and the journal settings of another configuration, also to the clients that are connected.

        New streams of the configuration are created. Return the other keys that differ, also changed multicast groups:
        they need a restart. The key directory is watched all the time; it is read once more now.
        """
        if self.keys is not None:
            self.keys.authenticator.refresh()
        self.rules.replace(config.rules)
        if self.middleware is not None:
            self.middleware.replace_rules(self.rules.topics)
        if self.broker is not None:
            default = policy_of(config.zeps.journal)
            policies = {name: policy_of(one) for name, one in config.zeps.streams.items()}
            self.broker.set_policies(default, policies)
            self.broker.engine.make_missing(policies)
            self.broker.engine.apply_rules()
        differ = [*_differences(self.config, config), *self._unapplied(config), *self._replaced_keys()]
        self.config = dataclasses.replace(
            self.config,
            rules=config.rules,
            zeps=dataclasses.replace(self.config.zeps, journal=config.zeps.journal, streams=config.zeps.streams),
        )
        return differ

    def _replaced_keys(self) -> list[str]:
        """Return the files with secret keys that are not those that the server uses."""
        return self.keys.replaced_in(Path(self.config.server.keys)) if self.keys is not None else []

    def _unapplied(self, config: Config) -> Iterator[str]:
        """Yield the multicast groups that the running broker does not have."""
        if self.broker is None:
            return
        wanted = {name: one.multicast for name, one in config.zeps.streams.items()}
        for name in wanted | self._groups:
            if wanted.get(name, "") != self._groups.get(name, ""):
                yield f"zeps.streams.{name}.multicast"

    @property
    def problems(self) -> list[str]:
        """The reasons why a service cannot do its work now; empty if all services can."""
        if self.broker is None:
            return []
        return [*self.disk.problems, *self._held(), *self.broker.problems]

    def _held(self) -> dict[str, Fields]:
        """Return the streams that cannot be written now: the problem, and its fields for the log."""
        if self.broker is None:
            return {}
        held = {
            stream.name: (stream.held or stream.journal.failed).removeprefix(f"stream {stream.name!a}: ")
            for stream in self.broker.engine.streams
            if stream.held or stream.journal.failed
        }
        return {f"stream {name}: {reason}": about(name, reason) for name, reason in held.items()}

    def _look(self) -> dict[str, Fields]:
        """Measure the disk, and return the troubles for the log: services that cannot do their work, and ignored keys.

        `Watch` calls this once per second.
        """
        if self.broker is not None:
            self.sync_latency.update(self.broker.syncs.count, self.broker.syncs.seconds)
            self.disk.measure()
        behind = [mirror.trouble for mirror in self.mirrors if mirror.trouble]
        others = [*self.problems, *behind, *(self.keys.problems if self.keys is not None else [])]
        return {**{one: {} for one in others}, **self._held()}

    @property
    def local_zeps(self) -> str | None:
        """The endpoint of the broker inside this process, without network and keys; None if there is no broker."""
        return LOCAL.format(id(self)) if self.broker is not None else None

    @property
    def sessions(self) -> Path | None:
        """The directory of the sessions of MCollective clients; None if they do not survive a restart.

        A server without a broker makes no data directory that the operator has not named.
        """
        data = Path(self.config.server.data)
        wanted = self.config.mcollective.enabled and self.config.mcollective.sessions
        is_named = self.config.server.data != ServerConfig().data or data.is_dir()
        return data / SESSIONS if wanted and (self.config.zeps.enabled or is_named) else None

    def _data(self) -> Path:
        """Return the directory of the journals; create it if it is missing."""
        data = Path(self.config.server.data)
        try:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            raise SettingError(("server", "data"), f"{data} is not a directory; name another one") from None
        except OSError as error:
            raise SettingError(
                ("server", "data"), f"{data} cannot be created: {error.strerror}; name another directory"
            ) from None
        return data

    def _stream(self, name: str, setting: str) -> BrokerStream | None:
        """Return a stream of this server's broker for the service that a setting configures.

        Return None if the stream cannot be used: `problems` says why, and the other services must run.
        """
        if self.broker is None:
            raise ServerError(f"{setting} needs the broker: set enabled = true in [zeps], or remove {setting}")
        try:
            return self.broker.engine.find_or_make(name)
        except (BrokerError, JournalError):
            return None


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _bound(path: tuple[str, ...], bind: Callable[[str], str], endpoint: str) -> str:
    try:
        return bind(endpoint)
    except (ZambeziError, OSError) as error:
        problem = str(error)
        joint = " " if problem.endswith("?") else "; "
        raise SettingError(path, f"{problem}{joint}choose another address or port") from None


def _differences(before: Config, after: Config) -> Iterator[str]:
    """Yield the keys that differ among those that are read only at the start."""
    for section in dataclasses.fields(Config):
        old, new = getattr(before, section.name), getattr(after, section.name)
        if section.name in ("rules", "pipelines"):
            continue
        for one in dataclasses.fields(old):
            is_reloaded = section.name == "zeps" and one.name in ("journal", "streams")
            if not is_reloaded and getattr(old, one.name) != getattr(new, one.name):
                yield f"{section.name}.{one.name}"


def store_of(store: StoreConfig, endpoint: str) -> StoreOptions | None:
    """Return the object store of the broker, or None if the configuration has none."""
    if not store.url:
        return None
    log = LogSettings(commit=store.commit, chunk=store.chunk, grace=store.grace)
    return StoreOptions(
        url=store.url,
        options=store.options,
        log=log,
        endpoint=store.endpoint,
        period=store.heartbeat,
        limit=store.heartbeat * LIMIT / PERIOD,
        cache=store.cache,
        copies=_copies_of(store.copies, endpoint),
    )


def _copies_of(name: str, endpoint: str) -> str:
    """Return the name of the copies of this server; nothing if it makes none."""
    if name != "auto":
        return "" if name == "off" else name
    port = endpoint.rpartition(":")[2]
    return f"{socket.gethostname()}-{port}" if port.isdigit() else ""


def policy_of(journal: JournalConfig) -> Policy:
    """Return the journal's policy for a stream with these settings."""
    return Policy(
        sync=journal.sync,
        segment=journal.segment,
        keep_bytes=journal.keep_bytes,
        keep_seconds=journal.keep,
        compact=journal.compact,
        keep_tombstones=journal.keep_tombstones,
        publishers=journal.publishers,
        keep_publishers=journal.keep_publishers,
        readers=journal.readers,
    )
