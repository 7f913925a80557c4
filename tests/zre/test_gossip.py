"""zambezi.zre.gossip: nodes without beacons tell each other of peers, and look for lost ones."""

import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zre.mesh import Member, Mesh, check, uuid_of
from tests.zre.test_engine import act, agree
from zambezi.zre import events, gossip
from zambezi.zre.engine import Engine
from zambezi.zre.gossip import Entry, Lost
from zambezi.zre.messages import Hello, Stable, Whisper
from zambezi.zre.outputs import Connect, Send

BOB = UUID(int=0x0B)
IDENTITY = b"\x01" + BOB.bytes
MAILBOX = "tcp://10.0.0.1:50000"
NOW = 1000.0


def engine(**options: Any) -> Engine:
    ours = Engine(UUID(int=0x0A), "ann", lambda _: MAILBOX, **options)
    ours.start(50000, NOW, beacons=not options.get("gossip"))
    ours.take()
    return ours


def met(headers: dict[str, str] | None = None, **options: Any) -> Engine:
    ours = engine(**options)
    ours.receive(IDENTITY, list(Hello(1, "tcp://10.0.0.2:50001", name="bob", headers=headers or {}).encode()), NOW)
    ours.take()
    return ours


def member(mesh: Mesh, number: int, *seeds: Member, **options: Any) -> Member:
    return mesh.add(number, beacons=False, gossip=True, seeds=[seed.endpoint for seed in seeds], **options)


def told(ours: Engine) -> list[tuple[bytes, list[Entry]]]:
    """Return the gossip that goes out: the peer that is told, and the entries."""
    found = []
    for output in ours.take():
        if isinstance(output, Send):
            message = Stable.decode(list(output.frames))
            if isinstance(message, Whisper) and message.content[0] == gossip.MARK:
                found.append((output.peer, list(gossip.read(message.content[1:]))))
    return found


# The format


@given(st.lists(st.builds(Entry, st.binary(min_size=16, max_size=16), st.just("tcp://10.0.0.1:1"))))
def test_entries_are_read_as_they_were_told(entries: list[Entry]) -> None:
    contents = list(gossip.contents(entries))
    assert all(content[0] == gossip.MARK for content in contents)
    assert [entry for content in contents for entry in gossip.read(content[1:])] == entries


@given(st.lists(st.binary(max_size=40)))
def test_no_frames_make_it_raise(frames: list[bytes]) -> None:
    for entry in gossip.read(frames):
        assert len(entry.key) == 16
        assert entry.endpoint.startswith(("tcp://", "inproc://"))


def test_many_entries_go_out_in_several_messages() -> None:
    contents = list(gossip.contents(Entry(uuid_of(number).bytes, MAILBOX) for number in range(1001)))
    assert [len(content) - 1 for content in contents] == [500, 500, 1]


# Lost peers


def test_lost_peers_are_looked_for_more_and_more_rarely_and_then_forgotten() -> None:
    lost = Lost()
    lost.add(b"a", MAILBOX)
    assert [number for number in range(1, 200) if lost.next_round()] == [1, 2, 4, 8, 16, 32, 64]
    assert len(lost) == 0


def test_not_all_that_were_ever_lost_are_remembered() -> None:
    lost = Lost()
    for number in range(5000):
        lost.add(uuid_of(number).bytes, MAILBOX)
    found = lost.next_round()
    assert len(found) == len(lost) <= 1000
    assert found[-1].key == uuid_of(4999).bytes


def lose_each_other(mesh: Mesh, ann: Member, bob: Member) -> None:
    mesh.cut.add(frozenset((ann.number, bob.number)))
    mesh.advance(60)
    assert bob.uuid not in ann.ready
    assert ann.uuid not in bob.ready
    mesh.cut.clear()


def test_two_that_lost_each_other_meet_again_where_a_third_knows_both() -> None:
    mesh = Mesh()
    hub = member(mesh, 1)
    ann, bob = member(mesh, 2, hub), member(mesh, 3, hub)
    mesh.settle()
    for one in (ann, bob):
        one.engine.rendezvous.gossip.lost.add = lambda *_: None  # type: ignore[method-assign]  # by gossip alone
    lose_each_other(mesh, ann, bob)
    mesh.advance(120)
    agree(mesh)
    assert len(ann.told(events.Enter)) == 3


def test_two_that_lost_each_other_meet_again_without_a_third() -> None:
    mesh = Mesh()
    hub = member(mesh, 1)
    ann, bob = member(mesh, 2, hub), member(mesh, 3, hub)
    mesh.settle()
    mesh.kill(hub)
    mesh.advance(60)
    assert list(ann.ready) == [bob.uuid]
    lose_each_other(mesh, ann, bob)
    mesh.advance(300)
    agree(mesh)
    mesh.advance(300)
    assert len(ann.told(events.Enter)) == len(bob.told(events.Enter)) == 3


def test_a_peer_that_never_comes_back_is_forgotten_in_the_end() -> None:
    mesh = Mesh()
    ann, bob = member(mesh, 1), member(mesh, 2)
    ann.engine.discover(bob.uuid, bob.endpoint, mesh.now)
    mesh.pump(ann)
    mesh.settle()
    assert list(ann.ready) == [bob.uuid]
    mesh.kill(bob)
    mesh.advance(70 * 30)
    assert not ann.connections
    mesh.advance(70 * 30)
    assert not ann.connections
    assert len(ann.engine.rendezvous.gossip.lost) == 0


def test_in_a_round_one_of_the_peers_that_ask_is_told_of_all() -> None:
    ours = met({gossip.HEADER: "tcp://10.0.0.2:50001"})
    eve = uuid_of(7)
    headers = {gossip.HEADER: "tcp://10.0.0.7:1"}
    ours.receive(b"\x01" + eve.bytes, list(Hello(1, "tcp://10.0.0.7:1", headers=headers).encode()), NOW)
    ours.take()
    rounds = []
    for number in range(3, 130):
        for uuid, port, address in ((BOB, 50001, "10.0.0.2"), (eve, 1, "10.0.0.7")):
            ours.receive_beacon(b"ZRE\x01" + uuid.bytes + port.to_bytes(2, "big"), address, NOW + number)
        ours.tick(NOW + number)
        rounds += told(ours)
    about_eve, about_bob = [Entry(eve.bytes, "tcp://10.0.0.7:1")], [Entry(BOB.bytes, "tcp://10.0.0.2:50001")]
    assert rounds == [(BOB.bytes, about_eve), (eve.bytes, about_bob)] * 2


def test_a_node_with_beacons_has_no_rounds_when_no_peer_asks_any_more() -> None:
    ours = met({gossip.HEADER: "tcp://10.0.0.2:50001"})
    while ours.peers:
        ours.tick(ours.deadline)
    for _ in range(100):
        ours.tick(ours.deadline)
    assert ours.rendezvous.deadline == float("inf")


# Silence, and goodbyes


@pytest.mark.spec("PING-01")
def test_a_peer_that_has_nothing_to_say_is_not_evasive_as_long_as_it_answers() -> None:
    mesh = Mesh()
    hub = member(mesh, 1)
    ann, bob = member(mesh, 2, hub), mesh.add(3, beacons=False, seeds=[hub.endpoint])
    mesh.settle()
    story = [len(one.story) for one in (hub, ann, bob)]
    mesh.advance(300)
    assert [len(one.story) for one in (hub, ann, bob)] == story
    now = hub.engine.peers[ann.uuid.bytes].heard
    mesh.kill(ann)
    seen: list[tuple[float, str]] = []
    while ann.uuid in hub.ready:
        before = len(hub.story)
        mesh.advance(0.25)
        seen += [
            (round(mesh.now - now), type(event).__name__) for event in hub.story[before:] if event.peer == ann.uuid
        ]
    assert seen == [(10, "Evasive"), (15, "Silent"), (30, "Exit")]


def test_a_node_with_beacons_expects_silence_from_peers_without() -> None:
    ours = met({gossip.HEADER: "tcp://10.0.0.2:50001"})
    ours.tick(NOW + 5)
    outputs = ours.take()
    assert [output.peer for output in outputs if isinstance(output, Send)] == [BOB.bytes]
    assert not [output for output in outputs if isinstance(output, events.Event)]
    ours.tick(NOW + 10)
    assert [output for output in ours.take() if isinstance(output, events.Event)] == [events.Evasive(BOB, "bob")]


def test_a_node_without_beacons_says_goodbye() -> None:
    mesh = Mesh()
    hub = mesh.add(1)  # it has beacons, and answers peers that ask
    ann, bob = member(mesh, 2, hub), member(mesh, 3, hub)
    plain = mesh.add(4, beacons=False, seeds=[ann.endpoint])  # it does not ask, but tells
    mesh.settle()
    mesh.stop(ann)
    mesh.settle()
    for one in (hub, bob, plain):
        assert one.told(events.Exit) == [events.Exit(ann.uuid, "node2", "it left")]
        assert ann.uuid.bytes not in one.connections
        assert one.told(events.Whisper) == []
    for _ in range(10):
        mesh.advance(10)
        assert ann.uuid.bytes not in {
            *hub.connections,
            *bob.connections,
        }  # it is not looked for, because it said goodbye
    mesh.stop(hub)
    mesh.settle()
    assert bob.told(events.Exit)[1:] == [events.Exit(hub.uuid, "node1", "it left")]


def test_peers_that_know_no_gossip_are_never_sent_any() -> None:
    ours = met(gossip=True)
    ours.receive(b"\x01" + uuid_of(7).bytes, list(Hello(1, "tcp://10.0.0.7:1").encode()), NOW)
    ours.take()
    for second in range(1, 100):
        ours.receive(IDENTITY, list(Whisper(second + 1, [b"x"]).encode()), NOW + second)
        ours.tick(NOW + second)
    ours.stop()
    outputs = ours.take()
    assert told(ours) == []
    assert not any(isinstance(output, Send) and gossip.MARK in output.frames for output in outputs)
    assert Connect(uuid_of(7).bytes, "tcp://10.0.0.7:1") in outputs  # it was silent, and is looked for


# All at once

FAULTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["deliver"] * 6
            + [
                "lose",
                "wait",
                "wait",
                "start",
                "stop",
                "kill",
                "join",
                "leave",
                "whisper",
                "announce",
                "restart",
                "full",
            ]
            + ["restart", "return", "full", "cut", "heal"]
        ),
        st.integers(0, 1 << 16),
    ),
    max_size=60,
)


@pytest.mark.parametrize("identities", [True, False])
@settings(max_examples=cases(37), phases=[Phase.explicit, Phase.generate])
@given(steps=FAULTS)
def test_after_any_faults_all_nodes_agree_in_the_end(steps: list[tuple[str, int]], identities: bool) -> None:
    """Without beacons, with one seed for all: when it runs, and all can reach each other."""
    mesh = Mesh(identities)
    here: dict[int, Member] = {}

    def start(place: int, port: int = 0, **options: Any) -> None:
        seeds = ["tcp://10.0.0.1:50000"]
        port = 50000 if place == 0 else port
        options = {"number": place + 1, "port": port, **options}
        here[place] = mesh.add(beacons=False, gossip=True, seeds=seeds, **options)

    for number in range(3):
        start(number)
    for what, luck in steps:
        chance = random.Random(luck)
        if what == "cut":
            mesh.cut.add(frozenset(chance.sample(range(1, 5), 2)))
        elif what == "heal":
            mesh.cut.clear()
        else:
            act(mesh, here, what, chance, start)
        for one in mesh.members.values():
            check(one.story)
    mesh.cut.clear()
    if 0 not in here:
        start(0)
    mesh.advance(400)
    agree(mesh)
    for one in mesh.members.values():
        one.story.clear()
    mesh.advance(200)
    assert [event for one in mesh.members.values() for event in one.story] == []
