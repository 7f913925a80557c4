"""`Stream.request` and `Stream.serve`, by both faces."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.zeps.broker_process import BrokerProcess
from tests.zeps.faces import QUICK, TCP, Connect, both_faces, connected
from tests.zeps.scripted import Scripted, cut
from tests.zeps.serving import serving as broker_in_thread
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps import sync
from zambezi.zeps.asyncio import Client, Stream
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.errors import BrokerError, ClientClosed, NobodyServes, RequestFailed, TimedOut, ZepsError
from zambezi.zeps.requests.asyncio import Serving


async def square(serving: Serving) -> None:
    """Answer requests with the square of a number; fail if it is not one."""
    async for request in serving:
        if request.body.isdigit():
            await request.reply(b"%d" % int(request.body) ** 2)
        else:
            await request.fail(f"{request.body.decode()} is not a number")


@asynccontextmanager
async def squares(stream: Stream, pattern: str = "") -> AsyncIterator[Serving]:
    """A server of squares."""
    async with stream.serve(pattern) as serving:
        task = asyncio.ensure_future(square(serving))
        try:
            yield serving
        finally:
            if task.done():
                task.result()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@both_faces
@in_loop
async def test_a_request_gets_its_reply(connect: Connect, tmp_path: Path) -> None:
    async with connected(tmp_path, connect=connect) as (broker, client), Client.connect(broker.bind(TCP)) as other:
        await other.create("numbers")
        async with squares(other.stream("numbers")) as serving:
            numbers = client.stream("numbers")
            assert await numbers.request("square", b"7", timeout=PATIENCE) == b"49"
            assert await numbers.request("square", bytearray(b"12"), timeout=None) == b"144"
            with pytest.raises(RequestFailed, match="x is not a number"):
                await numbers.request("square", b"x", timeout=PATIENCE)
            counters = serving.counters
            assert (counters.received, counters.replied, counters.failed) == (3, 2, 1)


def test_the_blocking_face_serves(tmp_path: Path) -> None:
    with broker_in_thread(tmp_path) as (_, endpoint), sync.Client.connect(endpoint) as client:
        client.create("numbers")
        stream = client.stream("numbers")

        def serve() -> None:
            for request in serving:
                request.reply(request.body[::-1])

        with stream.serve("turn") as serving:
            thread = threading.Thread(target=serve)
            thread.start()
            assert stream.request("turn", b"abc", timeout=PATIENCE) == b"cba"
            serving.close()
            thread.join(PATIENCE)
            assert not thread.is_alive()


@in_loop
async def test_without_a_server_the_client_knows_at_once(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client):
        numbers = client.stream("numbers")
        with pytest.raises(NobodyServes, match="no server of 'numbers'"):
            await numbers.request("square", b"7", timeout=PATIENCE)
        assert await client.streams() == []  # nothing was created
        await client.create("numbers")
        async with squares(numbers, "exact:square"):
            with pytest.raises(NobodyServes, match="'cube'"):
                await numbers.request("cube", b"7", timeout=PATIENCE)
            assert await numbers.request("square", b"7", timeout=PATIENCE) == b"49"
        with pytest.raises(NobodyServes):
            await numbers.request("square", b"7", timeout=PATIENCE)


async def connect_requester(stream: Stream, serving: Serving) -> None:
    """Let a client have its connection: its next request is sent at once."""
    task = asyncio.ensure_future(stream.request("k", b"", timeout=PATIENCE))
    await (await serving.recv(PATIENCE)).reply(b"")
    await task


@in_loop
async def test_a_request_that_is_not_answered_times_out_and_its_late_reply_is_dropped(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, client):
        await client.create("s")
        async with client.stream("s").serve() as serving:
            await connect_requester(client.stream("s"), serving)
            with pytest.raises(TimedOut, match=r"no reply to 'k' came within 0\.05 s"):
                await client.stream("s").request("k", b"slow", timeout=0.05)
            task = asyncio.ensure_future(client.stream("s").request("k", b"quick", timeout=PATIENCE))
            while (request := await serving.recv(PATIENCE)).body != b"quick":
                await request.reply(b"late")
            await request.reply(b"in time")
            assert await task == b"in time"
            with pytest.raises(ZepsError, match="was answered already"):
                await request.reply(b"twice")
            requester = client.stream("s")._requester
            assert requester is not None
            assert requester.connection.waiting == 0
        assert broker.counters.requests == 3


@in_loop
async def test_a_request_whose_client_has_given_up_is_passed_over(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client):
        await client.create("s")
        async with client.stream("s").serve() as serving:
            await connect_requester(client.stream("s"), serving)
            with pytest.raises(TimedOut):
                await client.stream("s").request("k", b"stale", timeout=0.01)
            serving._connection._offset += 10_000_000  # ten seconds have passed, by the clock of the broker
            task = asyncio.ensure_future(client.stream("s").request("k", b"fresh", timeout=100.0))
            request = await serving.recv(PATIENCE)
            assert request.body == b"fresh"
            assert serving.counters.expired == 1
            await client.stream("s").publish("k", b"not a request")
            await client.stream("s").flush(PATIENCE)
            await request.reply(b"")
            assert await task == b""
            other = asyncio.ensure_future(client.stream("s").request("k", b"last", timeout=100.0))
            await (await serving.recv(PATIENCE)).reply(b"done")
            assert await other == b"done"
            assert serving.counters.strange == 1


@in_loop
async def test_a_thousand_requests_at_once_and_a_hundred_clients(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, server):
        await server.create("numbers")
        endpoint = broker.bind(TCP)
        async with squares(server.stream("numbers")):
            clients = [Client.connect(endpoint) for _ in range(100)]
            asked = [
                client.stream("numbers").request("square", b"%d" % (100 * index + number), timeout=PATIENCE)
                for index, client in enumerate(clients)
                for number in range(10)
            ]
            wanted = [b"%d" % (100 * index + number) ** 2 for index in range(100) for number in range(10)]
            assert await asyncio.gather(*asked) == wanted
            for client in clients:
                await client.close()
        assert not broker.engine.exchange.inboxes


@in_loop
async def test_a_lost_connection_fails_the_requests_that_were_sent(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, client):
        await client.create("s")
        async with client.stream("s").serve() as serving:
            task = asyncio.ensure_future(client.stream("s").request("k", b"?", timeout=PATIENCE))
            await serving.recv(PATIENCE)
            cut(broker)
            with pytest.raises(BrokerError, match="the connection was lost before the reply"):
                await task
            again = asyncio.ensure_future(ask_again(client.stream("s")))
            # The first request comes again: it was not answered. Its client is gone.
            bodies = []
            while not again.done():
                request = await serving.recv(PATIENCE)
                bodies.append(request.body)
                await request.reply(b"!")
                if request.body == b"again":
                    assert await again == b"!"
            assert bodies == [b"?", b"again"]


async def ask_again(stream: Stream) -> bytes:
    """Ask until a server is there again, as a program does whose broker was away."""
    while True:
        try:
            return await stream.request("k", b"again", timeout=PATIENCE)
        except (NobodyServes, BrokerError):
            await asyncio.sleep(0)


@in_loop
async def test_replies_wait_while_the_broker_is_away(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, client), Client.connect(broker.bind(TCP), backoff=QUICK) as other:
        await client.create("s")
        async with other.stream("s").serve() as serving:
            task = asyncio.ensure_future(client.stream("s").request("k", b"?", timeout=PATIENCE))
            request = await serving.recv(PATIENCE)
            cut(broker, lambda session: session.stream_name == "$replies/s")
            await eventually(lambda: not serving._connection.granted)
            await request.reply(b"!")
            assert await task == b"!"


def test_a_broker_that_is_killed_keeps_nothing_of_replies(tmp_path: Path) -> None:
    async def story(broker: BrokerProcess) -> None:
        async with Client.connect(broker.endpoint, backoff=QUICK) as client:
            await client.create("numbers")
            stream = client.stream("numbers")
            async with squares(stream):
                assert await stream.request("square", b"7", timeout=PATIENCE) == b"49"
                broker.kill()
                await asyncio.to_thread(broker.start)
                assert await ask_until(stream) == b"64"
                assert [info.stream for info in await client.streams()] == ["numbers"]

    with BrokerProcess(tmp_path, sync="never") as broker:
        asyncio.run(story(broker))
    assert [path.name for path in tmp_path.iterdir() if path.is_dir() and not path.name.startswith(".")] == ["numbers"]


async def ask_until(stream: Stream) -> bytes:
    while True:
        try:
            return await stream.request("square", b"8", timeout=PATIENCE)
        except (NobodyServes, BrokerError):
            await asyncio.sleep(0.01)


@in_loop
async def test_rules_are_told(tmp_path: Path) -> None:
    denied = "publish"
    async with (
        BrokerService(tmp_path, allow=lambda _user, action, _stream: action != denied) as broker,
        Client.connect(broker.bind(TCP)) as client,
    ):
        with pytest.raises(RequestFailed, match="may not publish to the stream s"):
            await client.stream("s").request("k", b"", timeout=PATIENCE)
        denied = "serve"
        with pytest.raises(BrokerError, match="may not serve the stream s"):
            await client.stream("s").serve().recv(PATIENCE)


@in_loop
async def test_a_broker_without_the_extension_is_an_error() -> None:
    async with Scripted() as scripted, Client.connect(scripted.endpoint) as client:
        task = asyncio.ensure_future(client.stream("s").request("k", b"", timeout=PATIENCE))
        await scripted.attached()
        with pytest.raises(BrokerError, match="does not know requests"):
            await task


@in_loop
async def test_closing_ends_requests_and_servers(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client):
        await client.create("s")
        serving = client.stream("s").serve()
        await serving.ready(PATIENCE)
        task = asyncio.ensure_future(client.stream("s").request("k", b"", timeout=PATIENCE))
        request = await serving.recv(PATIENCE)
        await client.close()
        with pytest.raises(ClientClosed):
            await task
        with pytest.raises(ClientClosed):
            await request.reply(b"")
        with pytest.raises(ClientClosed):
            await client.stream("s").request("k")


@in_loop
async def test_wrong_arguments_are_errors(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client):
        with pytest.raises(ZepsError, match="reserved"):
            await client.stream("$s").request("k")
        with pytest.raises(ZepsError, match="reserved"):
            client.stream("$s").serve()
        with pytest.raises(ZepsError, match="a body must be bytes"):
            await client.stream("s").request("k", "text")  # type: ignore[arg-type]
        with pytest.raises(ZepsError, match="cannot be sent"):
            await client.stream("s").request("k" * 256)
        with pytest.raises(ZepsError, match="exceeds the limit"):
            await client.stream("s").request("k", bytes(17 << 20))


@in_loop
async def test_several_servers_share_the_requests(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, client), Client.connect(broker.bind(TCP)) as other:
        numbers = client.stream("numbers")
        async with squares(numbers) as one, squares(other.stream("numbers")) as two:
            asked = [numbers.request(f"k{number}", b"%d" % number, timeout=PATIENCE) for number in range(100)]
            assert await asyncio.gather(*asked) == [b"%d" % number**2 for number in range(100)]
            assert one.counters.received + two.counters.received == 100
            assert min(one.counters.received, two.counters.received) > 10


@in_loop
async def test_a_request_that_a_server_does_not_answer_goes_to_another_one(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, client):
        numbers = client.stream("numbers")
        lazy = Client.connect(broker.bind(TCP))
        serving = lazy.stream("numbers").serve()
        await serving.ready(PATIENCE)
        task = asyncio.ensure_future(numbers.request("k", b"9", timeout=PATIENCE))
        assert (await serving.recv(PATIENCE)).body == b"9"
        async with squares(numbers):
            await lazy.close()
            assert await task == b"81"


@in_loop
async def test_requests_that_were_answered_do_not_come_again(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client):
        numbers = client.stream("numbers")
        for _ in range(2):
            async with squares(numbers) as serving:
                for number in range(5):
                    assert await numbers.request("k", b"%d" % number, timeout=PATIENCE) == b"%d" % number**2
                assert serving.counters.received == 5
