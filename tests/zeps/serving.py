"""A broker in its own thread, for tests with blocking clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.zmtp.waiting import PATIENCE
from zambezi.zeps.broker.service import BrokerService


@contextmanager
def serving(
    path: Path, make: Callable[[Path], BrokerService] = BrokerService, endpoint: str = "tcp://127.0.0.1:*"
) -> Iterator[tuple[BrokerService, str]]:
    """Run a broker, and yield it with its endpoint."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="broker", daemon=True)
    thread.start()

    async def start() -> tuple[BrokerService, str]:
        broker = make(path)
        return broker, broker.bind(endpoint)

    broker, bound = asyncio.run_coroutine_threadsafe(start(), loop).result(PATIENCE)
    try:
        yield broker, bound
    finally:
        asyncio.run_coroutine_threadsafe(broker.close(), loop).result(PATIENCE)
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
