"""Our PEER and libzmq's ZMQ_PEER, bound on either side. Needs a libzmq with the draft sockets: see libzmq_peer."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zmq

from tests.interop.libzmq import Theirs
from tests.interop.libzmq_peer import AT_ONCE, MORE, PATIENCE, VARIABLE, LibzmqError, LibzmqPeer, missing
from tests.interop.octets import ByHand, command, greeting, message, ready
from tests.zmtp.waiting import wait_for, wait_until
from zambezi.p2p import NoSuchPeer, PeerConnected, PeerDisconnected, PeerSocket
from zambezi.zmtp import Backoff, Bound, Heartbeat
from zambezi.zmtp.events import HandshakeFailed, Retrying
from zambezi.zmtp.sync import Dealer

why_not = missing()
needs_peer = pytest.mark.skipif(bool(why_not), reason=why_not)
EAGER = Backoff(0.01, 0.05)
SIZES = (0, 1, 2, 254, 255, 256, 257, 65_535, 65_536, 1 << 20)

Make = Callable[[], LibzmqPeer]


@pytest.fixture
def them() -> Iterator[Make]:
    """A function that makes peers of libzmq, which are closed at the end."""
    made: list[LibzmqPeer] = []

    def make() -> LibzmqPeer:
        made.append(LibzmqPeer(os.environ[VARIABLE]))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def us() -> Iterator[PeerSocket]:
    with PeerSocket(backoff=EAGER, linger=0) as socket:
        yield socket


def meet(us: PeerSocket, theirs: LibzmqPeer, who_binds: str, endpoint: str) -> tuple[int, int]:
    """Return our routing id of them, and theirs of us."""
    if who_binds == "we":
        to_us = theirs.connect(us.bind(endpoint))
        theirs.send(to_us, b"hello")
        to_them, text = us.recv(PATIENCE)
    else:
        to_them = us.connect(theirs.bind(endpoint))
        us.send(to_them, b"hello")
        to_us, text = theirs.recv()
    assert text == b"hello"
    return to_them, to_us


both_ways = pytest.mark.parametrize("who_binds", ["we", "they"])


@needs_peer
@both_ways
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_messages_of_all_sizes_go_both_ways(
    us: PeerSocket, them: Make, who_binds: str, transport: str, tmp_path: Path
) -> None:
    theirs = them()
    endpoint = "tcp://127.0.0.1:*" if transport == "tcp" else f"ipc://{tmp_path}/s"
    to_them, to_us = meet(us, theirs, who_binds, endpoint)
    for size in SIZES:
        data = os.urandom(size)
        us.send(to_them, data)
        assert theirs.recv() == (to_us, data)
        theirs.send(to_us, data)
        assert us.recv(PATIENCE) == (to_them, data)


@needs_peer
@both_ways
def test_twenty_thousand_messages_arrive_in_order(us: PeerSocket, them: Make, who_binds: str) -> None:
    theirs = them()
    to_them, to_us = meet(us, theirs, who_binds, "tcp://127.0.0.1:*")
    numbers = [b"%d" % number for number in range(20_000)]

    def each(send: Callable[[bytes], None]) -> None:
        for number in numbers:
            send(number)

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(each, lambda number: us.send(to_them, number, PATIENCE))
        assert [theirs.recv()[1] for _ in numbers] == numbers
        sending.result(PATIENCE)
        sending = pool.submit(each, lambda number: theirs.send(to_us, number))
        assert [us.recv(PATIENCE)[1] for _ in numbers] == numbers
        sending.result(PATIENCE)


@needs_peer
def test_several_of_theirs_are_told_apart(us: PeerSocket, them: Make) -> None:
    endpoint = us.bind("tcp://127.0.0.1:*")
    peers = [them() for _ in range(3)]
    ids = [peer.connect(endpoint) for peer in peers]
    for number, (peer, to_us) in enumerate(zip(peers, ids, strict=True)):
        peer.send(to_us, b"%d" % number)
    routes = {text: routing_id for routing_id, text in (us.recv(PATIENCE) for _ in peers)}
    assert len(set(routes.values())) == 3
    for text, routing_id in routes.items():
        us.send(routing_id, b"to " + text)
    for number, (peer, to_us) in enumerate(zip(peers, ids, strict=True)):
        assert peer.recv() == (to_us, b"to %d" % number)


@needs_peer
def test_our_routing_id_survives_a_restart_of_theirs(us: PeerSocket, them: Make) -> None:
    endpoint, to_them = "tcp://127.0.0.1:*", 0
    for number in range(3):
        theirs = them()
        endpoint = theirs.bind(endpoint)
        to_them = to_them or us.connect(endpoint)
        us.send(to_them, b"%d" % number)
        to_us, text = theirs.recv()
        assert text == b"%d" % number
        theirs.send(to_us, b"answer")
        assert us.recv(PATIENCE) == (to_them, b"answer")
        theirs.close()
        wait_for(us, Retrying)
        assert us.peers == [to_them]


@needs_peer
def test_their_routing_id_survives_a_restart_of_ours(them: Make) -> None:
    theirs = them()
    endpoint, to_us = "tcp://127.0.0.1:*", 0
    for number in range(3):
        with PeerSocket() as us:
            endpoint = us.bind(endpoint)
            to_us = to_us or theirs.connect(endpoint)
            wait_for(us, PeerConnected)
            theirs.send(to_us, b"%d" % number)
            to_them, text = us.recv(PATIENCE)
            assert text == b"%d" % number
            us.send(to_them, b"answer")
            assert theirs.recv() == (to_us, b"answer")


@needs_peer
def test_when_theirs_leaves_its_queue_is_removed(us: PeerSocket, them: Make) -> None:
    theirs = them()
    to_them, _ = meet(us, theirs, "we", "tcp://127.0.0.1:*")
    theirs.close()
    assert wait_for(us, PeerDisconnected).routing_id == to_them
    with pytest.raises(NoSuchPeer):
        us.send(to_them, b"x")


@needs_peer
def test_when_we_disconnect_their_queue_is_removed(us: PeerSocket, them: Make) -> None:
    theirs = them()
    to_them, to_us = meet(us, theirs, "they", "tcp://127.0.0.1:*")
    us.disconnect(to_them)

    def gone() -> bool:
        with pytest.raises(LibzmqError):
            theirs.recv(0)  # libzmq learns of it here; a send, which waits for room in the old queue, does not
        try:
            theirs.send(to_us, b"x", AT_ONCE)
        except LibzmqError as error:
            return error.number == errno.EHOSTUNREACH
        return False

    wait_until(gone)


@needs_peer
def test_many_of_our_threads_and_one_of_theirs(us: PeerSocket, them: Make) -> None:
    theirs = them()
    to_them, to_us = meet(us, theirs, "they", "tcp://127.0.0.1:*")
    start = threading.Barrier(8)

    def work(sender: int) -> None:
        start.wait(PATIENCE)
        for number in range(1000):
            us.send(to_them, b"%d %d" % (sender, number), PATIENCE)

    with ThreadPoolExecutor(8) as pool:
        working = [pool.submit(work, sender) for sender in range(8)]
        got = [tuple(map(int, theirs.recv()[1].split())) for _ in range(8000)]
        for one in working:
            one.result(PATIENCE)
    for sender in range(8):
        assert [number for who, number in got if who == sender] == list(range(1000))
    theirs.send(to_us, b"thanks")
    assert us.recv(PATIENCE) == (to_them, b"thanks")


@needs_peer
def test_our_pings_are_answered(them: Make) -> None:
    with PeerSocket(heartbeat=Heartbeat(0.01, timeout=PATIENCE)) as us:
        theirs = them()
        to_them, to_us = meet(us, theirs, "they", "tcp://127.0.0.1:*")
        link = us._shell.peers[to_them]._link
        heard = link.connection._heard  # type: ignore[union-attr]
        wait_until(lambda: link.connection._heard > heard)  # type: ignore[union-attr]
        theirs.send(to_us, b"still here")
        assert us.recv(PATIENCE) == (to_them, b"still here")


# Refused peers


def test_their_dealer_is_refused(us: PeerSocket) -> None:
    with Theirs() as theirs:
        dealer = theirs.socket(zmq.DEALER, identity=b"choose me")
        dealer.connect(us.bind("tcp://127.0.0.1:*"))
        assert wait_for(us, HandshakeFailed).reason == "a DEALER cannot talk to a PEER"
        assert us.peers == []


def test_we_are_refused_by_their_router(us: PeerSocket) -> None:
    with Theirs() as theirs:
        to_them = us.connect(theirs.bind(theirs.socket(zmq.ROUTER)))
        us.send(to_them, b"x")
        assert wait_for(us, HandshakeFailed).reason
        assert us.peers == [to_them]  # it may be a PEER that answers there the next time


@needs_peer
def test_theirs_refuses_other_socket_types(them: Make) -> None:
    endpoint = them().bind("tcp://127.0.0.1:*")
    with Dealer(backoff=EAGER, linger=0) as dealer:
        dealer.connect(endpoint)
        wait_for(dealer, HandshakeFailed)


@needs_peer
@pytest.mark.parametrize("socket_type", [b"DEALER", b"ROUTER", b"peer"])
def test_they_refuse_another_type_as_we_do(them: Make, socket_type: bytes) -> None:
    """They just close. We close, too, and tell the reason."""
    with ByHand.connect(them().bind("tcp://127.0.0.1:*")) as pretender:
        pretender.say(greeting())
        assert pretender.hear(64 + len(ready(b"PEER")))[64:] == ready(b"PEER")
        pretender.say(ready(socket_type))
        assert pretender.hear_the_end() == b""


# Multipart messages, and recorded bytes


@needs_peer
def test_they_send_no_multipart_either(us: PeerSocket, them: Make) -> None:
    theirs = them()
    _, to_us = meet(us, theirs, "they", "tcp://127.0.0.1:*")
    with pytest.raises(LibzmqError) as caught:
        theirs.send(to_us, b"part", MORE)
    assert caught.value.number == errno.EINVAL
    for routing_id in (0, to_us + 1):
        with pytest.raises(LibzmqError) as caught:
            theirs.send(routing_id, b"x")
        assert caught.value.number == errno.EHOSTUNREACH


@needs_peer
def test_their_bytes_are_those_that_were_recorded(them: Make) -> None:
    from tests.p2p.test_octets import GREETING, PING, PONG, READY

    with ByHand.connect(them().bind("tcp://127.0.0.1:*")) as peer:
        peer.say(GREETING, READY)
        peer.expect(GREETING, READY)
        peer.say(PING)
        peer.expect(PONG)
        peer.say(command(b"UNKNOWN"), message(b"x"), PING)
        peer.expect(PONG)


@needs_peer
@pytest.mark.parametrize("count", [10, 1000])
def test_last_words_of_libzmq_are_received_if_we_keep_them_as_libzmq_does(count: int) -> None:
    with PeerSocket(keep_unread=Bound()) as us:
        endpoint = us.bind("tcp://127.0.0.1:*")
        for _ in range(3):
            theirs = LibzmqPeer(os.environ[VARIABLE], linger=PATIENCE)
            to_us = theirs.connect(endpoint)
            for number in range(count):
                theirs.send(to_us, b"%d" % number)
            theirs.close()
            assert [int(us.recv(PATIENCE)[1]) for _ in range(count)] == list(range(count))
        assert us.counters.unread == 0


@needs_peer
def test_libzmq_receives_our_last_words(them: Make) -> None:
    theirs = them()
    with PeerSocket(linger=None) as us:
        to_them = us.connect(theirs.bind("tcp://127.0.0.1:*"))
        for number in range(1000):
            us.send(to_them, b"%d" % number)
    assert [int(theirs.recv()[1]) for _ in range(1000)] == list(range(1000))
