"""Our sockets and those of libzmq: which types can talk, and every message arrives unchanged and in order."""

import random
from pathlib import Path

import pytest
import zmq

from tests.interop.faces import Our, Ours
from tests.interop.libzmq import MARK, Monitor, Theirs, polled, subscribed
from zambezi.zmtp import Bound, Connected, Disconnected, HandshakeFailed, Unroutable

SIZES = [0, 1, 254, 255, 256, 65_535, 65_536, 65_537, 1 << 20]
MANY = 100_000
SHAPES = [
    [b""],
    [b"", b""],
    [b"", b"x", b"", b"y" * 300, b""],
    [b"%d" % number for number in range(1000)],
    [b""] * 1000,
    [b"a" * size for size in (255, 256, 0, 70_000, 1)],
]

one_face = pytest.mark.parametrize("ours", ["sync"], indirect=True)


@pytest.fixture(params=["tcp", "ipc"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "tcp://127.0.0.1:*" if request.param == "tcp" else f"ipc://{tmp_path}/s"


@pytest.fixture(params=["we bind", "they bind"])
def we_bind(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "we bind")


def content(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def join(we_bind: bool, us: Our, them: zmq.Socket[bytes], theirs: Theirs, address: str = "tcp://127.0.0.1:*") -> None:
    if we_bind:
        them.connect(us.bind(address))
    else:
        us.connect(theirs.bind(them, address))


# Pairs of socket types


def test_our_dealer_and_their_router(ours: Ours, theirs: Theirs, we_bind: bool, address: str) -> None:
    us, them = ours.dealer(identity=b"us"), theirs.socket(zmq.ROUTER)
    join(we_bind, us, them, theirs, address)
    if we_bind:
        us.wait_for(Connected)
    us.send([b"question", b""])
    assert them.recv_multipart() == [b"us", b"question", b""]
    them.send_multipart([b"us", b"", b"answer"])
    assert us.recv() == [b"", b"answer"]


def test_our_router_and_their_dealer(ours: Ours, theirs: Theirs, we_bind: bool, address: str) -> None:
    us, them = ours.router(), theirs.socket(zmq.DEALER, routing_id=b"them")
    join(we_bind, us, them, theirs, address)
    them.send_multipart([b"question", b""])
    assert us.recv() == [b"them", b"question", b""]
    us.send([b"them", b"", b"answer"])
    assert them.recv_multipart() == [b"", b"answer"]


def test_our_router_and_their_req(ours: Ours, theirs: Theirs, we_bind: bool) -> None:
    us, them = ours.router(), theirs.socket(zmq.REQ, routing_id=b"them")
    join(we_bind, us, them, theirs)
    for number in range(3):
        them.send(b"question %d" % number)
        assert us.recv() == [b"them", b"", b"question %d" % number]
        us.send([b"them", b"", b"answer %d" % number])
        assert them.recv_multipart() == [b"answer %d" % number]


def test_our_dealer_and_their_rep(ours: Ours, theirs: Theirs, we_bind: bool) -> None:
    us, them = ours.dealer(), theirs.socket(zmq.REP)
    join(we_bind, us, them, theirs)
    if we_bind:
        us.wait_for(Connected)
    us.send_each([[b"", b"one"], [b"", b"two"]])
    for question in (b"one", b"two"):
        assert them.recv() == question
        them.send_multipart([question, b"too"])
    assert us.recv_each(2) == [[b"", b"one", b"too"], [b"", b"two", b"too"]]


def test_our_dealer_and_their_dealer(ours: Ours, theirs: Theirs, we_bind: bool) -> None:
    us, them = ours.dealer(), theirs.socket(zmq.DEALER)
    join(we_bind, us, them, theirs)
    them.send(b"there")
    assert us.recv() == [b"there"]
    us.send(b"and back")
    assert them.recv_multipart() == [b"and back"]


def test_our_router_and_their_router(ours: Ours, theirs: Theirs, we_bind: bool) -> None:
    us, them = ours.router(identity=b"us"), theirs.socket(zmq.ROUTER, routing_id=b"them")
    join(we_bind, us, them, theirs)
    assert us.wait_for(Connected).socket_type == "ROUTER"
    us.send([b"them", b"there"])
    assert them.recv_multipart() == [b"us", b"there"]
    them.send_multipart([b"us", b"and back"])
    assert us.recv() == [b"them", b"and back"]


@one_face
def test_their_probe_is_a_message_like_any_other(ours: Ours, theirs: Theirs) -> None:
    us, them = ours.router(), theirs.socket(zmq.DEALER, routing_id=b"them", probe_router=1)
    them.connect(us.bind())
    assert us.recv() == [b"them", b""]


@one_face
@pytest.mark.parametrize("kind", [zmq.PUSH, zmq.PAIR, zmq.REP, zmq.SUB])
def test_a_type_that_cannot_talk_to_ours_is_refused(ours: Ours, theirs: Theirs, kind: int) -> None:
    us, them = ours.router(), theirs.socket(kind)
    them.connect(us.bind())
    assert "cannot talk to a ROUTER" in us.wait_for(HandshakeFailed).reason


# Messages


@pytest.mark.parametrize("size", SIZES)
def test_sizes(ours: Ours, theirs: Theirs, size: int) -> None:
    us, them = ours.router(), theirs.socket(zmq.DEALER, routing_id=b"them")
    them.connect(us.bind())
    message = content(size)
    them.send(message)
    assert us.recv() == [b"them", message]
    us.send([b"them", message])
    assert them.recv() == message


@one_face
def test_64_mebibytes_each_way(ours: Ours, theirs: Theirs) -> None:
    us, them = ours.dealer(), theirs.socket(zmq.DEALER)
    us.connect(theirs.bind(them))
    message = content(64 << 20)
    them.send(message, copy=False)
    assert us.recv()[0] == message
    us.send(message)
    assert them.recv() == message


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{len(shape)} frames of {len(shape[0])}")
def test_multipart(ours: Ours, theirs: Theirs, shape: list[bytes]) -> None:
    us, them = ours.dealer(), theirs.socket(zmq.DEALER)
    us.connect(theirs.bind(them))
    for _ in range(2):
        them.send_multipart(shape)
        assert us.recv() == shape
        us.send(shape)
        assert them.recv_multipart() == shape


@pytest.mark.parametrize("way", ["each", "batch"])
def test_many_messages_to_us_stay_in_order(ours: Ours, theirs: Theirs, way: str) -> None:
    us, them = ours.dealer(), theirs.socket(zmq.DEALER, sndhwm=0)
    us.connect(theirs.bind(them))
    sent = [b"%d" % number for number in range(MANY)]
    for message in sent:
        them.send(message)
    received = us.recv_each(MANY) if way == "each" else us.recv_batches(MANY)
    assert [message for (message,) in received] == sent


@pytest.mark.parametrize("way", ["each", "batch"])
def test_many_messages_from_us_stay_in_order(ours: Ours, theirs: Theirs, way: str) -> None:
    us, them = ours.dealer(), theirs.socket(zmq.DEALER, rcvhwm=0)
    us.connect(theirs.bind(them))
    sent = [b"%d" % number for number in range(MANY)]
    (us.send_each if way == "each" else us.send_batch)(sent)
    assert [them.recv() for _ in range(MANY)] == sent


@one_face
def test_a_router_sends_many_messages_to_one_of_theirs(ours: Ours, theirs: Theirs) -> None:
    us = ours.router(send_bound=Bound(messages=MANY))
    them, other = (theirs.socket(zmq.DEALER, rcvhwm=0, routing_id=name) for name in (b"them", b"other"))
    endpoint = us.bind()
    for one in (them, other):
        one.connect(endpoint)
        us.wait_for(Connected)
    sent: list[bytes | list[bytes]] = [
        [b"%d" % number, b""] if number % 3 else b"%d" % number for number in range(10_000)
    ]
    us.send_to(b"them", sent)
    us.send([b"other", b"just this"])
    assert [them.recv_multipart() for _ in sent] == [one if isinstance(one, list) else [one] for one in sent]
    assert other.recv_multipart() == [b"just this"]
    assert not other.poll(0)


# Identities


def test_a_peer_without_an_identity_is_assigned_one(ours: Ours, theirs: Theirs) -> None:
    us = ours.router()
    endpoint = us.bind()
    names = set()
    for _ in range(3):
        them = theirs.socket(zmq.DEALER)
        them.connect(endpoint)
        them.send(b"hello")
        name, _ = us.recv()
        assert name[:1] == b"\0"
        assert us.wait_for(Connected).identity == name
        us.send([name, b"hello " + name])
        assert them.recv() == b"hello " + name
        names.add(name)
    assert len(names) == 3


@one_face
@pytest.mark.parametrize("identity", [b"a", b"\x01", b"n" * 255])
def test_the_other_side_sees_our_identity(ours: Ours, theirs: Theirs, identity: bytes) -> None:
    our_router, their_dealer = ours.router(), theirs.socket(zmq.DEALER, routing_id=identity)
    their_dealer.connect(our_router.bind())
    their_dealer.send(b"")
    assert our_router.recv() == [identity, b""]
    our_dealer, their_router = ours.dealer(identity=identity), theirs.socket(zmq.ROUTER)
    our_dealer.connect(theirs.bind(their_router))
    our_dealer.send(b"")
    assert their_router.recv_multipart() == [identity, b""]


def test_a_second_peer_of_the_same_identity_is_refused(ours: Ours, theirs: Theirs) -> None:
    us = ours.router()
    endpoint = us.bind()
    first, second = (theirs.socket(zmq.DEALER, routing_id=b"same", reconnect_ivl=20) for _ in range(2))
    first.connect(endpoint)
    first.send(b"first")
    assert us.recv() == [b"same", b"first"]
    us.wait_for(Connected)
    second.connect(endpoint)
    assert "in use" in us.wait_for(HandshakeFailed).reason
    us.send([b"same", b"for the first"])
    assert first.recv() == b"for the first"
    # Once the identity is free, the second peer is accepted: it was not refused for ever.
    first.close()
    us.wait_for(Connected)
    us.send([b"same", b"for the second"])
    assert second.recv() == b"for the second"


def test_a_newer_peer_takes_an_identity_over(ours: Ours, theirs: Theirs) -> None:
    us = ours.router(handover=True)
    endpoint = us.bind()
    first, second = (theirs.socket(zmq.DEALER, routing_id=b"same", reconnect_ivl=-1) for _ in range(2))
    monitor = Monitor(first)
    first.connect(endpoint)
    first.send(b"first")
    assert us.recv() == [b"same", b"first"]
    second.connect(endpoint)
    second.send(b"second")
    assert us.recv() == [b"same", b"second"]
    assert "taken over" in us.wait_for(Disconnected).reason
    monitor.wait_for(zmq.Event.DISCONNECTED)
    us.send([b"same", b"answer"])
    assert second.recv() == b"answer"
    assert not first.poll(0)


@one_face
def test_unroutable_messages_are_dropped_or_raise(ours: Ours, theirs: Theirs) -> None:
    dropping, strict = ours.router(), ours.router(unroutable="error")
    for us in (dropping, strict):
        them = theirs.socket(zmq.DEALER, routing_id=b"them")
        monitor = Monitor(them)
        them.connect(us.bind())
        us.wait_for(Connected)
        us.send([b"them", b"to them"])
        assert them.recv() == b"to them"
        if us is strict:
            with pytest.raises(Unroutable, match="nobody"):
                us.send([b"nobody", b"lost"])
        else:
            us.send([b"nobody", b"lost"])
        assert us.counters.unroutable == 1
        them.close()
        us.wait_for(Disconnected)
        assert zmq.Event.HANDSHAKE_SUCCEEDED in monitor.so_far()
    with pytest.raises(Unroutable, match="them"):
        strict.send([b"them", b"too late"])


# Publish and subscribe


@pytest.mark.parametrize("kinds", ["pub-sub", "pub-xsub", "xpub-sub", "xpub-xsub"])
def test_we_publish(ours: Ours, theirs: Theirs, kinds: str, we_bind: bool) -> None:
    us = ours.pub() if kinds.startswith("pub") else ours.xpub()
    if kinds.endswith("xsub"):
        them = theirs.socket(zmq.XSUB)
        for prefix in (b"a", b"bc", MARK):
            them.send(b"\x01" + prefix)
    else:
        them = theirs.socket(zmq.SUB)
        for prefix in (b"a", b"bc", MARK):
            them.subscribe(prefix)
    join(we_bind, us, them, theirs)
    subscribed(us.send, lambda: polled(them))
    us.send_each([b"a", b"b", [b"bc", b"", b"body"], b"", b"\x01a", [b"x", b"a"], b"abc"])
    assert [them.recv_multipart() for _ in range(3)] == [[b"a"], [b"bc", b"", b"body"], [b"abc"]]
    us.send_each([b"bd", b"a, the end"])
    assert them.recv_multipart() == [b"a, the end"]
    if kinds.startswith("xpub"):
        assert us.recv_each(3) == [[b"\x01a"], [b"\x01bc"], [b"\x01" + MARK]]


@pytest.mark.parametrize("kinds", ["pub-sub", "pub-xsub", "xpub-sub", "xpub-xsub"])
def test_they_publish(ours: Ours, theirs: Theirs, kinds: str, we_bind: bool) -> None:
    them = theirs.socket(zmq.PUB if kinds.startswith("pub") else zmq.XPUB)
    prefixes = (b"a", b"bc", MARK)
    us = ours.xsub(*prefixes) if kinds.endswith("xsub") else ours.sub(*prefixes)
    join(we_bind, us, them, theirs)
    subscribed(them.send, us.polled)
    for message in ([b"a"], [b"b"], [b"bc", b"", b"body"], [b""], [b"x", b"a"], [b"abc"], [b"bd"], [b"a, the end"]):
        them.send_multipart(message)
    assert us.recv_each(4) == [[b"a"], [b"bc", b"", b"body"], [b"abc"], [b"a, the end"]]
    if kinds.startswith("xpub"):
        assert [them.recv() for _ in prefixes] == [b"\x01" + prefix for prefix in prefixes]


def test_our_subscriptions_come_and_go(ours: Ours, theirs: Theirs) -> None:
    them, us = theirs.socket(zmq.XPUB), ours.sub(b"early")
    us.connect(theirs.bind(them))
    assert them.recv() == b"\x01early"
    us.subscribe(b"")
    assert them.recv() == b"\x01"
    us.unsubscribe(b"early")
    assert them.recv() == b"\x00early"
    us.unsubscribe(b"")
    assert them.recv() == b"\x00"
    us.subscribe(b"again")
    us.subscribe(b"again")
    us.unsubscribe(b"again")
    us.subscribe(b"last")
    assert [them.recv(), them.recv()] == [b"\x01again", b"\x01last"]
    them.send(b"early")
    them.send(b"again")
    assert us.recv() == [b"again"]


def test_their_subscriptions_come_and_go(ours: Ours, theirs: Theirs) -> None:
    us, them = ours.xpub(), theirs.socket(zmq.SUB)
    them.connect(us.bind())
    them.subscribe(b"early")
    assert us.recv() == [b"\x01early"]
    them.subscribe(b"")
    assert us.recv() == [b"\x01"]
    them.unsubscribe(b"early")
    assert us.recv() == [b"\x00early"]
    us.send(b"something")
    assert them.recv() == b"something"
    them.unsubscribe(b"")
    assert us.recv() == [b"\x00"]
    us.send(b"into the void")
    them.subscribe(b"i")
    assert us.recv() == [b"\x01i"]
    us.send(b"it is heard")
    assert them.recv() == b"it is heard"
    them.close()
    assert us.recv() == [b"\x00i"]


@one_face
def test_a_subscription_of_two_of_theirs_is_received_once(ours: Ours, theirs: Theirs) -> None:
    us = ours.xpub()
    endpoint = us.bind()
    first, second = (theirs.socket(zmq.SUB, subscribe=b"a") for _ in range(2))
    for one in (first, second):
        one.connect(endpoint)
    assert us.recv() == [b"\x01a"]
    for one in (first, second):
        one.subscribe(MARK)
    for one in (first, second):
        subscribed(us.send, lambda one=one: polled(one))  # type: ignore[misc]
    first.close()
    # A second report, or a cancellation with the first subscriber, would have come before this.
    second.subscribe(b"b")
    assert us.recv_each(2) == [[b"\x01" + MARK], [b"\x01b"]]
    us.send(b"a")
    while (message := second.recv()).startswith(MARK):
        pass
    assert message == b"a"
    second.close()
    assert sorted(us.recv_each(3)) == [[b"\x00a"], [b"\x00b"], [b"\x00" + MARK]]


@one_face
def test_messages_go_upstream_from_xsub_to_xpub(ours: Ours, theirs: Theirs) -> None:
    our_xpub, their_xsub = ours.xpub(), theirs.socket(zmq.XSUB)
    their_xsub.connect(our_xpub.bind())
    their_xsub.send(b"\x01a")
    their_xsub.send(b"upstream")
    assert our_xpub.recv_each(2) == [[b"\x01a"], [b"upstream"]]
    their_xpub, our_xsub = theirs.socket(zmq.XPUB), ours.xsub()
    our_xsub.connect(theirs.bind(their_xpub))
    our_xsub.wait_for(Connected)
    our_xsub.send_each([b"\x01a", b"upstream"])
    assert [their_xpub.recv(), their_xpub.recv()] == [b"\x01a", b"upstream"]
    our_xsub.send(b"\x00a")
    assert their_xpub.recv() == b"\x00a"


@one_face
def test_many_of_theirs_get_what_they_subscribed_to(ours: Ours, theirs: Theirs) -> None:
    us = ours.pub()
    endpoint = us.bind()
    them = [theirs.socket(zmq.SUB, subscribe=b"%d." % (number % 5), rcvhwm=0) for number in range(20)]
    for one in them:
        one.subscribe(MARK)
        one.connect(endpoint)
    for one in them:
        while polled(one) is None:
            us.send(MARK)
    us.send_batch([b"%d.%d" % (number % 7, number) for number in range(700)])
    for index, one in enumerate(them):
        expected = [b"%d.%d" % (number % 7, number) for number in range(700) if number % 7 == index % 5]
        received: list[bytes] = []
        while len(received) < len(expected):
            message = one.recv()
            received += [] if message == MARK else [message]
        assert received == expected
