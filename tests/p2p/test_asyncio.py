"""zambezi.p2p.asyncio: tasks, and their cancellation. `test_faces` has the tests that both faces share."""

import asyncio
import itertools

import pytest

from tests.zmtp.waiting import PATIENCE, eventually, in_loop, waiting_calls
from zambezi.p2p import PeerSocket as BlockingPeerSocket
from zambezi.p2p.asyncio import PeerSocket
from zambezi.zmtp.options import Bound

_names = itertools.count()


def name() -> str:
    return f"inproc://peer-asyncio-{next(_names)}"


@in_loop
async def test_it_talks_to_its_blocking_twin() -> None:
    def twin(endpoint: str) -> None:
        with BlockingPeerSocket() as bob:
            to_ann = bob.connect(endpoint)
            for number in range(1000):
                bob.send(to_ann, b"%d" % number)
            assert [bob.recv(PATIENCE)[1] for _ in range(1000)] == [b"%d" % number for number in range(1000)]

    async with PeerSocket() as ann:
        for endpoint in (ann.bind("tcp://127.0.0.1:*"), ann.bind(name())):
            working = asyncio.create_task(asyncio.to_thread(twin, endpoint))
            for number in range(1000):
                to_bob, text = await ann.recv(PATIENCE)
                assert text == b"%d" % number
                await ann.send(to_bob, text)
            await working


@in_loop
async def test_a_cancelled_send_sends_nothing_and_a_cancelled_receive_loses_nothing() -> None:
    async with PeerSocket(send_bound=Bound(1, 1000)) as ann, PeerSocket() as bob:
        endpoint = name()
        to_bob = ann.connect(endpoint)
        await ann.send(to_bob, b"first")
        sending = asyncio.create_task(ann.send(to_bob, b"cancelled"))
        receiving = asyncio.create_task(bob.recv())
        await eventually(lambda: waiting_calls(ann) == waiting_calls(bob) == 1)
        for task in (sending, receiving):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        bob.bind(endpoint)
        assert (await bob.recv(PATIENCE))[1] == b"first"
        await ann.send(to_bob, b"second")
        assert (await bob.recv(PATIENCE))[1] == b"second"


@in_loop
async def test_many_tasks_send_and_receive_each_message_once() -> None:
    async with PeerSocket(receive_bound=Bound(100, 1 << 20)) as bob, PeerSocket(send_bound=Bound(50, 1 << 20)) as ann:
        to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
        got: list[tuple[int, int]] = []

        async def send(sender: int) -> None:
            for number in range(500):
                await ann.send(to_bob, b"%d %d" % (sender, number))

        async def receive() -> None:
            async for _, text in bob:
                sender, number = map(int, text.split())
                got.append((sender, number))

        receiving = [asyncio.create_task(receive()) for _ in range(4)]
        await asyncio.gather(*(send(sender) for sender in range(8)))
        await eventually(lambda: len(got) == 4000)
        await bob.close()
        await asyncio.gather(*receiving)
        for sender in range(8):
            assert sorted(number for who, number in got if who == sender) == list(range(500))


@in_loop
async def test_a_flood_from_one_peer_does_not_starve_another() -> None:
    async with PeerSocket() as hub, PeerSocket() as loud, PeerSocket() as quiet:
        endpoint = hub.bind("tcp://127.0.0.1:*")
        loud_to_hub, quiet_to_hub = loud.connect(endpoint), quiet.connect(endpoint)
        await loud.send(loud_to_hub, b"loud")
        to_loud, _ = await hub.recv(PATIENCE)
        for number in range(5000):
            await loud.send(loud_to_hub, b"%d" % number)
        for number in range(50):
            await quiet.send(quiet_to_hub, b"%d" % number)
        await eventually(
            lambda: {hub._shell._inbox.waiting(peer) >= 50 for peer in hub._shell.peers.values()} == {True}
        )
        first = [(await hub.recv(PATIENCE))[0] for _ in range(100)]
        assert first.count(to_loud) == 50
