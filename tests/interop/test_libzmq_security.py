"""NULL, PLAIN and CURVE between us and libzmq: accepted peers, refused peers, and how each side learns of it."""

import contextlib
import random
from collections.abc import Iterator

import pytest
import zmq
from zmq.auth.thread import ThreadAuthenticator

from tests.interop.faces import Our, Ours
from tests.interop.libzmq import HANDSHAKE_FAILED, MARK, Monitor, Theirs, polled, subscribed, told
from zambezi.zmtp import (
    Authenticator,
    Backoff,
    Connected,
    CurveClient,
    CurveServer,
    HandshakeFailed,
    KeyPair,
    KeyRefused,
    Limits,
    Null,
    PlainClient,
    PlainServer,
)
from zambezi.zmtp.face import SocketArguments

SERVER, CLIENT, STRANGER = (KeyPair.generate(seed=bytes([number]) * 32) for number in (1, 2, 3))
USERS = {"alice": "swordfish"}

# A MESSAGE has 33 bytes around its payload: a payload of up to 222 bytes goes into a short frame.
SIZES = [0, 1, 221, 222, 223, 254, 255, 256, 65_502, 65_503, 65_535, 65_536, 1 << 20]
MANY = 10_000
FAST = Backoff(first=0.02, longest=0.1)

both_roles = pytest.mark.parametrize("we_serve", [True, False], ids=["we serve", "they serve"])
one_face = pytest.mark.parametrize("ours", ["sync"], indirect=True)

Options = dict[str, int | bytes]


class Allowed:
    """The credentials provider that pyzmq asks about a key."""

    def callback(self, domain: str, key: bytes) -> bool:
        return key == CLIENT.public_z85.encode()


@pytest.fixture
def zap(theirs: Theirs) -> Iterator[ThreadAuthenticator]:
    """pyzmq's authenticator, for their servers."""
    authenticator = ThreadAuthenticator(theirs.context)
    authenticator.start()
    authenticator.configure_plain(domain="*", passwords=USERS)
    authenticator.configure_curve_callback(domain="*", credentials_provider=Allowed())
    yield authenticator
    authenticator.stop()


def our_server(mechanism: str, keys: KeyPair = SERVER) -> SocketArguments:
    if mechanism == "NULL":
        return {"security": Null()}
    if mechanism == "PLAIN":
        return {"security": PlainServer(), "authenticator": Authenticator(users=USERS)}
    return {"security": CurveServer(keys), "authenticator": Authenticator(keys={"alice": CLIENT.public})}


def our_client(
    mechanism: str, *, keys: KeyPair = CLIENT, server: KeyPair = SERVER, password: str = "swordfish"
) -> SocketArguments:
    if mechanism == "NULL":
        return {"security": Null(), "backoff": FAST}
    if mechanism == "PLAIN":
        return {"security": PlainClient("alice", password), "backoff": FAST}
    return {"security": CurveClient(server.public, keys), "backoff": FAST}


def their_server(mechanism: str) -> Options:
    if mechanism == "NULL":
        return {}
    if mechanism == "PLAIN":
        return {"plain_server": 1}
    return {"curve_server": 1, "curve_secretkey": SERVER.secret_z85.encode()}


def their_client(
    mechanism: str, *, keys: KeyPair = CLIENT, server: KeyPair = SERVER, password: bytes = b"swordfish"
) -> Options:
    if mechanism == "NULL":
        return {}
    if mechanism == "PLAIN":
        return {"plain_username": b"alice", "plain_password": password}
    return {
        "curve_serverkey": server.public_z85.encode(),
        "curve_publickey": keys.public_z85.encode(),
        "curve_secretkey": keys.secret_z85.encode(),
    }


def two_dealers(ours: Ours, theirs: Theirs, mechanism: str, we_serve: bool) -> tuple[Our, zmq.Socket[bytes]]:
    if we_serve:
        us = ours.dealer(**our_server(mechanism))
        them = theirs.socket(zmq.DEALER, rcvhwm=0, sndhwm=0, **their_client(mechanism))
        them.connect(us.bind())
    else:
        us = ours.dealer(**our_client(mechanism))
        them = theirs.socket(zmq.DEALER, rcvhwm=0, sndhwm=0, **their_server(mechanism))
        us.connect(theirs.bind(them))
    return us, them


# Accepted peers


@both_roles
@pytest.mark.parametrize("mechanism", ["NULL", "PLAIN", "CURVE"])
def test_there_and_back(ours: Ours, theirs: Theirs, zap: ThreadAuthenticator, mechanism: str, we_serve: bool) -> None:
    us, them = two_dealers(ours, theirs, mechanism, we_serve)
    them.send_multipart([b"there", b""])
    assert us.recv() == [b"there", b""]
    us.send([b"", b"and back"])
    assert them.recv_multipart() == [b"", b"and back"]
    user = us.wait_for(Connected).user
    assert user == ("alice" if we_serve and mechanism != "NULL" else "")


@one_face
def test_curve_with_any_key(ours: Ours, theirs: Theirs) -> None:
    us = ours.router(security=CurveServer(SERVER))
    them = theirs.socket(zmq.REQ, **their_client("CURVE", keys=STRANGER))
    them.connect(us.bind())
    them.send(b"hello")
    name, empty, text = us.recv()
    us.send([name, empty, text.upper()])
    assert them.recv() == b"HELLO"


@one_face
@both_roles
def test_curve_sizes(ours: Ours, theirs: Theirs, we_serve: bool) -> None:
    us, them = two_dealers(ours, theirs, "CURVE", we_serve)
    for size in SIZES:
        message = random.Random(size).randbytes(size)
        them.send(message)
        assert us.recv() == [message]
        us.send(message)
        assert them.recv_multipart() == [message]


@both_roles
def test_curve_multipart(ours: Ours, theirs: Theirs, we_serve: bool) -> None:
    us, them = two_dealers(ours, theirs, "CURVE", we_serve)
    for shape in ([b"", b"x", b"", b"y" * 300, b""], [b"%d" % number for number in range(1000)], [b""] * 3):
        for _ in range(2):
            them.send_multipart(shape)
            us.send(shape)
            assert us.recv() == shape
            assert them.recv_multipart() == shape


@both_roles
def test_curve_many_messages_stay_in_order(ours: Ours, theirs: Theirs, we_serve: bool) -> None:
    us, them = two_dealers(ours, theirs, "CURVE", we_serve)
    sent = [b"%d" % number for number in range(MANY)]
    for message in sent:
        them.send(message)
    assert [message for (message,) in us.recv_each(MANY)] == sent
    us.send_each(sent[: MANY // 2])
    us.send_batch(sent[MANY // 2 :])
    assert [them.recv() for _ in range(MANY)] == sent


@both_roles
@pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])
def test_we_publish(ours: Ours, theirs: Theirs, zap: ThreadAuthenticator, mechanism: str, we_serve: bool) -> None:
    us = ours.xpub(**(our_server if we_serve else our_client)(mechanism))
    them = theirs.socket(zmq.SUB, **(their_client if we_serve else their_server)(mechanism))
    if we_serve:
        them.connect(us.bind())
    else:
        us.connect(theirs.bind(them))
    them.subscribe(b"a")
    assert told(us.polled, them) == [b"\x01a"]
    us.send_each([b"b", [b"a", b"", b"body"]])
    assert them.recv_multipart() == [b"a", b"", b"body"]
    them.subscribe(b"b")
    assert us.recv() == [b"\x01b"]
    them.unsubscribe(b"a")
    assert us.recv() == [b"\x00a"]
    us.send_each([b"a", b"b"])
    assert them.recv_multipart() == [b"b"]


@both_roles
@pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])
def test_they_publish(ours: Ours, theirs: Theirs, zap: ThreadAuthenticator, mechanism: str, we_serve: bool) -> None:
    us = ours.sub(b"a", **(our_server if we_serve else our_client)(mechanism))
    them = theirs.socket(zmq.XPUB, **(their_client if we_serve else their_server)(mechanism))
    if we_serve:
        them.connect(us.bind())
    else:
        us.connect(theirs.bind(them))
    assert them.recv() == b"\x01a"
    them.send(b"b")
    them.send_multipart([b"a", b"", b"body"])
    assert us.recv() == [b"a", b"", b"body"]
    us.subscribe(b"b")
    assert them.recv() == b"\x01b"
    us.unsubscribe(b"a")
    assert them.recv() == b"\x00a"
    them.send(b"a")
    them.send(b"b")
    assert us.recv() == [b"b"]


@one_face
def test_one_message_boxed_for_each_of_many_subscribers(ours: Ours, theirs: Theirs) -> None:
    us = ours.pub(**our_server("CURVE"))
    endpoint = us.bind()
    them = [theirs.socket(zmq.SUB, subscribe=MARK, **their_client("CURVE")) for _ in range(5)]
    for one in them:
        one.connect(endpoint)
        subscribed(us.send, lambda one=one: polled(one))  # type: ignore[misc]
    us.send([MARK + b" the end", b"body"])
    for one in them:
        while (message := one.recv_multipart())[0] != MARK + b" the end":
            assert message[0].startswith(MARK)
        assert message[1:] == [b"body"]


# Refused peers


def nobody_but_a_friend_is_heard(us: Our, theirs: Theirs, endpoint: str, mechanism: str) -> None:
    """Check that a refused client is not heard: its message would arrive before that of a later client."""
    friend = theirs.socket(zmq.DEALER, **their_client(mechanism))
    friend.connect(endpoint)
    friend.send(b"a friend")
    assert us.recv()[1:] == [b"a friend"]


def try_to_send(them: zmq.Socket[bytes]) -> None:
    """libzmq gives a connection up for good if its handshake violates the protocol; it may have done so by now."""
    with contextlib.suppress(zmq.Again):
        them.send(b"secret", zmq.NOBLOCK)


def only_a_friend_is_heard_by(them: zmq.Socket[bytes], ours: Ours, endpoint: str, mechanism: str) -> None:
    friend = ours.dealer(**our_client(mechanism))
    friend.connect(endpoint)
    friend.send(b"a friend")
    assert them.recv_multipart()[1:] == [b"a friend"]


def test_their_client_with_a_wrong_server_key(ours: Ours, theirs: Theirs) -> None:
    us, them = ours.router(**our_server("CURVE")), theirs.socket(zmq.DEALER, **their_client("CURVE", server=STRANGER))
    monitor = Monitor(them)
    endpoint = us.bind()
    them.connect(endpoint)
    try_to_send(them)
    assert "HELLO does not open" in us.wait_for(HandshakeFailed).reason
    monitor.wait_for(*HANDSHAKE_FAILED)
    nobody_but_a_friend_is_heard(us, theirs, endpoint, "CURVE")


def test_our_client_with_a_wrong_server_key(ours: Ours, theirs: Theirs, zap: ThreadAuthenticator) -> None:
    us, them = ours.dealer(**our_client("CURVE", server=STRANGER)), theirs.socket(zmq.ROUTER, **their_server("CURVE"))
    monitor = Monitor(them)
    endpoint = theirs.bind(them)
    us.connect(endpoint)
    us.send(b"secret")
    assert us.wait_for(HandshakeFailed).reason
    assert monitor.wait_for(*HANDSHAKE_FAILED)[0] == zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    only_a_friend_is_heard_by(them, ours, endpoint, "CURVE")


def test_their_key_is_not_allowed_here(ours: Ours, theirs: Theirs) -> None:
    us, them = ours.router(**our_server("CURVE")), theirs.socket(zmq.DEALER, **their_client("CURVE", keys=STRANGER))
    monitor = Monitor(them)
    endpoint = us.bind()
    them.connect(endpoint)
    try_to_send(them)
    assert STRANGER.public_z85 in us.wait_for(HandshakeFailed).reason
    nobody_but_a_friend_is_heard(us, theirs, endpoint, "CURVE")
    # It is not told (AUTH), because it would never come back, and its key may be allowed later.
    assert monitor.wait_for(*HANDSHAKE_FAILED)[0] == zmq.Event.HANDSHAKE_FAILED_NO_DETAIL


@one_face
def test_their_key_is_allowed_later(ours: Ours, theirs: Theirs) -> None:
    arguments = our_server("CURVE")
    guard = arguments["authenticator"]
    assert guard is not None
    us = ours.router(**arguments)
    them = theirs.socket(zmq.DEALER, reconnect_ivl=20, **their_client("CURVE", keys=STRANGER))
    them.connect(us.bind())
    assert us.wait_for(KeyRefused).key == STRANGER.public_z85
    guard.update(keys={"alice": CLIENT.public, "stranger": STRANGER.public})
    assert us.wait_for(Connected).user == "stranger"
    guard.update(keys={"alice": CLIENT.public})
    us.wait_for(KeyRefused)
    guard.update(keys={"stranger": STRANGER.public})
    us.wait_for(Connected)
    them.send(b"in")
    assert us.recv()[1:] == [b"in"]


def test_our_key_is_not_allowed_there(ours: Ours, theirs: Theirs, zap: ThreadAuthenticator) -> None:
    us, them = ours.dealer(**our_client("CURVE", keys=STRANGER)), theirs.socket(zmq.ROUTER, **their_server("CURVE"))
    monitor = Monitor(them)
    endpoint = theirs.bind(them)
    us.connect(endpoint)
    us.send(b"secret")
    assert "(400)" in us.wait_for(HandshakeFailed).reason
    assert monitor.wait_for(*HANDSHAKE_FAILED) == (zmq.Event.HANDSHAKE_FAILED_AUTH, 400)
    only_a_friend_is_heard_by(them, ours, endpoint, "CURVE")


def test_their_password_is_wrong(ours: Ours, theirs: Theirs) -> None:
    us, them = ours.router(**our_server("PLAIN")), theirs.socket(zmq.DEALER, **their_client("PLAIN", password=b"guess"))
    monitor = Monitor(them)
    endpoint = us.bind()
    them.connect(endpoint)
    try_to_send(them)
    assert us.wait_for(HandshakeFailed).reason == "wrong user or password"
    # Not AUTH: libzmq 4.3.5 writes the ERROR of PLAIN as "^RROR", and does not understand the right form.
    assert monitor.wait_for(*HANDSHAKE_FAILED)[0] == zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    nobody_but_a_friend_is_heard(us, theirs, endpoint, "PLAIN")


def test_our_password_is_wrong(ours: Ours, theirs: Theirs, zap: ThreadAuthenticator) -> None:
    us, them = ours.dealer(**our_client("PLAIN", password="guess")), theirs.socket(zmq.ROUTER, **their_server("PLAIN"))
    monitor = Monitor(them)
    endpoint = theirs.bind(them)
    us.connect(endpoint)
    us.send(b"secret")
    assert "(400)" in us.wait_for(HandshakeFailed).reason
    assert monitor.wait_for(*HANDSHAKE_FAILED) == (zmq.Event.HANDSHAKE_FAILED_AUTH, 400)
    only_a_friend_is_heard_by(them, ours, endpoint, "PLAIN")


@one_face
@both_roles
@pytest.mark.parametrize(
    ("server", "client"),
    [
        ("NULL", "PLAIN"),
        ("NULL", "CURVE"),
        ("PLAIN", "NULL"),
        ("PLAIN", "CURVE"),
        ("CURVE", "NULL"),
        ("CURVE", "PLAIN"),
    ],
)
def test_mechanisms_that_differ(
    ours: Ours, theirs: Theirs, zap: ThreadAuthenticator, server: str, client: str, we_serve: bool
) -> None:
    if we_serve:
        us, them = ours.router(**our_server(server)), theirs.socket(zmq.DEALER, **their_client(client))
        monitor = Monitor(them)
        endpoint = us.bind()
        them.connect(endpoint)
        try_to_send(them)
    else:
        us, them = ours.dealer(**our_client(client)), theirs.socket(zmq.ROUTER, **their_server(server))
        monitor = Monitor(them)
        endpoint = theirs.bind(them)
        us.connect(endpoint)
        us.send(b"secret")
    assert us.wait_for(HandshakeFailed).reason
    assert monitor.wait_for(*HANDSHAKE_FAILED)[0] == zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    if we_serve:
        nobody_but_a_friend_is_heard(us, theirs, endpoint, server)
    else:
        only_a_friend_is_heard_by(them, ours, endpoint, server)


@one_face
@pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])
def test_two_servers_do_not_talk(ours: Ours, theirs: Theirs, zap: ThreadAuthenticator, mechanism: str) -> None:
    """Each waits for the HELLO of the other: the greeting of libzmq does not say that it is a server."""
    arguments = our_server(mechanism)
    arguments["limits"] = Limits(handshake_time=0.2)
    us = ours.router(**arguments)
    them = theirs.socket(zmq.ROUTER, **their_server(mechanism))
    monitor = Monitor(them)
    us.connect(theirs.bind(them))
    assert us.wait_for(HandshakeFailed).reason == "the handshake took longer than 0.2 s"
    monitor.wait_for(*HANDSHAKE_FAILED)


@one_face
@pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])
def test_an_identity_in_use_does_not_keep_its_peer_away_for_ever(ours: Ours, theirs: Theirs, mechanism: str) -> None:
    """A peer that receives ERROR does not come back (37/ZMTP, "Error Handling").

    So a peer must not receive it because this side has not noticed yet that its old connection is dead.
    """
    us = ours.router(**our_server(mechanism))
    endpoint = us.bind()
    first, second = (
        theirs.socket(zmq.DEALER, routing_id=b"same", reconnect_ivl=20, **their_client(mechanism)) for _ in range(2)
    )
    first.connect(endpoint)
    us.wait_for(Connected)
    second.connect(endpoint)
    assert "in use" in us.wait_for(HandshakeFailed).reason
    first.close()
    assert us.wait_for(Connected).identity == b"same"
    us.send([b"same", b"welcome"])
    assert second.recv() == b"welcome"
