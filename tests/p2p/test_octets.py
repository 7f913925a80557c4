"""The bytes of libzmq's ZMQ_PEER, as they were recorded from libzmq 4.3.6, and our answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interop.octets import ByHand, Listening
from tests.zmtp.engines import READS, cut, flat
from tests.zmtp.waiting import PATIENCE, wait_for
from zambezi.p2p import PeerConnected, PeerDisconnected, PeerSocket
from zambezi.p2p.pattern import PeerPattern
from zambezi.zmtp.connection import Connection, Failed, Ready
from zambezi.zmtp.events import HandshakeFailed
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.options import Options
from zambezi.zmtp.testing import Simulation

# The bytes of a libzmq PEER, in the order in which it sends them.
GREETING = bytes.fromhex("ff00000000000000017f 0301 4e554c4c" + "00" * 16 + "00" + "00" * 31)
READY = bytes.fromhex("04 1a 05 5245414459 0b 536f636b65742d54797065 00000004 50454552")
PING = bytes.fromhex("04 0b 04 50494e47 000a 63747831")
PONG = bytes.fromhex("04 09 04 504f4e47 63747831")

# A DEALER of libzmq: the bytes before its version differ from those of a PEER, and it has an Identity.
DEALER_GREETING = bytes.fromhex("ff00000000000000127f 0301 4e554c4c" + "00" * 16 + "00" + "00" * 31)
DEALER_READY = bytes.fromhex(
    "04 3a 05 5245414459 0b 536f636b65742d54797065 00000006 4445414c4552 08 4964656e74697479 00000011 01" + "5a" * 16
)
# A message that we must never send to a PEER of libzmq, which would drop it.
MULTIPART = bytes.fromhex("01 01 61 00 01 62")


def engine(identity: bytes = b"") -> Connection:
    return PeerPattern(Simulation(), Options(identity=identity)).transport.connection("127.0.0.1")


def shaken(identity: bytes = b"") -> Connection:
    connection = engine(identity)
    connection.receive(GREETING + READY, 0.0)
    connection.take_output()
    return connection


@pytest.mark.parametrize("identity", [b"", b"a name of ours"])
def test_our_handshake_has_the_same_bytes(identity: bytes) -> None:
    """It contains the Socket-Type and nothing else: no Identity, even if the socket has one."""
    connection = engine(identity)
    assert connection.take_output() == GREETING
    connection.receive(GREETING, 0.0)
    assert connection.take_output() == READY


def test_their_handshake_is_understood() -> None:
    connection = engine()
    assert connection.receive(GREETING, 0.0) == []
    (ready,) = connection.receive(READY, 0.0)
    assert isinstance(ready, Ready)
    assert (ready.socket_type, ready.identity, ready.version) == ("PEER", b"", (3, 1))
    assert dict(ready.properties) == {"socket-type": b"PEER"}


def test_their_ping_is_answered_with_the_same_bytes() -> None:
    connection = shaken()
    assert connection.receive(PING, 0.0) == []
    assert connection.take_output() == PONG


def test_their_pong_is_no_event() -> None:
    connection = shaken()
    assert connection.receive(PONG, 0.0) == []
    assert not connection.output


@pytest.mark.parametrize(
    ("data", "head"),
    [(b"", "00 00"), (b"x", "00 01"), (b"x" * 255, "00 ff"), (b"x" * 256, "02 0000000000000100")],
)
def test_a_message_is_one_frame_with_nothing_in_front(data: bytes, head: str) -> None:
    octets = bytes.fromhex(head) + data
    connection = shaken()
    assert connection.encode([data], True) == octets
    (batch,) = connection.receive(octets, 0.0)
    assert isinstance(batch, Batch)
    assert batch.frames == [data]


@given(READS, st.lists(st.binary(max_size=300), max_size=5))
def test_the_exchange_does_not_depend_on_the_reads(sizes: list[int], messages: list[bytes]) -> None:
    connection = engine()
    said = connection.take_output()
    talk = GREETING + READY + PING + shaken().encode(messages) + PING
    events = [event for read in cut(talk, sizes) for event in connection.receive(read, 0.0)]
    said += connection.take_output()
    assert said == GREETING + READY + PONG + PONG
    assert [type(event) for event in flat(events)][:1] == [Ready]
    assert flat(events)[1:] == [[message] for message in messages]


def test_a_dealer_of_theirs_is_refused() -> None:
    connection = engine()
    connection.take_output()
    (failed,) = connection.receive(DEALER_GREETING + DEALER_READY, 0.0)
    assert isinstance(failed, Failed)
    assert failed.reason == "a DEALER cannot talk to a PEER"
    assert connection.take_output().startswith(READY)


def test_a_peer_without_a_socket_type_is_accepted_as_by_libzmq() -> None:
    connection = engine()
    (ready,) = connection.receive(GREETING + bytes.fromhex("04 06 05 5245414459"), 0.0)
    assert isinstance(ready, Ready)


# The same, through sockets


def test_the_recorded_exchange_with_a_socket_that_bound() -> None:
    with PeerSocket() as us, ByHand.connect(us.bind("tcp://127.0.0.1:*")) as peer:
        peer.say(GREETING, READY)
        peer.expect(GREETING, READY)
        peer.say(PING, b"\x00\x05hello")
        peer.expect(PONG)
        routing_id, text = us.recv(PATIENCE)
        assert text == b"hello"
        us.send(routing_id, b"")
        us.send(routing_id, b"and back")
        peer.expect(b"\x00\x00", b"\x00\x08and back")


def test_the_recorded_exchange_with_a_socket_that_connected() -> None:
    with Listening() as port, PeerSocket(identity=b"ours") as us:
        to_them = us.connect(port.endpoint)
        us.send(to_them, b"early")
        with port.accept() as peer:
            peer.expect(GREETING)
            peer.say(GREETING)
            peer.expect(READY)
            peer.say(READY)
            peer.expect(b"\x00\x05early")
            peer.say(b"\x00\x05hello")
            assert us.recv(PATIENCE) == (to_them, b"hello")


def test_a_multipart_message_ends_the_connection_and_no_part_arrives() -> None:
    with PeerSocket() as us, ByHand.connect(us.bind("tcp://127.0.0.1:*")) as peer:
        peer.say(GREETING, READY)
        connected = wait_for(us, PeerConnected)
        peer.say(MULTIPART, b"\x00\x05after")
        left = wait_for(us, PeerDisconnected)
        assert left.routing_id == connected.routing_id
        assert left.reason == "the peer sent a multipart message, and sockets of this type accept only single frames"
        peer.hear_the_end()
        assert us.peers == []


def test_the_recorded_dealer_is_refused_by_a_socket() -> None:
    with PeerSocket() as us, ByHand.connect(us.bind("tcp://127.0.0.1:*")) as peer:
        peer.say(DEALER_GREETING, DEALER_READY, b"\x00\x01x")
        assert wait_for(us, HandshakeFailed).reason == "a DEALER cannot talk to a PEER"
        assert peer.hear_the_end().startswith(GREETING + READY)
        assert us.peers == []
