"""A broker that says what a test tells it to say, message by message; and a real one whose connections can be cut."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from tests.zmtp.waiting import PATIENCE
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.broker.session import Session
from zambezi.zeps.messages import (
    EXTENSIONS,
    Attach,
    AttachOk,
    Credit,
    Deliver,
    Invalid,
    Ping,
    PingOk,
    Subscribe,
    SubscribeOk,
    Zeps,
)
from zambezi.zmtp.asyncio import Router

T = TypeVar("T", bound=Zeps)


class Scripted:
    """A ROUTER. By itself it only describes the stream `s` to clients that ask `$streams`, if it `describes` at all.

    `extensions` are those of the protocol that it says to have.
    """

    def __init__(
        self, *, last: int = 0, incarnation: str = "one", describes: bool = True, extensions: str = ""
    ) -> None:
        self._router = Router(on_full="block", properties={EXTENSIONS: extensions.encode()} if extensions else {})
        self.endpoint = self._router.bind("tcp://127.0.0.1:*")
        self.last = last
        self.incarnation = incarnation
        self.describes = describes
        self._askers: set[bytes] = set()  # the connections that ask `$streams`

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._router.close(0)

    async def recv(self) -> tuple[bytes, Zeps]:
        """Return the next message that is not about `$streams`, after the identity of its sender."""
        while True:
            who, frame = await self._router.recv(PATIENCE)
            message = Zeps.decode(frame)
            if isinstance(message, Attach) and message.stream == "$streams":
                self._askers.add(who)
            if who not in self._askers:
                return who, message
            await self._answer(who, message)

    async def _answer(self, who: bytes, message: Zeps) -> None:
        if not self.describes:
            await self.say(who, Invalid("what is that?"))
        elif isinstance(message, Attach):
            await self.say(who, AttachOk())
        elif isinstance(message, Subscribe):
            info = {"stream": "s", "first": 1, "last": self.last, "incarnation": self.incarnation}
            await self.say(who, SubscribeOk(), Deliver(1, "s", json.dumps(info).encode()))
        elif isinstance(message, Ping):
            await self.say(who, PingOk())

    async def expect(self, kind: type[T], who: bytes | None = None) -> tuple[bytes, T]:
        """Return the next message of a kind, after the identity of its sender; skip all others."""
        while True:
            sender, message = await self.recv()
            if isinstance(message, kind) and who in (None, sender):
                return sender, message

    async def attached(self) -> bytes:
        """Answer the next ATTACH, and return the identity of its sender."""
        who, _ = await self.expect(Attach)
        await self.say(who, AttachOk())
        return who

    async def subscribed(self) -> tuple[bytes, Subscribe]:
        """Answer the next ATTACH and its SUBSCRIBE, wait for CREDIT; return the sender's identity and the SUBSCRIBE."""
        who = await self.attached()
        _, subscribe = await self.expect(Subscribe, who)
        await self.say(who, SubscribeOk())
        await self.expect(Credit, who)
        return who, subscribe

    async def say(self, who: bytes, *messages: Zeps | bytes) -> None:
        for message in messages:
            await self._router.send([who, message if isinstance(message, bytes) else message.encode()[0]])

    def cut(self) -> None:
        """Abort all connections, like a network that breaks."""
        for link in list(self._router._transport.links):
            link.abort("cut by the test")


def cut(broker: BrokerService, which: Callable[[Session], bool] = lambda _: True) -> int:
    """Abort connections of a real broker, and return how many."""
    found = [peer for peer, session in broker._sessions.items() if which(session)]
    for peer in found:
        peer.abort("cut by the test")
    return len(found)


class Serving:
    """A real broker in its own thread, for tests that block. Its connections can be cut."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.endpoint = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._broker: BrokerService | None = None

    def __enter__(self) -> Self:
        async def start() -> None:
            self._broker = BrokerService(self._path)
            self.endpoint = self._broker.bind("tcp://127.0.0.1:*")

        self._thread.start()
        asyncio.run_coroutine_threadsafe(start(), self._loop).result(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        if self._broker is not None:
            asyncio.run_coroutine_threadsafe(self._broker.close(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Abort all connections."""

        async def cut_all() -> None:
            assert self._broker is not None
            cut(self._broker)

        asyncio.run_coroutine_threadsafe(cut_all(), self._loop).result(PATIENCE)
