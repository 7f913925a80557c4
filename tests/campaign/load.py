"""Load on a broker that fails: publishers whose messages are numbered, readers, and the check of what is left.

Every message is the next number of its publisher. So the journal shows at the end whether a confirmed message is
lost (a number is missing), a sequence was used twice, or the order was not kept (a number comes too early).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.zeps.killed import Kill, Lost, Order
from zambezi.zeps.asyncio import Client, Stream
from zambezi.zeps.errors import BrokerError, Incarnation, ZepsError
from zambezi.zeps.journal import Store
from zambezi.zeps.journal.extract import messages
from zambezi.zeps.journal.verify import Damage, verify
from zambezi.zmtp.backoff import Backoff

STREAM: Final = "s"
PATIENCE: Final = 120.0
FAST: Final = Backoff(0.01, 0.05)
PARCEL: Final = 20
PAUSE: Final = 0.004  # seconds between two parcels of a publisher


@dataclass
class Reader:
    """The progress of one reader: the last sequence, and the next number of each publisher."""

    last: int = 0
    count: int = 0
    renewed: int = 0  # times that the stream was another one
    following: dict[str, int] = field(default_factory=dict)

    def take(self, sequence: int, key: str, number: int) -> None:
        if sequence != self.last + 1:
            raise Lost(f"a reader got sequence {sequence} after {self.last}")
        if number > self.following.get(key, 0):
            raise Lost(f"a reader got {number} of {key} instead of {self.following.get(key, 0)}")
        self.last = sequence
        self.count += 1
        self.following[key] = number + 1


class Load:
    """Publishers and readers of one stream, which connect again whenever the broker is back."""

    def __init__(self, endpoint: str, publishers: int = 3, readers: int = 2) -> None:
        self._clients = [Client.connect(endpoint, backoff=FAST, bound=1 << 20) for _ in range(publishers)]
        self.streams: list[Stream] = [client.stream(STREAM) for client in self._clients]
        self._reading = Client.connect(endpoint, backoff=FAST)
        self.readers = [Reader() for _ in range(readers)]
        self._enough = asyncio.Event()
        self._publishing = [asyncio.ensure_future(self._publish(name)) for name in range(publishers)]
        self._following = [asyncio.ensure_future(self._follow(reader)) for reader in self.readers]

    @property
    def confirmed(self) -> list[int]:
        """The number of confirmed messages of each publisher."""
        return [stream.counters.confirmed for stream in self.streams]

    async def _publish(self, name: int) -> int:
        stream, count = self.streams[name], 0
        while not self._enough.is_set():
            await stream.publish_many([(f"p{name}", b"%d" % n) for n in range(count, count + PARCEL)], PATIENCE)
            count += PARCEL
            if count % (50 * PARCEL) == 0:
                with suppress(BrokerError):  # a stream that is stopped refuses, and the messages go out again later
                    await stream.flush(PATIENCE)
            await asyncio.sleep(PAUSE)
        return count

    async def _follow(self, reader: Reader) -> None:
        while True:
            try:
                async with self._reading.stream(STREAM).subscribe("", since=reader.last or "earliest") as subscription:
                    async for batch in subscription.batches():
                        for message in batch:
                            reader.take(message.sequence, message.key, int(message.body))
            except Incarnation:
                reader.renewed += 1
                reader.last, reader.following = 0, {}
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

    async def finish(self, data: Path) -> list[int]:
        """Stop publishing, confirm everything, and wait for the readers. Return how many each publisher published."""
        self._enough.set()
        counts = await asyncio.gather(*self._publishing)
        async with asyncio.timeout(PATIENCE):
            for stream in self.streams:
                while stream.unconfirmed:
                    with suppress(BrokerError):
                        await stream.flush(PATIENCE)
            with Store(data, write=False) as store:
                last = store.open(STREAM).last
            while any(reader.last < last for reader in self.readers):
                for task in self._following:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)
        return counts

    async def close(self) -> None:
        for task in (*self._publishing, *self._following):
            task.cancel()
        await asyncio.gather(*self._publishing, *self._following, return_exceptions=True)
        for client in (*self._clients, self._reading):
            await client.close()


def _kept(data: Path) -> Iterator[tuple[int, str, int]]:
    with Store(data, write=False) as store:
        journal = store.open(STREAM)
        for damage in verify(journal):
            if isinstance(damage, Damage):
                raise Lost(str(damage))
        for message in messages(journal, 0, journal.last):
            yield message.sequence, message.key.decode(), int(message.body)


def check_journal(data: Path, published: list[int], kills: list[Kill] | None = None) -> tuple[int, int]:
    """Check that nothing is lost, no sequence is used twice, and the order is kept.

    Return the number of messages, and of those that were published twice. With `kills`, only messages that were not
    confirmed when the broker was killed may be repeated, and once for each kill.
    """
    orders = {f"p{name}": Order(name, kills) for name in range(len(published))}
    count = 0
    for sequence, key, number in _kept(data):
        count += 1
        if sequence != count:
            raise Lost(f"sequence {sequence} came after {count - 1}")
        orders[key].take(sequence, number)
    kept = [order.following for order in orders.values()]
    if kept != published:
        raise Lost(f"{published} were published, and {kept} are kept")
    return count, count - sum(published)
