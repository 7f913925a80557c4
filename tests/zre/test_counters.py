"""zambezi.zre.counters: each counter has its cause, and nothing else counts."""

from dataclasses import asdict
from uuid import UUID

import pytest

from zambezi.zre.counters import Counters
from zambezi.zre.engine import Engine
from zambezi.zre.messages import Hello, Join, Ping, Shout

BOB, EVE = b"\x01" + bytes(15) + b"\x0b", b"\x01" + bytes(15) + b"\x0e"
HELLO = Hello(1, "tcp://10.0.0.2:50001").encode()


def ready() -> Engine:
    ours = Engine(UUID(int=0x0A), "ann", lambda _: "tcp://10.0.0.1:50000", max_peers=1, max_strangers=1)
    ours.receive(BOB, list(HELLO), 0.0)
    return ours


@pytest.mark.parametrize(
    ("sender", "frame", "counter"),
    [
        (b"bob", Ping(2).encode()[0], "bad_identities"),
        (BOB, b"nonsense", "bad_messages"),
        (BOB, Join(2, "A", 1).encode()[0][:-1], "bad_messages"),
        (EVE, Ping(2).encode()[0], "before_hello"),
        (EVE, HELLO[0], "refused_peers"),
        (BOB, bytes.fromhex("aaa1ff020002"), "unknown_commands"),
        (BOB, Ping(3).encode()[0], "gaps"),
        (BOB, Join(2, "A", 9).encode()[0], "status_mismatches"),
        (BOB, Shout(2, "A", []).encode()[0], "not_members"),
    ],
)
def test_a_message_that_is_discarded_is_counted_by_its_reason(sender: bytes, frame: bytes, counter: str) -> None:
    ours = ready()
    ours.receive(sender, [frame], 0.0)
    assert asdict(ours.counters) == {**asdict(Counters()), counter: 1}


@pytest.mark.parametrize(
    ("octets", "counter"),
    [(b"ZRE\x02" + bytes(18), "bad_beacons"), (b"ZRE\x01" + bytes(16) + b"\xc0\0", "refused_strangers")],
)
def test_a_beacon_that_is_discarded_is_counted_by_its_reason(octets: bytes, counter: str) -> None:
    ours = ready()
    ours.receive_beacon(octets, "10.0.0.9", 0.0)
    assert asdict(ours.counters) == {**asdict(Counters()), counter: 1}
