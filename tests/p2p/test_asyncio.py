"""zambezi.p2p.asyncio: the same socket, to be awaited."""

import asyncio
import contextlib
import inspect
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.zmtp.engines import MECHANISMS, guard, securities
from tests.zmtp.stranger import Stranger, hello
from tests.zmtp.waiting import PATIENCE, eventually, in_loop, next_of
from zambezi.p2p import NoSuchPeer, PeerConnected, PeerDisconnected
from zambezi.p2p import PeerSocket as BlockingPeerSocket
from zambezi.p2p.asyncio import PeerSocket
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.errors import MessageError, QueueFull, SocketClosed, TimedOut, ZmtpError
from zambezi.zmtp.events import HandshakeFailed, Listening, Retrying
from zambezi.zmtp.options import Bound

_names = itertools.count()
EAGER = Backoff(0.01, 0.05)


def name() -> str:
    return f"inproc://peer-asyncio-{next(_names)}"


def test_the_twins_have_the_same_names_and_arguments() -> None:
    def public(kind: type) -> dict[str, list[str]]:
        return {
            each: list(inspect.signature(getattr(kind, each)).parameters)
            for each in dir(kind)
            if not each.startswith("_") and callable(getattr(kind, each))
        }

    assert public(PeerSocket) == public(BlockingPeerSocket)
    for each in ("peers", "counters", "closed"):
        assert hasattr(PeerSocket, each)
        assert hasattr(BlockingPeerSocket, each)


@pytest.mark.parametrize("transport", ["tcp", "ipc", "inproc"])
@in_loop
async def test_two_peers_talk(transport: str, tmp_path: Path) -> None:
    where = {"tcp": "tcp://127.0.0.1:*", "ipc": f"ipc://{tmp_path}/s", "inproc": name()}[transport]
    async with PeerSocket() as ann, PeerSocket() as bob:
        to_bob = ann.connect(bob.bind(where))
        for data in (b"", b"\0", b"c" * 1_000_000, bytearray(b"buffer")):
            await ann.send(to_bob, data)
            to_ann, got = await bob.recv(PATIENCE)
            assert got == bytes(data)
            await bob.send(to_ann, data)
            assert await ann.recv(PATIENCE) == (to_bob, bytes(data))
        assert (ann.peers, bob.peers) == ([to_bob], [to_ann])


@pytest.mark.parametrize("mechanism", MECHANISMS)
@in_loop
async def test_every_mechanism(mechanism: str) -> None:
    client, server = securities(mechanism)
    async with PeerSocket(security=server, authenticator=guard(mechanism)) as bob, PeerSocket(security=client) as ann:
        to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
        await ann.send(to_bob, b"hello")
        assert (await bob.recv(PATIENCE))[1] == b"hello"
        assert (await next_of(bob, PeerConnected)).user == ("" if mechanism == "NULL" else "ali")


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
async def test_iterating_gives_messages_until_the_socket_is_closed() -> None:
    async with PeerSocket() as ann, PeerSocket() as bob:
        to_bob = ann.connect(bob.bind(name()))
        for number in range(3):
            await ann.send(to_bob, b"%d" % number)
        got: list[bytes] = []
        async for _, text in bob:
            got.append(text)
            if len(got) == 3:
                await bob.close()
        assert got == [b"0", b"1", b"2"]


@in_loop
async def test_an_outgoing_queue_is_there_at_once_and_survives_restarts() -> None:
    async with PeerSocket(backoff=EAGER) as ann:
        endpoint, to_bob = "tcp://127.0.0.1:*", 0
        for number in range(3):
            async with PeerSocket() as bob:
                endpoint = bob.bind(endpoint)
                to_bob = to_bob or ann.connect(endpoint)
                await ann.send(to_bob, b"%d" % number)
                assert (await bob.recv(PATIENCE))[1] == b"%d" % number
            await next_of(ann, Retrying)
            assert ann.peers == [to_bob]


@in_loop
async def test_a_full_queue_waits_times_out_or_raises() -> None:
    async with PeerSocket(send_bound=Bound(2, 1000), linger=0) as ann, PeerSocket() as bob:
        endpoint = name()
        to_bob = ann.connect(endpoint)
        for number in range(2):
            await ann.send(to_bob, b"%d" % number)
        with pytest.raises(TimedOut):
            await ann.send(to_bob, b"never", timeout=0.01)
        waiting = asyncio.create_task(ann.send(to_bob, b"2"))
        await eventually(lambda: ann._writable.waiting)
        bob.bind(endpoint)
        await waiting
        assert [(await bob.recv(PATIENCE))[1] for _ in range(3)] == [b"0", b"1", b"2"]
    async with PeerSocket(send_bound=Bound(1, 1000), on_full="error", linger=0) as strict:
        to_nobody = strict.connect(name())
        await strict.send(to_nobody, b"x")
        with pytest.raises(QueueFull):
            await strict.send(to_nobody, b"x")
    with pytest.raises(ZmtpError, match="never drops"):
        PeerSocket(on_full="drop")


@in_loop
async def test_a_cancelled_send_sends_nothing_and_a_cancelled_receive_eats_nothing() -> None:
    async with PeerSocket(send_bound=Bound(1, 1000)) as ann, PeerSocket() as bob:
        endpoint = name()
        to_bob = ann.connect(endpoint)
        await ann.send(to_bob, b"first")
        sending = asyncio.create_task(ann.send(to_bob, b"cancelled"))
        receiving = asyncio.create_task(bob.recv())
        await eventually(lambda: ann._writable.waiting and bob._readable.waiting)
        for task in (sending, receiving):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        bob.bind(endpoint)
        assert (await bob.recv(PATIENCE))[1] == b"first"
        await ann.send(to_bob, b"second")
        assert (await bob.recv(PATIENCE))[1] == b"second"


async def blocked(ann: PeerSocket, to_peer: int) -> "asyncio.Task[None]":
    """A task that waits for room in a peer's queue."""
    with contextlib.suppress(TimedOut):
        while True:
            await ann.send(to_peer, b"x" * 900, timeout=0.05)
    waiting = asyncio.create_task(ann.send(to_peer, b"one too many"))
    await eventually(lambda: ann._writable.waiting)
    return waiting


@in_loop
async def test_the_end_of_a_peer_ends_who_waits_to_send_to_it() -> None:
    async with PeerSocket(send_bound=Bound(5, 1000)) as ann:
        with Stranger.calling(ann.bind("tcp://127.0.0.1:*"), small=True) as deaf:
            deaf.say(hello("PEER"))
            to_deaf = (await next_of(ann, PeerConnected)).routing_id
            waiting = await blocked(ann, to_deaf)
            deaf.close()
            with pytest.raises(NoSuchPeer, match=str(to_deaf)):
                await waiting
        with pytest.raises(NoSuchPeer, match=str(to_deaf)):
            await ann.send(to_deaf, b"x")
        assert ann.peers == []


@in_loop
async def test_disconnecting_and_closing_end_who_waits_and_say_which() -> None:
    ann = PeerSocket(send_bound=Bound(5, 1000), linger=0)
    first, second = ann.connect(name()), ann.connect(name())
    waiting = await blocked(ann, first)
    ann.disconnect(first)
    with pytest.raises(NoSuchPeer):
        await waiting
    waiting = await blocked(ann, second)
    receiving = asyncio.create_task(ann.recv())
    await eventually(lambda: ann._readable.waiting)
    await ann.close()
    for task in (waiting, receiving):
        with pytest.raises(SocketClosed):
            await task


@in_loop
async def test_a_closed_socket_says_so() -> None:
    ann = PeerSocket()
    await ann.close()
    await ann.close()
    awaitable: list[Callable[[], Awaitable[object]]] = [ann.recv, ann.next_event, lambda: ann.send(1, b"x")]
    for wait in awaitable:
        with pytest.raises(SocketClosed):
            await wait()
    at_once: list[Callable[[], object]] = [
        lambda: ann.bind(name()),
        lambda: ann.unbind(name()),
        lambda: ann.connect(name()),
        lambda: ann.disconnect(1),
    ]
    for call in at_once:
        with pytest.raises(SocketClosed):
            call()
    assert [message async for message in ann] == []


@in_loop
async def test_who_is_not_there_and_what_is_no_message() -> None:
    async with PeerSocket(linger=0) as ann:
        to_nobody = ann.connect(name())
        for routing_id in (0, to_nobody + 1):
            with pytest.raises(NoSuchPeer, match=str(routing_id)):
                await ann.send(routing_id, b"x")
            with pytest.raises(NoSuchPeer):
                ann.disconnect(routing_id)
        with pytest.raises(MessageError):
            await ann.send(to_nobody, [b"a", b"b"])  # type: ignore[arg-type]


@in_loop
async def test_events_tell_the_story() -> None:
    async with PeerSocket() as bob, PeerSocket(backoff=EAGER) as ann:
        endpoint = bob.bind("tcp://127.0.0.1:*")
        assert await bob.next_event() == Listening(endpoint)
        to_bob = ann.connect(endpoint)
        to_ann = (await next_of(bob, PeerConnected)).routing_id
        assert await next_of(ann, PeerConnected) == PeerConnected(endpoint, to_bob, "127.0.0.1", "")
        with Stranger.calling(endpoint) as dealer:
            dealer.say(hello("DEALER"))
            assert (await next_of(bob, HandshakeFailed)).reason == "a DEALER cannot talk to a PEER"
        ann.disconnect(to_bob)
        left = await next_of(bob, PeerDisconnected)
        assert left == PeerDisconnected(endpoint, to_ann, "127.0.0.1", "the peer closed the connection")


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
async def test_a_flood_from_one_does_not_starve_another() -> None:
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
