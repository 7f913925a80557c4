"""The bytes on the wire: older peers, subscriptions, and heartbeats."""

import pytest

from tests.interop.faces import Ours
from tests.interop.octets import ByHand, Listening, command, greeting, message, ready
from zambezi.zmtp import Connected, Disconnected, HandshakeFailed, Heartbeat

one_face = pytest.mark.parametrize("ours", ["sync"], indirect=True)


# ZMTP 3.0


def test_a_3_0_peer_gets_subscriptions_as_messages(ours: Ours) -> None:
    with Listening() as port:
        us = ours.sub(b"early")
        us.connect(port.endpoint)
        with port.accept() as peer:
            assert peer.shake_hands(b"PUB", minor=0).startswith(b"\x05READY\x0bSocket-Type\0\0\0\x03SUB")
            peer.expect(message(b"\x01early"))
            us.subscribe(b"late")
            peer.expect(message(b"\x01late"))
            us.unsubscribe(b"early")
            peer.expect(message(b"\x00early"))
            peer.say(message(b"early"), message(b"later"))
            assert us.recv() == [b"later"]


def test_a_3_1_peer_gets_subscriptions_as_commands(ours: Ours) -> None:
    with Listening() as port:
        us = ours.sub(b"early")
        us.connect(port.endpoint)
        with port.accept() as peer:
            peer.shake_hands(b"PUB")
            peer.expect(command(b"SUBSCRIBE", b"early"))
            us.unsubscribe(b"early")
            peer.expect(command(b"CANCEL", b"early"))


def test_a_3_0_peer_subscribes_with_messages(ours: Ours) -> None:
    us = ours.xpub()
    with ByHand.connect(us.bind()) as peer:
        peer.shake_hands(b"SUB", minor=0)
        peer.say(message(b"\x01a"))
        assert us.recv() == [b"\x01a"]
        us.send_each([b"b", b"a"])
        peer.expect(message(b"a"))
        peer.say(message(b"\x00a"))
        assert us.recv() == [b"\x00a"]


@one_face
def test_a_3_0_peer_is_never_pinged(ours: Ours) -> None:
    us = ours.dealer(heartbeat=Heartbeat(interval=0.01, timeout=10.0))
    endpoint = us.bind()
    with ByHand.connect(endpoint) as old, ByHand.connect(endpoint) as young:
        old.shake_hands(b"DEALER", minor=0)
        us.wait_for(Connected)
        young.shake_hands(b"DEALER")
        for _ in range(10):
            young.expect(command(b"PING", b"\0\0"))
            young.say(command(b"PONG"))
        assert old.hears_nothing()
        old.say(message(b"still here"))
        assert us.recv() == [b"still here"]


# Older than that


@pytest.mark.parametrize(
    ("first", "version"),
    [
        pytest.param(b"\xff" + bytes(7) + b"\x01\x7f\x01\x05\x00\x00", "2.0", id="ZMTP 2.0, DEALER"),
        pytest.param(b"\xff" + bytes(7) + b"\x01\x7f\x00", "2.0", id="ZMTP 2.0, revision 0"),
        pytest.param(b"\x01\x00", "1.0", id="ZMTP 1.0, no identity"),
        pytest.param(b"\x05\x00name", "1.0", id="ZMTP 1.0, an identity"),
        pytest.param(b"\xff" + bytes(7) + b"\x01\x00", "1.0", id="ZMTP 1.0, a long length"),
        pytest.param(b"GET / HTTP/1.1\r\n", "no ZMTP", id="HTTP"),
    ],
)
def test_an_old_peer_is_refused(ours: Ours, first: bytes, version: str) -> None:
    us = ours.router()
    with ByHand.connect(us.bind()) as peer:
        peer.say(first)
        assert version in us.wait_for(HandshakeFailed).reason
        assert len(peer.hear_the_end()) <= 64
    assert us.counters.handshakes_failed == 1


def test_a_peer_of_a_later_version_is_accepted(ours: Ours) -> None:
    us = ours.router()
    with ByHand.connect(us.bind()) as peer:
        peer.shake_hands(b"DEALER", minor=9)
        peer.say(message(b"hello"))
        assert us.recv()[1] == b"hello"


@one_face
def test_a_handshake_in_single_bytes(ours: Ours) -> None:
    us = ours.router()
    with ByHand.connect(us.bind()) as peer:
        for octet in greeting() + ready(b"DEALER") + message(b"hello"):
            peer.say(bytes([octet]))
        assert us.recv()[1] == b"hello"


# Publishing


@pytest.mark.parametrize("kind", ["pub", "xpub"])
def test_only_subscribed_messages_are_sent(ours: Ours, kind: str) -> None:
    us = ours.pub() if kind == "pub" else ours.xpub()
    with ByHand.connect(us.bind()) as peer:
        peer.shake_hands(b"SUB")

        def tell(*commands: bytes) -> None:
            # Messages after the answer to a PING were published after the commands before the PING had arrived.
            peer.say(*commands, command(b"PING", b"\0\0now"))
            peer.expect(command(b"PONG", b"now"))

        tell()
        us.send_each([b"a0", b"b0", b""])
        tell(command(b"SUBSCRIBE", b"a"))
        us.send_each([b"b1", b"a1", b"", [b"b2", b"a"], [b"a2", b"b"]])
        peer.expect(message(b"a1"), b"\x01\x02a2", message(b"b"))
        tell(command(b"SUBSCRIBE", b"a"), command(b"CANCEL", b"a"))
        us.send_each([b"a3", b"b3"])
        peer.expect(message(b"a3"))
        tell(command(b"CANCEL", b"a"))
        us.send_each([b"a4", b"b4"])
        tell(command(b"CANCEL", b"never there"), command(b"SUBSCRIBE"))
        us.send_each([b"a5", b""])
        peer.expect(message(b"a5"), message(b""))


# Heartbeats


def test_a_ping_is_answered_with_its_context(ours: Ours) -> None:
    us = ours.router()
    with ByHand.connect(us.bind()) as peer:
        peer.shake_hands(b"DEALER")
        for context in (b"", b"x", b"sixteen octets!!"):
            peer.say(command(b"PING", b"\0\0" + context))
            peer.expect(command(b"PONG", context))


@one_face
def test_a_peer_that_does_not_answer_is_dropped(ours: Ours) -> None:
    us = ours.router(heartbeat=Heartbeat(interval=0.02, timeout=0.1, ttl=1.5))
    with ByHand.connect(us.bind()) as peer:
        peer.shake_hands(b"DEALER")
        assert "after a PING" in us.wait_for(Disconnected).reason
        pings = peer.hear_the_end()
        one = command(b"PING", b"\x00\x0f")
        assert pings == one * (len(pings) // len(one))


@one_face
def test_a_peer_that_is_silent_for_its_time_to_live_is_dropped(ours: Ours) -> None:
    us = ours.router()
    with ByHand.connect(us.bind()) as peer:
        peer.shake_hands(b"DEALER")
        peer.say(command(b"PING", b"\x00\x01"))
        assert "time to live" in us.wait_for(Disconnected).reason
        assert peer.hear_the_end() == command(b"PONG")
