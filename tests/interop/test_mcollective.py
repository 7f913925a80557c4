"""The middleware and libzmq: a pyzmq DEALER sends the same frames as the Ruby connector, and is as strict."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.interop.libzmq import PATIENCE, Theirs
from tests.interop.ruby import BODY, CLIENT, DAEMON, SERVER, STRANGER, RubyConnector
from tests.zmtp.waiting import wait_until
from zambezi.mcollective import settling
from zambezi.mcollective.sync import Connector, Fleet, Middleware
from zambezi.zmtp import Authenticator, CurveClient, CurveServer, Null, z85
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.security import Security


@pytest.fixture(params=["NULL", "CURVE"])
def curve(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "CURVE")


@pytest.fixture
def middleware(curve: bool) -> Iterator[tuple[Middleware, str]]:
    security: Security = CurveServer(SERVER) if curve else Null()
    guard = Authenticator(keys={"daemon": DAEMON.public, "client": CLIENT.public}) if curve else None
    with Middleware(security=security, authenticator=guard, linger=0) as middleware:
        yield middleware, middleware.bind("tcp://127.0.0.1:*")


def user_of(name: bytes, curve: bool) -> dict[bytes, bytes]:
    """Return the header by which the middleware says who sent a message: an extension, for clients with keys."""
    return {b"X-ZAMBEZI-USER": name} if curve else {}


@pytest.mark.spec("MCO-01", "MCO-02", "MCO-04", "MCO-09", "MCO-10", "MCO-11")
def test_a_conversation_of_daemons_and_a_client(middleware: tuple[Middleware, str], curve: bool) -> None:
    ours, endpoint = middleware
    with Theirs() as theirs:
        daemons = [RubyConnector(theirs, endpoint, number, DAEMON if curve else None) for number in range(5)]
        for number, daemon in enumerate(daemons):
            daemon.connect()
            for topic in (b"mcollective nodes node%d" % number, b"mcollective discovery", b"mcollective rpcutil"):
                daemon.subscribe(topic)
        client = RubyConnector(theirs, endpoint, 99, CLIENT if curve else None)
        client.connect()
        reply_to = b"mcollective reply client 4711"
        client.subscribe(reply_to)
        client.put(b"mcollective discovery", BODY, reply_to)
        for daemon in daemons:
            headers, body = daemon.receive()
            told = [(b"TOPIC", b"mcollective discovery"), (b"X-REPLY-TO", reply_to)]
            assert list(headers.items()) == [*user_of(b"client", curve).items(), *told]
            assert body == [BODY]
            daemon.put(headers[b"X-REPLY-TO"], body[0][::-1])
        for _ in daemons:
            assert client.receive() == ({**user_of(b"daemon", curve), b"TOPIC": reply_to}, [BODY[::-1]])
        client.put(b"mcollective nodes node3", b"only you", reply_to)
        assert daemons[3].receive()[1] == [b"only you"]
        client.unsubscribe(reply_to)
        client.disconnect()
        wait_until(lambda: reply_to not in [each.topic for each in ours.topics()])
        assert ours.counters.errors == ours.counters.missed == 0
        assert ours.counters.deliveries == 5 + 5 + 1


@pytest.mark.spec("MCO-06", "MCO-08")
def test_heartbeats_both_ways_and_a_daemon_that_falls_silent(middleware: tuple[Middleware, str], curve: bool) -> None:
    ours, endpoint = middleware
    with Theirs() as theirs:
        daemon = RubyConnector(theirs, endpoint, keys=DAEMON if curve else None)
        daemon.connect(ttl=1000)
        daemon.subscribe(b"mcollective discovery")
        for _ in range(2):  # longer than the TTL, with a NOOP of its own now and then
            while not daemon.sock.poll(100):
                daemon.send(b"NOOP", {})
            assert daemon.sock.recv_multipart() == [b"", b"NOOP"]
        assert [each.topic for each in ours.topics()] == [b"mcollective discovery"]
        wait_until(lambda: ours.counters.expired == 1)
        assert ours.topics() == []
        daemon.send(b"SUB", {b"ID": b"7"}, [b"mcollective discovery"])
        frames = [b"", b"NOOP"]
        while frames == [b"", b"NOOP"]:
            frames = daemon.sock.recv_multipart()
        assert frames[:4] == [b"", b"ERROR", b"ID", b"7"]
        assert b"CONNECT again" in frames[5]
        daemon.connect()
        daemon.subscribe(b"mcollective discovery")


def test_a_daemon_that_subscribes_to_one_agent_after_the_other_gets_each_answer_before_any_message(
    middleware: tuple[Middleware, str], curve: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connector takes the message after each SUB for the answer, also if a discovery comes between two of them."""
    for name in ("QUIET", "LONGEST"):
        monkeypatch.setattr(settling, name, 3600.0)  # its PUT below ends the wait, however slow this machine is
    _, endpoint = middleware
    security = CurveClient(SERVER.public, CLIENT) if curve else Null()
    with Theirs() as theirs, Connector(endpoint, security=security) as operator:
        daemon = RubyConnector(theirs, endpoint, keys=DAEMON if curve else None)
        daemon.connect()
        for number in range(10):
            daemon.subscribe(b"mcollective agent %d" % number)
            operator.put("mcollective agent 0", b"%d" % number, confirm=True, timeout=PATIENCE)
        daemon.put(b"mcollective agent 9", b"I am here")
        assert [daemon.receive()[1] for _ in range(11)] == [*([b"%d" % number] for number in range(10)), [b"I am here"]]


def test_daemons_come_back_after_the_middleware_was_restarted(curve: bool) -> None:
    """libzmq connects again by itself, with the same identity, and its program does not notice."""
    security: Security = CurveServer(SERVER) if curve else Null()
    first = Middleware(security=security, linger=0)
    endpoint = first.bind("tcp://127.0.0.1:*")
    with Theirs() as theirs:
        daemon = RubyConnector(theirs, endpoint, keys=DAEMON if curve else None)
        daemon.connect()
        daemon.subscribe(b"a")
        first.close()
        with Middleware(security=security, linger=0) as second:
            second.bind(endpoint)
            wait_until(lambda: second.clients == 1)
            daemon.send(b"NOOP", {})  # accepted without a CONNECT
            daemon.disconnect()
            daemon.connect()
            daemon.subscribe(b"a", b"b", b"c")
            daemon.put(b"c", b"x")
            assert daemon.receive() == ({b"TOPIC": b"c"}, [b"x"])
            assert second.counters.errors == 0


@pytest.mark.spec("MCO-02")
def test_a_key_that_is_not_allowed_gets_nowhere() -> None:
    guard = Authenticator(keys={"daemon": DAEMON.public})
    with Middleware(security=CurveServer(SERVER), authenticator=guard, linger=0) as ours, Theirs() as theirs:
        endpoint = ours.bind("tcp://127.0.0.1:*")
        stranger = RubyConnector(theirs, endpoint, keys=STRANGER)
        with contextlib.suppress(zmq.Again):  # libzmq has no queue any more if the handshake has failed already
            stranger.sock.send_multipart([b"", b"CONNECT", b"ID", b"1", b"TTL", b"1000"], zmq.DONTWAIT)
        wait_until(lambda: ours.counters.handshakes_failed)
        daemon = RubyConnector(theirs, endpoint, keys=DAEMON)
        daemon.connect()
        assert not stranger.sock.poll(0)
        assert ours.clients == 1


def test_a_daemon_whose_key_is_allowed_later_or_comes_back_gets_in_by_itself(tmp_path: Path) -> None:
    """After ERROR in a handshake libzmq never connects again: the daemon would be stranded until its restart."""
    guard = Authenticator(keys=Keyring(tmp_path))
    with Middleware(security=CurveServer(SERVER), authenticator=guard, linger=0) as ours, Theirs() as theirs:
        daemon = RubyConnector(theirs, ours.bind("tcp://127.0.0.1:*"), keys=DAEMON)
        wait_until(lambda: ours.counters.keys_refused == 1)
        (tmp_path / "node3.pub").write_text(DAEMON.public_z85)
        daemon.connect()
        daemon.subscribe(b"mcollective discovery")
        (tmp_path / "node3.pub").unlink()
        wait_until(lambda: ours.clients == 0 and ours.counters.keys_refused == 2)
        (tmp_path / "node3.pub").write_text(DAEMON.public_z85)
        daemon.connect()
        daemon.put(b"mcollective discovery", BODY)
        wait_until(lambda: ours.counters.puts == 1)


@pytest.mark.spec("MCO-03")
def test_a_client_without_the_first_empty_frame(middleware: tuple[Middleware, str], curve: bool) -> None:
    _, endpoint = middleware
    with Theirs() as theirs:
        ruby = RubyConnector(theirs, endpoint, keys=CLIENT if curve else None)
        ruby.connect()
        ruby.subscribe(b"a")
        plain = RubyConnector(theirs, endpoint, 4, CLIENT if curve else None).sock
        plain.send_multipart([b"SUB", b"ID", b"1", b"", b"a"])
        assert plain.recv_multipart() == [b"OK", b"ID", b"1"]
        plain.send_multipart([b"PUT", b"TOPIC", b"a", b"", b"one", b"two"])
        user = user_of(b"client", curve)
        told = [frame for header in user.items() for frame in header]
        assert plain.recv_multipart() == [b"MESSAGE", *told, b"TOPIC", b"a", b"", b"one", b"two"]
        assert ruby.receive() == ({**user, b"TOPIC": b"a"}, [b"one", b"two"])


def test_a_flood_from_libzmq_reaches_every_subscriber_whole_and_in_order(
    middleware: tuple[Middleware, str], curve: bool
) -> None:
    ours, endpoint = middleware
    with Theirs() as theirs:
        subscribers = [RubyConnector(theirs, endpoint, number, DAEMON if curve else None) for number in range(5)]
        for subscriber in subscribers:
            subscriber.sock.rcvhwm = 0
            subscriber.connect()
            subscriber.subscribe(b"a")
        speaker = RubyConnector(theirs, endpoint, 99, CLIENT if curve else None)
        for number in range(2000):
            speaker.put(b"a", b"%d" % number + bytes(200))
        for subscriber in subscribers:
            for number in range(2000):
                assert subscriber.receive()[1] == [b"%d" % number + bytes(200)]
        assert ours.counters.missed == 0


def test_large_replies_of_many_daemons_reach_a_client_that_reads(
    middleware: tuple[Middleware, str], curve: bool
) -> None:
    """300 replies of 50 kB at once: more than the queues of the middleware and of the kernel."""
    ours, endpoint = middleware
    with Theirs() as theirs:
        client = RubyConnector(theirs, endpoint, 99, CLIENT if curve else None, rcvhwm=2, rcvbuf=4096)
        client.connect()
        client.subscribe(b"mcollective reply client 4711")
        daemons = [RubyConnector(theirs, endpoint, number, DAEMON if curve else None) for number in range(5)]
        for daemon in daemons:
            daemon.connect()
        for number in range(300):
            daemons[number % 5].put(b"mcollective reply client 4711", b"%d" % number + bytes(50_000))
        got = {int(client.receive()[1][0].rstrip(b"\0")) for _ in range(300)}
        assert got == set(range(300))
        assert ours.counters.missed == 0


def test_our_connector_and_a_ruby_daemon_on_one_middleware(middleware: tuple[Middleware, str], curve: bool) -> None:
    _, endpoint = middleware
    security: Security = CurveClient(SERVER.public, CLIENT) if curve else Null()
    with Theirs() as theirs, Connector(endpoint, security=security) as connector:
        daemon = RubyConnector(theirs, endpoint, keys=DAEMON if curve else None)
        daemon.connect()
        daemon.subscribe(b"mcollective rpcutil")
        connector.subscribe("mcollective reply us 1", timeout=PATIENCE)
        connector.put("mcollective rpcutil", BODY, reply_to="mcollective reply us 1")
        headers, body = daemon.receive()
        daemon.put(headers[b"X-REPLY-TO"], b"answer")
        assert body == [BODY]
        assert connector.recv(timeout=PATIENCE).body == b"answer"


@pytest.mark.spec("MCO-02")
def test_our_connector_at_a_router_of_libzmqs_with_curve() -> None:
    """A middleware on libzmq: it tests the connector's side of CURVE and of the protocol."""
    with Theirs() as theirs:
        router = theirs.socket(
            zmq.ROUTER,
            curve_server=1,
            curve_secretkey=z85.encode(SERVER.secret).encode(),
            curve_publickey=z85.encode(SERVER.public).encode(),
        )
        endpoint = theirs.bind(router)
        with Connector(endpoint, security=CurveClient(SERVER.public, CLIENT), identity=b"us", linger=0) as connector:
            identity, empty, verb, *headers = router.recv_multipart()
            assert (identity, empty, verb) == (b"us", b"", b"CONNECT")
            router.send_multipart([identity, b"", b"OK", b"ID", headers[1]])
            connector.connect(timeout=PATIENCE)
            connector.put("a", b"x")
            assert router.recv_multipart() == [b"us", b"", b"PUT", b"TOPIC", b"a", b"", b"x"]
            router.send_multipart([b"us", b"", b"MESSAGE", b"TOPIC", b"a", b"", b"y"])
            assert connector.recv(timeout=PATIENCE).body == b"y"


def test_our_fleet_sends_nothing_to_the_topics_of_ruby_daemons() -> None:
    """A Ruby daemon logs a warning and a backtrace for each message that its security plugin cannot read."""
    with Middleware(linger=0) as ours, Theirs() as theirs:
        endpoint = ours.bind("tcp://127.0.0.1:*")
        daemon = RubyConnector(theirs, endpoint)
        daemon.connect()
        for topic in (b"mcollective nodes node3", b"mcollective discovery", b"mcollective rpcutil"):
            daemon.subscribe(topic)
        with Connector(endpoint) as connector:
            fleet = Fleet(connector)
            fleet.ping(timeout=0.05)
            fleet.ping(nodes=["node3"], timeout=0.05)
            fleet.call("rpcutil", "inventory", timeout=0.05, discover=0.05)
            connector.put("$topics", b"", reply_to="zambezi topics 1", confirm=True, timeout=PATIENCE)
            assert connector.recv(timeout=PATIENCE).topic == "zambezi topics 1"
        daemon.put(b"mcollective discovery", BODY)
        assert daemon.receive()[1] == [BODY]  # nothing came before it
