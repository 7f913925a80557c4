"""zambezi.zre.claims: a node that returns at its endpoint with another UUID, and strangers that claim an endpoint."""

from typing import Any
from uuid import UUID

import pytest

from tests.zre.mesh import Member, Mesh, uuid_of
from tests.zre.test_engine import BOB, IDENTITY, NOW, agree, beacon, engine, hello, kinds, whisper
from zambezi.zre import claims, events
from zambezi.zre.engine import Engine
from zambezi.zre.gossip import HEADER as GOSSIP
from zambezi.zre.messages import Join, Ping, PingOk, Stable, Whisper
from zambezi.zre.outputs import Connect, Disconnect, Send

EVE = UUID(int=0xE5E)
WHERE = "tcp://10.0.0.2:50001"  # Bob's endpoint


def engine_with_bob(
    *, connected: bool = True, source: str = "10.0.0.2", eve: str = "10.0.0.2", **options: Any
) -> Engine:
    """Return an engine that Bob has greeted from an address, and that Eve's messages reach from another."""
    ours = engine(
        source_of={BOB.bytes: source, EVE.bytes: eve}.__getitem__,
        connects_to_us=lambda key: connected and key == BOB.bytes,
        **options,
    )
    ours.receive(IDENTITY, hello(), NOW)
    ours.take()
    return ours


def greet(ours: Engine, now: float, uuid: UUID = EVE, **fields: Any) -> None:
    ours.receive(b"\x01" + uuid.bytes, hello(name="eve", **fields), now)


def ready(ours: Engine) -> list[UUID]:
    return [peer.uuid for peer in ours.peers.values() if peer.ready]


def claim_by(kind: str, ours: Engine, now: float) -> None:
    """Let Eve claim Bob's endpoint."""
    if kind == "beacon":
        ours.receive_beacon(beacon(EVE), "10.0.0.2", now)
    elif kind == "hello":
        greet(ours, now)
    else:
        ours.discover(EVE, WHERE, now)


# Nodes that return


@pytest.mark.parametrize("identities", [True, False])
@pytest.mark.parametrize("noticed", [True, False])
def test_a_node_that_returns_at_its_endpoint_with_another_uuid_is_met_at_once(identities: bool, noticed: bool) -> None:
    mesh = Mesh(identities)
    ann, bob, eve = mesh.add(1), mesh.add(2), mesh.add(3)
    mesh.advance(5)
    mesh.kill(bob, noticed)
    mesh.advance(3)
    again = mesh.add(22, address=bob.address, port=bob.port)
    mesh.advance(2 if noticed else 6)
    for one in (ann, eve):
        assert [kind for kind in kinds(one.story, bob) if kind != "Evasive"] == ["Enter", "Exit"]
        assert kinds(one.story, again) == ["Enter"]
    agree(mesh)
    whisper(mesh, ann, again, b"hello")
    whisper(mesh, again, ann, b"hello")
    mesh.advance(30)
    assert len(again.told(events.Whisper)) == len(ann.told(events.Whisper)) == 1
    agree(mesh)
    assert one_connection_each(mesh)


@pytest.mark.parametrize("identities", [True, False])
@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize("by_name", [True, False])
def test_a_seed_that_returns_with_another_uuid_has_one_exit_and_one_enter(
    identities: bool, encrypted: bool, by_name: bool
) -> None:
    mesh = Mesh(identities)
    options: dict[str, Any] = {"beacons": False, "gossip": True, "encrypted": encrypted}
    seed = mesh.add(1, port=50000, **options)
    if by_name:
        mesh.names["tcp://hub.example:50000"] = seed.endpoint
    others = [mesh.add(number, seeds=[*mesh.names, seed.endpoint][:1], **options) for number in (2, 3)]
    mesh.advance(5)
    agree(mesh)
    mesh.kill(seed, noticed=True)
    mesh.advance(4)
    again = mesh.add(11, address=seed.address, port=seed.port, **options)
    mesh.advance(2)
    for one in others:
        assert kinds(one.story, seed) == ["Enter", "Exit"]
        assert kinds(one.story, again) == ["Enter"]
    agree(mesh)
    mesh.advance(100)
    assert kinds(others[0].story, again) == ["Enter"]
    assert one_connection_each(mesh)


def one_connection_each(mesh: Mesh) -> bool:
    """Return whether no member has two connections to one mailbox."""
    return all(
        len({mesh.names.get(one.endpoint, one.endpoint) for one in member.connections.values()})
        == len(member.connections)
        for member in mesh.members.values()
    )


def test_messages_of_a_newcomer_wait_while_the_peer_at_its_endpoint_is_tested() -> None:
    ours = engine_with_bob()
    ours.start(50000, NOW)
    greet(ours, NOW + 1, groups=["A"], status=1)
    for message in (Join(2, "B", 2), Whisper(3, [b"early"])):
        ours.receive(b"\x01" + EVE.bytes, list(message.encode()), NOW + 2)
    assert ready(ours) == [BOB]
    while EVE.bytes not in ours.peers:
        now = ours.deadline
        ours.tick(now)
    assert now == NOW + 6  # Bob was connected, so he had the whole of `evasive`
    told = [output for output in ours.take() if isinstance(output, events.Event)]
    assert told == [
        events.Evasive(BOB, "bob"),
        events.Exit(BOB, "bob", "another node has its endpoint now"),
        events.Enter(EVE, "eve", WHERE, {}),
        events.Join(EVE, "eve", "A"),
        events.Join(EVE, "eve", "B"),
        events.Whisper(EVE, "eve", (b"early",)),
    ]
    assert ours.counters.refused_claims == 0


def test_a_newcomer_that_says_too_much_meanwhile_begins_anew() -> None:
    ours = engine_with_bob()
    greet(ours, NOW + 1)
    for number in range(2, 12):
        ours.receive(b"\x01" + EVE.bytes, list(Whisper(number, [bytes(10_000)]).encode()), NOW + 1)
    assert not ours.meetings.claims.tests[BOB.bytes].held
    ours.tick(NOW + 6)
    assert ready(ours) == []
    greet(ours, NOW + 7)
    assert ready(ours) == [EVE]


def test_a_peer_that_leaves_or_expires_while_it_is_tested_makes_room_at_once() -> None:
    ours = engine_with_bob()
    greet(ours, NOW + 1)
    ours.receive_beacon(beacon(BOB, 0), "10.0.0.2", NOW + 2)
    ours.tick(ours.deadline)
    assert ready(ours) == [EVE]
    ours = engine_with_bob()
    greet(ours, NOW + 29)
    ours.tick(NOW + 30)
    assert ready(ours) == [EVE]


def test_a_mailbox_that_says_that_it_is_another_nodes_ends_the_peer() -> None:
    ours = engine_with_bob()
    ours.reached(BOB.bytes, IDENTITY, NOW + 1)
    ours.reached(BOB.bytes, b"", NOW + 1)  # a connection of Bob's to us is there
    ours.reached(b"seed x", b"\x01" + EVE.bytes, NOW + 1)
    assert ours.take() == []
    ours.reached(BOB.bytes, b"\x01" + EVE.bytes, NOW + 1)
    assert ours.take()[:3] == [
        Disconnect(BOB.bytes),
        events.Exit(BOB, "bob", "another node has its endpoint now"),
        Connect(EVE.bytes, WHERE),
    ]
    ours.reached(EVE.bytes, b"\x01" + ours.uuid.bytes, NOW + 2)  # it is our own mailbox
    assert not ours.peers


def test_a_peer_that_answers_after_its_connections_were_lost_stays() -> None:
    ours = engine_with_bob(connected=False)
    ours.connection_lost(BOB.bytes, NOW + 1)
    ours.reached(BOB.bytes, b"", NOW + 2)
    assert ours.deadline == NOW + 3
    ours.receive(IDENTITY, list(PingOk(2).encode()), NOW + 2.5)
    ours.tick(NOW + 3)
    assert ready(ours) == [BOB]
    assert ours.counters.refused_claims == 0
    ours.connection_lost(BOB.bytes, NOW + 4)
    ours.reached(BOB.bytes, b"", NOW + 4)
    ours.tick(NOW + 5)
    assert not ours.peers


# Strangers that claim an endpoint


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("kind", ["beacon", "hello", "gossip"])
def test_a_claim_parts_no_peer_that_answers(kind: str, encrypted: bool) -> None:
    """Eve is on Bob's machine, and claims his endpoint every 100 ms for a minute."""
    ours = engine(
        source_of=lambda _: "10.0.0.2",
        connects_to_us=lambda key: True,
        proves=(lambda key: key == BOB.bytes) if encrypted else None,
    )
    ours.receive(IDENTITY, hello(), NOW)
    ours.take()
    pings = 0
    sequence = 1
    for tenth in range(600):
        now = NOW + tenth / 10
        claim_by(kind, ours, now)
        ours.tick(now)
        for output in ours.take():
            if isinstance(output, events.Evasive):
                continue
            assert isinstance(output, Send)
            assert output.peer == BOB.bytes
            assert isinstance(Stable.decode(output.frames), Ping)
            pings += 1
            sequence += 1
            ours.receive(IDENTITY, list(PingOk(sequence).encode()), now)
    assert ready(ours) == [BOB]
    assert pings <= 61  # one in a fifth of `evasive`
    if kind != "beacon" or not encrypted:
        assert ours.counters.refused_claims > 100


def test_no_stranger_parts_a_live_peer_of_a_mesh() -> None:
    mesh = Mesh()
    ann, bob = mesh.add(1), mesh.add(2)
    mesh.advance(3)
    for second in range(40):
        claim_in(mesh, ann, bob, second)
        mesh.advance(1)
    assert kinds(ann.story, bob) == ["Enter"]
    assert kinds(bob.story, ann) == ["Enter"]
    whisper(mesh, ann, bob, b"still here")
    mesh.advance(1)
    assert len(bob.told(events.Whisper)) == 1
    assert ann.engine.counters.gaps == bob.engine.counters.gaps == 0


def claim_in(mesh: Mesh, ann: Member, bob: Member, number: int) -> None:
    """Let a stranger claim Bob's endpoint, each time under another name."""
    stranger = uuid_of(0xE5E + number)
    ann.engine.receive_beacon(beacon(stranger, bob.port), bob.address, mesh.now)
    ann.engine.receive(b"\x01" + stranger.bytes, hello(endpoint=bob.endpoint), mesh.now)
    ann.engine.discover(uuid_of(0xE5E00 + number), bob.endpoint, mesh.now)
    mesh.pump(ann)


@pytest.mark.parametrize("kind", ["beacon", "hello"])
def test_a_peer_whose_connections_were_lost_has_less_time(kind: str) -> None:
    ours = engine_with_bob(connected=False, eve="10.0.0.9")
    ours.connection_lost(BOB.bytes, NOW + 1)
    claim_by(kind, ours, NOW + 2)
    assert ready(ours) == [BOB]
    ours.tick(NOW + 3)
    assert (BOB.bytes in ours.peers) == (kind == "hello")  # a HELLO from another address waits longer
    ours.tick(NOW + 7)
    assert ready(ours) == ([EVE] if kind == "hello" else [])
    assert EVE.bytes in ours.peers


def test_a_greeting_from_the_endpoint_replaces_a_peer_whose_connections_were_lost_at_once() -> None:
    ours = engine_with_bob(connected=False)
    ours.connection_lost(BOB.bytes, NOW + 1)
    greet(ours, NOW + 1.1)
    assert ready(ours) == [EVE]


def test_a_connection_that_is_lost_during_a_test_shortens_it() -> None:
    ours = engine_with_bob()
    greet(ours, NOW + 1)
    ours.connection_lost(BOB.bytes, NOW + 2)
    assert ours.deadline == NOW + 3
    ours.tick(NOW + 3)
    assert ready(ours) == [EVE]


def test_a_node_that_greets_from_its_endpoint_replaces_one_that_claimed_it_from_elsewhere() -> None:
    ours = engine_with_bob(source="10.0.0.66")  # Bob lied
    greet(ours, NOW + 1)
    assert ready(ours) == [EVE]
    ours = engine_with_bob(source="10.0.0.66", eve="10.0.0.67")
    greet(ours, NOW + 1)
    assert ready(ours) == [BOB]


def test_a_stranger_that_does_not_answer_makes_room() -> None:
    ours = engine(source_of=lambda _: "10.0.0.2")
    ours.receive_beacon(beacon(), "10.0.0.2", NOW)
    ours.receive_beacon(beacon(EVE), "10.0.0.2", NOW + 1)
    assert list(ours.peers) == [BOB.bytes]
    ours.tick(NOW + 5)
    assert list(ours.peers) == [EVE.bytes]
    assert not any(isinstance(output, events.Event) for output in ours.take())
    greet(ours, NOW + 6, BOB)  # Bob greets us from there, so he is there
    assert ready(ours) == [BOB]
    assert list(ours.peers) == [BOB.bytes]


def test_a_peer_does_not_move_to_the_endpoint_of_another() -> None:
    ours = engine_with_bob(max_strangers=10)
    greet(ours, NOW, endpoint="tcp://10.0.0.3:50003")
    ours.take()
    ours.receive_beacon(beacon(EVE, 50001), "10.0.0.2", NOW + 2)  # her beacon, or a forged one
    assert ready(ours) == [BOB, EVE]
    greet(ours, NOW + 9)  # and a new session, at Bob's endpoint
    assert ready(ours) == [BOB, EVE]
    assert ours.peers[EVE.bytes].endpoint == "tcp://10.0.0.3:50003"


def test_tests_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_TESTS", 2)
    ours = engine(source_of=lambda _: "10.0.0.9")
    for number in (1, 2, 3):
        endpoint = f"tcp://10.0.0.{number}:1"
        ours.receive(b"\x01" + uuid_of(number).bytes, hello(endpoint=endpoint), NOW)
        ours.discover(uuid_of(100 + number), endpoint, NOW + 1)
    assert len(ours.meetings.claims.tests) == 2
    assert ours.counters.refused_claims == 1
    ours.stop()
    assert not ours.meetings.claims.tests
    assert ours.meetings.claims.deadline == float("inf")


def test_gossip_of_a_node_at_the_endpoint_of_a_peer_is_tested() -> None:
    ours = engine_with_bob(gossip=True)
    greet(ours, NOW, endpoint="tcp://10.0.0.3:50003", headers={GOSSIP: "tcp://10.0.0.3:50003"})
    ours.take()
    telling = Whisper(2, [b"\x00zambezi-gossip", uuid_of(7).bytes + WHERE.encode()])
    ours.receive(b"\x01" + EVE.bytes, list(telling.encode()), NOW + 1)
    assert [output.peer for output in ours.take() if isinstance(output, Send)] == [BOB.bytes]
    ours.receive(IDENTITY, list(PingOk(2).encode()), NOW + 2)
    assert uuid_of(7).bytes not in ours.peers
