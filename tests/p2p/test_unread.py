"""zambezi.p2p.unread: the messages of peers that have left, with `keep_unread` and without, and their bound."""

import asyncio
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faces import P2p
from tests.zmtp.waiting import PATIENCE, in_loop, next_of
from zambezi.p2p import NoSuchPeer, PeerDisconnected
from zambezi.p2p.pattern import PeerPattern
from zambezi.p2p.unread import Unread
from zambezi.zmtp.errors import TimedOut
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.testing import Simulation

_names = itertools.count()
TRANSPORTS = ["tcp", "ipc", "inproc"]


def where(transport: str, directory: Path) -> str:
    return {
        "tcp": "tcp://127.0.0.1:*",
        "ipc": f"ipc://{directory}/s",
        "inproc": f"inproc://unread-{next(_names)}",
    }[transport]


def _batch(*messages: bytes) -> Batch:
    return Batch(list(messages), None, sum(map(len, messages)))


def peer() -> Peer:
    return Peer(PeerPattern(Simulation()).transport, "inproc://nowhere")


# The bound


def test_the_longest_queue_goes_first_and_the_oldest_of_equal_queues() -> None:
    unread = Unread(Bound(messages=100, octets=100))
    short, long, later = peer(), peer(), peer()
    assert unread.keep(short, 1, 4, 4) == []
    assert unread.keep(long, 2, 40, 40) == []
    assert unread.keep(later, 3, 40, 40) == []
    assert unread.keep(big := peer(), 4, 1000, 0) == [big]  # too many messages
    assert [number in unread for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert unread.keep(big := peer(), 5, 1, 1000) == [big]  # too many bytes
    assert [number in unread for number in (1, 2, 3, 5)] == [True, True, True, False]
    assert unread.keep(peer(), 6, 17, 17) == [long]  # of two queues that are about as long, the older one


def test_one_queue_is_always_kept() -> None:
    unread = Unread(Bound(1, 1))
    ann, bob = peer(), peer()
    assert unread.keep(ann, 1, 1000, 1000) == []
    assert unread.keep(bob, 2, 1, 1) == [ann]
    assert (len(unread), 1 in unread, 2 in unread) == (1, False, True)


def test_a_queue_that_was_received_makes_room() -> None:
    unread = Unread(Bound(10, 1000))
    ann, bob = peer(), peer()
    unread.keep(ann, 1, 10, 10)
    unread.forget(ann)
    unread.forget(ann)
    assert unread.keep(bob, 2, 10, 10) == []
    assert (len(unread), 1 in unread, 2 in unread) == (1, False, True)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 500), st.booleans()), max_size=60))
def test_the_kept_queues_never_exceed_the_bound(steps: list[tuple[int, int, bool]]) -> None:
    unread = Unread(Bound(100, 1000))
    kept: dict[Peer, tuple[int, int]] = {}
    for number, (messages, octets, received) in enumerate(steps, 1):
        newcomer = peer()
        kept[newcomer] = (messages, octets)
        for gone in unread.keep(newcomer, number, messages, octets):
            del kept[gone]
        assert len(unread) == len(kept)
        assert sum(size for size, _ in kept.values()) <= 100 or len(kept) == 1
        assert sum(size for _, size in kept.values()) <= 1000 or len(kept) == 1
        if received and kept:
            first = next(iter(kept))
            unread.forget(first)
            del kept[first]


# The rules, on a simulated clock


def hub_of(sim: Simulation, endpoint: str, keep: Bound | None, receive: Bound | None = None) -> PeerPattern:
    hub = PeerPattern(sim, Options(receive_bound=receive or Bound()), keep_unread=keep)
    hub.bind(endpoint)
    return hub


def visit(sim: Simulation, endpoint: str, hub: PeerPattern, count: int, size: int = 10) -> int:
    """Connect a peer, let it send and leave; return the routing id that the hub gave it."""
    known = set(hub.peers)
    visitor = PeerPattern(sim)
    to_hub = visitor.connect(endpoint)
    sim.until(lambda: set(hub.peers) - known)
    (routing_id,) = set(hub.peers) - known
    for number in range(count):
        assert visitor.try_send(to_hub, b"%0*d" % (size, number))
    sim.run()
    visitor.close(0)
    sim.until(lambda: routing_id not in hub.peers)
    return routing_id


def received(hub: PeerPattern, sim: Simulation) -> list[tuple[int, int]]:
    messages = []
    while (message := hub.try_recv()) is not None:
        messages.append((message[0], int(message[1])))
        sim.run()
    return messages


@pytest.fixture
def name() -> str:
    return f"inproc://unread-{next(_names)}"


def test_without_the_option_the_messages_go_with_their_queue(sim: Simulation, name: str) -> None:
    hub = hub_of(sim, name, keep=None)
    visit(sim, name, hub, 10)
    assert received(hub, sim) == []
    assert hub.transport.counters.unread == 10


def test_with_the_option_the_messages_are_received_in_order_and_the_routing_id_is_not_valid(
    sim: Simulation, name: str
) -> None:
    hub = hub_of(sim, name, keep=Bound())
    told: list[object] = []
    hub.on_event = told.append
    gone = visit(sim, name, hub, 10)
    assert isinstance(told[-1], PeerDisconnected)
    with pytest.raises(NoSuchPeer):
        hub.try_send(gone, b"too late")
    assert received(hub, sim) == [(gone, number) for number in range(10)]
    assert (hub.transport.counters.unread, hub._ids) == (0, {})
    assert hub._unread is not None
    assert len(hub._unread) == 0


def test_a_full_queue_is_kept_with_the_batches_behind_it(sim: Simulation, name: str) -> None:
    hub = hub_of(sim, name, keep=Bound(), receive=Bound(messages=4))
    visitor = PeerPattern(sim)
    to_hub = visitor.connect(name)
    sim.until(lambda: hub.peers)
    (gone,) = hub.peers
    for number in range(4):  # each is a batch; the fourth fills the queue
        visitor.try_send(to_hub, b"%d" % number)
        sim.run()
    hub.peers[gone]._held = [_batch(b"4", b"5"), _batch(b"6")]
    visitor.close(0)
    sim.until(lambda: gone not in hub.peers)
    assert received(hub, sim) == [(gone, number) for number in range(7)]


def test_a_peer_that_we_disconnect_leaves_nothing(sim: Simulation, name: str) -> None:
    hub = hub_of(sim, name, keep=Bound())
    visitor = PeerPattern(sim)
    to_hub = visitor.connect(name)
    sim.until(lambda: hub.peers)
    visitor.try_send(to_hub, b"x")
    sim.run()
    hub.disconnect(next(iter(hub.peers)), 0)
    sim.run()
    assert received(hub, sim) == []
    assert hub.transport.counters.unread == 1


def test_no_new_peer_gets_a_routing_id_whose_messages_still_wait(sim: Simulation, name: str) -> None:
    hub = hub_of(sim, name, keep=Bound())
    gone = visit(sim, name, hub, 1)
    hub._last_id = gone - 1  # as if all other ids had been used since
    newcomer = visit(sim, name, hub, 1)
    assert newcomer == gone + 1
    assert sorted(received(hub, sim)) == [(gone, 0), (newcomer, 0)]


def test_a_thousand_peers_that_fill_their_queues_and_leave_do_not_fill_the_memory(sim: Simulation, name: str) -> None:
    hub = hub_of(sim, name, keep=Bound(messages=200, octets=100_000), receive=Bound(messages=100))
    polite = visit(sim, name, hub, 3)
    for _ in range(1000):
        visit(sim, name, hub, 100, size=300)
        assert hub._inbox.octets <= 100_000
    assert hub._unread is not None
    assert len(hub._ids) == len(hub._unread) <= 4
    got = received(hub, sim)
    assert [number for routing_id, number in got if routing_id == polite] == [0, 1, 2]  # nobody displaced them
    assert len(got) + hub.transport.counters.unread == 1000 * 100 + 3
    assert hub._ids == {}


# Both faces


@pytest.mark.parametrize("count", [10, 1000])
@pytest.mark.parametrize("transport", TRANSPORTS)
@in_loop
async def test_all_messages_of_a_sender_that_closes_at_once_are_received(
    p2p: P2p, transport: str, count: int, tmp_path: Path
) -> None:
    async with p2p.PeerSocket(keep_unread=Bound()) as bob:
        endpoint = bob.bind(where(transport, tmp_path))
        for _ in range(3):
            async with p2p.PeerSocket(linger=None) as ann:
                to_bob = ann.connect(endpoint)
                for number in range(count):
                    await ann.send(to_bob, b"%d" % number)
            await next_of(bob, PeerDisconnected)
            got = [await bob.recv(PATIENCE) for _ in range(count)]
            assert [int(text) for _, text in got] == list(range(count))
            assert len({routing_id for routing_id, _ in got}) == 1
        assert bob.counters.unread == 0


@in_loop
async def test_a_receiver_that_waits_gets_all_messages_too(p2p: P2p) -> None:
    async with p2p.PeerSocket(keep_unread=Bound()) as bob:
        endpoint = bob.bind("tcp://127.0.0.1:*")

        async def receive() -> list[int]:
            return [int((await bob.recv(PATIENCE))[1]) for _ in range(1000)]

        receiving = asyncio.create_task(receive())
        async with p2p.PeerSocket(linger=None) as ann:
            to_bob = ann.connect(endpoint)
            for number in range(1000):
                await ann.send(to_bob, b"%d" % number)
        assert await receiving == list(range(1000))


@in_loop
async def test_a_queue_smaller_than_the_messages_loses_none_of_them(p2p: P2p) -> None:
    """The rest waits in the buffers of the kernel, which the sender filled before it left."""
    async with p2p.PeerSocket(keep_unread=Bound(), receive_bound=Bound(messages=10)) as bob:
        endpoint = bob.bind("tcp://127.0.0.1:*")
        async with p2p.PeerSocket(linger=None) as ann:
            to_bob = ann.connect(endpoint)
            for number in range(1000):
                await ann.send(to_bob, b"%d" % number)
        assert [int((await bob.recv(PATIENCE))[1]) for _ in range(1000)] == list(range(1000))


@in_loop
async def test_the_side_that_connected_needs_no_option(p2p: P2p) -> None:
    """Its queue outlives the connection. (P2P-05)"""
    async with p2p.PeerSocket() as ann:
        async with p2p.PeerSocket(linger=None) as bob:
            to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
            await ann.send(to_bob, b"hello")
            to_ann, _ = await bob.recv(PATIENCE)
            for number in range(1000):
                await bob.send(to_ann, b"%d" % number)
        await next_of(ann, PeerDisconnected)
        assert [await ann.recv(PATIENCE) for _ in range(1000)] == [(to_bob, b"%d" % number) for number in range(1000)]


@in_loop
async def test_without_the_option_the_unread_messages_are_counted(p2p: P2p) -> None:
    async with p2p.PeerSocket() as bob:
        endpoint = bob.bind("tcp://127.0.0.1:*")
        async with p2p.PeerSocket(linger=None) as ann:
            to_bob = ann.connect(endpoint)
            for number in range(10):
                await ann.send(to_bob, b"%d" % number)
        await next_of(bob, PeerDisconnected)
        with pytest.raises(TimedOut):
            await bob.recv(0)
        assert bob.counters.unread == 10
