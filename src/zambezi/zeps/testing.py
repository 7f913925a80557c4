"""A broker for the tests of programs that use streams."""

from __future__ import annotations

import asyncio
import threading
from os import PathLike
from typing import Final, Unpack

from zambezi.zeps.broker import Broker
from zambezi.zeps.broker.engine import BrokerArguments

PATIENCE: Final = 20.0  # seconds to start and to stop


class serve:  # noqa: N801 - it is used like a function
    """A broker on a free port of 127.0.0.1, for the duration of a `with` or an `async with`. The value is its endpoint.

    With `with` the broker runs in its own thread, so that blocking clients can use it.

    >>> import tempfile
    >>> from zambezi.zeps.sync import Client
    >>> with tempfile.TemporaryDirectory() as path, serve(path) as endpoint, Client.connect(endpoint) as client:
    ...     client.streams(timeout=10)
    []
    """

    def __init__(self, path: str | PathLike[str], **options: Unpack[BrokerArguments]) -> None:
        self._path = path
        self._options = options
        self._broker: Broker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> str:
        self._broker = Broker(self._path, **self._options)
        return self._broker.bind("tcp://127.0.0.1:*")

    async def __aexit__(self, *_: object) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.close()

    def __enter__(self) -> str:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="zambezi-broker", daemon=True)
        self._thread.start()
        return asyncio.run_coroutine_threadsafe(self.__aenter__(), self._loop).result(PATIENCE)

    def __exit__(self, *_: object) -> None:
        loop, thread = self._loop, self._thread
        assert loop is not None
        assert thread is not None
        asyncio.run_coroutine_threadsafe(self.__aexit__(), loop).result(PATIENCE)
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
