"""A server: the services that its configuration names, composed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import socket
import time
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from zambezi.mcollective.asyncio import Middleware
from zambezi.server.archive import StreamArchive
from zambezi.server.config import Config, JournalConfig
from zambezi.server.descriptors import raise_limit
from zambezi.server.errors import ServerError
from zambezi.server.keydir import KeyDirectory
from zambezi.server.logs import LogJournal
from zambezi.server.memory import keep_memory
from zambezi.server.pulse import Pulse
from zambezi.server.rules import Rules
from zambezi.zeps.broker import Broker
from zambezi.zeps.engine import Limits
from zambezi.zeps.journal import Policy
from zambezi.zeps.stream import Stream
from zambezi.zmtp.keys import read_pair
from zambezi.zmtp.security import Null
from zambezi.zre.asyncio import LogService, Node

_log: Final = logging.getLogger("zambezi.server")

SERVICES: Final = ("zeps", "mcollective", "zre", "log", "console")
# What the mesh is told of, by the name of the service.
HEADERS: Final = {"zeps": "X-ZEPS", "mcollective": "X-MCOLLECTIVE"}
GROUPS: Final = "X-ZEPS-MULTICAST"  # the groups of streams: NAME=GROUP, with spaces between, names quoted as in URLs
LOCAL: Final = "inproc://zambezi-zeps-{}"
FEW_DESCRIPTORS: Final = 4096


class Server:
    """All services of one process, from `async with` until its end."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.endpoints: dict[str, str] = {}  # where each service is bound
        self.rules = Rules(self.config.rules)
        self.broker: Broker | None = None
        self.middleware: Middleware | None = None
        self.node: Node | None = None
        self.logs: LogJournal | None = None
        self.pulse = Pulse()
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
        limit = raise_limit()
        if limit < FEW_DESCRIPTORS:
            _log.warning("only %d descriptors: at most so many connections and files; raise it with ulimit -n", limit)
        stack.push_async_callback(_ended, asyncio.create_task(self.pulse.run()))
        server = self.config.server
        keys = KeyDirectory.read(Path(server.keys)) if server.keys else None
        if self.config.zeps.enabled:
            await self._start_zeps(stack, keys)
        if self.config.mcollective.enabled:
            await self._start_mcollective(stack, keys)
        if self.config.zre.enabled:
            await self._start_zre(stack)
            if self.config.log.enabled:
                await self._start_log(stack)

    async def _start_zeps(self, stack: AsyncExitStack, keys: KeyDirectory | None) -> None:
        zeps = self.config.zeps
        broker = Broker(
            self.config.server.data,
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
            ),
            allow=self.rules.allow,
            multicast={name: one.multicast for name, one in zeps.streams.items() if one.multicast},
            group_key=keys.group_key if keys else b"",
        )
        self.broker = await stack.enter_async_context(broker)
        self.endpoints["zeps"] = broker.bind(zeps.endpoint)
        broker.bind(LOCAL.format(id(self)))

    async def _start_mcollective(self, stack: AsyncExitStack, keys: KeyDirectory | None) -> None:
        mcollective = self.config.mcollective
        archive = None
        if mcollective.journal:
            archive = StreamArchive(self._stream("mcollective", "mcollective.journal"), mcollective.journal)
        middleware = Middleware(
            rules=self.rules.topics,
            archive=archive,
            security=keys.security if keys else Null(),
            authenticator=keys.authenticator if keys else None,
        )
        self.middleware = await stack.enter_async_context(middleware)
        self.endpoints["mcollective"] = middleware.bind(mcollective.endpoint)

    async def _start_zre(self, stack: AsyncExitStack) -> None:
        zre = self.config.zre
        node = Node(
            zre.name or socket.gethostname(),
            interface=zre.interface or None,
            seeds=zre.seeds,
            beacon_port=zre.beacon_port,
            keys=read_pair(zre.key) if zre.key else None,
        )
        for service, header in HEADERS.items():
            if service in self.endpoints:
                await node.announce(header, self.endpoints[service])
        if self.broker is not None and self.broker.groups:
            groups = self.broker.groups
            await node.announce(GROUPS, " ".join(f"{quote(name)}={group}" for name, group in groups.items()))
        self.node = await stack.enter_async_context(node)
        self.endpoints["zre"] = node.endpoint
        # Nobody here reads what happens in the mesh, but a node whose events are not read stops reading its peers.
        watching = asyncio.create_task(self._watch(node))
        stack.push_async_callback(_ended, watching)

    async def _watch(self, node: Node) -> None:
        async for _ in node:
            pass

    async def _start_log(self, stack: AsyncExitStack) -> None:
        assert self.node is not None
        stream = self._stream(self.config.log.stream, "log.stream")
        service = await stack.enter_async_context(LogService(self.node))
        self.endpoints["log"] = service.endpoint
        self.logs = LogJournal(service, stream)
        stack.push_async_callback(_ended, asyncio.create_task(self.logs.run()))

    def reload(self, config: Config) -> None:
        """Let the rules and the retention of another configuration hold from now on; all else needs a restart.

        Keys need nothing: the directory of allowed keys is looked at all the time.
        """
        self.rules.replace(config.rules)
        if self.middleware is not None:
            self.middleware.replace_rules(self.rules.topics)
        if self.broker is not None:
            default = policy_of(config.zeps.journal)
            policies = {name: policy_of(one) for name, one in config.zeps.streams.items()}
            self.broker.set_policies(default, policies)
        self.config = dataclasses.replace(
            self.config,
            rules=config.rules,
            zeps=dataclasses.replace(self.config.zeps, journal=config.zeps.journal, streams=config.zeps.streams),
        )

    @property
    def problems(self) -> list[str]:
        """Why a service cannot do its work now; none, if all can."""
        if self.broker is None:
            return []
        return [
            f"stream {stream.name}: {stream.held or stream.journal.failed}"
            for stream in self.broker.engine.streams
            if stream.held or stream.journal.failed
        ]

    @property
    def local_zeps(self) -> str | None:
        """Where those in this process reach the broker, past the network and its keys."""
        return LOCAL.format(id(self)) if self.broker is not None else None

    def _stream(self, name: str, wanted: str) -> Stream:
        """A stream of our own broker."""
        stream = self.broker.engine.find(name, create=True) if self.broker is not None else None
        if stream is None:
            raise ServerError(f"{wanted} needs the broker of streams: set enabled = true below [zeps], or leave it out")
        return stream


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def policy_of(journal: JournalConfig) -> Policy:
    """How a stream is kept, as the journal understands it."""
    return Policy(
        sync=journal.sync, segment=journal.segment, keep_octets=journal.keep_octets, keep_seconds=journal.keep
    )
