"""A broker in its own process, which tests kill, and whose memory they measure."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from zambezi.memory import keep_memory
from zambezi.zeps.broker import Broker
from zambezi.zeps.broker.depot import StoreOptions
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.journal import Policy

PATIENCE = 60.0

# Processes are forked from a server that has imported all modules: dozens of starts would mostly wait for imports.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload([__name__])


class BrokerProcess:
    """A child process that runs a broker."""

    def __init__(
        self,
        data: Path,
        endpoint: str = "tcp://127.0.0.1:*",
        largest: int = 16 << 20,
        store: StoreOptions | None = None,
        **policy: Any,
    ) -> None:
        self._data = data
        self._store = store
        self._largest = largest
        self._policy = Policy(**policy)
        self.endpoint = endpoint
        self.start()

    def start(self) -> None:
        """Start it, for the first time or again with the same data, and wait until it serves."""
        ours, theirs = processes.Pipe(duplex=False)
        self._process: ForkServerProcess = processes.Process(
            target=_run,
            args=(str(self._data), self.endpoint, self._policy, self._largest, self._store, theirs),
            daemon=True,
        )
        self._process.start()
        theirs.close()
        with ours:
            assert ours.poll(PATIENCE), "the broker did not start"
            self.endpoint = ours.recv()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def resident(self) -> int:
        """Return the private memory of the process in bytes: pages of files do not count."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the system does not tell")

    def check(self) -> None:
        """Raise AssertionError if the process has ended by itself."""
        assert self._process.exitcode in (None, -signal.SIGKILL), f"it has ended with {self._process.exitcode}"

    def kill(self) -> None:
        """Kill the process."""
        os.kill(self.pid, signal.SIGKILL)
        self._reap()

    def close(self) -> None:
        """Ask the process to end, and wait for it."""
        if self._process.is_alive():
            os.kill(self.pid, signal.SIGTERM)
        self._reap()

    def _reap(self) -> None:
        self._process.join(PATIENCE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _run(data: str, endpoint: str, policy: Policy, largest: int, store: StoreOptions | None, told: Connection) -> None:
    asyncio.run(_serve(data, endpoint, policy, largest, store, told))


async def _serve(
    data: str, endpoint: str, policy: Policy, largest: int, store: StoreOptions | None, told: Connection
) -> None:
    keep_memory()  # as servers do
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with Broker(data, policy=policy, limits=Limits(message=largest), store=store) as broker:
        told.send(broker.bind(endpoint))
        told.close()
        await ended.wait()
