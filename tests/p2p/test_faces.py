"""zambezi.p2p.asyncio and zambezi.p2p.sync: everything that both faces have in common.

`test_asyncio` has the tests of tasks and their cancellation, `test_sync` those of threads and processes. The tests here
also cover `zambezi.p2p.errors` and `zambezi.p2p.events`: the error and the events that a program meets.
"""

import asyncio
import contextlib
import functools
import inspect
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import zambezi.p2p.asyncio
import zambezi.p2p.sync
from tests.faces import P2p
from tests.zmtp.engines import MECHANISMS, guard, securities
from tests.zmtp.stranger import Stranger, hello
from tests.zmtp.waiting import PATIENCE, eventually, in_loop, next_of, waiting_calls
from zambezi.p2p import NoSuchPeer, PeerConnected, PeerDisconnected
from zambezi.p2p.asyncio import PeerSocket
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Heartbeat
from zambezi.zmtp.errors import EndpointError, MessageError, QueueFull, SocketClosed, TimedOut, ZmtpError
from zambezi.zmtp.events import HandshakeFailed, Listening, Retrying
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Bound
from zambezi.zmtp.security import CurveClient, CurveServer, PlainClient, PlainServer

_names = itertools.count()
EAGER = Backoff(0.01, 0.05)
TRANSPORTS = ["tcp", "tcp6", "ipc", "inproc"]


def name() -> str:
    return f"inproc://peer-faces-{next(_names)}"


def where(transport: str, directory: Path) -> str:
    places = {
        "tcp": "tcp://127.0.0.1:*",
        "tcp6": "tcp://[::1]:*",
        "ipc": f"ipc://{directory}/s",
        "inproc": name(),
    }
    return places[transport]


def test_both_faces_have_the_same_names_and_arguments() -> None:
    def public(kind: type) -> dict[str, list[str]]:
        return {
            each: list(inspect.signature(getattr(kind, each)).parameters)
            for each in dir(kind)
            if not each.startswith("_") and callable(getattr(kind, each))
        }

    faces = (zambezi.p2p.asyncio.PeerSocket, zambezi.p2p.sync.PeerSocket)
    assert public(faces[0]) == public(faces[1])
    for each in ("peers", "counters", "closed"):
        assert all(hasattr(face, each) for face in faces)


# Messages


@pytest.mark.parametrize("transport", TRANSPORTS)
@in_loop
async def test_two_peers_talk(p2p: P2p, transport: str, tmp_path: Path) -> None:
    async with p2p.PeerSocket() as ann, p2p.PeerSocket() as bob:
        to_bob = ann.connect(bob.bind(where(transport, tmp_path)))
        for data in (b"", b"\0", b"a" * 255, b"b" * 256, b"c" * 1_000_000):
            await ann.send(to_bob, data)
            to_ann, got = await bob.recv(PATIENCE)
            assert got == data
            await bob.send(to_ann, data)
            assert await ann.recv(PATIENCE) == (to_bob, data)
        assert (ann.peers, bob.peers) == ([to_bob], [to_ann])


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
@in_loop
async def test_every_mechanism(p2p: P2p, mechanism: str, transport: str, tmp_path: Path) -> None:
    client, server = securities(mechanism)
    async with (
        p2p.PeerSocket(security=server, authenticator=guard(mechanism)) as bob,
        p2p.PeerSocket(security=client) as ann,
    ):
        to_bob = ann.connect(bob.bind(where(transport, tmp_path)))
        await ann.send(to_bob, b"hello")
        to_ann, got = await bob.recv(PATIENCE)
        assert got == b"hello"
        await bob.send(to_ann, b"x" * 100_000)
        assert await ann.recv(PATIENCE) == (to_bob, b"x" * 100_000)
        assert (await next_of(bob, PeerConnected)).user == ("" if mechanism == "NULL" else "ali")


@in_loop
async def test_any_buffer_is_sent_and_a_mutable_one_is_copied(p2p: P2p) -> None:
    async with p2p.PeerSocket() as ann, p2p.PeerSocket() as bob:
        to_bob = ann.connect(bob.bind(name()))
        buffer = bytearray(b"before")
        await ann.send(to_bob, buffer)
        buffer[:] = b"after!"
        await ann.send(to_bob, memoryview(buffer)[:5])
        assert [(await bob.recv(PATIENCE))[1] for _ in range(2)] == [b"before", b"after"]


@in_loop
async def test_only_bytes_are_a_message(p2p: P2p) -> None:
    async with p2p.PeerSocket(send_bound=Bound(1, 1000), on_full="error", linger=0) as ann:
        to_nobody = ann.connect(name())
        for data in ("text", [b"one", b"two"], None, 7):
            with pytest.raises(MessageError):
                await ann.send(to_nobody, data)  # type: ignore[arg-type]
        await ann.send(to_nobody, b"x")  # the queue has room for one message, and is still empty


@in_loop
async def test_iterating_yields_messages_until_the_socket_is_closed(p2p: P2p) -> None:
    async with p2p.PeerSocket() as ann, p2p.PeerSocket() as bob:
        to_bob = ann.connect(bob.bind(name()))
        got: list[bytes] = []

        async def collect() -> None:
            async for _, text in bob:
                got.append(text)

        collecting = asyncio.create_task(collect())
        for text in (b"1", b"2", b"3"):
            await ann.send(to_bob, text)
        await eventually(lambda: len(got) == 3)
        await bob.close()
        await collecting
        assert got == [b"1", b"2", b"3"]


@in_loop
async def test_messages_wait_for_the_connection(p2p: P2p) -> None:
    async with p2p.PeerSocket(backoff=EAGER) as ann:
        async with p2p.PeerSocket() as bob:
            endpoint = bob.bind("tcp://127.0.0.1:*")
        to_bob = ann.connect(endpoint)
        for number in range(100):
            await ann.send(to_bob, b"%d" % number)
        async with p2p.PeerSocket() as bob:
            bob.bind(endpoint)
            got = [(await bob.recv(PATIENCE))[1] for _ in range(100)]
            assert got == [b"%d" % number for number in range(100)]


@in_loop
async def test_a_routing_id_survives_restarts_of_the_other_side(p2p: P2p) -> None:
    async with p2p.PeerSocket(backoff=EAGER) as ann:
        endpoint = "tcp://127.0.0.1:*"
        to_bob = 0
        seen = set()
        for number in range(3):
            async with p2p.PeerSocket() as bob:
                endpoint = bob.bind(endpoint)
                to_bob = to_bob or ann.connect(endpoint)
                await ann.send(to_bob, b"%d" % number)
                to_ann, text = await bob.recv(PATIENCE)
                assert text == b"%d" % number
                await bob.send(to_ann, b"answer")
                assert await ann.recv(PATIENCE) == (to_bob, b"answer")
                seen.add(to_ann)
            await next_of(ann, Retrying)
            assert ann.peers == [to_bob]
        assert len(seen) == 3


@in_loop
async def test_an_invalid_endpoint_leaves_no_peer(p2p: P2p) -> None:
    async with p2p.PeerSocket() as ann:
        with pytest.raises(EndpointError):
            ann.connect("tcp://127.0.0.1")
        assert ann.peers == []


# Bounds and time


@in_loop
async def test_a_full_queue_makes_send_wait_until_it_has_room(p2p: P2p) -> None:
    async with p2p.PeerSocket(send_bound=Bound(3, 1000)) as ann, p2p.PeerSocket() as bob:
        endpoint = name()
        to_bob = ann.connect(endpoint)
        for number in range(3):
            await ann.send(to_bob, b"%d" % number)
        with pytest.raises(TimedOut, match=r"within 0[.]01 s") as caught:
            await ann.send(to_bob, b"never", timeout=0.01)
        assert isinstance(caught.value, TimeoutError)
        with pytest.raises(TimedOut):
            await ann.send(to_bob, b"never", timeout=0)
        waiting = asyncio.create_task(ann.send(to_bob, b"3"))
        await eventually(lambda: waiting_calls(ann) == 1)
        bob.bind(endpoint)
        await waiting
        assert [(await bob.recv(PATIENCE))[1] for _ in range(4)] == [b"0", b"1", b"2", b"3"]


@in_loop
async def test_a_full_queue_raises_if_the_socket_says_so(p2p: P2p) -> None:
    async with p2p.PeerSocket(send_bound=Bound(3, 1000), on_full="error", linger=0) as ann:
        to_nobody = ann.connect(name())
        for _ in range(3):
            await ann.send(to_nobody, b"x")
        with pytest.raises(QueueFull, match=str(to_nobody)):
            await ann.send(to_nobody, b"x")


@in_loop
async def test_no_policy_drops_messages(p2p: P2p) -> None:
    with pytest.raises(ZmtpError, match="never drops"):
        p2p.PeerSocket(on_full="drop")


@in_loop
async def test_a_receive_that_times_out_loses_nothing(p2p: P2p) -> None:
    async with p2p.PeerSocket() as ann, p2p.PeerSocket() as bob:
        with pytest.raises(TimedOut):
            await bob.recv(0.01)
        to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
        for number in range(200):
            await ann.send(to_bob, b"%d" % number)
            try:
                _, text = await bob.recv(0)
            except TimedOut:
                _, text = await bob.recv(PATIENCE)
            assert text == b"%d" % number


# The end of a call that waits


def is_blocked_or_done(ann: PeerSocket, sending: "asyncio.Task[None]") -> bool:
    return sending.done() or waiting_calls(ann) == 1


async def blocked_send(ann: PeerSocket, to_peer: int) -> "asyncio.Task[None]":
    """Fill a peer's queue; return a task that waits for room in it."""
    while True:
        with contextlib.suppress(TimedOut):
            while True:
                await ann.send(to_peer, b"x" * 900, timeout=0.1)
        waiting = asyncio.create_task(ann.send(to_peer, b"one too many"))
        await eventually(functools.partial(is_blocked_or_done, ann, waiting))
        if not waiting.done():  # on a busy machine the kernel may have taken more meanwhile
            return waiting


@in_loop
async def test_the_loss_of_a_peer_ends_the_sends_that_wait_for_it(p2p: P2p) -> None:
    async with p2p.PeerSocket(send_bound=Bound(5, 1000)) as ann:
        with Stranger.calling(ann.bind("tcp://127.0.0.1:*"), small=True) as deaf:
            deaf.say(hello("PEER"))
            to_deaf = (await next_of(ann, PeerConnected)).routing_id
            waiting = await blocked_send(ann, to_deaf)
            deaf.close()
            with pytest.raises(NoSuchPeer, match=str(to_deaf)):
                await waiting
        with pytest.raises(NoSuchPeer, match=str(to_deaf)):
            await ann.send(to_deaf, b"x")
        assert ann.peers == []


@in_loop
async def test_disconnecting_a_peer_ends_the_sends_that_wait_for_it(p2p: P2p) -> None:
    async with p2p.PeerSocket(send_bound=Bound(5, 1000), linger=0) as ann:
        to_nobody = ann.connect(name())
        waiting = await blocked_send(ann, to_nobody)
        ann.disconnect(to_nobody)
        with pytest.raises(NoSuchPeer, match=str(to_nobody)):
            await waiting


@in_loop
async def test_closing_ends_a_send_that_waits(p2p: P2p) -> None:
    ann = p2p.PeerSocket(send_bound=Bound(5, 1000), linger=0)
    waiting = await blocked_send(ann, ann.connect(name()))
    await ann.close()
    with pytest.raises(SocketClosed):
        await waiting


@in_loop
async def test_the_end_of_another_peer_does_not_end_a_send_that_waits(p2p: P2p) -> None:
    async with p2p.PeerSocket(send_bound=Bound(5, 1000), linger=0) as ann, p2p.PeerSocket() as bob:
        to_bob, to_nobody = ann.connect(bob.bind(name())), ann.connect(name())
        waiting = await blocked_send(ann, to_nobody)
        ann.disconnect(to_bob)
        with pytest.raises(TimedOut):  # the queue is still full: the waiting call was woken in vain
            await ann.send(to_nobody, b"x", timeout=0.01)
        assert not waiting.done()
        ann.disconnect(to_nobody)
        with pytest.raises(NoSuchPeer):
            await waiting


@in_loop
async def test_closing_wakes_all_waiting_calls(p2p: P2p) -> None:
    ann = p2p.PeerSocket()
    ann.connect(name())

    async def iterate() -> list[object]:
        return [[message async for message in ann], [event async for event in ann.events()]]

    iterating = asyncio.create_task(iterate())
    calls = [asyncio.create_task(ann.recv()), asyncio.create_task(ann.next_event())]
    await eventually(lambda: waiting_calls(ann) == 3)
    await ann.close(0)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [SocketClosed] * 2
    assert await iterating == [[], []]
    assert ann.closed
    assert repr(ann) == "<PeerSocket closed>"


@in_loop
async def test_every_method_of_a_closed_socket_raises(p2p: P2p) -> None:
    ann = p2p.PeerSocket()
    await ann.close()
    await ann.close()
    awaited: list[Callable[[], Awaitable[object]]] = [
        ann.recv,
        ann.next_event,
        lambda: ann.send(1, b"x"),
        lambda: ann.send(0, b"x"),
    ]
    for wait in awaited:
        with pytest.raises(SocketClosed, match="closed"):
            await wait()
    at_once: list[Callable[[], object]] = [
        lambda: ann.bind(name()),
        lambda: ann.unbind(name()),
        lambda: ann.connect(name()),
        lambda: ann.disconnect(1),
    ]
    for call in at_once:
        with pytest.raises(SocketClosed, match="closed"):
            call()
    assert [message async for message in ann] == []
    assert ann.peers == []


# Peers that do not exist, or leave


@pytest.mark.parametrize("routing_id", [0, 1, 0xFFFFFFFF, -1, 1 << 40])
@in_loop
async def test_a_routing_id_without_a_peer_is_an_error(p2p: P2p, routing_id: int) -> None:
    async with p2p.PeerSocket() as ann:
        with pytest.raises(NoSuchPeer, match=str(routing_id)):
            await ann.send(routing_id, b"x")
        with pytest.raises(NoSuchPeer, match=str(routing_id)):
            ann.disconnect(routing_id)


@in_loop
async def test_the_routing_id_after_that_of_a_peer_is_an_error(p2p: P2p) -> None:
    async with p2p.PeerSocket(linger=0) as ann:
        wrong = ann.connect(name()) + 1
        with pytest.raises(NoSuchPeer, match=str(wrong)):
            await ann.send(wrong, b"x")


@in_loop
async def test_disconnect_delivers_messages_that_were_sent_before(p2p: P2p) -> None:
    async with p2p.PeerSocket() as ann, p2p.PeerSocket(receive_bound=Bound(1, 1000)) as bob:
        to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
        await ann.send(to_bob, b"hello")
        to_ann, _ = await bob.recv(PATIENCE)
        await bob.send(to_ann, b"goodbye")
        bob.disconnect(to_ann)
        assert await ann.recv(PATIENCE) == (to_bob, b"goodbye")
        with pytest.raises(NoSuchPeer):
            await bob.send(to_ann, b"x")


@in_loop
async def test_messages_of_a_peer_that_left_are_discarded(p2p: P2p) -> None:
    async with p2p.PeerSocket() as bob:
        endpoint = bob.bind("tcp://127.0.0.1:*")
        with Stranger.calling(endpoint) as stranger:
            stranger.say(hello("PEER") + b"\x00\x01x" * 10)
            to_stranger, _ = await bob.recv(PATIENCE)
        await next_of(bob, PeerDisconnected)
        with pytest.raises(TimedOut):
            await bob.recv(0)
        with pytest.raises(NoSuchPeer):
            await bob.send(to_stranger, b"x")
        assert bob.peers == []


@in_loop
async def test_closing_waits_until_all_messages_are_out(p2p: P2p) -> None:
    """The kernel of the other side has read all of them; the other side, which connected, keeps them."""
    async with p2p.PeerSocket() as ann:
        bob = p2p.PeerSocket()
        to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
        await ann.send(to_bob, b"hello")
        to_ann, _ = await bob.recv(PATIENCE)
        for number in range(5000):
            await bob.send(to_ann, b"%d" % number + b"x" * 1000)
        closing = asyncio.create_task(bob.close(None))
        got = [(await ann.recv(PATIENCE))[1].rstrip(b"x") for _ in range(5000)]
        await closing
        assert got == [b"%d" % number for number in range(5000)]
        assert bob.counters.abandoned == 0


@in_loop
async def test_leaving_by_an_exception_does_not_wait(p2p: P2p) -> None:
    ann = p2p.PeerSocket(linger=None)

    async def fail() -> None:
        async with ann:
            await ann.send(ann.connect(name()), b"no peer will ever receive this")
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert ann.counters.abandoned == 1


# Events


@in_loop
async def test_events_tell_the_story_of_a_peer(p2p: P2p) -> None:
    async with p2p.PeerSocket() as bob, p2p.PeerSocket(backoff=EAGER) as ann:
        endpoint = bob.bind("tcp://127.0.0.1:*")
        assert await bob.next_event() == Listening(endpoint)
        to_bob = ann.connect(endpoint)
        theirs = await next_of(bob, PeerConnected)
        assert (theirs.endpoint, theirs.address, theirs.user) == (endpoint, "127.0.0.1", "")
        assert await next_of(ann, PeerConnected) == PeerConnected(endpoint, to_bob, "127.0.0.1", "")
        with Stranger.calling(endpoint) as dealer:
            dealer.say(hello("DEALER"))
            assert (await next_of(bob, HandshakeFailed)).reason == "a DEALER cannot talk to a PEER"
        await bob.close()
        left = await next_of(ann, PeerDisconnected)
        assert left == PeerDisconnected(endpoint, to_bob, "127.0.0.1", "the peer closed the connection")
        assert (await next_of(ann, Retrying)).attempt == 1


@in_loop
async def test_a_disconnect_is_an_event_on_the_other_side(p2p: P2p) -> None:
    async with p2p.PeerSocket() as bob, p2p.PeerSocket() as ann:
        endpoint = bob.bind("tcp://127.0.0.1:*")
        to_bob = ann.connect(endpoint)
        to_ann = (await next_of(bob, PeerConnected)).routing_id
        ann.disconnect(to_bob)
        left = await next_of(bob, PeerDisconnected)
        assert left == PeerDisconnected(endpoint, to_ann, "127.0.0.1", "the peer closed the connection")


@in_loop
async def test_a_failed_handshake_is_an_event_on_both_sides(p2p: P2p) -> None:
    server, right, wrong = (KeyPair.generate(seed=bytes([number]) * 32) for number in (4, 5, 6))
    async with p2p.PeerSocket(security=CurveServer(server)) as bob, p2p.PeerSocket(linger=0) as ann:
        endpoint = bob.bind("tcp://127.0.0.1:*")
        ann.connect(endpoint)
        assert "NULL" in (await next_of(bob, HandshakeFailed)).reason
        assert "CURVE" in (await next_of(ann, HandshakeFailed)).reason
        async with p2p.PeerSocket(security=CurveClient(wrong.public, right), linger=0) as eve:
            eve.connect(endpoint)
            assert (await next_of(bob, HandshakeFailed)).address == "127.0.0.1"
            assert (await next_of(eve, HandshakeFailed)).endpoint == endpoint
        assert bob.peers == []


@in_loop
async def test_a_wrong_password_is_refused(p2p: P2p) -> None:
    async with (
        p2p.PeerSocket(security=PlainServer(), authenticator=guard("PLAIN")) as bob,
        p2p.PeerSocket(security=PlainClient("ali", "guess"), linger=0) as eve,
    ):
        to_bob = eve.connect(bob.bind("tcp://127.0.0.1:*"))
        await eve.send(to_bob, b"let me in")
        assert "password" in (await next_of(bob, HandshakeFailed)).reason
        assert bob.peers == []
        assert eve.peers == [to_bob]  # an outgoing queue stays: the next attempt may succeed


@in_loop
async def test_a_silent_peer_is_disconnected(p2p: P2p) -> None:
    async with p2p.PeerSocket(heartbeat=Heartbeat(0.05)) as bob:
        with Stranger.calling(bob.bind("tcp://127.0.0.1:*")) as silent:
            silent.say(hello("PEER"))
            left = await next_of(bob, PeerDisconnected)
            assert "after a PING" in left.reason
            assert left.routing_id not in bob.peers
