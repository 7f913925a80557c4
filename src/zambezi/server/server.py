"""A server: the services that exist, composed by what it is told."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from zambezi.errors import ZambeziError
from zambezi.server.descriptors import raise_limit
from zambezi.server.keydir import KeyDirectory
from zambezi.zeps.broker import Broker
from zambezi.zeps.journal import Policy
from zambezi.zmtp.security import CurveServer, Security

_log: Final = logging.getLogger("zambezi.server")

SERVICES: Final = ("zeps",)
FEW_DESCRIPTORS: Final = 4096


class ServerError(ZambeziError):
    """A server cannot be put together as it was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What a server is to do."""

    data: Path = Path("zambezi-data")
    zeps: str = "tcp://127.0.0.1:5671"
    only: Iterable[str] = ()  # the services to run; none named: all
    keys: Path | None = None  # a key directory: CURVE for every service
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        for name in self.only:
            if name not in SERVICES:
                raise ServerError(f"there is no service {name!r}; there are: {', '.join(SERVICES)}")

    def runs(self, service: str) -> bool:
        return not self.only or service in self.only


class Server:
    """All services of one process, from `async with` until its end."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
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
        options = self.options
        limit = raise_limit()
        if limit < FEW_DESCRIPTORS:
            _log.warning("only %d descriptors: at most so many connections and files; raise it with ulimit -n", limit)
        security: Security | None = None
        authenticator = None
        if options.keys is not None:
            keys = KeyDirectory.read(options.keys)
            security, authenticator = CurveServer(keys.pair), keys.authenticator
        if options.runs("zeps"):
            broker = Broker(options.data, policy=options.policy, security=security, authenticator=authenticator)
            self.broker = await stack.enter_async_context(broker)
            self.endpoints["zeps"] = broker.bind(options.zeps)
