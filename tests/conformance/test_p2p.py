"""51/P2P, rule by rule, on the public sockets. The details are in tests/p2p."""

import contextlib
import itertools
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interop.octets import ByHand, Listening, command, greeting, message, ready
from tests.zmtp.waiting import PATIENCE, wait_for, wait_until, waiting_calls
from zambezi.p2p import NoSuchPeer, PeerConnected, PeerDisconnected, PeerSocket
from zambezi.zmtp import Backoff, Bound, HandshakeFailed, QueueFull, Retrying, TimedOut, ZmtpError
from zambezi.zmtp.errors import MessageError

_names = itertools.count()
EAGER = Backoff(0.01, 0.05)
TCP = "tcp://127.0.0.1:*"
TRANSPORTS = pytest.mark.parametrize("transport", ["tcp", "ipc", "inproc"])


def place(transport: str = "inproc") -> str:
    return {"tcp": TCP, "ipc": "ipc://*", "inproc": f"inproc://p2p-{next(_names)}"}[transport]


def nobody(socket: PeerSocket) -> int:
    """Connect to a peer that never binds; return its routing id."""
    return socket.connect(place())


# The socket


@pytest.mark.spec("P2P-01")
@TRANSPORTS
def test_any_number_of_peers_accepted_and_connected_to(transport: str) -> None:
    with contextlib.ExitStack() as stack:
        hub = stack.enter_context(PeerSocket())
        endpoint = hub.bind(place(transport))
        callers = [stack.enter_context(PeerSocket()) for _ in range(20)]
        called = [stack.enter_context(PeerSocket()) for _ in range(20)]
        for number, caller in enumerate(callers):
            caller.send(caller.connect(endpoint), b"%d" % number)
        for number, one in enumerate(called):
            hub.send(hub.connect(one.bind(place(transport))), b"%d" % number)
        assert sorted(int(hub.recv(PATIENCE)[1]) for _ in callers) == list(range(20))
        assert [int(one.recv(PATIENCE)[1]) for one in called] == list(range(20))
        assert len(hub.peers) == 40


@pytest.mark.spec("P2P-02")
@given(st.lists(st.booleans(), max_size=30))
def test_sending_and_receiving_in_any_order(turns: list[bool]) -> None:
    """There is no lockstep: each side sends whenever it likes, and unread messages wait."""
    with PeerSocket() as ann, PeerSocket() as bob:
        to_bob = ann.connect(bob.bind(place()))
        to_ann = wait_for(bob, PeerConnected).routing_id
        for number, ann_speaks in enumerate(turns):
            speaker, listener = (ann, to_bob) if ann_speaks else (bob, to_ann)
            speaker.send(listener, b"%d" % number)
        heard = [int(bob.recv(PATIENCE)[1]) for ann_speaks in turns if ann_speaks]
        assert heard == [number for number, ann_speaks in enumerate(turns) if ann_speaks]
        heard = [int(ann.recv(PATIENCE)[1]) for ann_speaks in turns if not ann_speaks]
        assert heard == [number for number, ann_speaks in enumerate(turns) if not ann_speaks]


@pytest.mark.spec("P2P-03")
@given(st.lists(st.binary(max_size=600), max_size=20))
def test_messages_are_neither_filtered_nor_modified(messages: list[bytes]) -> None:
    messages = [*messages, b"", b"\0" * 9, b"\x01\x00", b"\x04\x05READY", bytes(range(256)) * 300]
    with PeerSocket() as ann, PeerSocket() as bob:
        to_bob = ann.connect(bob.bind(TCP))
        for data in messages:
            ann.send(to_bob, data)
        got = []
        for _ in messages:
            to_ann, data = bob.recv(PATIENCE)
            got.append(data)
            bob.send(to_ann, data)
        assert got == messages
        assert [ann.recv(PATIENCE) for _ in messages] == [(to_bob, data) for data in messages]


# The double queues


@pytest.mark.spec("P2P-04")
def test_the_queues_of_peers_and_of_directions_are_independent() -> None:
    """Three peers: the outgoing queue of one is full, the incoming queue of another is full; all other queues work."""
    bound = Bound(3, 1 << 20)
    with (
        PeerSocket(send_bound=bound, receive_bound=bound, linger=0) as hub,
        PeerSocket(send_bound=bound, linger=0) as loud,
        PeerSocket() as bob,
    ):
        endpoint = hub.bind(place())
        stuck = nobody(hub)
        while True:
            try:
                hub.send(stuck, b"x", timeout=0)
            except TimedOut:
                break
        loud_to_hub = loud.connect(endpoint)
        to_loud = wait_for(hub, PeerConnected).routing_id
        with contextlib.suppress(TimedOut):
            while True:
                loud.send(loud_to_hub, b"x", timeout=0.05)
        hub.send(to_loud, b"the other direction is free")
        assert loud.recv(PATIENCE) == (loud_to_hub, b"the other direction is free")
        bob_to_hub = bob.connect(endpoint)
        bob.send(bob_to_hub, b"and so are the other peers")
        while (word := hub.recv(PATIENCE))[1] == b"x":
            assert word[0] == to_loud
        hub.send(word[0], b"both ways")
        assert bob.recv(PATIENCE) == (bob_to_hub, b"both ways")


@pytest.mark.spec("P2P-05")
def test_an_outgoing_connection_has_its_queue_from_the_call_on_and_keeps_it() -> None:
    with Listening() as port, PeerSocket(backoff=EAGER, linger=0) as ann:
        to_bob = ann.connect(port.endpoint)
        ann.send(to_bob, b"before the connection")  # no connection exists yet
        for text in (b"before the connection", b"after a loss", b"after another"):
            with port.accept() as bob:
                bob.shake_hands(b"PEER")
                bob.expect(message(text))
                bob.say(message(b"yes"))
                assert ann.recv(PATIENCE) == (to_bob, b"yes")
            wait_for(ann, Retrying)
            assert ann.peers == [to_bob]
            ann.send(to_bob, b"after a loss" if text.startswith(b"before") else b"after another")


@pytest.mark.spec("P2P-05")
def test_a_failed_handshake_does_not_end_an_outgoing_queue() -> None:
    with Listening() as port, PeerSocket(backoff=EAGER, linger=0) as ann:
        to_bob = ann.connect(port.endpoint)
        ann.send(to_bob, b"patience")
        for _ in range(3):
            with port.accept() as dealer:
                dealer.say(greeting(), ready(b"DEALER"))
                wait_for(ann, HandshakeFailed)
        with port.accept() as bob:
            bob.shake_hands(b"PEER")
            bob.expect(message(b"patience"))


@pytest.mark.spec("P2P-06")
def test_an_incoming_peer_that_disconnects_takes_its_queues_and_their_messages() -> None:
    with PeerSocket() as bob:
        endpoint = bob.bind(TCP)
        with ByHand.connect(endpoint) as ann:
            ann.shake_hands(b"PEER")
            ann.say(message(b"read"), message(b"unread"), command(b"PING", b"\0\0"))
            to_ann, text = bob.recv(PATIENCE)
            assert text == b"read"
            ann.expect(command(b"PONG"))
        wait_for(bob, PeerDisconnected)
        with pytest.raises(TimedOut):
            bob.recv(0)
        with pytest.raises(NoSuchPeer):
            bob.send(to_ann, b"x")
        with ByHand.connect(endpoint) as again:
            again.shake_hands(b"PEER")
            again.say(message(b"anew"))
            newcomer, text = bob.recv(PATIENCE)
            assert (newcomer != to_ann, text) == (True, b"anew")
            with pytest.raises(NoSuchPeer):
                bob.send(to_ann, b"x")


@pytest.mark.spec("P2P-06")
def test_what_was_queued_for_an_incoming_peer_is_not_sent_to_the_next() -> None:
    with PeerSocket(send_bound=Bound(50, 1 << 30)) as bob:
        endpoint = bob.bind(TCP)
        with ByHand.connect(endpoint) as ann:
            ann.shake_hands(b"PEER")
            to_ann = wait_for(bob, PeerConnected).routing_id
            with contextlib.suppress(TimedOut):
                while True:
                    bob.send(to_ann, b"for ann" * 10_000, timeout=0.05)
        wait_for(bob, PeerDisconnected)
        assert bob.counters.abandoned >= 50
        with ByHand.connect(endpoint) as eve:
            eve.shake_hands(b"PEER")
            bob.send(wait_for(bob, PeerConnected).routing_id, b"for eve")
            eve.expect(message(b"for eve"))
            assert eve.hears_nothing()


# Routing ids


@pytest.mark.spec("P2P-07")
def test_routing_ids_are_unique_and_not_zero_and_have_32_bits() -> None:
    with PeerSocket(linger=0) as hub, PeerSocket(linger=0) as other:
        endpoint = hub.bind(place())
        hub._shell._last_id = 0xFFFFFFFF - 50  # close to the wrap-around
        for _ in range(100):
            nobody(hub)
            other.connect(endpoint)
        wait_until(lambda: len(hub.peers) == 200)
        assert len(set(hub.peers)) == 200
        assert all(0 < routing_id < 1 << 32 for routing_id in hub.peers)
        used = set(hub.peers)
        for routing_id in list(used):
            hub.disconnect(routing_id)
        assert not used & {nobody(hub) for _ in range(100)}


@pytest.mark.spec("P2P-08")
def test_connect_returns_the_id_before_anybody_else_can_meet_the_peer() -> None:
    """Many threads connect at once: each gets the id of its own connection, and can use it at once."""
    with PeerSocket() as hub, PeerSocket() as ann, ThreadPoolExecutor(8) as pool:
        endpoints = [hub.bind(TCP), hub.bind(place())]
        start = threading.Barrier(8)

        def visit(number: int) -> list[tuple[int, bytes]]:
            start.wait(PATIENCE)
            said = []
            for turn in range(10):
                to_hub = ann.connect(endpoints[turn % 2])
                said.append((to_hub, b"%d %d" % (number, turn)))
                ann.send(*said[-1])
            return said

        said = dict(itertools.chain.from_iterable(pool.map(visit, range(8))))
        assert len(said) == 80
        for _ in range(80):
            hub.send(*hub.recv(PATIENCE))
        assert dict(ann.recv(PATIENCE) for _ in range(80)) == said


@pytest.mark.spec("P2P-09")
@pytest.mark.parametrize("identity", [b"\0\0\0\x07", b"\x00\x00\x00\x00\x07", b"\x07\0\0\0", b"7", b""])
def test_a_peer_cannot_choose_its_routing_id(identity: bytes) -> None:
    named = command(
        b"READY",
        b"\x0bSocket-Type\0\0\0\x04PEER\x08Identity" + len(identity).to_bytes(4, "big") + identity,
    )
    with PeerSocket() as us:
        before = us._shell._last_id
        endpoint = us.bind(TCP)
        expected = [(before + step) % (1 << 32) for step in (1, 2)]
        with ByHand.connect(endpoint) as one, ByHand.connect(endpoint) as other:
            for peer in (one, other):
                peer.say(greeting(), named)
            if identity[:1] == b"\0":  # ZMTP itself forbids such an identity
                wait_for(us, HandshakeFailed)
                return
            ids = [wait_for(us, PeerConnected).routing_id for _ in range(2)]
            assert ids == expected  # the same identity twice, and the usual ids
            one.say(message(b"one"))
            other.say(message(b"other"))
            assert len({us.recv(PATIENCE)[0] for _ in range(2)}) == 2


# Limits


@pytest.mark.spec("P2P-10")
@pytest.mark.parametrize("bound", [Bound(5, 1 << 20), Bound(1000, 5)])
def test_queues_are_limited_in_both_directions_as_configured(bound: Bound) -> None:
    with PeerSocket(send_bound=bound, linger=0) as ann, PeerSocket(receive_bound=bound) as bob:
        to_nobody = nobody(ann)
        for _ in range(5):
            ann.send(to_nobody, b"x", timeout=0)
        with pytest.raises(TimedOut):
            ann.send(to_nobody, b"x", timeout=0)
        endpoint = bob.bind(TCP)
        with ByHand.connect(endpoint) as loud, ByHand.connect(endpoint) as other:
            loud.shake_hands(b"PEER")
            peer = bob._shell.peers[wait_for(bob, PeerConnected).routing_id]
            other.shake_hands(b"PEER")
            said = 0
            while not peer.paused:
                loud.say(message(b"x"))
                said += 1
                wait_until(lambda said=said: bob._shell._inbox.waiting(peer) == said)  # type: ignore[misc]
            assert said <= 5
            loud.say(message(b"x") * 1000)
            for _ in range(10):  # meanwhile the socket reads from other peers, but not from this one
                other.say(command(b"PING", b"\0\0"))
                other.expect(command(b"PONG"))
            assert bob._shell._inbox.waiting(peer) == said
            assert [bob.recv(PATIENCE)[1] for _ in range(said + 1000)] == [b"x"] * (said + 1000)


# Incoming messages


@pytest.mark.spec("P2P-11")
@TRANSPORTS
def test_incoming_messages_are_fair_queued(transport: str) -> None:
    """One peer floods, three send a little: while messages of all wait, the socket receives from them in turn."""
    with PeerSocket() as hub, contextlib.ExitStack() as stack:
        endpoint = hub.bind(place(transport))
        senders = [stack.enter_context(PeerSocket(linger=0)) for _ in range(4)]
        ids = [sender.connect(endpoint) for sender in senders]
        wait_until(lambda: len(hub.peers) == 4)
        for sender, to_hub, count in zip(senders, ids, (5000, 100, 100, 100), strict=True):
            for _ in range(count):
                sender.send(to_hub, b"x", PATIENCE)
        wait_until(lambda: all(hub._shell._inbox.waiting(peer) >= 100 for peer in hub._shell.peers.values()))
        heard = Counter(hub.recv(PATIENCE)[0] for _ in range(400))
        assert sorted(heard.values()) == [100, 100, 100, 100]


@pytest.mark.spec("P2P-12")
def test_a_message_comes_with_the_routing_id_of_its_sender() -> None:
    with PeerSocket() as hub, contextlib.ExitStack() as stack:
        endpoint = hub.bind(TCP)
        names: dict[int, bytes] = {}
        peers = [stack.enter_context(PeerSocket()) for _ in range(5)]
        for number, peer in enumerate(peers):
            peer.send(peer.connect(endpoint), b"%d" % number)
            routing_id = wait_for(hub, PeerConnected).routing_id
            names[routing_id] = b"%d" % number
        assert dict(hub.recv(PATIENCE) for _ in peers) == names
        for routing_id, name in names.items():
            hub.send(routing_id, b"you are " + name)
        assert [peer.recv(PATIENCE)[1] for peer in peers] == [b"you are %d" % number for number in range(5)]


@pytest.mark.spec("P2P-13")
@pytest.mark.parametrize(
    "parts",
    [
        b"\x01\x01a\x00\x01b",
        b"\x01\x00\x00\x00",
        b"\x01\x01a" * 3 + b"\x00\x01b",
        b"\x03\0\0\0\0\0\0\x01\0" + b"a" * 256 + b"\x00\x01b",
        b"\x01\x01a",
    ],
)
def test_every_part_of_a_multipart_message_is_discarded_and_the_peer_disconnected(parts: bytes) -> None:
    with PeerSocket() as us, PeerSocket() as friend:
        endpoint = us.bind(TCP)
        friend_to_us = friend.connect(endpoint)
        to_friend = wait_for(us, PeerConnected).routing_id
        with ByHand.connect(endpoint) as peer:
            peer.shake_hands(b"PEER")
            to_peer = wait_for(us, PeerConnected).routing_id
            peer.say(parts, message(b"after"))
            left = wait_for(us, PeerDisconnected)
            assert (left.routing_id, "multipart" in left.reason) == (to_peer, True)
            peer.hear_the_end()
        friend.send(friend_to_us, b"untouched")
        assert us.recv(PATIENCE) == (to_friend, b"untouched")
        with pytest.raises(TimedOut):
            us.recv(0)
        with pytest.raises(NoSuchPeer):
            us.send(to_peer, b"x")


# Outgoing messages


@pytest.mark.spec("P2P-14")
def test_the_application_says_to_whom_a_message_goes() -> None:
    with PeerSocket() as hub, contextlib.ExitStack() as stack:
        others = [stack.enter_context(PeerSocket()) for _ in range(4)]
        ids = [hub.connect(other.bind(place())) for other in others]
        for turn in range(100):
            hub.send(ids[turn * 7 % 4], b"%d" % turn)
        for number, other in enumerate(others):
            wanted = [b"%d" % turn for turn in range(100) if turn * 7 % 4 == number]
            assert [other.recv(PATIENCE)[1] for _ in wanted] == wanted
            with pytest.raises(TimedOut):
                other.recv(0)


@pytest.mark.spec("P2P-15")
def test_sending_to_an_id_without_a_queue_is_an_error() -> None:
    with PeerSocket(linger=0) as ann, PeerSocket() as bob:
        to_bob = ann.connect(bob.bind(place()))
        for wrong in (0, to_bob + 1, to_bob ^ 0x80000000):
            with pytest.raises(NoSuchPeer, match=str(wrong)):
                ann.send(wrong, b"x")
        ann.disconnect(to_bob)
        with pytest.raises(NoSuchPeer, match=str(to_bob)):
            ann.send(to_bob, b"x", timeout=1)


@pytest.mark.spec("P2P-16")
def test_sending_to_a_full_queue_blocks_unless_configured_otherwise() -> None:
    bound = Bound(2, 1000)
    with PeerSocket(send_bound=bound) as patient, PeerSocket() as bob, ThreadPoolExecutor(1) as pool:
        endpoint = place()
        to_bob = patient.connect(endpoint)
        for number in range(2):
            patient.send(to_bob, b"%d" % number)
        blocked = pool.submit(patient.send, to_bob, b"2")
        wait_until(lambda: waiting_calls(patient) == 1)
        assert not blocked.done()
        with pytest.raises(TimedOut):
            patient.send(to_bob, b"never", timeout=0.01)
        assert not blocked.done()
        bob.bind(endpoint)
        blocked.result(PATIENCE)
        assert [bob.recv(PATIENCE)[1] for _ in range(3)] == [b"0", b"1", b"2"]
    with PeerSocket(send_bound=bound, on_full="error", linger=0) as strict:
        to_nobody = nobody(strict)
        for _ in range(2):
            strict.send(to_nobody, b"x")
        with pytest.raises(QueueFull):
            strict.send(to_nobody, b"x")


@pytest.mark.spec("P2P-17")
@TRANSPORTS
def test_what_cannot_be_queued_is_told_and_what_was_queued_is_delivered(transport: str) -> None:
    """The queue is full most of the time: each send either raises, or its message arrives, in order."""
    with (
        PeerSocket(send_bound=Bound(7, 1 << 20), on_full="error") as ann,
        PeerSocket(receive_bound=Bound(3, 1 << 20)) as bob,
        ThreadPoolExecutor(1) as pool,
    ):
        to_bob = ann.connect(bob.bind(place(transport)))
        over = b"over"

        def send() -> list[bytes]:
            accepted = []
            for number in range(20_000):
                with contextlib.suppress(QueueFull):
                    ann.send(to_bob, b"%d" % number)
                    accepted.append(b"%d" % number)
            while True:
                with contextlib.suppress(QueueFull):
                    ann.send(to_bob, over)
                    return accepted

        sending = pool.submit(send)
        got = []
        while (text := bob.recv(PATIENCE)[1]) != over:
            got.append(text)
        assert got == sending.result(PATIENCE)
        assert (ann.counters.dropped, ann.counters.abandoned) == (0, 0)
    with pytest.raises(ZmtpError, match="never drops"):
        PeerSocket(on_full="drop")


@pytest.mark.spec("P2P-18")
def test_multipart_messages_are_never_sent() -> None:
    with PeerSocket() as us, ByHand.connect(us.bind(TCP)) as peer:
        peer.shake_hands(b"PEER")
        to_peer = wait_for(us, PeerConnected).routing_id
        for parts in ([b"a", b"b"], (b"a",), [], "ab"):
            with pytest.raises(MessageError):
                us.send(to_peer, parts)  # type: ignore[arg-type]
        us.send(to_peer, b"whole")
        us.send(to_peer, b"x" * 300)
        # No flag says that more frames follow, and no other frame comes before the message.
        peer.expect(b"\x00\x05whole", b"\x02\0\0\0\0\0\0\x01\x2c" + b"x" * 300)
        assert peer.hears_nothing()


# Threads


@pytest.mark.spec("P2P-19")
@TRANSPORTS
def test_sending_and_receiving_are_atomic_from_any_thread(transport: str) -> None:
    """Eight threads send, eight receive, on two sockets: each message arrives once, whole, in its sender's order."""
    each = 600

    def text(sender: int, number: int) -> bytes:
        return b"%d %d " % (sender, number) + b"%d" % (sender % 10) * (number % 700)

    with PeerSocket() as ann, PeerSocket() as bob, ThreadPoolExecutor(16) as pool:
        to_bob = ann.connect(bob.bind(place(transport)))

        def send(sender: int) -> None:
            for number in range(each):
                ann.send(to_bob, text(sender, number), PATIENCE)

        def receive() -> list[tuple[int, int]]:
            got = []
            while (data := bob.recv(PATIENCE)[1]) != b"stop":
                sender, number, _ = data.split(b" ")
                assert data == text(int(sender), int(number))
                got.append((int(sender), int(number)))
            return got

        receiving = [pool.submit(receive) for _ in range(8)]
        sending = [pool.submit(send, sender) for sender in range(8)]
        for one in sending:
            one.result(PATIENCE)
        for _ in receiving:
            ann.send(to_bob, b"stop")
        heard = [one.result(PATIENCE) for one in receiving]
    assert Counter(itertools.chain.from_iterable(heard)) == Counter(itertools.product(range(8), range(each)))
    for got in heard:
        for sender in range(8):
            numbers = [number for who, number in got if who == sender]
            assert numbers == sorted(numbers)


# The wire


@pytest.mark.spec("P2P-20")
def test_on_the_wire_the_socket_type_is_peer() -> None:
    with PeerSocket(identity=b"not told") as us:
        endpoint = us.bind(TCP)
        with ByHand.connect(endpoint) as peer:
            assert peer.shake_hands(b"PEER") == b"\x05READY\x0bSocket-Type\0\0\0\x04PEER"
            to_peer = wait_for(us, PeerConnected).routing_id
            us.send(to_peer, b"hello")
            peer.expect(message(b"hello"))
        for other in (b"DEALER", b"ROUTER", b"SERVER", b"CLIENT", b"peer"):
            with ByHand.connect(endpoint) as stranger:
                stranger.say(greeting(), ready(other))
                assert wait_for(us, HandshakeFailed).reason == f"a {other.decode()} cannot talk to a PEER"
                stranger.hear_the_end()
