"""The broker that programs use: a small face of `BrokerService`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from types import TracebackType
from typing import Literal, Self

from zambezi.zeps.broker.depot import StoreOptions
from zambezi.zeps.broker.engine import Allow, BrokerCounters, Limits, allow_all
from zambezi.zeps.broker.service import HEARTBEAT, BrokerService
from zambezi.zeps.journal import Policy
from zambezi.zeps.journal.scrub import RATE
from zambezi.zeps.matchers import Matchers
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.connection import Heartbeat
from zambezi.zmtp.security import Security


class Broker:
    """A broker that stores streams in the directory `path`, and serves them at the endpoints that it is bound to.

    Make it inside a running event loop, and close it with `async with` or `close()`.

    >>> import asyncio, tempfile
    >>> async def main() -> str:
    ...     with tempfile.TemporaryDirectory() as directory:
    ...         async with Broker(directory) as broker:
    ...             endpoint = broker.bind("tcp://127.0.0.1:*")
    ...             return endpoint.rpartition(":")[0]
    >>> asyncio.run(main())
    'tcp://127.0.0.1'

    The options, all by keyword:

        policy         when messages are synced to the disk, and how long they are kept
        policies       the policies of single streams, by name
        streams        streams that are created at the start
        create         whether a client that attaches to a stream creates it, if it does not exist
        behind         what a subscriber gets whose next message retention has removed: "invalid" is an error, with
                       "oldest" it goes on at the oldest message
        limits         of streams, connections, subscriptions and the size of messages
        allow          a function of user, action and stream: whether the user may do that
        security       NULL by default, or `CurveServer`
        authenticator  the clients that may connect
        heartbeat      ZMTP's: it notices clients that are gone without closing the connection
        multicast      groups that get the live messages, by the name of the stream
        group_key      the key of sealed multicast groups
        matchers       the kinds of patterns that subscribers can use
        scrub          bytes of old segments that are checked in a second; 0 checks none
        store          the object store, for streams that survive the loss of the disk
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        policy: Policy | None = None,
        policies: Mapping[str, Policy] | None = None,
        streams: Iterable[str] = (),
        create: bool = True,
        behind: Literal["invalid", "oldest"] = "invalid",
        limits: Limits | None = None,
        allow: Allow = allow_all,
        security: Security | None = None,
        authenticator: Authenticator | None = None,
        heartbeat: Heartbeat | None = HEARTBEAT,
        multicast: Mapping[str, str] | None = None,
        group_key: bytes = b"",
        matchers: Matchers | None = None,
        scrub: int = RATE,
        store: StoreOptions | None = None,
    ) -> None:
        self._service = BrokerService(
            path,
            policy=policy,
            policies=dict(policies or {}),
            streams=streams,
            create=create,
            behind=behind,
            limits=limits or Limits(),
            allow=allow,
            security=security,
            authenticator=authenticator,
            heartbeat=heartbeat,
            multicast=multicast,
            group_key=group_key,
            matchers=matchers or Matchers(),
            scrub=scrub,
            store=store,
        )

    def bind(self, endpoint: str) -> str:
        """Serve at `tcp://HOST:PORT`, `ipc://PATH` or `inproc://NAME`, and return the endpoint as bound."""
        return self._service.bind(endpoint)

    def set_policies(self, default: Policy, policies: Mapping[str, Policy]) -> None:
        """Change the storage policies: `default` for all streams, except those in `policies`, by name."""
        self._service.set_policies(default, policies)

    @property
    def counters(self) -> BrokerCounters:
        """Counters of the broker."""
        return self._service.counters

    @property
    def problems(self) -> list[str]:
        """The problems that an operator must solve: streams that cannot be used, damage, a store that is silent."""
        return self._service.problems

    async def close(self) -> None:
        """Send DETACH to the clients, wait a second for them, and write everything that was published to the disk."""
        await self._service.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
