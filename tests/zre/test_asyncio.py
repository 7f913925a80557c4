"""zambezi.zre.asyncio: nodes in an event loop."""

import asyncio

import pytest

from tests.zmtp.waiting import eventually, in_loop
from zambezi.zmtp.errors import TimedOut
from zambezi.zre import Enter, Exit, MemoryNetwork, NodeStopped, Whisper
from zambezi.zre.asyncio import LogService, Node
from zambezi.zre.log import Record, What


@in_loop
async def test_they_meet_talk_and_part() -> None:
    network = MemoryNetwork()
    async with Node("ann", network=network) as ann:
        bob = Node("bob", network=network)
        await bob.start()
        entered = await ann.recv(20)
        assert isinstance(entered, Enter)
        await ann.whisper(bob.uuid, [b"one", b"two"])
        assert isinstance(await bob.recv(20), Enter)
        heard = await bob.recv(20)
        assert isinstance(heard, Whisper)
        assert heard.content == (b"one", b"two")
        await bob.stop()
        gone = await ann.recv(20)
        assert isinstance(gone, Exit)
        assert gone.reason == "it left"
        with pytest.raises(NodeStopped):
            await bob.recv()
        assert ann.peers == []


@in_loop
async def test_recv_is_bounded_in_time_and_ends_when_the_node_stops() -> None:
    node = Node("ann", network=MemoryNetwork())
    await node.start()
    with pytest.raises(TimedOut, match="no event"):
        await node.recv(0.001)
    waiting = asyncio.create_task(node.recv())
    await asyncio.sleep(0)
    await node.stop()
    with pytest.raises(NodeStopped):
        await waiting
    assert [event async for event in node] == []


@in_loop
async def test_logs_are_collected_also_those_of_the_moment_when_the_service_is_found() -> None:
    network = MemoryNetwork()
    async with Node("collector", network=network) as collector, LogService(collector) as service:
        async with Node("ann", network=network, log=True) as ann:
            await eventually(lambda: ann.peers)
            await ann.join("é" * 100)
            events = [(await service.recv()).log for _ in range(2)]
            assert [log.event for log in events] == [What.ENTER, What.JOIN]
            assert events[1].data == "é" * 100
        assert service.discarded == 0
        await service.close()
        with pytest.raises(NodeStopped):
            await service.recv()


@in_loop
async def test_several_may_wait_and_who_gives_up_has_taken_nothing() -> None:
    network = MemoryNetwork()
    async with Node("ann", network=network) as ann:
        waiting = [asyncio.create_task(ann.recv()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        async with Node("bob", network=network), Node("cid", network=network):
            entered = await asyncio.gather(*waiting[1:])
            assert {event.name for event in entered} == {"bob", "cid"}
        assert waiting[0].cancelled()
        assert [type(await ann.recv(20)) for _ in range(2)] == [Exit, Exit]


@in_loop
async def test_a_log_service_is_waited_for_with_a_bound_and_ends_those_who_wait() -> None:
    async with Node("collector", network=MemoryNetwork()) as collector, LogService(collector) as service:
        with pytest.raises(TimedOut, match="no log came within"):
            await service.recv(0.001)
        waiting = asyncio.create_task(service.recv())
        reading = asyncio.create_task(_all(service))
        await asyncio.sleep(0)
        await service.close()
        with pytest.raises(NodeStopped, match="log service is closed"):
            await waiting
        assert await reading == []


async def _all(service: LogService) -> list[Record]:
    return [record async for record in service]
