"""zambezi.zeps.testing: a broker for the duration of a `with`, in both forms."""

import threading
from pathlib import Path

import pytest

from tests.zmtp.waiting import PATIENCE, in_loop
from zambezi.zeps import asyncio, sync
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.errors import BrokerError, JournalError
from zambezi.zeps.testing import serve

THREAD = "zambezi-broker"


def test_blocking_clients_use_a_broker_in_its_own_thread(tmp_path: Path) -> None:
    with serve(tmp_path, streams=["prices"]) as endpoint, sync.Client.connect(endpoint) as client:
        assert THREAD in {thread.name for thread in threading.enumerate()}
        assert [info.stream for info in client.streams(PATIENCE)] == ["prices"]
    assert THREAD not in {thread.name for thread in threading.enumerate()}


@in_loop
async def test_asyncio_clients_use_a_broker_in_their_loop(tmp_path: Path) -> None:
    async with serve(tmp_path, streams=["prices"]) as endpoint, asyncio.Client.connect(endpoint) as client:
        assert THREAD not in {thread.name for thread in threading.enumerate()}
        assert [info.stream for info in await client.streams(PATIENCE)] == ["prices"]


def test_messages_are_kept_from_one_broker_to_the_next(tmp_path: Path) -> None:
    with serve(tmp_path) as endpoint, sync.Client.connect(endpoint) as client:
        client.stream("s").publish("k", b"1")
    with serve(tmp_path) as endpoint, sync.Client.connect(endpoint) as client:
        assert [one.body for one in client.stream("s").subscribe(since="earliest", until="now")] == [b"1"]


def test_options_are_those_of_a_broker(tmp_path: Path) -> None:
    with serve(tmp_path, limits=Limits(streams=0)) as endpoint:
        client = sync.Client.connect(endpoint)
        stream = client.stream("s")
        stream.publish("k", b"")
        with pytest.raises(BrokerError, match="the limit"):
            stream.flush(PATIENCE)
        with pytest.raises(BrokerError, match="the limit"):
            client.close(0.1)


@in_loop
async def test_a_broker_that_cannot_start_raises(tmp_path: Path) -> None:
    async with serve(tmp_path):
        with pytest.raises(JournalError, match="in use"):
            await serve(tmp_path).__aenter__()
