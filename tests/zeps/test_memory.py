"""Memory held for a subscriber does not grow with its lag."""

import shutil
from pathlib import Path

import pytest

from tests.zeps.broker_process import BrokerProcess
from tests.zmtp.stranger import Stranger, hello
from zambezi.zeps.messages import Attach, Credit, Ping, Publish, Subscribe, Zeps
from zambezi.zmtp.frames import encode

MIB = 1 << 20
PUBLISHED = 2048 * MIB
PIECE = 4 * MIB


def connected(broker: BrokerProcess, *messages: Zeps) -> Stranger:
    """Return a client that sends these messages, and reads nothing but the answers."""
    stranger = Stranger.calling(broker.endpoint, small=True)
    stranger.say(hello() + encode([message.encode()[0] for message in (Attach("flood"), *messages, Ping())]))
    while not stranger.messages or stranger.messages[-1] != [b"\xaa\xa5\x09"]:
        stranger._take(stranger.sock.recv(4096))
    return stranger


def barrier(publisher: Stranger) -> None:
    publisher.messages.clear()
    publisher.say(encode([Ping().encode()[0]]))
    while publisher.messages != [[b"\xaa\xa5\x09"]]:
        publisher._take(publisher.sock.recv(4096))


@pytest.mark.spec("ZEP-11")
def test_subscribers_that_stop_reading_cost_little_while_two_gibibytes_are_published(tmp_path: Path) -> None:
    # Retention saves the test disk space; the subscribers that do not read do not notice.
    with BrokerProcess(tmp_path, sync="never", segment=64 * MIB, keep_bytes=256 * MIB) as broker:
        message = Publish("key", b"x" * (PIECE // 64 - 40)).encode()[0]
        piece = encode([message] * 64)
        with connected(broker) as publisher:
            for _ in range(32):
                publisher.say(piece)
            barrier(publisher)
            before = broker.resident
            with (
                connected(broker, Credit(1 << 60), Subscribe("", (1 << 63) - 1)),
                connected(broker, Credit(1 << 60), Subscribe("glob:k*", (1 << 63) - 1)),
                connected(broker, Credit(100_000), Subscribe("", (1 << 63) - 1)),
                connected(broker, Subscribe("key", (1 << 63) - 1)),
            ):
                most = before
                for _ in range(PUBLISHED // len(piece) + 1):
                    publisher.say(piece)
                    most = max(most, broker.resident)
                barrier(publisher)
                most = max(most, broker.resident)
        assert most - before < 16 * MIB
    shutil.rmtree(tmp_path)
