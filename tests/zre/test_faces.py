"""zambezi.zre.asyncio and zambezi.zre.sync: what holds for nodes of both faces."""

import asyncio
from dataclasses import dataclass

import pytest

from tests.twins import awaited
from tests.zmtp.waiting import eventually, in_loop
from zambezi.zmtp.errors import TimedOut
from zambezi.zmtp.options import Bound
from zambezi.zre import Enter, Exit, MemoryNetwork, NodeStopped, Shout, Whisper, sync
from zambezi.zre import asyncio as aio
from zambezi.zre.log import Record, What


@dataclass(frozen=True)
class Face:
    Node: type[aio.Node]
    LogService: type[aio.LogService]


FACES = {
    "asyncio": Face(aio.Node, aio.LogService),
    "sync": Face(awaited(aio.Node, sync.Node), awaited(aio.LogService, sync.LogService)),
}


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> Face:
    return FACES[request.param]


@in_loop
async def test_they_meet_talk_and_part(face: Face) -> None:
    network = MemoryNetwork()
    async with face.Node("ann", network=network, groups=["CHAT"]) as ann:
        bob = face.Node("bob", network=network)
        await bob.start()
        entered = await ann.recv(60)
        assert isinstance(entered, Enter)
        assert entered.name == "bob"
        await eventually(lambda: bob.peers and "CHAT" in bob.peers[0].groups)
        await ann.whisper(bob.uuid, [b"one", b"two"])
        assert await bob.shout("CHAT", b"hello") == 1
        heard = await ann.recv(60)
        assert isinstance(heard, Shout)
        assert heard.data == b"hello"
        while not isinstance(heard := await bob.recv(60), Whisper):
            pass  # Enter, Join
        assert heard.content == (b"one", b"two")
        await bob.stop()
        gone = await ann.recv(60)
        assert isinstance(gone, Exit)
        assert gone.reason == "it left"
        with pytest.raises(NodeStopped):
            await bob.recv()
        assert ann.peers == []


@in_loop
async def test_messages_wait_for_room_as_long_as_the_caller_says(face: Face) -> None:
    """The program of bob reads nothing at first."""
    bound = Bound(1000, 100_000)
    options = {"interface": "lo", "beacons": False, "bound": bound}
    async with face.Node("bob", **options, groups=["CHAT"]) as bob:  # type: ignore[arg-type]
        del options["beacons"]
        async with face.Node("ann", **options, seeds=[bob.endpoint]) as ann:  # type: ignore[arg-type]
            await eventually(lambda: ann.peers and ann.peers[0].groups)
            sent = 0

            async def send_many() -> None:
                nonlocal sent
                while await ann.whisper(bob.uuid, bytes(100_000), timeout=0.2):
                    sent += 1

            with pytest.raises(TimedOut, match=r"the queue to peer .* had no room within 0.2 s"):
                await send_many()
            with pytest.raises(TimedOut, match="the queues to bob had no room at once"):
                await ann.shout("CHAT", b"news", timeout=0)
            shout = asyncio.create_task(ann.shout("CHAT", b"later"))
            while not isinstance(event := await bob.recv(60), Shout):
                sent -= isinstance(event, Whisper)
            assert event.data == b"later"
            assert sent == 0
            assert await shout == 1


@in_loop
async def test_recv_is_bounded_in_time_and_ends_when_the_node_stops(face: Face) -> None:
    node = face.Node("ann", network=MemoryNetwork())
    await node.start()
    with pytest.raises(TimedOut, match="no event"):
        await node.recv(0.001)
    waiting = asyncio.create_task(node.recv())
    reading = asyncio.create_task(_events(node))
    await asyncio.sleep(0)
    await node.stop()
    with pytest.raises(NodeStopped):
        await waiting
    assert await reading == await _events(node) == []


async def _events(node: aio.Node) -> list[object]:
    return [event async for event in node]


@in_loop
async def test_a_second_start_does_nothing(face: Face) -> None:
    async with face.Node("ann", network=MemoryNetwork()) as node:
        endpoint = node.endpoint
        await node.start()
        assert node.endpoint == endpoint
        await node.join("A")
        assert node.groups == {"A"}


@in_loop
async def test_a_stopped_node_cannot_start_again_nor_do_anything_else(face: Face) -> None:
    node = face.Node("ann", network=MemoryNetwork())
    await node.start()
    await node.stop()
    await node.stop()
    with pytest.raises(NodeStopped, match="cannot start again; make a new one"):
        await node.start()
    for call in (node.join("A"), node.leave("A"), node.shout("A", b"x"), node.announce("X-A", "tcp://10.0.0.1:1")):
        with pytest.raises(NodeStopped, match="the node is stopped"):
            await call


@in_loop
async def test_several_can_wait_for_events(face: Face) -> None:
    network = MemoryNetwork()
    async with face.Node("ann", network=network) as ann:
        waiting = [asyncio.create_task(ann.recv(60)) for _ in range(2)]
        await asyncio.sleep(0)
        async with face.Node("bob", network=network), face.Node("cid", network=network):
            assert {event.name for event in await asyncio.gather(*waiting)} == {"bob", "cid"}


@in_loop
async def test_logs_are_collected_also_those_of_the_moment_when_the_service_is_found(face: Face) -> None:
    network = MemoryNetwork()
    async with face.Node("collector", network=network) as collector, face.LogService(collector) as service:
        async with face.Node("ann", network=network, log=True) as ann:
            await eventually(lambda: ann.peers)
            await ann.join("é" * 100)
            events = [(await service.recv(60)).log for _ in range(2)]
            assert [log.event for log in events] == [What.ENTER, What.JOIN]
            assert events[1].data == "é" * 100
        assert service.discarded == 0
        await service.close()
        with pytest.raises(NodeStopped):
            await service.recv()


@in_loop
async def test_recv_of_a_log_service_is_bounded_in_time_and_ends_when_it_closes(face: Face) -> None:
    async with face.Node("collector", network=MemoryNetwork()) as collector, face.LogService(collector) as service:
        with pytest.raises(TimedOut, match="no log came within"):
            await service.recv(0.001)
        waiting = asyncio.create_task(service.recv())
        reading = asyncio.create_task(_records(service))
        await asyncio.sleep(0)
        await service.close()
        with pytest.raises(NodeStopped, match="log service is closed"):
            await waiting
        assert await reading == []


async def _records(service: aio.LogService) -> list[Record]:
    return [record async for record in service]
