"""zambezi.zre.bounds: what a stranger can tell a node is small, and is refused before it costs anything."""

from typing import Any
from uuid import UUID

import pytest

from tests.zre.puppet import Puppet
from tests.zre.test_node import drained, free_port, start
from zambezi.wire import types
from zambezi.wire.types import number_4
from zambezi.zmtp.testing import Simulation
from zambezi.zre import bounds, events
from zambezi.zre.engine import Engine
from zambezi.zre.errors import ZreError
from zambezi.zre.messages import DraftHello, Hello, Join, Leave, Ping, Whisper
from zambezi.zre.outputs import Send

BOB = UUID(int=0x0B)
NOW = 1000.0
ENDPOINT = "tcp://10.0.0.2:50001"


def engine(**options: Any) -> Engine:
    return Engine(UUID(int=0x0A), "ann", lambda _: "tcp://10.0.0.1:50000", **options)


def receive(ours: Engine, *frames: bytes, sender: UUID = BOB) -> None:
    ours.receive(b"\x01" + sender.bytes, list(frames), NOW)


@pytest.fixture
def texts_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the offsets of all texts that are decoded."""
    offsets: list[int] = []
    read = types.Text.read

    def counted(self: types.Text, octets: bytes, offset: int) -> tuple[str, int]:
        offsets.append(offset)
        return read(self, octets, offset)

    monkeypatch.setattr(types.Text, "read", counted)
    return offsets


STABLE_HEAD = b"\xaa\xa1\x01\x02\x00\x01" + types.string.encode(ENDPOINT)
DRAFT_HEAD = b"\xaa\xa1\x01\x00\x01" + types.string.encode("10.0.0.2") + b"\xc3\x51"
NO_GROUPS, NO_NAME, NO_STATUS = number_4.encode(0), b"\0", b"\0"


@pytest.mark.parametrize("size", [6_000_000, 12_000])
def test_a_hello_with_millions_of_headers_is_refused_before_one_is_read(texts_read: list[int], size: int) -> None:
    ours = engine()
    headers = number_4.encode(size) + bytes(5) * size  # empty names, empty values
    receive(ours, STABLE_HEAD + NO_GROUPS + NO_STATUS + NO_NAME + headers)
    receive(ours, DRAFT_HEAD + NO_GROUPS + NO_STATUS + headers)
    assert ours.counters.refused_hellos == 2
    assert not ours.peers
    assert len(texts_read) <= 3  # endpoint and name, if it is small enough to be decoded at all


@pytest.mark.parametrize("size", [6_000_000, 15_000])
def test_a_hello_with_millions_of_groups_is_refused_before_one_is_read(texts_read: list[int], size: int) -> None:
    ours = engine()
    groups = number_4.encode(size) + bytes(4) * size
    receive(ours, STABLE_HEAD + groups)
    receive(ours, DRAFT_HEAD + groups)
    assert ours.counters.refused_hellos == 2
    assert len(texts_read) <= 2


def test_a_hello_at_the_bounds_is_accepted_and_one_above_is_not() -> None:
    ours = engine()
    groups = [f"group {number}" for number in range(bounds.GROUPS)]
    headers = {f"header {number}": "value" for number in range(bounds.HEADERS)}
    receive(ours, *Hello(1, ENDPOINT, groups, 0, "bob", headers).encode())
    assert sum(isinstance(output, events.Join) for output in ours.take()) == bounds.GROUPS
    for refused in (
        Hello(1, ENDPOINT, [*groups, "more"]),
        Hello(1, ENDPOINT, headers={**headers, "more": ""}),
        Hello(1, ENDPOINT, headers={"X": "x" * bounds.HELLO}),
        DraftHello(1, "10.0.0.2", 50001, [*groups, "more"]),
    ):
        receive(ours, *refused.encode(), sender=UUID(int=0x0C))
    assert ours.counters.refused_hellos == 4
    assert list(ours.peers) == [BOB.bytes]


def test_a_peer_is_in_no_more_groups_than_allowed() -> None:
    ours = engine()
    receive(ours, *Hello(1, ENDPOINT).encode())
    for number in range(bounds.GROUPS + 3):
        receive(ours, *Join(2 + number, f"group {number}", (1 + number) % 256).encode())
    peer = ours.peers[BOB.bytes]
    assert len(peer.groups) == bounds.GROUPS
    assert ours.counters.refused_groups == 3
    assert ours.counters.status_mismatches == 0
    # A group that it leaves makes room for another one.
    after = bounds.GROUPS + 5
    receive(ours, *Leave(after, "group 0", (after - 1) % 256).encode())
    receive(ours, *Join(after + 1, "another", after % 256).encode())
    assert "another" in peer.groups
    assert ours.counters.refused_groups == 3
    ours.receive_beacon(b"ZRE\x01" + BOB.bytes + b"\0\0", "10.0.0.2", NOW)
    assert ours.peers.cost == 0


def test_the_headers_and_groups_of_all_peers_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PEERS", 100_000)
    ours = engine()
    for number in range(100):
        hello = Hello(1, f"tcp://10.0.0.2:{1 + number}", headers={"X": "x" * 10_000})
        receive(ours, *hello.encode(), sender=UUID(int=0x100 + number))
    assert len(ours.peers) == 9
    assert ours.counters.refused_peers == 91
    assert ours.peers.cost <= 100_000
    # A peer that comes again is counted once.
    receive(ours, *Hello(1, "tcp://10.0.0.2:1", headers={"X": "y" * 10_000}).encode(), sender=UUID(int=0x100))
    assert len(ours.peers) == 9
    small = UUID(int=0x99)
    receive(ours, *Hello(1, ENDPOINT).encode(), sender=small)
    for number in range(300):
        receive(ours, *Join(2 + number, f"{number:0200}", (1 + number) % 256).encode(), sender=small)
    assert ours.peers.cost <= 100_000
    assert ours.counters.refused_groups > 250


def test_gossip_has_no_more_entries_than_allowed() -> None:
    ours = engine(gossip=True)
    receive(ours, *Hello(1, ENDPOINT).encode())
    entries = [UUID(int=0x1000 + number).bytes + b"ipc:///run/docker.sock" for number in range(30_000)]
    receive(ours, *Whisper(2, [b"\x00zambezi-gossip", *entries]).encode())
    assert ours.counters.refused_endpoints == 0  # of another form, and ignored
    entries = [UUID(int=0x1000 + number).bytes + b"tcp://127.0.0.1:22" for number in range(30_000)]
    receive(ours, *Whisper(3, [b"\x00zambezi-gossip", *entries]).encode())
    assert ours.counters.refused_endpoints == bounds.GOSSIP
    assert list(ours.peers) == [BOB.bytes]


def test_a_flood_of_hellos_from_a_peer_that_asks_for_gossip_is_answered_once() -> None:
    ours = engine()
    for number in range(50):
        receive(ours, *Hello(1, ENDPOINT).encode(), sender=UUID(int=0x100 + number))
    ours.take()
    for _ in range(100):
        receive(ours, *Hello(1, ENDPOINT, headers={"X-ZAMBEZI-GOSSIP": ENDPOINT}).encode())
    told = [output for output in ours.take() if isinstance(output, Send) and len(output.frames) > 50]
    assert len(told) <= 5  # a few new sessions in quick succession are possible


def test_a_node_tells_no_more_than_others_accept() -> None:
    groups = [f"group {number}" for number in range(bounds.GROUPS)]
    headers = {f"header {number}": "value" for number in range(bounds.HEADERS)}
    ours = engine(groups=groups, headers=headers)
    with pytest.raises(ZreError, match="at most 1000 groups, not 1001"):
        ours.join("more")
    with pytest.raises(ZreError, match="at most 256 headers, not 257"):
        ours.set_header("more", "tcp://10.0.0.1:1", NOW)
    ours.set_header("header 0", "tcp://10.0.0.1:1", NOW)
    with pytest.raises(ZreError, match="at most 1000 groups"):
        engine(groups=[*groups, "more"])
    with pytest.raises(ZreError, match="at most 256 headers"):
        engine(headers={**headers, "more": ""})
    with pytest.raises(ZreError, match="HELLO"):
        engine(headers={"X": "x" * bounds.HELLO})
    with pytest.raises(ZreError, match="HELLO"):
        engine().set_header("X", "x" * bounds.HELLO, NOW)


def test_a_message_above_the_bound_ends_the_connection_before_it_is_read(sim: Simulation) -> None:
    node = start(sim, "ann", interface="lo", beacon_port=free_port(), max_message=100_000)
    bob = Puppet(sim, "tcp://127.0.0.1:*", node.endpoint)
    bob.greet()
    bob.say(Whisper(2, [b"x" * (100_000 - 64)]))
    sim.until(lambda: any(isinstance(event, events.Whisper) for event in node.events))
    eve = Puppet(sim, "tcp://127.0.0.1:*", node.endpoint, UUID(int=0x0E))
    eve.greet()
    sim.until(lambda: len(node.peers) == 2)
    eve.say(Whisper(2, [b"x" * 101_000]))
    identity = b"\x01" + eve.uuid.bytes
    mailbox = node._mailbox.peers[identity]
    sim.until(lambda: not mailbox.connected)
    bob.say(Ping(3))
    sim.until(lambda: bob.heard()[-1:] and node._mailbox.peers)
    assert sum(isinstance(event, events.Whisper) for event in drained(node)) == 1
    for puppet in (bob, eve):
        puppet.close()
    node.stop(0)
    sim.run()


def test_a_message_above_the_bound_cannot_be_sent(sim: Simulation) -> None:
    node = start(sim, "ann", interface="lo", beacon_port=free_port())
    with pytest.raises(ZreError, match="above max_message, which is 1048576: send it in parts"):
        node.shout("CHAT", (b"x" * bounds.MESSAGE,))
    with pytest.raises(ZreError, match="above max_message"):
        node.whisper(BOB, (b"x",) * 20_000)
    assert node.shout("CHAT", (b"x" * (bounds.MESSAGE - 64),)).count == 0
    node.stop(0)
    sim.run()


def test_a_bound_below_a_hello_is_refused(sim: Simulation) -> None:
    with pytest.raises(ZreError, match="max_message must be at least 65536 bytes, not 1000"):
        start(sim, "ann", interface="lo", max_message=1000)
