"""The connection of a mirror to the broker of its target."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zeps.faces import QUICK, TCP
from tests.zeps.scripted import Scripted, cut
from tests.zmtp.waiting import eventually, in_loop
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.client.batch import MessageBatch
from zambezi.zeps.client.connection import ClientOptions
from zambezi.zeps.errors import BrokerError, Fenced, ZepsError
from zambezi.zeps.messages import Deliver
from zambezi.zeps.mirror.target import Target, digest_of
from zambezi.zeps.mirror.target_connection import TargetConnection
from zambezi.zmtp.async_waiter import Waiter

ONE = digest_of("one")


def connection_to(endpoint: str) -> TargetConnection:
    reactor = Waiter().reactor
    connection = TargetConnection(reactor, ClientOptions(backoff=QUICK), lambda: endpoint, "t", Target(b"m" * 16))
    connection.start()
    return connection


def batch(*sequences: int) -> MessageBatch:
    return MessageBatch("s", [Deliver(number, "k", b"body").encode()[0] for number in sequences])


@in_loop
async def test_a_lost_connection_begins_a_new_life(tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker:
        connection = connection_to(broker.bind(TCP))
        await eventually(lambda: connection.resumed() is True)
        assert connection.begin(1, ONE, 0, None)
        assert connection.publish(1, batch(1, 2, 3))
        await eventually(lambda: connection.settled(1) is True)
        assert connection.engine.confirmed == 3
        cut(broker)
        await eventually(lambda: connection.life == 2 and connection.alive)
        assert connection.standing == (ONE, 3)
        assert connection.publish(1, batch(4)) is False
        assert not connection.begin(1, ONE, 3, None)
        connection.close(0)


@in_loop
async def test_the_point_of_the_beginning_is_remembered_without_messages(tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker:
        connection = connection_to(broker.bind(TCP))
        await eventually(lambda: connection.resumed() is True)
        assert connection.begin(1, ONE, 41, None)
        await eventually(lambda: not connection.engine._pings)
        connection.close(0)
    async with BrokerService(tmp_path) as broker:
        connection = connection_to(broker.bind(TCP))
        await eventually(lambda: connection.resumed() is True)
        assert connection.standing == (ONE, 41)
        connection.close(0)


@in_loop
async def test_a_broker_that_does_not_count_is_an_error() -> None:
    async with Scripted() as scripted:
        connection = connection_to(scripted.endpoint)
        await scripted.attached()
        await eventually(lambda: connection.failure is not None)
        with pytest.raises(BrokerError, match="does not count"):
            connection.resumed()
        connection.close(0)


@in_loop
async def test_a_second_mirror_fences_the_first(tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker:
        endpoint = broker.bind(TCP)
        first = connection_to(endpoint)
        await eventually(lambda: first.resumed() is True)
        second = connection_to(endpoint)
        await eventually(lambda: second.resumed() is True)
        await eventually(lambda: first.failure is not None)
        with pytest.raises(Fenced, match="another mirror"):
            first.publish(1, batch(1))
        first.close(0)
        second.close(0)


@in_loop
async def test_a_refused_target_is_an_error(tmp_path: Path) -> None:
    async with BrokerService(tmp_path, allow=lambda _user, action, _stream: action != "publish") as broker:
        connection = connection_to(broker.bind(TCP))
        await eventually(lambda: connection.failure is not None)
        with pytest.raises(ZepsError, match="may not publish"):
            connection.check()
        assert "failed" in connection.state
        connection.close(0)
