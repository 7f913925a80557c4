"""The mirrors of a server: it follows streams of other servers into its own broker.

Each mirror is a task. A mirror that fails begins again after a while: its other server can be repaired, or the operator
allows it there. It never keeps the other services from running.

Servers that share an object store can have the same mirrors: only the server that has the target follows the source.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from zambezi.server.config import MirrorConfig
from zambezi.zeps.asyncio import Client
from zambezi.zeps.errors import ZepsError
from zambezi.zeps.mirror.asyncio import Mirror
from zambezi.zmtp.keys import KeyPair, read_pair, read_public
from zambezi.zmtp.security import CurveClient, Null, Security

GRACE: Final = 3.0  # seconds that a mirror has to connect before its trouble is told
AGAIN: Final = 10.0  # seconds after which a mirror that has failed begins again
LOOK: Final = 1.0  # seconds between two looks whether this server has the target


class ServerMirror:
    """One mirror of a server."""

    def __init__(self, config: MirrorConfig, local: str, is_here: Callable[[str], bool] = lambda _: True) -> None:
        self.name = config.target or config.stream
        self._config = config
        self._local = local
        self._is_here = is_here  # says whether this server has a stream, or should make it
        self._security = _security_of(config)
        self._mirror: Mirror | None = None
        self._begun = 0.0
        self._failure = ""

    @property
    def trouble(self) -> str:
        """The reason why the mirror does not follow its source now; empty if it does."""
        what = self._failure
        mirror = self._mirror
        if not what and mirror is not None and mirror.waits_for and time.monotonic() > self._begun + GRACE:
            what = f"it waits for {mirror.waits_for}"
        return f"the mirror of {self._config.stream} at {self._config.source}: {what}" if what else ""

    @property
    def is_following(self) -> bool:
        """Whether this server follows the source: another one can have the target."""
        return self._mirror is not None

    @property
    def lag(self) -> int:
        """The number of messages that the mirror is behind its source, as far as it knows."""
        return self._mirror.lag if self._mirror is not None else 0

    async def run(self) -> None:
        """Follow the source while the target is here, until cancelled."""
        while True:
            if not self._is_here(self.name):
                await asyncio.sleep(LOOK)
                continue
            try:
                await self._follow_while_here()
            except ZepsError as error:
                if not self._is_here(self.name):
                    continue  # the server that has the target now has taken it while this one wrote
                self._failure = str(error)
                await asyncio.sleep(AGAIN)
                self._failure = ""

    async def _follow_while_here(self) -> None:
        """Follow the source; return if another server has taken the target: that one goes on."""
        following = asyncio.ensure_future(self._follow())
        try:
            while not (await asyncio.wait({following}, timeout=LOOK))[0]:
                if not self._is_here(self.name):
                    return
            await following
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self) -> None:
        config = self._config
        async with (
            Client.connect(config.source, security=self._security) as source,
            Client.connect(self._local) as target,
            Mirror(
                source.stream(config.stream),
                target.stream(self.name),
                pattern=config.pattern,
                since=config.since or None,
                name=config.name or None,
                begin_again=config.begin_again,
            ) as mirror,
        ):
            self._mirror, self._begun = mirror, time.monotonic()
            try:
                await mirror.run()
            finally:
                self._mirror = None


def _security_of(config: MirrorConfig) -> Security:
    if not config.server_key:
        return Null()
    return CurveClient(read_public(config.server_key), read_pair(config.key) if config.key else KeyPair.generate())


def mirrors_of(
    configs: Sequence[MirrorConfig], local: str, is_here: Callable[[str], bool] = lambda _: True
) -> list[ServerMirror]:
    """Return the mirrors of a configuration; `local` is the endpoint of the broker inside this process."""
    return [ServerMirror(config, local, is_here) for config in configs]
