"""A broker that does what a test says, message by message; and a real one whose connections can be cut."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from tests.zmtp.waiting import PATIENCE
from zambezi.zeps.broker import Broker
from zambezi.zeps.messages import Attach, AttachOk, Credit, Deliver, Ping, PingOk, Subscribe, SubscribeOk, Zeps
from zambezi.zmtp.asyncio import Router

T = TypeVar("T", bound=Zeps)


class Scripted:
    """A ROUTER; by itself it only tells of the stream `s` where it is asked about `$streams`."""

    def __init__(self, *, last: int = 0, incarnation: str = "one") -> None:
        self._router = Router(on_full="block")
        self.endpoint = self._router.bind("tcp://127.0.0.1:*")
        self.last = last
        self.incarnation = incarnation
        self._directory: set[bytes] = set()  # the connections that ask about streams

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._router.close(0)

    async def recv(self) -> tuple[bytes, Zeps]:
        """The next message that is not about `$streams`, and from whom."""
        while True:
            who, frame = await self._router.recv(PATIENCE)
            message = Zeps.decode(frame)
            if isinstance(message, Attach) and message.stream == "$streams":
                self._directory.add(who)
            if who not in self._directory:
                return who, message
            await self._tell(who, message)

    async def _tell(self, who: bytes, message: Zeps) -> None:
        if isinstance(message, Attach):
            await self.say(who, AttachOk())
        elif isinstance(message, Subscribe):
            told = {"stream": "s", "first": 1, "last": self.last, "incarnation": self.incarnation}
            await self.say(who, SubscribeOk(), Deliver(1, "s", json.dumps(told).encode()))
        elif isinstance(message, Ping):
            await self.say(who, PingOk())

    async def expect(self, kind: type[T], who: bytes | None = None) -> tuple[bytes, T]:
        """The next message of a kind, and from whom; others are passed over."""
        while True:
            sender, message = await self.recv()
            if isinstance(message, kind) and who in (None, sender):
                return sender, message

    async def attached(self) -> bytes:
        """Who attaches next; it is granted."""
        who, _ = await self.expect(Attach)
        await self.say(who, AttachOk())
        return who

    async def subscribed(self) -> tuple[bytes, Subscribe]:
        """Who attaches and subscribes next, and how; it is granted, and has given credit."""
        who = await self.attached()
        _, subscribe = await self.expect(Subscribe, who)
        await self.say(who, SubscribeOk())
        await self.expect(Credit, who)
        return who, subscribe

    async def say(self, who: bytes, *messages: Zeps | bytes) -> None:
        for message in messages:
            await self._router.send([who, message if isinstance(message, bytes) else message.encode()[0]])

    def cut(self) -> None:
        """End all connections, as a network does that breaks."""
        for link in list(self._router._transport.links):
            link.abort("cut by the test")


def cut(broker: Broker, which: Callable[[str], bool] = lambda _: True) -> int:
    """End the connections of a real broker to streams of some names; how many."""
    found = [peer for peer, session in broker._sessions.items() if which(session.stream_name)]
    for peer in found:
        peer.abort("cut by the test")
    return len(found)


class Serving:
    """A real broker in a thread of its own, for tests that block. It can be stopped, and started again."""

    def __init__(self, path: Path, where: str = "tcp://127.0.0.1:*") -> None:
        self._path = path
        self.endpoint = where
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._broker: Broker | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self) -> None:
        async def begin() -> None:
            self._broker = Broker(self._path)
            self.endpoint = self._broker.bind(self.endpoint)

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result(PATIENCE)

    def stop(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            asyncio.run_coroutine_threadsafe(broker.close(), self._loop).result(PATIENCE)

    def cut(self) -> None:
        async def cut_all() -> None:
            assert self._broker is not None
            cut(self._broker)

        asyncio.run_coroutine_threadsafe(cut_all(), self._loop).result(PATIENCE)
