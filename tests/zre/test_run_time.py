"""Changes of a node that runs, on both faces: its name, headers, times, seeds, and its descriptor for polling."""

import asyncio
import select

import pytest

import zambezi.zre.asyncio as aio
from zambezi.zmtp.errors import EndpointError, TimedOut
from zambezi.zre import Enter, Exit, Leader, MemoryNetwork, Node, NodeStopped, PeerInfo, Whisper, ZreError

PATIENCE = 60


def wait_for(node: Node, kind: type, **values: object) -> object:
    """Return the next event of a kind with these values."""
    while True:
        event = node.recv(timeout=PATIENCE)
        if isinstance(event, kind) and all(getattr(event, name) == value for name, value in values.items()):
            return event


def test_peers_learn_a_new_name_and_new_headers() -> None:
    network = MemoryNetwork()
    with Node("ann", network=network, headers={"X-OLD": "1"}) as ann, Node("bob", network=network) as bob:
        wait_for(bob, Enter, name="ann", headers={"X-OLD": "1"})
        wait_for(ann, Enter, name="bob")
        ann.set_name("anna")
        wait_for(bob, Exit, name="ann")
        wait_for(bob, Enter, name="anna")
        ann.set_header("X-OLD", None)
        ann.set_header("X-NEW", "2")
        wait_for(bob, Enter, headers={"X-NEW": "2"})
        assert (ann.name, ann.headers) == ("anna", {"X-NEW": "2"})
        with pytest.raises(ZreError, match="empty"):
            ann.set_name("")


def test_peers_can_be_asked_for() -> None:
    network = MemoryNetwork()
    with (
        Node("ann", network=network) as ann,
        Node("bob", network=network, groups=["A", "B"], headers={"X": "1"}) as bob,
    ):
        wait_for(ann, Enter, name="bob")
        assert ann.peer(bob.uuid) == PeerInfo(bob.uuid, "bob", bob.endpoint, {"X": "1"}, frozenset({"A", "B"}))
        assert ann.peer(ann.uuid) is None
        assert ann.peers_in("A") == ann.peers_in("B") == ann.peers
        assert ann.peers_in("C") == []
        assert ann.peer_groups == {"A", "B"}
        assert "node ann" in ann.describe()
        ann.whisper(bob.uuid, "text")
        event = wait_for(bob, Whisper)
        assert isinstance(event, Whisper)
        assert event.data == b"text"


def test_seeds_and_peers_can_be_added() -> None:
    with (
        Node("ann", interface="lo", beacons=False) as ann,
        Node("bob", interface="lo", beacons=False) as bob,
        Node("cid", interface="lo", beacons=False) as cid,
    ):
        ann.add_seed(bob.endpoint)
        wait_for(ann, Enter, name="bob")
        cid.require_peer(bob.uuid, bob.endpoint)
        wait_for(cid, Enter, name="bob")
        wait_for(ann, Enter, name="cid")  # bob tells of it
        with pytest.raises(EndpointError, match="no endpoint"):
            ann.add_seed("nonsense")


def test_times_can_be_changed() -> None:
    with Node("ann", network=MemoryNetwork()) as ann:
        ann.set_timeouts(evasive=2.0)
        with pytest.raises(ZreError, match="less than expired"):
            ann.set_timeouts(expired=2.0)
        assert "interval 1 s, evasive 2 s, expired 30 s" in ann.describe()
    with pytest.raises(NodeStopped):
        ann.set_timeouts(evasive=3.0)


def test_a_descriptor_is_readable_while_events_wait() -> None:
    network = MemoryNetwork()
    with Node("ann", network=network) as ann:
        assert not select.select([ann], [], [], 0)[0]
        with Node("bob", network=network):
            assert select.select([ann], [], [], PATIENCE)[0]
            wait_for(ann, Enter)
        wait_for(ann, Exit)
        with pytest.raises(TimedOut):
            ann.recv(timeout=0)
        assert not select.select([ann], [], [], 0)[0]
    assert select.select([ann], [], [], 0)[0]  # it is stopped
    with pytest.raises(NodeStopped):
        ann.recv()


def test_the_same_on_asyncio() -> None:
    asyncio.run(change_at_run_time())


async def change_at_run_time() -> None:
    network = MemoryNetwork()
    async with aio.Node("ann", network=network, contest=["G"]) as ann, aio.Node("bob", network=network) as bob:
        await bob.join("G")
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(bob.fileno(), ready.set)
        async with asyncio.timeout(PATIENCE):
            await ready.wait()
            async for event in bob:
                if isinstance(event, Leader):
                    break
        loop.remove_reader(bob.fileno())
        assert bob.leader("G") == ann.uuid
        await ann.set_name("anna")
        async with asyncio.timeout(PATIENCE):
            async for event in bob:
                if isinstance(event, Enter) and event.name == "anna":
                    break
        await bob.set_timeouts(interval=0.5)
        await bob.forget(ann.uuid)
        bob.set_trace(True)
        assert "interval 0.5 s" in bob.describe()
