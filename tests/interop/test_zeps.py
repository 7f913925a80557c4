"""A DEALER of libzmq speaks to the broker, byte by byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from tests.interop.libzmq import Theirs
from tests.zeps.serving import serving
from tests.zmtp.engines import CLIENT_KEYS, SERVER_KEYS
from zambezi.zeps.broker.service import BrokerService
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.security import CurveServer


def octets(text: str) -> bytes:
    return bytes.fromhex(text)


ATTACH = octets("aaa501 04 5a455053 0001 06 707269636573")  # "prices"
ATTACH_OK = octets("aaa502")
SUBSCRIBE_OK = octets("aaa504")
CREDIT_1M = octets("aaa505 0000000000100000")
CREDIT_ALL = octets("aaa505 00ffffffffffffff")
PING = octets("aaa508")
PING_OK = octets("aaa509")
DETACH = octets("aaa50a")
DETACH_OK = octets("aaa50b")


def subscribe(pattern: bytes, latest: int) -> bytes:
    return octets("aaa503") + bytes([len(pattern)]) + pattern + latest.to_bytes(8)


def publish(key: bytes, body: bytes) -> bytes:
    return octets("aaa506") + bytes([len(key)]) + key + len(body).to_bytes(4) + body


def deliver(sequence: int, key: bytes, body: bytes) -> bytes:
    return octets("aaa507") + sequence.to_bytes(8) + bytes([len(key)]) + key + len(body).to_bytes(4) + body


class Dealer:
    """A DEALER of libzmq."""

    def __init__(self, theirs: Theirs, endpoint: str, mechanism: str) -> None:
        self._sock = theirs.socket(zmq.DEALER, rcvhwm=0, sndhwm=0)
        if mechanism == "CURVE":
            self._sock.curve_serverkey = SERVER_KEYS.public_z85.encode()
            self._sock.curve_publickey = CLIENT_KEYS.public_z85.encode()
            self._sock.curve_secretkey = CLIENT_KEYS.secret_z85.encode()
        self._sock.connect(endpoint)

    def say(self, *messages: bytes) -> None:
        for message in messages:
            self._sock.send(message)

    def say_frames(self, *frames: bytes) -> None:
        self._sock.send_multipart(frames)

    def expect(self, *messages: bytes) -> None:
        for message in messages:
            assert self._sock.recv_multipart() == [message]

    def hear(self) -> bytes:
        return self._sock.recv()

    def close(self) -> None:
        self._sock.close(linger=0)


class Place:
    """A broker, and dealers that are connected to it."""

    def __init__(self, theirs: Theirs, endpoint: str, mechanism: str) -> None:
        self._theirs = theirs
        self._endpoint = endpoint
        self._mechanism = mechanism
        self._dealers: list[Dealer] = []

    def dealer(self) -> Dealer:
        self._dealers.append(Dealer(self._theirs, self._endpoint, self._mechanism))
        return self._dealers[-1]

    def leave(self) -> None:
        """Close all dealers: none of them would answer a DETACH."""
        for dealer in self._dealers:
            dealer.close()

    def attached(self) -> Dealer:
        dealer = self.dealer()
        dealer.say(ATTACH)
        dealer.expect(ATTACH_OK)
        return dealer


@pytest.fixture(params=["NULL", "CURVE"])
def place(request: pytest.FixtureRequest, theirs: Theirs, tmp_path: Path) -> Iterator[Place]:
    def make(path: Path) -> BrokerService:
        if request.param == "NULL":
            return BrokerService(path)
        return BrokerService(
            path, security=CurveServer(SERVER_KEYS), authenticator=Authenticator(keys={"ann": CLIENT_KEYS.public})
        )

    with serving(tmp_path, make) as (_, endpoint):
        made = Place(theirs, endpoint, request.param)
        yield made
        made.leave()


@pytest.mark.spec("ZEP-01", "ZEP-02", "ZEP-03", "ZEP-04", "ZEP-05", "ZEP-06", "ZEP-07")
def test_the_whole_protocol(place: Place) -> None:
    one, other = place.dealer(), place.dealer()
    for dealer in (one, other):
        dealer.say(octets("aaa501 04 5a455053 0001 06 707269636573"))
        dealer.expect(octets("aaa502"))
    one.say(octets("aaa506 04 676f6c64 00000004 32303438"))  # PUBLISH "gold" "2048"
    one.say(octets("aaa506 06 73696c766572 00000002 3234"))  # PUBLISH "silver" "24"
    one.say(octets("aaa508"))
    one.expect(octets("aaa509"))
    other.say(octets("aaa503 04 676f6c64 0000000000000000"))  # SUBSCRIBE "gold" from the beginning
    other.expect(octets("aaa504"))
    other.say(octets("aaa505 0000000000000001"))  # CREDIT of one byte: for one message
    other.expect(octets("aaa507 0000000000000001 04 676f6c64 00000004 32303438"))
    one.say(octets("aaa506 04 676f6c64 00000004 32303439"), PING)
    one.expect(PING_OK)
    other.say(PING)
    other.expect(PING_OK)  # and no third message: the credit is spent
    other.say(octets("aaa505 0000000000001000"))
    other.expect(octets("aaa507 0000000000000003 04 676f6c64 00000004 32303439"))
    other.say(octets("aaa50a"))
    other.expect(octets("aaa50b"))


@pytest.mark.spec("ZEP-01", "ZEP-08")
def test_invalid_messages(place: Place) -> None:
    dealer = place.dealer()
    wrong = [
        PING,
        octets("aaa501 04 5a455054 0001 06 707269636573"),  # "ZEPT"
        octets("aaa501 04 5a455053 0002 06 707269636573"),  # version 2
        octets("aaa501 04 5a455053 0001 00"),  # no name
        b"",
        b"hello",
    ]
    for message in wrong:
        dealer.say(message)
        answer = dealer.hear()
        assert answer[:3] == octets("aaa50c")
        assert answer[3] == len(answer) - 4
        assert answer[4:].decode().isprintable()
    dealer.say(ATTACH)
    dealer.expect(ATTACH_OK)
    for message in (ATTACH, subscribe(b"regex:(", 0), subscribe(b"", 5), ATTACH_OK, deliver(1, b"", b"")):
        dealer.say(message)
        assert dealer.hear()[:3] == octets("aaa50c")
    dealer.say_frames(b"two", b"frames")
    assert dealer.hear()[:3] == octets("aaa50c")
    dealer.say(PING)
    dealer.expect(PING_OK)


@pytest.mark.spec("ZEP-04", "ZEP-05", "ZEP-10")
def test_messages_of_all_sizes_replayed_and_live(place: Place) -> None:
    bodies = [bytes([size % 251]) * size for size in (0, 1, 239, 240, 241, 255, 256, 257, 65535, 65536, 3_000_000)]
    publisher, reader = place.attached(), place.attached()
    publisher.say(*[publish(b"k%d" % number, body) for number, body in enumerate(bodies)], PING)
    publisher.expect(PING_OK)
    reader.say(CREDIT_ALL, subscribe(b"", 0))
    reader.expect(SUBSCRIBE_OK)
    reader.expect(*[deliver(number + 1, b"k%d" % number, body) for number, body in enumerate(bodies)])
    publisher.say(*[publish(b"live", body) for body in bodies])
    reader.expect(*[deliver(number, b"live", body) for number, body in enumerate(bodies, len(bodies) + 1)])


@pytest.mark.spec("ZEP-10", "ZEP-13")
@pytest.mark.parametrize("pattern", [b"", b"a", b"exact:a1", b"glob:*1", b"regex:^b"])
def test_many_messages_while_a_reader_joins(place: Place, pattern: bytes) -> None:
    keys = [b"%c%d" % (b"ab"[number % 2], number % 5) for number in range(20_000)]
    wanted: dict[bytes, Callable[[bytes], bool]] = {
        b"": lambda key: True,
        b"a": lambda key: key.startswith(b"a"),
        b"exact:a1": lambda key: key == b"a1",
        b"glob:*1": lambda key: key.endswith(b"1"),
        b"regex:^b": lambda key: key.startswith(b"b"),
    }
    publisher, reader = place.attached(), place.attached()
    publisher.say(*[publish(key, b"x" * 40) for key in keys[:10_000]])
    reader.say(CREDIT_1M, subscribe(pattern, 0))
    publisher.say(*[publish(key, b"x" * 40) for key in keys[10_000:]])
    reader.expect(SUBSCRIBE_OK)
    reader.say(CREDIT_1M, CREDIT_1M)
    for number, key in enumerate(keys, 1):
        if wanted[pattern](key):
            reader.expect(deliver(number, key, b"x" * 40))
    reader.say(DETACH)
    reader.expect(DETACH_OK)


@pytest.mark.spec("ZEP-14")
def test_one_connection_publishes_and_subscribes(place: Place) -> None:
    dealer = place.attached()
    dealer.say(CREDIT_1M, subscribe(b"", (1 << 63) - 1))
    dealer.expect(SUBSCRIBE_OK)
    dealer.say(publish(b"a", b"1"), publish(b"b", b"2"))
    dealer.expect(deliver(1, b"a", b"1"), deliver(2, b"b", b"2"))
