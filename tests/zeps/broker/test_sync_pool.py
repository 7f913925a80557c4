"""zambezi.zeps.broker.sync_pool: the files of a journal are synced at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.zmtp.waiting import PATIENCE, in_loop
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker import Broker
from zambezi.zeps.broker.sync_pool import SyncPool


@pytest.fixture
def pool() -> Iterator[SyncPool]:
    found = SyncPool(2)
    yield found
    found.shutdown()


def test_all_calls_are_made_at_once(pool: SyncPool) -> None:
    together = threading.Barrier(3, timeout=PATIENCE)

    def sync(_: int) -> None:
        together.wait()

    pool(sync, range(3))
    assert not together.broken


@pytest.mark.parametrize("bad", range(3))
def test_an_error_comes_when_all_calls_have_ended(pool: SyncPool, bad: int) -> None:
    ended: list[int] = []

    def sync(number: int) -> None:
        ended.append(number)
        if number == bad:
            raise OSError(number, "broken")

    with pytest.raises(OSError, match="broken"):
        pool(sync, range(3))
    assert sorted(ended) == [0, 1, 2]


@in_loop
async def test_a_flush_syncs_all_files_of_a_journal_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3, timeout=PATIENCE)
    sync = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        if threading.current_thread().name.startswith(("zambezi-sync", "zambezi-disk")):
            together.wait()
        sync(descriptor)

    async with Broker(tmp_path) as broker, Client.connect(broker.bind("tcp://127.0.0.1:*")) as client:
        stream = client.stream("s")
        await stream.publish("k", b"1")
        await stream.flush()
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        await stream.publish("k", b"2")
        await stream.flush(PATIENCE)
        monkeypatch.undo()
    assert not together.broken
