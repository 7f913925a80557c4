"""Connections to libzmq: heartbeats, restarts, and many at once."""

import resource
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
import zmq

from tests.interop.faces import Our, Ours
from tests.interop.libzmq import PATIENCE, Monitor, Theirs, told
from zambezi.zmtp import (
    Backoff,
    Connected,
    CurveClient,
    CurveServer,
    Disconnected,
    Heartbeat,
    KeyPair,
    commands,
)
from zambezi.zmtp.face import SocketArguments

SERVER, CLIENT = (KeyPair.generate(seed=bytes([number]) * 32) for number in (1, 2))
CONNECTIONS = 500
FAST = Backoff(first=0.02, longest=0.1)

one_face = pytest.mark.parametrize("ours", ["sync"], indirect=True)


class Overheard:
    """A counter of the commands that our engines receive, by name."""

    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()
        self._changed = threading.Condition()

    def split(self, body: bytes) -> tuple[bytes, bytes]:
        name, data = REAL_SPLIT(body)
        with self._changed:
            self._counts[name] += 1
            self._changed.notify_all()
        return name, data

    def wait_for(self, name: bytes, count: int) -> None:
        with self._changed:
            wanted = self._counts[name] + count
            assert self._changed.wait_for(lambda: self._counts[name] >= wanted, PATIENCE), f"no more {name!r}"


REAL_SPLIT = commands.split


@pytest.fixture
def overheard(monkeypatch: pytest.MonkeyPatch) -> Overheard:
    ears = Overheard()
    monkeypatch.setattr(commands, "split", ears.split)
    return ears


def join(
    ours: Ours, theirs: Theirs, mechanism: str, heartbeat: Heartbeat | None = None, **options: int
) -> tuple[Our, zmq.Socket[bytes], Monitor]:
    """Our ROUTER and their DEALER."""
    arguments: SocketArguments = {"heartbeat": heartbeat}
    secrets: dict[str, bytes] = {}
    if mechanism == "CURVE":
        arguments["security"] = CurveServer(SERVER)
        secrets = {
            "curve_serverkey": SERVER.public_z85.encode(),
            "curve_publickey": CLIENT.public_z85.encode(),
            "curve_secretkey": CLIENT.secret_z85.encode(),
        }
    us, them = ours.router(**arguments), theirs.socket(zmq.DEALER, routing_id=b"them", **secrets, **options)
    monitor = Monitor(them)
    them.connect(us.bind())
    monitor.wait_for(zmq.Event.HANDSHAKE_SUCCEEDED)
    us.wait_for(Connected)
    return us, them, monitor


def there_and_back(us: Our, them: zmq.Socket[bytes]) -> None:
    them.send(b"there")
    assert us.recv() == [b"them", b"there"]
    us.send([b"them", b"and back"])
    assert them.recv() == b"and back"


# Heartbeats


@pytest.mark.parametrize("mechanism", ["NULL", "CURVE"])
def test_their_heartbeats_are_answered(ours: Ours, theirs: Theirs, overheard: Overheard, mechanism: str) -> None:
    """Without answers, libzmq would end the connection after two seconds: before the twenty-fifth PING."""
    us, them, monitor = join(ours, theirs, mechanism, heartbeat_ivl=100, heartbeat_timeout=2000, heartbeat_ttl=60_000)
    overheard.wait_for(b"PING", 25)
    there_and_back(us, them)
    overheard.wait_for(b"PING", 3)
    there_and_back(us, them)
    assert monitor.so_far() == []
    assert us.events_so_far() == []
    assert us.polled() is None


@pytest.mark.parametrize("mechanism", ["NULL", "CURVE"])
def test_our_heartbeats_are_answered(ours: Ours, theirs: Theirs, overheard: Overheard, mechanism: str) -> None:
    us, them, monitor = join(ours, theirs, mechanism, Heartbeat(interval=0.02, timeout=5.0, ttl=60.0))
    overheard.wait_for(b"PONG", 10)
    there_and_back(us, them)
    overheard.wait_for(b"PONG", 3)
    there_and_back(us, them)
    assert monitor.so_far() == []
    assert us.events_so_far() == []
    assert not them.poll(0)


@one_face
def test_heartbeats_between_many_messages(ours: Ours, theirs: Theirs, overheard: Overheard) -> None:
    """Commands between messages, and in the middle of large ones, change nothing."""
    us, them, monitor = join(
        ours, theirs, "CURVE", Heartbeat(interval=0.005, timeout=10.0), heartbeat_ivl=5, heartbeat_timeout=10_000
    )
    for number in range(50):
        shape = [b"%d" % number, b"x" * 100_000, b""]
        them.send_multipart(shape)
        assert us.recv() == [b"them", *shape]
        us.send([b"them", *shape])
        assert them.recv_multipart() == shape
    overheard.wait_for(b"PING", 1)
    overheard.wait_for(b"PONG", 1)
    assert monitor.so_far() == []


# Restarts


def test_their_router_is_restarted(ours: Ours, theirs: Theirs) -> None:
    us, before = ours.dealer(identity=b"us", backoff=FAST), theirs.socket(zmq.ROUTER)
    endpoint = theirs.bind(before)
    us.connect(endpoint)
    us.send(b"one")
    assert before.recv_multipart() == [b"us", b"one"]
    before.close()
    us.wait_for(Disconnected)
    queued = [b"queued %d" % number for number in range(100)]
    us.send_each(queued)
    after = theirs.socket(zmq.ROUTER)
    theirs.bind(after, endpoint)
    assert [after.recv_multipart() for _ in queued] == [[b"us", message] for message in queued]
    after.send_multipart([b"us", b"welcome back"])
    assert us.recv() == [b"welcome back"]


def test_our_router_is_restarted(ours: Ours, theirs: Theirs) -> None:
    before, them = ours.router(), theirs.socket(zmq.DEALER, routing_id=b"them", reconnect_ivl=20)
    monitor = Monitor(them)
    endpoint = before.bind()
    them.connect(endpoint)
    them.send(b"one")
    assert before.recv() == [b"them", b"one"]
    before.close()
    monitor.wait_for(zmq.Event.DISCONNECTED)
    for number in range(100):
        them.send(b"queued %d" % number)
    after = ours.router()
    assert after.bind(endpoint) == endpoint
    assert after.recv_each(100) == [[b"them", b"queued %d" % number] for number in range(100)]
    after.send([b"them", b"welcome back"])
    assert them.recv() == b"welcome back"


def test_their_publisher_is_restarted(ours: Ours, theirs: Theirs) -> None:
    us, before = ours.sub(b"a", b"b", backoff=FAST), theirs.socket(zmq.XPUB)
    endpoint = theirs.bind(before)
    us.connect(endpoint)
    assert [before.recv(), before.recv()] == [b"\x01a", b"\x01b"]
    before.close()
    us.wait_for(Disconnected)
    us.unsubscribe(b"a")
    us.subscribe(b"c")
    after = theirs.socket(zmq.XPUB)
    theirs.bind(after, endpoint)
    assert [after.recv(), after.recv()] == [b"\x01b", b"\x01c"]
    after.send(b"c")
    assert us.recv() == [b"c"]


@one_face
def test_our_publisher_is_restarted(ours: Ours, theirs: Theirs) -> None:
    before, them = ours.xpub(), theirs.socket(zmq.SUB, subscribe=b"a", reconnect_ivl=20)
    endpoint = before.bind()
    them.connect(endpoint)
    assert before.recv() == [b"\x01a"]
    before.close()
    after = ours.xpub()
    after.bind(endpoint)
    assert told(after.polled, them) == [b"\x01a"]
    after.send(b"a")
    assert them.recv() == b"a"


@one_face
def test_we_connect_before_they_bind(ours: Ours, theirs: Theirs) -> None:
    placeholder = theirs.socket(zmq.ROUTER)
    endpoint = theirs.bind(placeholder)
    placeholder.unbind(endpoint)
    us = ours.dealer(identity=b"us", backoff=FAST)
    us.connect(endpoint)
    us.send(b"early")
    them = theirs.socket(zmq.ROUTER)
    theirs.bind(them, endpoint)
    assert them.recv_multipart() == [b"us", b"early"]


def test_queued_messages_go_out_before_we_close(ours: Ours, theirs: Theirs) -> None:
    us, them = ours.dealer(), theirs.socket(zmq.DEALER, rcvhwm=0)
    us.connect(theirs.bind(them))
    us.send_batch([b"%d" % number for number in range(5000)])
    us.close(linger=PATIENCE)
    assert [them.recv() for _ in range(5000)] == [b"%d" % number for number in range(5000)]
    assert us.counters.abandoned == 0


# Many at once


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(8192, hard)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_500_of_theirs(ours: Ours, theirs: Theirs, many_descriptors: None) -> None:
    theirs.context.max_sockets = 2 * CONNECTIONS
    us = ours.router()
    endpoint = us.bind()
    them = [theirs.socket(zmq.DEALER, routing_id=b"%d" % number) for number in range(CONNECTIONS)]
    for number, one in enumerate(them):
        one.connect(endpoint)
        one.send(b"I am %d" % number)
    heard = us.recv_each(CONNECTIONS)
    assert sorted(heard) == sorted([b"%d" % number, b"I am %d" % number] for number in range(CONNECTIONS))
    us.send_each([[name, b"hello " + name] for name, _ in heard])
    assert [one.recv() for one in them] == [b"hello %d" % number for number in range(CONNECTIONS)]


def test_500_of_ours(ours: Ours, theirs: Theirs, many_descriptors: None) -> None:
    them = theirs.socket(zmq.ROUTER, router_mandatory=1, backlog=CONNECTIONS)
    endpoint = theirs.bind(them)
    us = [ours.dealer(identity=b"%d" % number) for number in range(CONNECTIONS)]
    for number, one in enumerate(us):
        one.connect(endpoint)
        one.send(b"I am %d" % number)
    heard = [them.recv_multipart() for _ in us]
    assert sorted(heard) == sorted([b"%d" % number, b"I am %d" % number] for number in range(CONNECTIONS))
    for name, _ in heard:
        them.send_multipart([name, b"hello " + name])
    assert [one.recv() for one in us] == [[b"hello %d" % number] for number in range(CONNECTIONS)]


@one_face
def test_500_of_theirs_with_curve(ours: Ours, theirs: Theirs, many_descriptors: None) -> None:
    theirs.context.max_sockets = 2 * CONNECTIONS
    us = ours.router(security=CurveServer(SERVER))
    endpoint = us.bind()
    them = [
        theirs.socket(
            zmq.DEALER,
            curve_serverkey=SERVER.public_z85.encode(),
            curve_publickey=CLIENT.public_z85.encode(),
            curve_secretkey=CLIENT.secret_z85.encode(),
        )
        for _ in range(CONNECTIONS)
    ]
    for number, one in enumerate(them):
        one.connect(endpoint)
        one.send(b"%d" % number)
    us.send_each(us.recv_each(CONNECTIONS))
    assert [one.recv() for one in them] == [b"%d" % number for number in range(CONNECTIONS)]


@one_face
def test_a_curve_client_of_ours_comes_back(ours: Ours, theirs: Theirs) -> None:
    us = ours.dealer(security=CurveClient(SERVER.public), backoff=FAST)
    server: dict[str, int | bytes] = {"curve_server": 1, "curve_secretkey": SERVER.secret_z85.encode()}
    before = theirs.socket(zmq.DEALER, **server)
    endpoint = theirs.bind(before)
    us.connect(endpoint)
    us.send(b"one")
    assert before.recv() == b"one"
    before.close()
    us.wait_for(Disconnected)
    us.send(b"two")
    after = theirs.socket(zmq.DEALER, **server)
    theirs.bind(after, endpoint)
    assert after.recv() == b"two"
