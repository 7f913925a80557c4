"""zambezi.zmtp.listener: binding and accepting on TCP ports and Unix sockets."""

import errno
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.zmtp.stranger import Stranger, hello, port_of
from zambezi.zmtp import descriptors
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.endpoint import Ipc, parse
from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.events import Listening, Refused
from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Dealer, Pattern, Router
from zambezi.zmtp.refusals import INTERVAL
from zambezi.zmtp.testing import Simulation, history, received


@pytest.fixture
def hub(sim: Simulation) -> Iterator[Router]:
    core = Router(sim, Options())
    yield core
    core.close(0)


def exchange(sim: Simulation, hub: Pattern, endpoint: str) -> None:
    """Send a message to an endpoint, and wait until it arrives."""
    client = Dealer(sim, Options(identity=b"c"))
    client.connect(endpoint)
    client.try_send(b"hello")
    sim.until(lambda: hub.readable)
    assert received(hub) == [[b"c", b"hello"]]
    client.close(0)
    sim.run()


# TCP


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_bind_returns_the_port_that_the_system_chose(sim: Simulation, hub: Router, host: str) -> None:
    events = history(hub)
    endpoint = hub.bind(f"tcp://{host}:*")
    assert port_of(endpoint) > 0
    assert events == [Listening(endpoint)]
    exchange(sim, hub, endpoint)


@pytest.mark.parametrize("host", ["*", "0.0.0.0"])
def test_the_wildcard_is_every_interface(sim: Simulation, hub: Router, host: str) -> None:
    endpoint = hub.bind(f"tcp://{host}:0")
    assert endpoint == f"tcp://0.0.0.0:{port_of(endpoint)}"
    exchange(sim, hub, f"tcp://127.0.0.1:{port_of(endpoint)}")


def test_the_wildcard_of_ipv6_accepts_ipv4_too(sim: Simulation, hub: Router) -> None:
    port = port_of(hub.bind("tcp://[::]:*"))
    exchange(sim, hub, f"tcp://127.0.0.1:{port}")
    exchange(sim, hub, f"tcp://[::1]:{port}")


def test_a_port_in_use_is_refused_with_advice(sim: Simulation, hub: Router) -> None:
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with pytest.raises(EndpointError, match="is another program using it"):
        Router(sim, Options()).bind(endpoint)


def test_a_port_can_be_bound_again_at_once(sim: Simulation, hub: Router) -> None:
    endpoint = hub.bind("tcp://127.0.0.1:*")
    exchange(sim, hub, endpoint)
    hub.unbind(endpoint)
    assert hub.bind(endpoint) == endpoint
    exchange(sim, hub, endpoint)


def free_range(length: int) -> tuple[int, list[socket.socket]]:
    """Reserve consecutive free ports, with sockets that do not listen: so tests of other processes do not use them."""
    while True:
        held = [socket.socket()]
        held[0].bind(("127.0.0.1", 0))
        first = held[0].getsockname()[1]
        try:
            for port in range(first + 1, first + length):
                held.append(socket.socket())
                held[-1].bind(("127.0.0.1", port))
        except OSError:
            for sock in held:
                sock.close()
            continue
        return first, held


def test_a_range_gives_each_a_port_until_it_is_exhausted(sim: Simulation) -> None:
    first, held = free_range(3)
    for sock in held:
        sock.close()
    endpoint = f"tcp://127.0.0.1:{first}-{first + 2}"
    hubs = [Router(sim, Options()) for _ in range(4)]
    assert sorted(port_of(hub.bind(endpoint)) for hub in hubs[:3]) == [first, first + 1, first + 2]
    with pytest.raises(EndpointError) as caught:
        hubs[3].bind(endpoint)
    assert endpoint in str(caught.value)
    assert "in use" in str(caught.value)
    for hub in hubs:
        hub.close(0)


def test_a_port_that_is_taken_between_bind_and_listen_is_skipped(
    sim: Simulation, hub: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, held = free_range(2)
    for sock in held:
        sock.close()
    listen = socket.socket.listen
    refusals = [OSError(errno.EADDRINUSE, "Address already in use")]

    def contended(sock: socket.socket, backlog: int) -> None:
        if refusals:
            raise refusals.pop()
        listen(sock, backlog)

    monkeypatch.setattr(socket.socket, "listen", contended)
    assert port_of(hub.bind(f"tcp://127.0.0.1:{first}-{first + 1}")) in (first, first + 1)
    refusals.append(OSError(errno.EADDRINUSE, "Address already in use"))
    with pytest.raises(EndpointError, match="in use"):
        hub.bind("tcp://127.0.0.1:*")


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b", "[2001:db8::1]"])
def test_an_address_of_another_machine_cannot_be_bound(hub: Router, host: str) -> None:
    with pytest.raises(EndpointError, match="cannot bind tcp://"):
        hub.bind(f"tcp://{host}:*")
    assert not hub.transport.listeners


# Unix sockets


def test_a_socket_file_exists_while_it_is_bound(sim: Simulation, hub: Router, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    endpoint = hub.bind(f"ipc://{path}")
    assert endpoint == f"ipc://{path}"
    assert path.is_socket()
    exchange(sim, hub, endpoint)
    hub.unbind(endpoint)
    assert not path.exists()


def test_a_stale_socket_file_is_removed_and_a_live_one_is_not(sim: Simulation, hub: Router, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    assert path.is_socket()
    hub.bind(f"ipc://{path}")
    with pytest.raises(EndpointError, match="another program is using it"):
        Router(sim, Options()).bind(f"ipc://{path}")
    exchange(sim, hub, f"ipc://{path}")


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_other_files_than_sockets_are_not_removed(hub: Router, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "precious"
    if kind == "file":
        path.write_text("data")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EndpointError, match="is not a socket"):
        hub.bind(f"ipc://{path}")
    assert os.path.lexists(path)
    assert kind != "file" or path.read_text() == "data"


def test_a_path_without_a_directory_is_an_error(hub: Router, tmp_path: Path) -> None:
    with pytest.raises(EndpointError, match="does its directory exist"):
        hub.bind(f"ipc://{tmp_path}/missing/socket")
    (tmp_path / "file").write_text("")
    with pytest.raises(EndpointError, match="cannot bind"):
        hub.bind(f"ipc://{tmp_path}/file/socket")


def test_an_abstract_name_leaves_no_file(sim: Simulation, hub: Router) -> None:
    name = f"ipc://@zambezi-test-{os.getpid()}"
    assert hub.bind(name) == name
    assert not Path(f"@zambezi-test-{os.getpid()}").exists()
    exchange(sim, hub, name)
    with pytest.raises(EndpointError, match="cannot bind"):
        Router(sim, Options()).bind(name)


def test_a_temporary_socket_leaves_nothing_behind(sim: Simulation, hub: Router) -> None:
    endpoint = hub.bind("ipc://*")
    parsed = parse(endpoint)
    assert isinstance(parsed, Ipc)
    path = Path(parsed.path)
    assert path.is_socket()
    assert path.parent.stat().st_mode & 0o077 == 0
    exchange(sim, hub, endpoint)
    hub.close(0)
    assert not path.parent.exists()


# Accepting


def test_an_address_that_is_denied_is_refused_at_accept(sim: Simulation) -> None:
    hub = Router(sim, Options(authenticator=Authenticator(deny=["127.0.0.1"])))
    events = history(hub)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with Stranger.calling(endpoint) as stranger:
        sim.until(lambda: hub.counters.refused)
        assert events[-1] == Refused(endpoint, "127.0.0.1", "address 127.0.0.1 is denied by 127.0.0.1/32")
        # No byte was sent.
        assert stranger.sock.recv(1) == b""
    hub.close(0)


def test_ipc_peers_have_no_address_to_deny(sim: Simulation, tmp_path: Path) -> None:
    hub = Router(sim, Options(authenticator=Authenticator(deny=["0.0.0.0/0", "::/0"])))
    exchange(sim, hub, hub.bind(f"ipc://{tmp_path}/socket"))
    hub.close(0)


def test_without_descriptors_new_connections_wait(
    sim: Simulation, hub: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = history(hub)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    accept = socket.socket.accept
    calls = 0

    def exhausted(sock: socket.socket) -> tuple[socket.socket, object]:
        nonlocal calls
        calls += 1
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", exhausted)
    with Stranger.calling(endpoint) as stranger:
        stranger.say(hello(identity=b"patient"))
        sim.until(lambda: calls)
        sim.run(0.01)
        sim.run(0.01)
        assert calls == 1  # no busy loop
        assert events[-1] == Refused(endpoint, "", "cannot accept: Too many open files")
        monkeypatch.setattr(socket.socket, "accept", accept)
        sim.advance(0.3)
        sim.until(lambda: b"patient" in hub.peers)


def test_closing_while_accepting_is_paused(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Router(sim, Options())
    endpoint = hub.bind("tcp://127.0.0.1:*")

    def exhausted(sock: socket.socket) -> tuple[socket.socket, object]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", exhausted)
    with Stranger.calling(endpoint):
        sim.until(lambda: hub.counters.refused)
        hub.close(0)
        sim.advance(1.0)
        assert not sim.watched
        assert sim.alarms == []


def few_descriptors(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    """Let connections take `left` more descriptors, at least: the numbers below the next one may have gaps."""
    with socket.socket() as probe:
        usable = probe.fileno() + left
    monkeypatch.setattr(descriptors, "usable", lambda: usable)


def test_connections_do_not_take_the_last_descriptors(
    sim: Simulation, hub: Router, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events = history(hub)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    few_descriptors(monkeypatch, 50)
    with ExitStack() as strangers:
        for count in range(1, 41):  # each takes two descriptors: this process has both ends
            stranger = strangers.enter_context(Stranger.calling(endpoint))
            stranger.say(hello(identity=b"%d" % count))
            sim.until(lambda count=count: len(hub.peers) + hub.counters.refused == count)  # type: ignore[misc]
        assert hub.counters.refused
        refused = [event for event in events if isinstance(event, Refused)]
        assert "keeps them in reserve" in refused[-1].reason
        assert hub.peers  # those that were there before go on
    sim.until(lambda: not hub.peers)
    exchange(sim, hub, endpoint)


def test_if_descriptors_are_few_half_open_connections_go_first(
    sim: Simulation, hub: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with ExitStack() as strangers:
        for count in range(1, 11):
            strangers.enter_context(Stranger.calling(endpoint))
            sim.until(lambda count=count: len(hub.transport.links) == count)  # type: ignore[misc]
        monkeypatch.setattr(descriptors, "usable", lambda: 0)
        stranger = strangers.enter_context(Stranger.calling(endpoint))
        stranger.say(hello(identity=b"honest"))
        sim.until(lambda: b"honest" in hub.peers)
        assert hub.counters.refused == 0


def test_many_refusals_are_few_lines_in_the_log(
    sim: Simulation, hub: Router, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with caplog.at_level(logging.INFO, "zambezi.zmtp"):
        for count in range(1, 101):
            with Stranger.calling(endpoint) as stranger:
                stranger.say(b"GET / HTTP/1.1\r\n\r\n")
                sim.until(lambda count=count: hub.counters.handshakes_failed == count)  # type: ignore[misc]
        assert len(caplog.records) == 1  # the same reason is told once
        sim.advance(INTERVAL)
    assert len(caplog.records) == 2
    assert caplog.records[-1].getMessage().startswith(f"99 more like these; the last: {endpoint}: the handshake")
