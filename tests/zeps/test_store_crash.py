"""A broker with an object store is killed again and again, and loses its disk: nothing confirmed is lost."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from tests.zeps.broker_process import BrokerProcess
from tests.zeps.test_crash import Story, check, run
from zambezi.zeps.broker.depot import StoreOptions
from zambezi.zeps.journal import Store
from zambezi.zeps.journal.identity import is_cached
from zambezi.zeps.store.catalog import find_stream
from zambezi.zeps.store.copying import restore_stream
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

KILLS = 3
PROGRESS = 300  # messages that must be confirmed before the next kill


def test_each_message_is_in_the_stream_once_even_if_the_disk_is_lost(tmp_path: Path) -> None:
    chance = random.Random(7)
    data = tmp_path / "data"
    store = StoreOptions(url=str(tmp_path / "store"), log=LogSettings(commit=0.005, chunks=8))

    def lose_disk() -> None:
        if chance.random() < 0.5:
            shutil.rmtree(data)

    with BrokerProcess(data, store=store, sync="store", segment=1 << 20) as broker:

        async def story() -> Story:
            async with asyncio.timeout(100):
                return await run(broker, data, chance, KILLS, PROGRESS, lose_disk)

        told = asyncio.run(story())
    assert is_cached(data / "s")
    remote = ObjectStore(store.url)
    stream = remote.run(find_stream("s"))
    assert stream is not None
    with Store(tmp_path / "restored") as restored:
        restore_stream(remote, stream, restored)
    check(told, tmp_path / "restored")
