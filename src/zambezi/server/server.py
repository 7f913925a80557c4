"""A server: the services that its configuration names, composed."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from zambezi.server.config import Config, JournalConfig
from zambezi.server.descriptors import raise_limit
from zambezi.server.keydir import KeyDirectory
from zambezi.server.rules import Rules
from zambezi.zeps.broker import Broker
from zambezi.zeps.engine import Limits
from zambezi.zeps.journal import Policy

_log: Final = logging.getLogger("zambezi.server")

SERVICES: Final = ("zeps",)
FEW_DESCRIPTORS: Final = 4096


class Server:
    """All services of one process, from `async with` until its end."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.endpoints: dict[str, str] = {}  # where each service is bound
        self.broker: Broker | None = None
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
        limit = raise_limit()
        if limit < FEW_DESCRIPTORS:
            _log.warning("only %d descriptors: at most so many connections and files; raise it with ulimit -n", limit)
        server = self.config.server
        keys = KeyDirectory.read(Path(server.keys)) if server.keys else None
        if self.config.zeps.enabled:
            await self._start_zeps(stack, keys)

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
            allow=Rules(self.config.rules).allow,
        )
        self.broker = await stack.enter_async_context(broker)
        self.endpoints["zeps"] = broker.bind(zeps.endpoint)


def policy_of(journal: JournalConfig) -> Policy:
    """How a stream is kept, as the journal understands it."""
    return Policy(
        sync=journal.sync, segment=journal.segment, keep_octets=journal.keep_octets, keep_seconds=journal.keep
    )
