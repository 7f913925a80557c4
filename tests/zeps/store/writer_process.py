"""A broker of one stream, without clients: it takes the stream, publishes numbers, and prints those that are stored.

    python -m tests.zeps.store.writer_process URL OPTIONS

It is killed at any moment. The numbers continue those in the log, so that the log is 1, 2, 3, ... whoever wrote it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from uuid import uuid4

from tests.zeps.store.shelf import PLACE, piece
from zambezi.zeps.store.driver import Driver
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings, Owned, State, Stored, StreamLog


async def main(url: str, options: dict[str, str]) -> None:
    store = ObjectStore(url, options)
    driver = Driver(store.execute)
    log = StreamLog(PLACE, uuid4().bytes, b"I" * 16, LogSettings(commit=0.001, chunks=4, segment=2000))
    ended = asyncio.Event()
    appended = 0

    def append() -> None:
        nonlocal appended
        for _ in range(3):
            appended += 1
            log.append(piece(appended, b"%d" % appended, time=max(int(time.time() * 1e6), log.last_time)))
        driver.advance(log)

    def look() -> None:
        nonlocal appended
        for event in log.take_events():
            if isinstance(event, Owned):
                print("owned", log.last, flush=True)
                appended = log.last
                append()
            elif isinstance(event, Stored):
                print(event.last, flush=True)
                append()
            elif event.state is State.DEPOSED:
                print("deposed", flush=True)
                ended.set()
            else:
                print(event, flush=True)
                ended.set()

    log.take(asyncio.get_running_loop().time())
    driver.add(log, look)
    await ended.wait()
    await driver.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
