"""zambezi.zmtp.connector: connecting and reconnecting, over TCP, Unix sockets and in memory."""

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.zmtp.stranger import Stranger, port_of
from zambezi.zmtp.connection import Limits
from zambezi.zmtp.events import Connected, HandshakeFailed, Retrying
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Dealer, Router
from zambezi.zmtp.security import CurveClient, CurveServer
from zambezi.zmtp.stream import StreamLink
from zambezi.zmtp.testing import Simulation, closed, history, received


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is bound, but on which no socket listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def entry(address: str, port: int) -> tuple[object, ...]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return (family, socket.SOCK_STREAM, 0, "", (address, port))


def test_a_failed_connection_has_a_reason(sim: Simulation, closed_port: int, tmp_path: Path) -> None:
    for endpoint, reason in (
        (f"tcp://127.0.0.1:{closed_port}", "connection refused"),
        (f"ipc://{tmp_path}/nothing", "no such file or directory"),
    ):
        client = Dealer(sim, Options())
        events = history(client)
        client.connect(endpoint)
        sim.until(lambda events=events: events)  # type: ignore[misc]
        assert isinstance(events[0], Retrying)
        assert (events[0].endpoint, events[0].attempt, events[0].reason) == (endpoint, 1, reason)
        client.close(0)


def test_all_addresses_of_a_name_are_tried(sim: Simulation, closed_port: int) -> None:
    hub = Router(sim, Options())
    port = port_of(hub.bind("tcp://127.0.0.1:*"))
    sim.names["many.example"] = [entry("127.0.0.1", closed_port), entry("::1", closed_port), entry("127.0.0.1", port)]
    client = Dealer(sim, Options())
    events = history(client)
    client.connect("tcp://many.example:5555")
    sim.until(lambda: events)
    assert isinstance(events[0], Connected)
    client.close(0)
    hub.close(0)


def test_the_reason_is_that_of_the_last_address(sim: Simulation, closed_port: int) -> None:
    client = Dealer(sim, Options())
    events = history(client)
    sim.names["many.example"] = [entry("127.0.0.1", closed_port)] * 2
    sim.names["none.example"] = []
    client.connect("tcp://many.example:5555")
    client.connect("tcp://none.example:5555")
    sim.until(lambda: len(events) == 2)
    assert {(event.endpoint, event.reason) for event in events if isinstance(event, Retrying)} == {
        ("tcp://many.example:5555", "connection refused"),
        ("tcp://none.example:5555", "no address was found"),
    }
    client.close(0)


def test_a_name_that_is_resolved_too_late_is_ignored(sim: Simulation) -> None:
    hub = Router(sim, Options())
    sim.names["late.example"] = [entry("127.0.0.1", port_of(hub.bind("tcp://127.0.0.1:*")))]
    client = Dealer(sim, Options())
    client.connect("tcp://late.example:5555")
    client.close(0)
    sim.run(0.01)
    assert not hub.transport.links
    hub.close(0)


def test_a_server_that_does_not_answer_has_a_deadline(sim: Simulation) -> None:
    # The backlog is full: the kernel makes further attempts wait.
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    waiting = []
    for _ in range(3):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(server.getsockname())
        waiting.append(sock)
    client = Dealer(sim, Options(limits=Limits(handshake_time=3.0)))
    events = history(client)
    client.connect(f"tcp://127.0.0.1:{server.getsockname()[1]}")
    sim.run(0.02)
    sim.advance(2.9)
    assert events == []
    sim.advance(0.2)
    assert isinstance(events[0], Retrying)
    assert events[0].reason == "no answer"
    client.close(0)
    assert not sim.watched
    for sock in [server, *waiting]:
        sock.close()


def test_closing_while_connecting_closes_the_socket(sim: Simulation, closed_port: int) -> None:
    client = Dealer(sim, Options())
    client.connect(f"tcp://127.0.0.1:{closed_port}")
    client.close(None)
    assert closed(client)
    assert not sim.watched
    assert sim.alarms == []


def test_closing_while_waiting_to_try_again(sim: Simulation, closed_port: int) -> None:
    client = Dealer(sim, Options())
    events = history(client)
    client.connect(f"tcp://127.0.0.1:{closed_port}")
    sim.until(lambda: events)
    assert sim.alarms
    client.close(None)
    assert closed(client)
    assert sim.alarms == []


def test_closing_during_the_handshake(sim: Simulation) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client = Dealer(sim, Options())
        client.connect(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        sim.until(lambda: client.transport.links)
        client.close(None)
        assert closed(client)
        assert not sim.watched


def test_a_silent_server_is_tried_again(sim: Simulation) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client = Dealer(sim, Options(limits=Limits(handshake_time=3.0)))
        events = history(client)
        endpoint = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        client.connect(endpoint)
        sim.until(lambda: client.transport.links)
        sim.advance(3.1)
        assert events[0] == HandshakeFailed(endpoint, "127.0.0.1", "the handshake took longer than 3 s")
        assert isinstance(events[1], Retrying)
        client.close(0)


def test_a_connection_that_ends_at_once_is_tried_again(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Router(sim, Options())
    client = Dealer(sim, Options(identity=b"c"))
    events = history(client)
    getpeername = socket.socket.getpeername

    def gone(sock: socket.socket) -> object:
        raise OSError(107, "Transport endpoint is not connected")

    monkeypatch.setattr(socket.socket, "getpeername", gone)
    client.connect(hub.bind("tcp://127.0.0.1:*"))
    sim.until(lambda: events)
    assert isinstance(events[0], Retrying)
    assert events[0].reason == "the connection ended at once"
    monkeypatch.setattr(socket.socket, "getpeername", getpeername)
    client.try_send(b"x")
    sim.advance(1.0)
    sim.until(lambda: hub.readable)
    assert received(hub) == [[b"c", b"x"]]
    client.close(0)
    hub.close(0)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_both_ends_of_a_connection_never_block_and_send_small_messages_at_once(sim: Simulation, host: str) -> None:
    hub, client = Router(sim, Options()), Dealer(sim, Options(identity=b"c"))
    client.connect(hub.bind(f"tcp://{host}:*"))
    sim.until(lambda: hub.peers)
    for pattern in (hub, client):
        (link,) = pattern.transport.links
        assert isinstance(link, StreamLink)
        assert not link._sock.getblocking()
        assert link._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        pattern.close(0)


def test_a_connection_within_this_machine_takes_few_system_calls(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., object]:
        original = getattr(socket.socket, name)

        def call(sock: socket.socket, *args: object) -> object:
            calls[name] += 1
            return original(sock, *args)

        return call

    hub, client = Router(sim, Options()), Dealer(sim, Options(identity=b"c"))
    endpoint = hub.bind("tcp://127.0.0.1:*")
    for name in ("send", "recv", "setsockopt", "getsockopt", "getpeername", "getsockname", "setblocking", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, counted(name))
    client.connect(endpoint)
    assert client.try_send(b"x")
    sim.until(lambda: hub.readable)
    # The client: greeting; READY and message. The hub: greeting and READY. Each reads what the other sends.
    assert calls == {
        "connect_ex": 1,
        "send": 3,
        "recv": 3,
        "setsockopt": 1,
        "getpeername": 1,
        "getsockname": 1,
        "setblocking": 1,
    }
    monkeypatch.undo()
    client.close(0)
    hub.close(0)


def test_a_socket_does_not_connect_to_itself(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client = Dealer(sim, Options())
        events = history(client)
        endpoint = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(socket.socket, "getsockname", socket.socket.getpeername)
        client.connect(endpoint)
        sim.until(lambda: events)
        assert isinstance(events[0], Retrying)
        assert events[0].reason == "connection refused"
        client.close(0)


def test_a_unix_socket_with_a_full_backlog_is_tried_again(sim: Simulation, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(0)
        first = Stranger(socket.socket(socket.AF_UNIX))
        first.sock.connect(str(path))
        client = Dealer(sim, Options())
        events = history(client)
        client.connect(f"ipc://{path}")
        sim.run()
        assert isinstance(events[0], Retrying)
        assert events[0].reason == "resource temporarily unavailable"
        server.accept()[0].close()
        sim.advance(1.0)
        assert client.transport.links
        client.close(0)
        first.close()


def test_a_link_local_address_needs_an_interface_that_exists(sim: Simulation) -> None:
    client = Dealer(sim, Options())
    events = history(client)
    client.connect("tcp://[fe80::1%nowhere]:5555")
    sim.until(lambda: events)
    assert isinstance(events[0], Retrying)
    assert events[0].reason == "this machine has no interface nowhere"
    client.close(0)


def test_connections_of_one_socket_can_have_different_security(sim: Simulation) -> None:
    ann, bob, client = KeyPair.generate(), KeyPair.generate(), KeyPair.generate()
    hubs = [Router(sim, Options(security=CurveServer(pair))) for pair in (ann, bob)]
    dealer = Dealer(sim, Options())
    peers = [
        dealer.transport.connect(hub.bind("tcp://127.0.0.1:*"), CurveClient(pair.public, client))
        for hub, pair in zip(hubs, (ann, bob), strict=True)
    ]
    sim.until(lambda: all(peer.connected for peer in peers) and all(hub.peers for hub in hubs))
    assert [peer.key for peer in peers] == [ann.public, bob.public]
    assert {peer.key for hub in hubs for peer in hub.peers.values()} == {client.public}
    for socket_ in (dealer, *hubs):
        socket_.close(0)
