"""A client made of a DEALER, for tests that choose every message."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypeVar, Unpack

from tests.zmtp.waiting import PATIENCE
from zambezi.zeps.messages import Attach, AttachOk, Credit, Deliver, Ping, PingOk, Publish, Subscribe, SubscribeOk, Zeps
from zambezi.zmtp.asyncio import Dealer
from zambezi.zmtp.face import SocketArguments

M = TypeVar("M", bound=Zeps)


class Speaker:
    """A DEALER that is connected to a broker."""

    def __init__(self, endpoint: str, **options: Unpack[SocketArguments]) -> None:
        self.dealer = Dealer(linger=0, **options)
        self.dealer.connect(endpoint)

    async def say(self, *messages: Zeps | bytes) -> None:
        octets = [message if isinstance(message, bytes) else message.encode()[0] for message in messages]
        await self.dealer.send_batch(octets, PATIENCE)

    async def hear(self) -> Zeps:
        (frame,) = await self.dealer.recv(PATIENCE)
        return Zeps.decode(frame)

    async def expect(self, kind: type[M]) -> M:
        message = await self.hear()
        assert isinstance(message, kind), message
        return message

    async def attach(self, stream: str, credit: int = 0) -> None:
        await self.say(Attach(stream))
        await self.expect(AttachOk)
        if credit:
            await self.say(Credit(credit))

    async def subscribe(self, pattern: str = "", latest: int = 0) -> None:
        await self.say(Subscribe(pattern, latest))
        while not isinstance(message := await self.hear(), SubscribeOk):
            assert isinstance(message, Deliver)

    async def publish(self, *keys: str, body: bytes = b"") -> None:
        await self.say(*[Publish(key, body) for key in keys])

    async def barrier(self) -> None:
        await self.say(Ping())
        await self.expect(PingOk)

    async def delivered(self, count: int) -> list[Deliver]:
        return [await self.expect(Deliver) for _ in range(count)]

    async def close(self) -> None:
        await self.dealer.close(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
