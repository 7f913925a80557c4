"""zambezi.zeps.client.questions: a question is asked again after a lost connection, and its answer counts once."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.zeps.faces import QUICK
from tests.zmtp.waiting import PATIENCE, in_loop
from zambezi.zeps.asyncio import Client
from zambezi.zeps.errors import BrokerError
from zambezi.zeps.messages import (
    EXTENSIONS,
    Attach,
    AttachOk,
    Credit,
    Deliver,
    Detach,
    Invalid,
    Ping,
    PingOk,
    Subscribe,
    Zeps,
)
from zambezi.zmtp.asyncio import Router


class Answerer:
    """A broker for questions: a ROUTER that a test speaks through."""

    def __init__(self, extensions: str = "") -> None:
        self.router = Router(on_full="block", properties={EXTENSIONS: extensions.encode()})
        self.endpoint = self.router.bind("tcp://127.0.0.1:*")

    async def asked(self) -> tuple[bytes, Subscribe]:
        """Answer ATTACH, receive all of a question; return the identity of its connection, and its SUBSCRIBE."""
        who, attach = await self.recv()
        assert attach == Attach("$streams")
        await self.say(who, AttachOk())
        messages = [await self.recv() for _ in range(3)]
        assert {sender for sender, _ in messages} == {who}
        subscribe, credit, ping = (message for _, message in messages)
        assert isinstance(subscribe, Subscribe)
        assert isinstance(credit, Credit)
        assert ping == Ping()
        return who, subscribe

    async def recv(self) -> tuple[bytes, Zeps]:
        who, frame = await self.router.recv(PATIENCE)
        return who, Zeps.decode(frame)

    async def say(self, who: bytes, *messages: Zeps) -> None:
        for message in messages:
            await self.router.send([who, message.encode()[0]])

    def cut(self) -> None:
        for link in list(self.router._transport.links):
            link.abort("cut by the test")


def info(stream: str) -> Deliver:
    return Deliver(1, stream, json.dumps({"stream": stream}).encode())


@in_loop
async def test_the_answer_of_a_connection_that_broke_does_not_count() -> None:
    broker = Answerer()
    async with broker.router, Client.connect(broker.endpoint, backoff=QUICK) as client:
        asking = asyncio.create_task(client.streams(PATIENCE))
        who, _ = await broker.asked()
        message = info("old")
        await broker.say(who, message)
        # It gives credit for what it has received: so it has received it.
        assert await broker.recv() == (who, Credit(len(message.encode()[0])))
        broker.cut()
        again, subscribe = await broker.asked()
        assert again != who
        assert subscribe == Subscribe("", 0)
        await broker.say(again, info("new"), PingOk())
        assert [found.stream for found in await asking] == ["new"]


@in_loop
async def test_questions_and_orders_that_take_long_are_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("zambezi.zeps.client.connection.QUIET", 3600.0)
    broker = Answerer(extensions="admin")
    consequences: list[str] = []  # for the errors of timeouts
    async with broker.router, Client.connect(broker.endpoint) as client:
        for asking in (client.streams(PATIENCE), client.create("s", timeout=PATIENCE)):
            answer = asyncio.create_task(asking)
            message: Zeps | None = None
            while not isinstance(message, Attach):
                who, message = await broker.recv()
            await broker.say(who, AttachOk())
            while message != Ping():
                _, message = await broker.recv()
            [question] = client._questions
            assert question._quiet_timer is not None  # it goes on, although the client is attached
            question._warn()
            consequences.append(question.consequence)
            await broker.say(who, PingOk())
            await answer
            question._warn()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"waiting for the answer of the broker: this client is attached to '$streams' at {broker.endpoint}",
        "the broker still executes 'create', and goes on with it if this client leaves",
    ]
    assert consequences == ["", "the broker may still execute the order"]


@in_loop
async def test_a_broker_that_knows_no_orders_gets_none() -> None:
    """It could take them for messages, and confirm them."""
    broker = Answerer()
    async with broker.router, Client.connect(broker.endpoint) as client:
        with pytest.raises(BrokerError, match="does not administer streams for clients"):
            await client.delete("s", timeout=PATIENCE)
        asking = asyncio.create_task(client.streams(PATIENCE))
        who, _ = await broker.asked()  # the first message that it gets
        await broker.say(who, PingOk())
        assert await asking == []


@in_loop
async def test_a_question_detaches_when_it_is_answered() -> None:
    broker = Answerer()
    async with broker.router, Client.connect(broker.endpoint) as client:
        asking = asyncio.create_task(client.streams(PATIENCE))
        who, _ = await broker.asked()
        await broker.say(who, PingOk())
        assert await asking == []
        assert await broker.recv() == (who, Detach())


@in_loop
async def test_a_question_that_the_broker_refuses_is_an_error() -> None:
    broker = Answerer()
    async with broker.router, Client.connect(broker.endpoint) as client:
        asking = asyncio.create_task(client.streams(PATIENCE))
        who, _ = await broker.recv()
        await broker.say(who, Invalid("no such stream"))
        with pytest.raises(BrokerError, match=r"does not answer about '\$streams': no such stream"):
            await asking
