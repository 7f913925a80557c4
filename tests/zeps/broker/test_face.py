"""zambezi.zeps.broker.face: the broker that programs use, with every option of the service."""

from __future__ import annotations

import asyncio
import inspect
import os
from pathlib import Path

import pytest

from tests.zmtp.waiting import PATIENCE, in_loop
from zambezi.zeps import Broker, Policy
from zambezi.zeps.asyncio import Client
from zambezi.zeps.block import deliver
from zambezi.zeps.broker.engine import BrokerArguments
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.errors import BrokerError
from zambezi.zeps.journal import Store
from zambezi.zeps.messages import Publish


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


@in_loop
async def test_missing_messages_are_a_problem_from_the_start_on(tmp_path: Path) -> None:
    with Store(tmp_path, policy=Policy(segment=500)) as store:
        journal = store.open("a")
        for _ in range(10):
            journal.append(deliver([Publish("k", b"x" * 200).encode()[0]], journal.last + 1), 1.0)
        second = journal.segments[1]
    os.truncate(f"{second.path}.log", 0)
    async with Broker(tmp_path, scrub=0) as broker:
        (problem,) = broker.problems
        assert problem.startswith("stream a: ")
        assert f"sequences {second.first} to {second.last} are missing" in problem
    async with Broker(tmp_path) as broker:
        scrub = broker._service.scrub
        await asyncio.to_thread(scrub.step, 1 << 20, 1e9)
        (problem,) = broker.problems
        assert "zambezi journal verify" in problem
