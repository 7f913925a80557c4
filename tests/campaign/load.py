"""Publishers that number their messages, and readers that check the numbers: the load of a broker that fails.

The publishers differ in what they do when their buffer is full. The broker refuses some of their messages, which are
too long. Each of the others must be in the stream once, and in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.zeps.order import Lost, Order
from zambezi.zeps.asyncio import Client, Stream
from zambezi.zeps.client.publisher import OnFull
from zambezi.zeps.errors import BrokerError, Incarnation, QueueFull, ZepsError
from zambezi.zeps.journal import Store
from zambezi.zeps.journal.extract import messages
from zambezi.zeps.journal.verify import Damage, verify
from zambezi.zmtp.backoff import Backoff

STREAM: Final = "s"
PATIENCE: Final = 120.0
FAST: Final = Backoff(0.01, 0.05)
PARCEL: Final = 20
PAUSE: Final = 0.004  # seconds between two parcels of a publisher
LARGEST: Final = 300  # bytes of a message that the broker accepts
BOUNDS: Final[dict[OnFull, int]] = {"wait": 1 << 20, "raise": 1 << 13, "drop-oldest": 1 << 12}
KINDS: Final[tuple[OnFull, ...]] = ("wait", "raise", "drop-oldest")


def is_refused(number: int) -> bool:
    """Return whether the message of a number is too long for the broker."""
    return number % 97 == 31


def body(number: int) -> bytes:
    """Return the body of a message; `int` reads its number."""
    return b"%d" % number + (b" " * LARGEST if is_refused(number) else b"")


def order(key: str, lossy: bool = False) -> Order:
    """Return the order of a publisher's messages. With `lossy`, some may be missing, and none comes twice."""
    drops = key[1:].isdigit() and KINDS[int(key[1:]) % len(KINDS)] == "drop-oldest"
    return Order(key, is_refused, drops or lossy)


@dataclass
class Reader:
    """The progress of one reader: the last sequence, and the order of each publisher."""

    lossy: bool = False
    last: int = 0
    count: int = 0
    renewed: int = 0  # times that the stream was another one
    orders: dict[str, Order] = field(default_factory=dict)

    def take(self, sequence: int, key: str, number: int) -> None:
        if sequence != self.last + 1:
            raise Lost(f"a reader got sequence {sequence} after {self.last}")
        if key not in self.orders:
            self.orders[key] = order(key, self.lossy)
        self.orders[key].take(number)
        self.last = sequence
        self.count += 1


@dataclass(frozen=True)
class Published:
    """The messages of a publisher: how many, and how many of them it has dropped."""

    key: str
    count: int
    dropped: int = 0


class Load:
    """Publishers and readers of one stream, which connect again whenever the broker is back."""

    def __init__(self, endpoint: str, readers: int = 2, lossy: bool = False) -> None:
        self._client = Client.connect(endpoint, backoff=FAST)
        self._clients = [Client.connect(endpoint, backoff=FAST) for _ in KINDS]
        self.streams: list[Stream] = [
            client.stream(STREAM, bound=BOUNDS[kind], on_full=kind)
            for client, kind in zip(self._clients, KINDS, strict=True)
        ]
        self.full = 0  # times that a publisher raised QueueFull
        self.readers = [Reader(lossy) for _ in range(readers)]
        self._enough = asyncio.Event()
        self._publishing = [asyncio.ensure_future(self._publish(number)) for number in range(len(KINDS))]
        self._following = [asyncio.ensure_future(self._follow(reader)) for reader in self.readers]

    @property
    def confirmed(self) -> list[int]:
        """The number of confirmed messages of each publisher."""
        return [stream.counters.confirmed for stream in self.streams]

    async def _publish(self, number: int) -> Published:
        stream, key, count = self.streams[number], f"p{number}", 0
        while not self._enough.is_set():
            if KINDS[number] == "raise":
                count = await self._publish_or_raise(stream, key, count)
            else:
                await stream.publish_many([(key, body(n)) for n in range(count, count + PARCEL)], PATIENCE)
                count += PARCEL
            if count % (50 * PARCEL) == 0:
                with suppress(BrokerError):  # the broker refuses some messages, and all if its stream is stopped
                    await stream.flush(PATIENCE)
            await asyncio.sleep(PAUSE)
        return Published(key, count)

    async def _publish_or_raise(self, stream: Stream, key: str, count: int) -> int:
        """Publish some messages, and return the next number: those before it were accepted."""
        stop = count + PARCEL
        while count < stop:
            try:
                await stream.publish(key, body(count))
            except QueueFull:
                self.full += 1
                break
            count += 1
        return count

    async def _follow(self, reader: Reader) -> None:
        while True:
            try:
                async with self._client.stream(STREAM).subscribe("", since=reader.last or "earliest") as subscription:
                    async for batch in subscription.batches():
                        for message in batch:
                            reader.take(message.sequence, message.key, int(message.body))
            except Incarnation:
                reader.renewed += 1
                reader.last, reader.orders = 0, {}
            except ZepsError:
                await asyncio.sleep(0.05)

    async def progress(self, messages: int, seconds: float = PATIENCE) -> None:
        """Wait until so many more messages are confirmed."""
        wanted = sum(self.confirmed) + messages
        async with asyncio.timeout(seconds):
            while sum(self.confirmed) < wanted:
                self._raise_failures()
                await asyncio.sleep(0.002)

    def _raise_failures(self) -> None:
        for task in (*self._publishing, *self._following):
            if task.done():
                task.result()

    async def finish(self) -> list[Published]:
        """Stop publishing, confirm everything, and return what each publisher has published."""
        self._enough.set()
        published = await asyncio.gather(*self._publishing)
        async with asyncio.timeout(PATIENCE):
            for stream in self.streams:
                while stream.unconfirmed:
                    with suppress(BrokerError):
                        await stream.flush(PATIENCE)
        dropped = [stream.counters.dropped for stream in self.streams]
        return [Published(one.key, one.count, count) for one, count in zip(published, dropped, strict=True)]

    async def finish_reading(self, data: Path) -> None:
        """Wait until the readers have got everything."""
        with Store(data, write=False) as store:
            last = store.open(STREAM).last
        async with asyncio.timeout(PATIENCE):
            while any(reader.last < last for reader in self.readers):
                self._raise_failures_of_readers()
                await asyncio.sleep(0.01)

    def _raise_failures_of_readers(self) -> None:
        for task in self._following:
            if task.done():
                task.result()

    async def close(self) -> None:
        for task in (*self._publishing, *self._following):
            task.cancel()
        await asyncio.gather(*self._publishing, *self._following, return_exceptions=True)
        for client in (*self._clients, self._client):
            with suppress(BrokerError):  # about messages that the broker had to refuse
                await client.close()


def _kept(data: Path) -> Iterator[tuple[int, str, int]]:
    with Store(data, write=False) as store:
        journal = store.open(STREAM)
        for damage in verify(journal):
            if isinstance(damage, Damage):
                raise Lost(str(damage))
        for message in messages(journal, 0, journal.last):
            yield message.sequence, message.key.decode(), int(message.body)


def check_journal(data: Path, published: list[Published], lossy: bool = False) -> tuple[int, int]:
    """Check that each message is there once and in order, and no sequence is used twice.

    Only messages that the broker had to refuse, or that their publisher has dropped, are missing; with `lossy`, others
    may be missing, too. Return the number of messages, and of those that are missing and were not dropped.
    """
    orders = {one.key: order(one.key, lossy) for one in published}
    count = 0
    for sequence, key, number in _kept(data):
        count += 1
        if sequence != count:
            raise Lost(f"sequence {sequence} came after {count - 1}")
        orders[key].take(number)
    lost = 0
    for one in published:
        missing = one.count - sum(map(is_refused, range(one.count))) - orders[one.key].kept
        orders[one.key].check_end(one.count, max(missing, one.dropped) if lossy else one.dropped)
        lost += max(0, missing - one.dropped)
    return count, lost


def count_refused(published: list[Published]) -> int:
    """Return how many of the messages the broker had to refuse."""
    return sum(is_refused(number) for one in published for number in range(one.count))
