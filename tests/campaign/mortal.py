"""A publisher in its own process, which is killed and goes on where it was: it gives its name, and asks `resumed()`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Final

from tests.campaign.load import FAST, PARCEL, PATIENCE, PAUSE, STREAM, Published, body
from tests.zeps.broker_process import processes
from zambezi.zeps.asyncio import Client
from zambezi.zeps.errors import BrokerError

KEY: Final = "mortal"


class MortalPublisher:
    """The process of a publisher, and its lives."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.kills = 0
        self.start()

    def start(self) -> None:
        """Start the process, for the first time or again. It knows nothing of its life before."""
        self._ours, theirs = processes.Pipe()
        self._process: ForkServerProcess = processes.Process(target=_run, args=(self._endpoint, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def kill(self) -> None:
        """Kill the process, and start it again."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join(PATIENCE)
        self._ours.close()
        self.kills += 1
        self.start()

    def finish(self) -> Published:
        """Let the process confirm its messages and end; return how many there are."""
        self._ours.send("enough")
        assert self._ours.poll(PATIENCE), "the publisher did not end"
        count: int = self._ours.recv()
        self.close()
        return Published(KEY, count)

    def close(self) -> None:
        """End the process."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join(PATIENCE)
        self._ours.close()


def _run(endpoint: str, told: Connection) -> None:
    logging.getLogger("zambezi").addHandler(logging.NullHandler())
    told.send(asyncio.run(_publish(endpoint, told)))


async def _publish(endpoint: str, told: Connection) -> int:
    """Publish numbers until the end, and return how many there are of all lives."""
    async with Client.connect(endpoint, backoff=FAST, bound=1 << 16) as client:
        stream = client.stream(STREAM, publisher="the mortal one")
        count = await stream.resumed(PATIENCE)
        while not told.poll():
            await stream.publish_many([(KEY, body(number)) for number in range(count, count + PARCEL)], PATIENCE)
            count += PARCEL
            await asyncio.sleep(PAUSE)
        while stream.unconfirmed:
            with suppress(BrokerError):  # the broker refuses some messages
                await stream.flush(PATIENCE)
        with suppress(BrokerError):
            await client.close()
    return count
