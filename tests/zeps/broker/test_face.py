"""zambezi.zeps.broker.face: the broker that programs use, with every option of the service."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.zmtp.waiting import PATIENCE, in_loop
from zambezi.zeps import Broker, Policy
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker.engine import BrokerArguments
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.errors import BrokerError


def test_the_face_has_all_options_of_the_service_but_one() -> None:
    """A program has no use for `own`: streams that only the process of the server writes."""
    service = inspect.signature(BrokerService).parameters.keys() | BrokerArguments.__annotations__.keys()
    assert inspect.signature(Broker).parameters.keys() == service - {"options", "own"}


@in_loop
async def test_options_reach_the_service(tmp_path: Path) -> None:
    async with Broker(tmp_path, streams=["given"], create=False) as broker:
        async with Client.connect(broker.bind("tcp://127.0.0.1:*")) as client:
            assert [one.stream for one in await client.streams(timeout=PATIENCE)] == ["given"]
            await client.stream("given").publish("k", b"x")
            await client.stream("given").flush(PATIENCE)
            refused = client.stream("other").subscribe()
            with pytest.raises(BrokerError, match="does not create streams"):
                await refused.ready(PATIENCE)
        broker.set_policies(Policy(keep_bytes=5000), {})
        assert broker.counters.published == 1
        assert broker.problems == []
