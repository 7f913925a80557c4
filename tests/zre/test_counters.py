"""zambezi.zre.counters: each counter has its cause, and nothing else counts."""

from dataclasses import asdict
from uuid import UUID

import pytest

from zambezi.zre.counters import Counters, Refusals
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
        (EVE, Hello(1, "tcp://10.0.0.2:50001", headers={"X": "x" * 100_000}).encode()[0], "refused_hellos"),
        (EVE, Hello(1, "ipc:///run/docker.sock").encode()[0], "refused_endpoints"),
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


def test_a_group_above_the_bound_is_counted() -> None:
    ours = ready()
    groups = [f"group {number}" for number in range(1000)]
    ours.receive(BOB, list(Hello(1, "tcp://10.0.0.2:50001", groups).encode()), 0.0)
    ours.receive(BOB, list(Join(2, "more", 1).encode()), 0.0)
    assert asdict(ours.counters) == {**asdict(Counters()), "refused_groups": 1}


def test_a_move_by_a_beacon_is_counted_in_a_mesh_with_keys() -> None:
    ours = Engine(UUID(int=0x0A), "ann", lambda _: "tcp://10.0.0.1:50000", proves=lambda _: True)
    ours.receive(BOB, list(HELLO), 0.0)
    ours.receive_beacon(b"ZRE\x01" + BOB[1:] + b"\0\0", "10.0.0.2", 0.0)
    assert ours.counters == Counters()  # every node that stops sends this
    ours.receive_beacon(b"ZRE\x01" + BOB[1:] + b"\1\1", "10.0.0.2", 0.0)
    assert asdict(ours.counters) == {**asdict(Counters()), "unproved_beacons": 1}


def test_refusals_make_one_line_in_a_minute() -> None:
    counters = Counters(gaps=5, refused_peers=1000, unproved_beacons=3)
    refusals = Refusals(counters)
    assert refusals.news(7.0) == (
        "1000 refused nodes that greeted us, 3 beacons without proof that say that a peer moved"
    )
    lines = 0
    for step in range(1200):
        counters.refused_hellos += 1
        lines += bool(refusals.news(7.0 + step / 10))
    assert lines == 1
    assert refusals.news(200.0) == "599 refused HELLOs"
    assert refusals.news(1000.0) == ""
