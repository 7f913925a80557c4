"""zambezi.zmtp.transport: endpoints, events, reconnecting, reviews and lingering, on a simulated clock."""

import itertools
import logging
import random
import socket
from pathlib import Path
from typing import TypeVar

import pytest

from tests.zmtp.stranger import Stranger, hello
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Limits
from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.events import (
    Connected,
    Disconnected,
    HandshakeFailed,
    Listening,
    Refused,
    Retrying,
    SocketEvent,
)
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.patterns import Dealer, Pub, Router, Sub
from zambezi.zmtp.security import CurveClient, CurveServer, PlainClient, PlainServer
from zambezi.zmtp.testing import Simulation, closed, history, received

_names = itertools.count()


@pytest.fixture
def name() -> str:
    return f"inproc://core-{next(_names)}"


E = TypeVar("E", bound=SocketEvent)


def of(kind: type[E], events: list[SocketEvent]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


# Endpoints


def test_only_bound_or_connected_endpoints_can_be_left(sim: Simulation, name: str) -> None:
    core = Dealer(sim, Options())
    core.bind(name)
    with pytest.raises(EndpointError, match=f"not bound.*{name}"):
        core.unbind("inproc://other")
    with pytest.raises(EndpointError, match="not connected"):
        core.disconnect(name, None)


def test_after_unbind_connections_stay_and_no_new_ones_come(sim: Simulation, name: str) -> None:
    hub = Router(sim, Options())
    hub.bind(name)
    first, second = Dealer(sim, Options(identity=b"first")), Dealer(sim, Options(identity=b"second"))
    first.connect(name)
    sim.run()
    hub.unbind(name)
    second.connect(name)
    for core in (first, second):
        core.try_send(b"x")
    sim.run()
    assert received(hub) == [[b"first", b"x"]]
    hub.bind(name)
    sim.run()
    assert received(hub) == [[b"second", b"x"]]


def test_disconnect_sends_queued_messages_and_does_not_reconnect(sim: Simulation, name: str) -> None:
    hub = Router(sim, Options(receive_bound=Bound(1, 1000)))
    hub.bind(name)
    client = Dealer(sim, Options(identity=b"c"))
    client.connect(name)
    sim.run()
    for number in range(5):
        client.try_send(b"%d" % number)
        sim.run()
    client.disconnect(name, None)
    assert not client.try_send(b"nobody to send to")
    got = []
    while messages := received(hub):
        got += messages
        sim.run()
    assert got == [[b"c", b"%d" % number] for number in range(5)]
    assert not client.transport.connectors
    assert not client.transport.links
    sim.advance(60)
    assert not hub.peers
    assert not closed(client)


def test_disconnecting_gives_up_when_the_linger_is_over(sim: Simulation, name: str) -> None:
    hub = Router(sim, Options(receive_bound=Bound(1, 1000)))
    hub.bind(name)
    client = Dealer(sim, Options(identity=b"c"))
    events = history(client)
    client.connect(name)
    sim.run()
    for _ in range(5):
        client.try_send(b"x")
        sim.run()
    client.disconnect(name, 2.0)
    sim.advance(1.9)
    assert client.transport.links
    sim.advance(0.2)
    assert not client.transport.links
    assert not client.transport.connectors
    assert client.counters.abandoned == 4  # all but the one that filled the inbox
    assert [type(event) for event in events] == [Connected, Disconnected]
    assert sim.alarms == []
    client.close(None)
    assert closed(client)


def test_disconnecting_a_peer_that_was_never_reached(sim: Simulation, name: str) -> None:
    client = Dealer(sim, Options())
    client.connect(name)
    sim.run()
    client.disconnect(name, None)
    hub = Router(sim, Options())
    hub.bind(name)
    sim.advance(60)
    assert not hub.peers


# Events


def test_both_sides_tell_the_story_of_a_connection(sim: Simulation) -> None:
    hub = Router(sim, Options(security=PlainServer(), authenticator=Authenticator(users={"ann": "secret"})))
    ours = history(hub)
    client = Dealer(sim, Options(identity=b"me", security=PlainClient("ann", "secret")))
    theirs = history(client)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    client.connect(endpoint)
    sim.until(lambda: of(Connected, ours) and of(Connected, theirs))
    client.close(0)
    sim.until(lambda: of(Disconnected, ours))
    assert ours == [
        Listening(endpoint),
        Connected(endpoint, "127.0.0.1", b"me", "ann", "DEALER"),
        Disconnected(endpoint, "127.0.0.1", b"me", "the peer closed the connection"),
    ]
    assert theirs == [
        Connected(endpoint, "127.0.0.1", b"", "", "ROUTER"),
        Disconnected(endpoint, "127.0.0.1", b"", "closed by this side"),
    ]
    hub.close(0)


def test_events_are_logged_and_secrets_are_not(sim: Simulation, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "zambezi.zmtp")
    hub = Router(sim, Options(security=PlainServer(), authenticator=Authenticator(users={"ann": "secret"})))
    events = history(hub)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    for password in ("secret", "guess"):
        client = Dealer(sim, Options(security=PlainClient("ann", password)))
        client.connect(endpoint)
        sim.until(lambda: of(Connected, events))
        if password == "guess":
            sim.until(lambda: of(HandshakeFailed, events))
        client.close(0)
    hub.close(0)
    told = {(level, text.rsplit(": ", 1)[-1]) for _, level, text in caplog.record_tuples}
    assert (logging.INFO, "wrong user or password") in told
    assert (logging.DEBUG, "a DEALER at 127.0.0.1 is connected, user ann") in told
    assert "ann" in caplog.text
    assert "secret" not in caplog.text
    assert "guess" not in caplog.text


def test_a_wrong_password_is_an_event_on_both_sides(sim: Simulation) -> None:
    hub = Router(sim, Options(security=PlainServer(), authenticator=Authenticator(users={"ann": "secret"})))
    ours = history(hub)
    client = Dealer(sim, Options(security=PlainClient("ann", "guess")))
    theirs = history(client)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    client.connect(endpoint)
    sim.until(lambda: of(HandshakeFailed, ours) and of(Retrying, theirs))
    assert ours[1:] == [HandshakeFailed(endpoint, "127.0.0.1", "wrong user or password")]
    assert hub.counters.handshakes_failed == 1
    failed, retrying = theirs
    assert isinstance(failed, HandshakeFailed)
    assert isinstance(retrying, Retrying)
    assert "400" in failed.reason
    assert "wrong" not in failed.reason
    assert retrying.reason == failed.reason
    client.close(0)
    hub.close(0)


# Reconnecting


def test_the_delay_grows_and_starts_again_after_a_success(sim: Simulation, name: str) -> None:
    backoff = Backoff(0.1, 1.0)
    client = Dealer(sim, Options(backoff=backoff), random.Random(5))
    events = history(client)
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    endpoint = f"tcp://127.0.0.1:{probe.getsockname()[1]}"  # bound, but it does not listen
    client.connect(endpoint)
    for count in range(1, 9):
        sim.until(lambda count=count: len(events) == count)  # type: ignore[misc]
        sim.advance(of(Retrying, events)[-1].delay)
    tries = of(Retrying, events)
    assert [event.attempt for event in tries][:8] == list(range(1, 9))
    assert {event.reason for event in tries} == {"connection refused"}
    for event in tries:
        full = min(1.0, 0.1 * 2 ** (event.attempt - 1))
        assert full / 2 <= event.delay <= full
    sim.until(lambda: len(events) == 9)
    events.clear()
    probe.close()
    hub = Router(sim, Options())
    hub.bind(endpoint)
    sim.advance(1.0)
    sim.until(lambda: of(Connected, events))
    sim.advance(1.0)
    hub.close(0)
    sim.until(lambda: of(Retrying, events))
    assert of(Retrying, events)[0].attempt == 1
    assert of(Retrying, events)[0].reason == "the peer closed the connection"
    client.close(0)


def test_messages_that_are_queued_while_the_server_is_away_arrive_later(sim: Simulation) -> None:
    client = Dealer(sim, Options(identity=b"c"))
    events = history(client)
    endpoint = "tcp://127.0.0.1:*"
    for text in (b"first", b"second", b"third"):
        hub = Router(sim, Options())
        endpoint = hub.bind(endpoint)
        if not client.transport.connectors:
            client.connect(endpoint)
        client.try_send(text)
        sim.advance(1.0)
        sim.until(lambda hub=hub: hub.readable)  # type: ignore[misc]
        assert received(hub) == [[b"c", text]]
        hub.close(0)
        sim.until(lambda: of(Retrying, events))
        events.clear()
    client.close(0)


def test_names_are_resolved_again_for_each_attempt(sim: Simulation) -> None:
    hub = Router(sim, Options())
    port = hub.bind("tcp://127.0.0.1:*").rpartition(":")[2]
    client = Dealer(sim, Options())
    events = history(client)
    client.connect(f"tcp://somewhere.example:{port}")
    sim.run()
    assert "cannot find tcp://somewhere.example" in of(Retrying, events)[0].reason
    sim.names["somewhere.example"] = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", int(port)))]
    sim.advance(1.0)
    sim.until(lambda: of(Connected, events))
    client.close(0)
    hub.close(0)


# Reviews

SERVER, ANN, BOB = (KeyPair.generate(seed=bytes([number]) * 32) for number in (1, 2, 3))


def test_an_added_key_is_accepted_and_a_removed_one_disconnected(sim: Simulation, tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    hub = Router(sim, Options(security=CurveServer(SERVER), authenticator=Authenticator(keys=ring)))
    ours = history(hub)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    clients = [
        Dealer(sim, Options(identity=name, security=CurveClient(SERVER.public, pair)))
        for name, pair in ((b"ann", ANN), (b"bob", BOB))
    ]
    for client in clients:
        client.connect(endpoint)
    sim.until(lambda: hub.counters.handshakes_failed >= 2)
    assert not hub.peers
    for name, pair in (("ann", ANN), ("bob", BOB)):
        (tmp_path / f"{name}.pub").write_text(pair.public_z85)
    for _ in range(40):
        sim.advance(0.5)
        sim.run(0.01)
    sim.until(lambda: len(hub.peers) == 2)
    assert {event.user for event in of(Connected, ours)} == {"ann", "bob"}
    (tmp_path / "ann.pub").unlink()
    sim.advance(1.1)
    cut = of(Disconnected, ours)
    assert [event.identity for event in cut] == [b"ann"]
    assert "no longer allowed" in cut[0].reason
    sim.advance(30)
    assert list(hub.peers) == [b"bob"]
    # A key with another name comes back under that name: protocols know peers by the name.
    (tmp_path / "bob.pub").rename(tmp_path / "bert.pub")
    sim.advance(1.1)
    assert of(Disconnected, ours)[-1].reason == "its user is now called 'bert'"
    sim.advance(5)
    sim.until(lambda: [peer.user for peer in hub.peers.values()] == ["bert"])
    for client in clients:
        client.close(0)
    hub.close(0)


def test_a_change_of_the_rules_is_noticed_within_a_second(sim: Simulation) -> None:
    guard = Authenticator()
    hub = Router(sim, Options(authenticator=guard))
    ours = history(hub)
    client = Dealer(sim, Options(identity=b"c"))
    endpoint = hub.bind("tcp://127.0.0.1:*")
    client.connect(endpoint)
    sim.until(lambda: hub.peers)
    guard.update(deny=["127.0.0.0/8"])
    sim.advance(0.5)
    assert hub.peers
    sim.advance(0.6)
    assert not hub.peers
    assert of(Disconnected, ours)[0].reason == "no longer allowed: address 127.0.0.1 is denied by 127.0.0.0/8"
    for _ in range(5):
        sim.advance(1.0)
        sim.run(0.01)
    assert {event.reason for event in of(Refused, ours)} == {"address 127.0.0.1 is denied by 127.0.0.0/8"}
    guard.update(deny=[])
    for _ in range(30):
        sim.advance(1.0)
        sim.run(0.01)
    sim.until(lambda: hub.peers)
    client.close(0)
    hub.close(0)


def test_peers_in_the_handshake_are_reviewed_too(sim: Simulation) -> None:
    guard = Authenticator()
    hub = Router(sim, Options(authenticator=guard))
    ours = history(hub)
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")):
        sim.until(lambda: hub.transport.links)
        guard.update(deny=["127.0.0.1"])
        sim.advance(1.1)
        assert not hub.transport.links
        assert "no longer allowed" in of(HandshakeFailed, ours)[0].reason
    hub.close(0)


def test_inproc_peers_are_not_reviewed(sim: Simulation, name: str) -> None:
    guard = Authenticator()
    hub = Router(sim, Options(authenticator=guard))
    hub.bind(name)
    client = Dealer(sim, Options())
    client.connect(name)
    sim.run()
    guard.update(keys={})
    sim.advance(2)
    assert len(hub.peers) == 1


def test_reviews_go_on_after_one_has_failed(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Authenticator()
    hub = Router(sim, Options(authenticator=guard))
    reviews = 0

    def fail() -> bool:
        nonlocal reviews
        reviews += 1
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(guard, "refresh", fail)
    for _ in range(3):
        with pytest.raises(OSError, match="Too many"):
            sim.advance(1.0)
    assert reviews == 3
    hub.close(0)
    assert sim.alarms == []


def test_a_closed_socket_reviews_no_more(sim: Simulation) -> None:
    hub = Router(sim, Options(authenticator=Authenticator()))
    assert len(sim.alarms) == 1
    sim.advance(10)
    assert len(sim.alarms) == 1
    hub.close(None)
    assert sim.alarms == []


# Limits


def test_the_limit_of_connections(sim: Simulation) -> None:
    hub = Router(sim, Options(limits=Limits(connections=2)))
    ours = history(hub)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    strangers = [Stranger.calling(endpoint) for _ in range(3)]
    sim.until(lambda: hub.counters.refused)
    strangers[2].listen_to_the_end()
    assert "the socket has 2 connections" in of(Refused, ours)[0].reason
    strangers[0].close()
    sim.until(lambda: len(hub.transport.links) == 1)
    with Stranger.calling(endpoint) as late:
        late.say(hello(identity=b"late"))
        sim.until(lambda: b"late" in hub.peers)
    for stranger in strangers:
        stranger.close()
    hub.close(0)


# Lingering


def test_closing_without_anything_is_immediate(sim: Simulation) -> None:
    core = Dealer(sim, Options())
    closed: list[bool] = []
    core.on_closed = lambda: closed.append(True)
    core.close(5.0)
    assert closed == [True]
    core.close(5.0)
    assert closed == [True]
    assert sim.alarms == []


def test_closing_waits_for_a_connection_that_does_not_exist_yet(sim: Simulation, name: str) -> None:
    client = Dealer(sim, Options(identity=b"c"))
    client.connect(name)
    client.try_send(b"x")
    client.close(None)
    sim.advance(1000)
    assert not closed(client)
    hub = Router(sim, Options())
    hub.bind(name)
    sim.run()
    assert received(hub) == [[b"c", b"x"]]
    assert closed(client)
    assert client.counters.abandoned == 0


def test_closing_gives_up_when_the_linger_is_over(sim: Simulation, name: str) -> None:
    client = Dealer(sim, Options())
    client.connect(name)
    client.try_send_batch([b"x"] * 3, 0)
    client.close(5.0)
    sim.advance(4.9)
    assert not closed(client)
    sim.advance(0.2)
    assert closed(client)
    assert client.counters.abandoned == 3
    hub = Router(sim, Options())
    hub.bind(name)
    sim.advance(10)
    assert not hub.peers


def test_closing_without_linger_abandons_and_counts(sim: Simulation, name: str) -> None:
    client = Dealer(sim, Options())
    client.connect(name)
    client.try_send_batch([b"x"] * 3, 0)
    client.close(0)
    assert closed(client)
    assert client.counters.abandoned == 3


def test_closing_while_the_peer_has_no_room_waits_for_it(sim: Simulation, name: str) -> None:
    hub = Router(sim, Options(receive_bound=Bound(1, 1000)))
    hub.bind(name)
    client = Dealer(sim, Options(identity=b"c"))
    client.connect(name)
    sim.run()
    for number in range(5):
        client.try_send(b"%d" % number)
        sim.run()
    client.close(None)
    got = []
    while messages := received(hub):
        assert not closed(client)
        got += messages
        sim.run()
    assert got == [[b"c", b"%d" % number] for number in range(5)]
    assert closed(client)


def test_messages_to_a_peer_that_has_left_are_counted(sim: Simulation, name: str) -> None:
    hub = Router(sim, Options())
    hub.bind(name)
    client = Dealer(sim, Options(identity=b"c", receive_bound=Bound(1, 1000)))
    client.connect(name)
    sim.run()
    for _ in range(10):
        hub.try_send((b"c", b"x"))
        sim.run()
    client.close(0)
    sim.run()
    assert hub.counters.abandoned == 9  # all but the one that filled the inbox


def test_a_pub_closes_only_when_its_subscribers_have_everything(sim: Simulation, name: str) -> None:
    pub = Pub(sim, Options())
    pub.bind(name)
    sub = Sub(sim, Options(receive_bound=Bound(1, 1000)))
    sub.subscribe(b"")
    sub.connect(name)
    sim.run()
    for number in range(5):
        pub.try_send(b"%d" % number)
        sim.run()
    pub.close(60)
    got = []
    while messages := received(sub):
        got += messages
        sim.run()
    assert got == [[b"%d" % number] for number in range(5)]
    assert closed(pub)
    assert sim.alarms == [] or min(sim.alarms) < sim.now + 1  # the reconnect of the subscriber only
