"""zambezi.zre.engine: how a mesh heals, with engines in memory and a clock that the test moves."""

import itertools
import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zre.mesh import Member, Mesh, check, uuid_of
from zambezi.wire import WireError
from zambezi.zre import events
from zambezi.zre.dialect import ELECTIONS
from zambezi.zre.engine import Engine
from zambezi.zre.errors import NoSuchPeer, ZreError
from zambezi.zre.gossip import HEADER as GOSSIP
from zambezi.zre.messages import DraftHello, Hello, Join, Leave, Ping, PingOk, Shout, Stable, Whisper
from zambezi.zre.outputs import Adopt, Broadcast, Connect, Disconnect, Send

BOB = UUID(int=0x0B)
IDENTITY = b"\x01" + BOB.bytes
NOW = 1000.0
BOTH = list(itertools.product(["stable", "draft"], repeat=2))


def engine(**options: Any) -> Engine:
    return Engine(UUID(int=0x0A), "ann", lambda _: "tcp://10.0.0.1:50000", **options)


def hello(**fields: Any) -> list[bytes]:
    return list(Hello(1, **{"endpoint": "tcp://10.0.0.2:50001", "name": "bob", **fields}).encode())


def beacon(uuid: UUID = BOB, port: int = 50001) -> bytes:
    return b"ZRE\x01" + uuid.bytes + port.to_bytes(2, "big")


def met(**fields: Any) -> Engine:
    """Return an engine that knows one peer, and has no outputs left."""
    ours = engine()
    ours.receive(IDENTITY, hello(**fields), NOW)
    ours.take()
    return ours


def kinds(story: list[events.Event], about: Member) -> list[str]:
    return [type(event).__name__ for event in story if event.peer == about.uuid]


def pair(**options: Any) -> tuple[Mesh, Member, Member]:
    mesh = Mesh()
    ann, bob = mesh.add(1, **options), mesh.add(2, **options)
    mesh.advance(3)
    assert list(ann.ready) == [bob.uuid]
    assert list(bob.ready) == [ann.uuid]
    return mesh, ann, bob


def agree(mesh: Mesh) -> None:
    """Check that all live members know each other and their groups, and were told so in a possible order."""
    members = list(mesh.members.values())
    for one in members:
        assert one.ready == {other.uuid: set(other.engine.profile.groups) for other in members if other is not one}
        assert check(one.story) == one.ready


def whisper(mesh: Mesh, source: Member, target: Member, text: bytes) -> None:
    source.engine.whisper(target.uuid, (text,))
    mesh.pump(source)


def lose(source: Member, target: Member, count: int = 1) -> None:
    """Lose messages by a reset of the connection, which its owner does not notice."""
    queue = source.connections[target.uuid.bytes].queue
    for _ in range(count):
        queue.popleft()


# Options and names


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ZreError, match="'stable' or 'draft', not 'klingon'"):
        engine(dialect="klingon")
    with pytest.raises(ZreError, match="evasive must be less than expired"):
        engine(evasive=30.0, expired=5.0)


def test_a_whisper_to_an_unknown_peer_is_an_error() -> None:
    ours = engine()
    with pytest.raises(NoSuchPeer, match=str(BOB)):
        ours.whisper(BOB, (b"x",))
    ours.receive_beacon(beacon(), "10.0.0.2", NOW)
    with pytest.raises(NoSuchPeer):  # greeted, but it has not answered
        ours.whisper(BOB, (b"x",))


@pytest.mark.spec("SEQ-02")
def test_what_was_said_between_the_greetings_is_followed_by_a_ping() -> None:
    ours = engine()
    ours.receive_beacon(beacon(), "10.0.0.2", NOW)
    ours.join("A")
    ours.take()
    ours.connection_lost(BOB.bytes, NOW)
    assert ours.take() == []  # perhaps it does not know us yet
    ours.receive(IDENTITY, hello(), NOW)
    assert [output.frames for output in ours.take() if isinstance(output, Send)] == [Ping(3).encode()]
    quiet = engine()
    quiet.receive_beacon(beacon(), "10.0.0.2", NOW)
    quiet.take()
    quiet.receive(IDENTITY, hello(), NOW)
    assert not any(isinstance(output, Send) for output in quiet.take())


def test_a_node_without_a_name_is_named_after_its_uuid() -> None:
    assert Engine(UUID(int=0xABCDEF << 104), "", str).profile.name == "abcdef"
    ours = engine()
    ours.receive(IDENTITY, hello(name=""), NOW)
    assert [event.name for event in ours.take() if isinstance(event, events.Enter)] == [BOB.hex[:6]]


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128])
def test_a_name_that_is_too_long_is_refused_before_anything_changes(name: str) -> None:
    ours = met()
    for ask in (lambda: ours.join(name), lambda: ours.set_header(name, "tcp://10.0.0.1:1", NOW)):
        with pytest.raises((ZreError, WireError)):
            ask()
    with pytest.raises((ZreError, WireError)):
        Engine(UUID(int=1), name, str)
    with pytest.raises((ZreError, WireError)):
        engine(groups=[name])
    with pytest.raises((ZreError, WireError)):
        engine(headers={name: "x"})
    assert ours.take() == []
    assert (ours.profile.groups, ours.profile.status, ours.profile.headers) == (set(), 0, {})
    ours.join("A")
    assert [output.frames for output in ours.take() if isinstance(output, Send)] == [Join(2, "A", 1).encode()]


# Messages of real Zyre nodes

ZYRE = {
    "HELLO": "aaa1 01 02 0001 15 7463703a2f2f31302e37372e302e313a3439313532 00000001 00000004 43484154 01"
    "02 7a79 00000001 06 582d524f4c45 00000004 74657374",
    "JOIN": "aaa1 04 02 0002 03 4e4557 02",
    "LEAVE": "aaa1 05 02 0003 03 4e4557 03",
    "WHISPER": "aaa1 02 02 0004",
    "SHOUT": "aaa1 03 02 0005 04 43484154",
    "PING-OK": "aaa1 07 02 0006",
    "PING": "aaa1 06 02 0007",
}


def test_messages_of_zyre_are_understood() -> None:
    ours = engine(groups=["CHAT"])
    for name, text in ZYRE.items():
        content = {"WHISPER": [b"hi"], "SHOUT": [b"yo"]}.get(name, [])
        ours.receive(IDENTITY, [bytes.fromhex(text), *content], NOW)
    outputs = ours.take()
    assert [output for output in outputs if isinstance(output, events.Event)] == [
        events.Enter(BOB, "zy", "tcp://10.77.0.1:49152", {"X-ROLE": "test"}),
        events.Join(BOB, "zy", "CHAT"),
        events.Join(BOB, "zy", "NEW"),
        events.Leave(BOB, "zy", "NEW"),
        events.Whisper(BOB, "zy", (b"hi",)),
        events.Shout(BOB, "zy", "CHAT", (b"yo",)),
    ]
    assert outputs[-1] == Send(BOB.bytes, PingOk(2).encode())
    assert ours.counters.status_mismatches == ours.counters.gaps == ours.counters.bad_messages == 0


def test_our_messages_have_the_same_bytes_as_those_of_zyre() -> None:
    ours = Engine(UUID(int=0x0A), "zy", lambda _: "tcp://10.77.0.1:49152", groups=["CHAT"], headers={"X-ROLE": "test"})
    ours.start(49152, NOW)
    assert ours.take() == [Broadcast(bytes.fromhex("5a524501") + ours.uuid.bytes + bytes.fromhex("c000"))]
    ours.receive(IDENTITY, hello(groups=["CHAT"]), NOW)
    ours.join("NEW")
    ours.leave("NEW")
    ours.whisper(BOB, (b"hi",))
    ours.shout("CHAT", (b"yo",))
    ours.receive(IDENTITY, list(Ping(2).encode()), NOW)
    ours.tick(NOW + 5.5)
    said = [output.frames for output in ours.take() if isinstance(output, Send)]
    theirs = [bytes.fromhex(text) for text in ZYRE.values()]
    # Our HELLO has one header more: it says that we know elections.
    theirs[0] = theirs[0].replace(b"\0\0\0\1\x06X-ROLE", b"\0\0\0\2\x06X-ROLE") + b"\x13X-ZAMBEZI-ELECTIONS\0\0\0\0"
    assert [frames[0] for frames in said] == theirs
    assert [frames[1:] for frames in said] == [(), (), (), (b"hi",), (b"yo",), (), ()]


def test_commands_that_zre_does_not_define_count_and_are_ignored() -> None:
    ours = met()
    strange = ["aaa1 0b 02 0002 04 43484154 20" + "61" * 32, "aaa1 0c 02 0003", "aaa1 0d 02 0004", "aaa1 ff 02 0005"]
    for text in strange:
        ours.receive(IDENTITY, [bytes.fromhex(text)], NOW + 4)
    assert ours.take() == []
    ours.receive(IDENTITY, list(Whisper(6, [b"x"]).encode()), NOW + 4)
    assert ours.take() == [events.Whisper(BOB, "bob", (b"x",))]
    assert ours.counters.unknown_commands == 4
    ours.tick(NOW + 8.9)
    assert ours.take() == []  # they are signs of life, too


# Restarts, gaps, resets


def test_a_peer_that_restarts_with_another_mailbox_is_a_new_one() -> None:
    mesh, ann, bob = pair(groups=["CHAT"])
    bob.engine.join("OLD")
    mesh.pump(bob)
    mesh.advance(5)
    mesh.kill(bob)
    again = mesh.add(2, groups=["NEW"])
    mesh.advance(5)
    assert kinds(ann.story, bob) == ["Enter", "Join", "Join", "Exit", "Enter", "Join"]
    assert ann.ready == {bob.uuid: {"NEW"}}
    assert ann.told(events.Exit)[0].reason in ("it restarted", "it greeted us again")  # type: ignore[attr-defined]
    for text in (b"1", b"2"):
        whisper(mesh, ann, again, text)
        whisper(mesh, again, ann, text)
    mesh.settle()
    assert len(ann.told(events.Whisper)) == len(again.told(events.Whisper)) == 2
    agree(mesh)
    assert ann.engine.counters.gaps == again.engine.counters.gaps == 0


@pytest.mark.parametrize("dialects", BOTH, ids="-".join)
def test_a_peer_that_restarts_with_the_same_mailbox_is_a_new_one(dialects: tuple[str, str]) -> None:
    mesh = Mesh()
    ann, bob = mesh.add(1, dialect=dialects[0]), mesh.add(2, dialect=dialects[1], groups=["OLD"])
    mesh.advance(5)
    mesh.kill(bob)
    again = mesh.add(2, groups=["NEW"], port=bob.port, dialect=dialects[1])
    mesh.advance(15)
    assert kinds(ann.story, bob) == ["Enter", "Join", "Exit", "Enter", "Join"]
    assert kinds(again.story, ann) == ["Enter"]
    agree(mesh)


def test_a_beacon_that_was_under_way_when_a_restarted_peer_greeted_is_not_another_restart() -> None:
    ours = engine()
    ours.receive_beacon(beacon(port=50001), "10.0.0.2", NOW)
    ours.take()
    ours.receive(IDENTITY, hello(endpoint="tcp://10.0.0.2:50001"), NOW)
    ours.receive_beacon(beacon(port=50009), "10.0.0.2", NOW + 0.1)
    assert [output for output in ours.take() if isinstance(output, events.Exit)] == []


@pytest.mark.parametrize("dialects", BOTH, ids="-".join)
def test_a_gap_ends_a_peer_and_as_it_is_alive_it_enters_again(dialects: tuple[str, str]) -> None:
    mesh = Mesh()
    ann, bob = (mesh.add(number, dialect=dialect) for number, dialect in zip((1, 2), dialects, strict=True))
    mesh.advance(3)
    bob.engine.join("LOST")
    mesh.pump(bob)
    lose(bob, ann)
    whisper(mesh, bob, ann, b"after the gap")
    mesh.advance(10)
    assert kinds(ann.story, bob) == ["Enter", "Exit", "Enter", "Join"]
    assert ann.engine.counters.gaps == 1
    agree(mesh)
    whisper(mesh, bob, ann, b"now")
    whisper(mesh, ann, bob, b"now")
    mesh.settle()
    assert len(ann.told(events.Whisper)) == len(bob.told(events.Whisper)) == 1


def test_a_reset_that_loses_nothing_is_not_seen() -> None:
    mesh, ann, bob = pair()
    for number in range(5):
        whisper(mesh, bob, ann, b"%d" % number)
        lose(bob, ann, 0)
        mesh.advance(1)
    assert [event.content for event in ann.told(events.Whisper)] == [  # type: ignore[attr-defined]
        (b"%d" % number,) for number in range(5)
    ]
    assert not ann.told(events.Exit)
    assert ann.engine.peers[bob.uuid.bytes].received == 6


def test_a_full_queue_ends_a_peer_and_a_beacon_brings_it_back() -> None:
    mesh, ann, bob = pair(groups=["CHAT"])
    ann.engine.unresponsive(bob.uuid.bytes)
    mesh.pump(ann)
    assert kinds(ann.story, bob) == ["Enter", "Join", "Exit"]
    mesh.advance(3)
    assert kinds(ann.story, bob) == ["Enter", "Join", "Exit", "Enter", "Join"]
    agree(mesh)
    ann.engine.unresponsive(b"seed tcp://10.0.0.9:1")
    ann.engine.unreachable(b"nobody")


@pytest.mark.parametrize("both", [False, True])
def test_a_lost_hello_is_sent_again(both: bool) -> None:
    mesh = Mesh()
    ann, bob = mesh.add(1), mesh.add(2)
    mesh.deliver_datagram()
    mesh.deliver_datagram()
    lose(ann, bob)
    if both:
        lose(bob, ann)
    mesh.advance(4)
    assert not ann.ready or not bob.ready
    mesh.advance(8)
    agree(mesh)
    assert kinds(bob.story, ann) == ["Enter"]


def test_both_sides_can_begin_a_new_session_at_once() -> None:
    mesh, ann, bob = pair()
    ann.engine.set_header("X-A", "tcp://10.0.0.1:1", mesh.now)
    bob.engine.set_header("X-B", "tcp://10.0.0.2:2", mesh.now)
    mesh.pump(ann)
    mesh.pump(bob)
    mesh.settle()
    agree(mesh)
    assert ann.engine.services("X-B") == {bob.uuid: "tcp://10.0.0.2:2"}
    assert bob.engine.services("X-A") == {ann.uuid: "tcp://10.0.0.1:1"}
    # The program learns of headers by Enter, and the last Enter has the current ones.
    for one, other in ((ann, bob), (bob, ann)):
        entered = one.told(events.Enter)[-1]
        assert isinstance(entered, events.Enter)
        assert entered.headers == other.engine.profile.headers
    mesh.advance(20)
    for one in (ann, bob):
        assert len(one.told(events.Enter)) == 2


def test_a_service_that_is_announced_late_causes_one_new_session() -> None:
    mesh, ann, bob = pair(groups=["CHAT"])
    cid = mesh.add(3, dialect="draft")
    mesh.advance(2)
    ann.engine.set_header("X-A", "tcp://10.0.0.1:1", mesh.now)
    mesh.pump(ann)
    mesh.settle()
    for one in (bob, cid):
        assert one.engine.services("X-A") == {ann.uuid: "tcp://10.0.0.1:1"}
        assert len(one.told(events.Enter)) == 3
        assert len(one.told(events.Exit)) == 1
    assert len(ann.told(events.Exit)) == 0  # it began the new session itself, and the others only answered
    agree(mesh)
    ann.engine.set_header("X-A", "tcp://10.0.0.1:1", mesh.now)
    assert ann.engine.take() == []  # nothing new
    mesh.advance(30)
    assert len(ann.told(events.Enter)) == 2


def test_a_greeting_that_was_announced_but_lost_heals() -> None:
    mesh, ann, bob = pair()
    ann.engine.set_header("X-A", "tcp://10.0.0.1:1", mesh.now)
    mesh.pump(ann)
    lose(ann, bob)
    whisper(mesh, ann, bob, b"x")
    mesh.advance(30)
    agree(mesh)
    assert bob.engine.services("X-A")


def test_two_greetings_in_a_row_have_two_answers() -> None:
    mesh, ann, bob = pair()
    for port in (1, 2):
        ann.engine.set_header("X-A", f"tcp://10.0.0.1:{port}", mesh.now)
        mesh.pump(ann)
    for _ in range(2):  # each greeting, then its answer
        mesh.deliver(ann.connections[bob.uuid.bytes])
        mesh.deliver(bob.connections[ann.uuid.bytes])
    mesh.advance(20)
    agree(mesh)
    assert ann.told(events.Exit) == []
    assert len(bob.told(events.Exit)) == 2


def test_answers_to_answers_come_to_an_end() -> None:
    ours = met()
    ours.receive(IDENTITY, hello(), NOW + 100)
    ours.take()
    greetings = 0
    for number in range(50):
        ours.receive(IDENTITY, hello(), NOW + 100 + number / 100)
        greetings += sum(isinstance(output, Send) for output in ours.take())
    assert greetings <= 5
    assert ours.peers[BOB.bytes].ready


# Time


def test_evasive_then_silent_then_gone_and_back_at_any_sign() -> None:
    ours = met()
    story: list[tuple[float, str]] = []

    def run(until: float) -> None:
        while ours.deadline <= until:
            now = ours.deadline
            ours.tick(now)
            story.extend((now - NOW, type(one).__name__) for one in ours.take() if isinstance(one, events.Event | Send))

    run(NOW + 12)
    assert story == [(5.0, "Send"), (5.0, "Evasive"), (10.0, "Send"), (10.0, "Silent")]
    story.clear()
    ours.receive(IDENTITY, list(PingOk(2).encode()), NOW + 12)
    run(NOW + 41.9)
    assert story == [(17.0, "Send"), (17.0, "Evasive"), (22.0, "Send"), (22.0, "Silent")] + [
        (when, "Send") for when in (27.0, 32.0, 37.0)
    ]
    story.clear()
    run(NOW + 100)
    assert story == [(42.0, "Exit")]
    assert ours.deadline == float("inf")


def test_a_peer_that_never_answers_is_forgotten_without_a_word() -> None:
    ours = engine()
    ours.receive_beacon(beacon(), "10.0.0.2", NOW)
    ours.take()
    outputs = []
    while ours.peers:
        ours.tick(ours.deadline)
        outputs += ours.take()
    assert outputs == [Disconnect(BOB.bytes)]


def test_missed_beacons_are_not_sent_later() -> None:
    ours = engine()
    ours.start(50000, NOW)
    ours.take()
    ours.tick(NOW + 100)
    ours.tick(NOW + 100)
    assert len(ours.take()) <= 2
    assert ours.deadline > NOW + 100


@given(st.lists(st.tuples(st.floats(0, 40), st.sampled_from(["tick", "beacon", "ping", "hello"])), max_size=40))
def test_a_tick_at_the_deadline_always_makes_progress(steps: list[tuple[float, str]]) -> None:
    ours, now, number = engine(), NOW, 1
    ours.start(50000, now)
    for wait, what in steps:
        now += wait
        if what == "beacon":
            ours.receive_beacon(beacon(), "10.0.0.2", now)
        elif what == "hello":
            ours.receive(IDENTITY, hello(), now)
            number = 1
        elif what == "ping":
            number += 1
            ours.receive(IDENTITY, list(Ping(number & 0xFFFF).encode()), now)
        ticks = 0
        while ours.deadline <= now:
            ours.tick(now)
            ticks += 1
            assert ticks < 5
        ours.take()


def test_timers_do_not_pile_up() -> None:
    ours = engine()
    for number in range(2000):
        ours.receive(IDENTITY, hello(), NOW + number / 1000)
        ours.take()
    assert len(ours.peers) == 1
    assert len(ours.agenda) < 10


@pytest.mark.parametrize("dialects", BOTH, ids="-".join)
@pytest.mark.parametrize("asks", [0, 1])
@pytest.mark.spec("SEQ-02", "PING-01")
def test_a_join_that_was_lost_as_the_last_word_is_shown_by_a_ping(dialects: tuple[str, str], asks: int) -> None:
    """Either side can send the PING: PING and PING-OK have their place in the sequence."""
    mesh = Mesh()
    ann, bob = (
        mesh.add(number, dialect=dialect, beacons=False) for number, dialect in zip((1, 2), dialects, strict=True)
    )
    ann.engine.discover(bob.uuid, bob.endpoint, mesh.now)
    mesh.pump(ann)
    mesh.settle()
    bob.engine.join("LOST")
    mesh.pump(bob)
    lose(bob, ann)
    quiet = (bob, ann)[asks]  # it gets a sign of life now and then, so it sends no PING itself
    for _ in range(12):
        next(iter(quiet.engine.peers.values())).hear(mesh.now)
        mesh.advance(1)
    assert kinds(ann.story, bob) == ["Enter", "Exit", "Enter", "Join"]
    assert ann.engine.counters.gaps == 1
    agree(mesh)


@pytest.mark.parametrize("dialects", BOTH, ids="-".join)
@pytest.mark.spec("SEQ-02")
def test_a_join_that_was_lost_with_its_connection_is_shown_by_a_ping(dialects: tuple[str, str]) -> None:
    """Also with beacons, where a silent peer gets no PING."""
    mesh = Mesh()
    ann, bob = mesh.add(1, dialect=dialects[0]), mesh.add(2, dialect=dialects[1])
    mesh.advance(3)
    bob.engine.join("LOST")
    mesh.pump(bob)
    lose(bob, ann)
    bob.engine.connection_lost(ann.uuid.bytes, mesh.now)
    bob.engine.connection_lost(uuid_of(77).bytes, mesh.now)
    mesh.pump(bob)
    mesh.settle()
    assert kinds(ann.story, bob) == ["Enter", "Exit", "Enter", "Join"]
    agree(mesh)


def test_a_connection_that_was_lost_with_nothing_under_way_is_not_seen() -> None:
    mesh, ann, bob = pair()
    for _ in range(3):
        bob.engine.connection_lost(ann.uuid.bytes, mesh.now)
        mesh.pump(bob)
        mesh.advance(1)
    assert kinds(ann.story, bob) == kinds(bob.story, ann) == ["Enter"]


# Our address


def moving(**options: Any) -> tuple[Engine, list[str]]:
    """Return an engine whose mailbox is at the last endpoint of a list."""
    where = ["tcp://10.0.0.1:50000"]
    return Engine(UUID(int=0x0A), "ann", lambda _: where[-1], **options), where


def test_a_node_that_moves_greets_its_peers_again_and_sends_a_beacon_at_once() -> None:
    ours, where = moving()
    ours.start(50000, NOW)
    ours.receive(IDENTITY, hello(), NOW)
    ours.rendezvous.add_seed("tcp://10.0.0.9:50000", NOW)
    ours.take()
    before = ours.endpoints_told()
    ours.move(50000, before, NOW + 0.1)
    assert ours.take() == [Broadcast(beacon(ours.uuid, 50000))]  # no peer knows an old endpoint
    where.append("tcp://192.168.0.1:50007")
    ours.move(50007, before, NOW + 0.2)
    seed = b"seed tcp://10.0.0.9:50000"
    greeting = Hello(1, "tcp://192.168.0.1:50007", name="ann", headers={ELECTIONS: ""}).encode()
    assert ours.take() == [
        Disconnect(BOB.bytes),
        events.Exit(BOB, "bob", "our address changed"),
        Connect(BOB.bytes, "tcp://10.0.0.2:50001"),
        Send(BOB.bytes, greeting),
        Disconnect(seed),
        Connect(seed, "tcp://10.0.0.9:50000"),
        Send(seed, greeting),
        Broadcast(beacon(ours.uuid, 50007)),
    ]
    ours.receive(IDENTITY, hello(), NOW + 0.3)
    assert ours.take() == [events.Enter(BOB, "bob", "tcp://10.0.0.2:50001", {})]


def test_peers_of_a_node_that_moves_know_its_new_endpoint() -> None:
    mesh, ann, bob = pair(groups=["CHAT"])
    before = bob.engine.endpoints_told()
    del mesh.members[bob.endpoint]
    bob.address, bob.port = "10.0.0.77", 50077
    bob.endpoint = "tcp://10.0.0.77:50077"
    mesh.members[bob.endpoint] = bob
    bob.engine.move(bob.port, before, mesh.now)
    mesh.pump(bob)
    mesh.advance(5)
    agree(mesh)
    entered = ann.told(events.Enter)[-1]
    assert isinstance(entered, events.Enter)
    assert entered.endpoint == bob.endpoint
    assert kinds(bob.story, ann) == kinds(ann.story, bob) == ["Enter", "Join", "Exit", "Enter", "Join"]
    whisper(mesh, ann, bob, b"found you")
    mesh.settle()
    assert len(bob.told(events.Whisper)) == 1


def test_two_that_move_at_once_find_each_other_by_their_beacons() -> None:
    mesh, ann, bob = pair()
    before = [one.engine.endpoints_told() for one in (ann, bob)]
    for one in (ann, bob):
        del mesh.members[one.endpoint]
        one.address = f"192.168.0.{one.number}"
        one.endpoint = f"tcp://{one.address}:{one.port}"
        mesh.members[one.endpoint] = one
    for one, told in zip((ann, bob), before, strict=True):
        one.engine.move(one.port, told, mesh.now)
        mesh.pump(one)
    mesh.advance(10)
    agree(mesh)
    for one, other in ((ann, bob), (bob, ann)):
        assert kinds(one.story, other) == ["Enter", "Exit", "Enter"]
        assert one.engine.peers[other.uuid.bytes].endpoint == other.endpoint


# Strangers


def uuids(count: int, first: int = 1000) -> list[UUID]:
    return [uuid_of(number) for number in range(first, first + count)]


def port_of(uuid: UUID) -> int:
    return uuid.int


def test_a_flood_of_beacons_makes_no_more_strangers_than_allowed() -> None:
    ours = engine(max_peers=10, max_strangers=3)
    ours.receive(IDENTITY, hello(), NOW)
    for uuid in uuids(100):
        ours.receive_beacon(beacon(uuid, port_of(uuid)), "10.0.0.3", NOW)
    assert len(ours.peers) == 4
    assert ours.counters.refused_strangers == 97
    assert sum(isinstance(output, Connect) for output in ours.take()) == 4
    # Known peers stay, and a node that greets us gets in: it has shown that it exists.
    greeter = uuid_of(7)
    ours.receive(b"\x01" + greeter.bytes, hello(name="eve", endpoint="tcp://10.0.0.4:1"), NOW)
    assert {peer.key for peer in ours.peers.values() if peer.ready} == {BOB.bytes, greeter.bytes}
    # A stranger that greets us makes room for another one, and so does one that expires.
    ours.receive(b"\x01" + uuids(1)[0].bytes, hello(name="first", endpoint="tcp://10.0.0.3:1000"), NOW)
    ours.receive_beacon(beacon(uuid_of(8)), "10.0.0.3", NOW)
    assert uuid_of(8).bytes in ours.peers
    for second in range(1, 32):
        ours.receive_beacon(beacon(), "10.0.0.2", NOW + second)
        ours.tick(NOW + second)
    ours.receive_beacon(beacon(uuid_of(9)), "10.0.0.3", NOW + 32)
    assert list(ours.peers) == [BOB.bytes, uuid_of(9).bytes]


def test_a_flood_of_greetings_makes_no_more_peers_than_allowed() -> None:
    ours = engine(max_peers=5, max_strangers=2)
    ours.receive(IDENTITY, hello(), NOW)
    ours.receive_beacon(beacon(uuid_of(7)), "10.0.0.3", NOW)
    for uuid in uuids(100):
        ours.receive(b"\x01" + uuid.bytes, hello(name="eve", endpoint=f"tcp://10.0.0.4:{port_of(uuid)}"), NOW)
    ready = [peer.key for peer in ours.peers.values() if peer.ready]
    assert ready == [BOB.bytes, *(uuid.bytes for uuid in uuids(4))]
    assert ours.counters.refused_peers == 96
    ours.take()
    ours.receive_beacon(beacon(uuid_of(8)), "10.0.0.3", NOW)  # it could not become ready
    assert ours.take() == []
    ours.receive(b"\x01" + uuid_of(7).bytes, hello(name="late", endpoint="tcp://10.0.0.3:50001"), NOW)
    assert ours.take() == [Disconnect(uuid_of(7).bytes)]
    # Known peers can still talk, begin a new session, and lose messages.
    ours.receive(IDENTITY, list(Whisper(2, [b"x"]).encode()), NOW)
    ours.receive(IDENTITY, hello(), NOW + 2)
    ours.receive(IDENTITY, list(Whisper(9, [b"x"]).encode()), NOW + 2)
    ours.receive(IDENTITY, hello(), NOW + 2)
    assert BOB.bytes in {peer.key for peer in ours.peers.values() if peer.ready}
    # When one leaves there is room.
    ours.receive_beacon(beacon(BOB, 0), "10.0.0.2", NOW + 3)
    ours.receive(b"\x01" + uuid_of(8).bytes, hello(name="next"), NOW + 3)
    assert uuid_of(8).bytes in ours.peers


def test_gossip_makes_no_more_strangers_than_allowed() -> None:
    ours = engine(gossip=True, max_strangers=3)
    ours.receive(IDENTITY, hello(headers={GOSSIP: "tcp://10.0.0.2:50001"}), NOW)
    entries = [uuid.bytes + b"tcp://10.0.0.9:%d" % port_of(uuid) for uuid in uuids(100)]
    ours.receive(IDENTITY, list(Whisper(2, [b"\x00zambezi-gossip", *entries]).encode()), NOW)
    assert len(ours.peers) == 4
    assert ours.counters.refused_strangers == 97


def test_impossible_bounds_of_the_engine_are_refused() -> None:
    for wrong in ({"max_strangers": 0}, {"max_peers": 5, "max_strangers": 6}, {"max_peers": 0}):
        with pytest.raises(ZreError, match="max_strangers"):
            engine(**wrong)


def test_peers_that_come_and_go_leave_nothing_behind() -> None:
    ours = engine()
    for uuid in uuids(20_000):
        ours.receive(b"\x01" + uuid.bytes, hello(), NOW)
        ours.receive_beacon(beacon(uuid, 0), "10.0.0.2", NOW)
        ours.take()
    assert not ours.peers
    assert ours.peers.strangers == 0
    assert len(ours.agenda) < 2000


@given(st.binary(max_size=40), st.integers(0, 2))
def test_no_datagram_makes_it_raise(octets: bytes, head: int) -> None:
    ours = met()
    ours.receive_beacon([octets, b"ZRE\x01" + octets, b"ZRE\x01" + BOB.bytes + octets][head], "10.0.0.2", NOW)
    ours.tick(NOW + 40)


ENDPOINTS = [
    "",
    "tcp://",
    "tcp://[",
    "tcp://[::1",
    "tcp://a:b",
    "tcp://1.2.3.4:99999",
    "tcp://\u2100:1",
    "x",
    "tcp://:1",
]


@given(
    st.lists(
        st.lists(st.binary(max_size=30), min_size=1, max_size=3)
        | st.builds(
            lambda number, sequence, octets, rest: [
                b"\xaa\xa1" + bytes([number, 2]) + sequence.to_bytes(2, "big") + octets,
                *rest,
            ],
            st.integers(0, 11),
            st.integers(0, 5),
            st.binary(max_size=30),
            st.lists(st.binary(max_size=5), max_size=2),
        )
        | st.builds(
            lambda endpoint, groups, name: list(Hello(1, endpoint, groups, 0, name, {GOSSIP: endpoint}).encode()),
            st.sampled_from(ENDPOINTS) | st.text(max_size=20),
            st.lists(st.text(max_size=5), max_size=3),
            st.text(max_size=20),
        )
        | st.builds(
            lambda address, port: list(DraftHello(1, address, port).encode()),
            st.sampled_from(["", "[", "::1", "\u2100", "a/b"]) | st.text(max_size=20),
            st.integers(0, 65535),
        ),
        max_size=8,
    ),
    st.booleans(),
    st.sampled_from(["stable", "draft"]),
)
def test_no_message_makes_it_raise(messages: list[list[bytes]], known: bool, dialect: str) -> None:
    ours = engine(dialect=dialect, gossip=True)
    if known:
        ours.receive(IDENTITY, hello(), NOW)
    for frames in messages:
        ours.receive(IDENTITY, frames, NOW)
        ours.tick(NOW + 6)
    check(output for output in ours.take() if isinstance(output, events.Event))


def content_octets(dialect: str) -> st.SearchStrategy[bytes]:
    """Return the first frames of WHISPERs, SHOUTs and other commands, with the right sequence."""
    head = b"\x02\x00\x02" if dialect == "stable" else b"\x00\x02"
    groups = st.sampled_from([b"\x01A", b"\x01a", b"\x02\xc3\xa9", b"\x01\xff", b"\x02A", b"\x01AA", b"\x00", b""])
    return st.builds(
        lambda number, rest: b"\xaa\xa1" + bytes([number]) + head + rest,
        st.sampled_from([2, 3]) | st.sampled_from([number for number in range(12) if number != 1]),
        groups | st.binary(max_size=6),
    )


@pytest.mark.parametrize("dialect", ["stable", "draft"])
@given(data=st.data())
def test_the_faster_twin_for_content_agrees_with_the_grammar(dialect: str, data: st.DataObject) -> None:
    """An engine without the faster twin has the same outputs and counters."""
    content = st.lists(st.sampled_from([b"\x00zambezi-gossip", b""]) | st.binary(max_size=4), max_size=3)
    same_either_way(dialect, [data.draw(content_octets(dialect)), *data.draw(content)])


@pytest.mark.parametrize("dialect", ["stable", "draft"])
@pytest.mark.parametrize("number", [number for number in range(12) if number != 1])
def test_the_faster_twin_is_for_content_alone(dialect: str, number: int) -> None:
    head = b"\xaa\xa1" + bytes([number]) + (b"\x02\x00\x02" if dialect == "stable" else b"\x00\x02")
    for rest in (b"", b"\x01A", b"\x01B", b"\x01A\x00"):
        for content in ([], [b""], [b"x", b"y"], [b"\x00zambezi-gossip", b"x"]):
            same_either_way(dialect, [head + rest, *content])


def same_either_way(dialect: str, frames: list[bytes]) -> None:
    results = []
    for fast in (True, False):
        ours = engine(groups=["A", "é", ""], gossip=True)
        greeting = hello() if dialect == "stable" else list(DraftHello(1, "10.0.0.2", 50001).encode())
        ours.receive(IDENTITY, greeting, NOW)
        ours.take()
        if not fast:
            ours.reception._receive_content = lambda *_: False  # type: ignore[method-assign]
        ours.receive(IDENTITY, list(frames), NOW)
        results.append((ours.take(), ours.counters))
    assert results[0] == results[1]


def test_our_own_identity_is_not_a_peer() -> None:
    ours = engine()
    ours.receive(b"\x01" + ours.uuid.bytes, hello(), NOW)
    assert ours.take() == []
    ours.discover(ours.uuid, "tcp://10.0.0.1:1", NOW)
    assert ours.take() == []


def test_a_command_that_is_malformed_is_counted_and_the_next_is_heard() -> None:
    ours = met()
    ours.receive(IDENTITY, [bytes.fromhex("aaa1 04 02 0002 ff")], NOW)
    assert ours.counters.bad_messages == 1
    ours.receive(IDENTITY, list(Join(3, "A", 1).encode()), NOW)
    assert ours.take() == [events.Join(BOB, "bob", "A")]


def test_a_second_join_and_a_leave_without_a_join_are_no_events() -> None:
    ours = met(groups=["A"], status=1)
    for command in (Join(2, "A", 2), Leave(3, "B", 3), Shout(4, "A", [b"x"])):
        ours.receive(IDENTITY, list(command.encode()), NOW)
    assert ours.take() == []
    assert ours.counters.not_members == 1


# Seeds and gossip


def seeded(mesh: Mesh, number: int, seeds: list[str], **options: Any) -> Member:
    return mesh.add(number, beacons=False, gossip=True, seeds=seeds, **options)


def test_a_seed_is_adopted_and_all_that_it_knows_become_peers() -> None:
    mesh = Mesh()
    hub = seeded(mesh, 1, [], groups=["HUB"])
    others = [seeded(mesh, number, [hub.endpoint], groups=[f"G{number}"]) for number in (2, 3, 4)]
    mesh.settle()
    agree(mesh)
    for one in (hub, *others):
        assert len(one.told(events.Enter)) == 3
        assert one.told(events.Exit, events.Whisper) == []
        assert len(one.connections) == 3
    mesh.advance(200)
    agree(mesh)
    for one in (hub, *others):
        assert one.told(events.Exit) == []


def test_seeds_of_each_other() -> None:
    mesh = Mesh()
    endpoints = [f"tcp://10.0.0.{number}:50000" for number in (1, 2, 3)]
    members = [
        seeded(mesh, number, [e for e in endpoints if f".{number}:" not in e], port=50000) for number in (1, 2, 3)
    ]
    mesh.advance(200)
    agree(mesh)
    for one in members:
        exits = one.told(events.Exit)
        assert len(exits) <= 4, exits  # HELLOs can cross while the mesh forms, but not later
    for one in members:
        one.story.clear()
    mesh.advance(200)
    assert [event for one in members for event in one.story] == []  # each PING is answered


def test_changes_before_a_seed_has_answered_reach_the_seed() -> None:
    mesh = Mesh()
    hub = seeded(mesh, 1, [])
    ann = seeded(mesh, 2, [hub.endpoint], groups=["A"])
    ann.engine.join("B")
    ann.engine.leave("A")
    mesh.pump(ann)
    mesh.settle()
    agree(mesh)
    assert hub.ready == {ann.uuid: {"B"}}
    assert hub.engine.counters.status_mismatches == hub.engine.counters.gaps == 0
    cid = seeded(mesh, 3, [hub.endpoint])
    cid.engine.set_header("X-C", "tcp://10.0.0.3:1", mesh.now)
    mesh.pump(cid)
    mesh.settle()
    agree(mesh)
    assert hub.engine.services("X-C")


def test_a_seed_that_does_not_run_is_greeted_again_and_again() -> None:
    mesh = Mesh()
    ann = seeded(mesh, 1, ["tcp://10.0.0.2:50000"])
    mesh.advance(100)
    assert not ann.ready
    assert len(ann.connections) == 1
    bob = seeded(mesh, 2, [], port=50000)
    mesh.advance(31)
    agree(mesh)
    mesh.kill(bob)
    mesh.advance(100)
    assert not ann.ready
    again = seeded(mesh, 2, [], port=50000)
    mesh.advance(61)
    agree(mesh)
    assert list(ann.ready) == [again.uuid]


@pytest.mark.parametrize("known", ["its identity", "its address", "where it comes from"])
def test_a_seed_by_its_name(known: str) -> None:
    mesh = Mesh()
    hub = mesh.add(1, beacons=False)
    ann = engine(source_of=lambda _: "192.168.0.1")
    ann.rendezvous.add_seed(f"tcp://hub.example:{hub.port}", NOW)
    connect, send = ann.take()
    assert isinstance(connect, Connect)
    assert isinstance(send, Send)
    assert connect.endpoint == f"tcp://hub.example:{hub.port}"
    identity = hub.identity if known == "its identity" else b""
    address = {"its address": hub.address, "where it comes from": "192.168.0.1"}.get(known, "10.9.9.9")
    ann.rendezvous.reached(connect.endpoint, identity, address)
    assert ann.take() == []
    ann.receive(hub.identity, list(Hello(1, hub.endpoint, name="hub").encode()), NOW)
    outputs = ann.take()
    assert [type(output).__name__ for output in outputs] == ["Adopt", "Enter"]
    ann.whisper(hub.uuid, (b"x",))
    (said,) = ann.take()
    assert isinstance(said, Send)
    assert Stable.decode(list(said.frames)) == Whisper(2, [b"x"])
    ann.rendezvous.add_seed(f"tcp://hub.example:{hub.port}", NOW)
    assert ann.take() == []  # once is enough


def test_a_seed_that_is_found_by_its_beacon_too_is_one_peer() -> None:
    mesh = Mesh()
    bob = mesh.add(2, port=50000)
    mesh.settle()
    ann = mesh.add(1, seeds=["tcp://10.0.0.2:50000"])
    mesh.advance(200)
    agree(mesh)
    assert len(ann.connections) == 1
    assert len(bob.told(events.Exit)) <= 1  # it can have been greeted twice at first


def test_a_seed_that_was_met_before_it_answered_is_one_peer() -> None:
    mesh = Mesh()
    bob = mesh.add(2, port=50000)
    ann = mesh.add(1)
    mesh.deliver_datagram()
    assert bob.uuid.bytes in ann.engine.peers
    ann.engine.rendezvous.add_seed(bob.endpoint, mesh.now)
    mesh.pump(ann)
    mesh.deliver(ann.connections[bob.uuid.bytes])
    mesh.deliver(bob.connections[ann.uuid.bytes])
    mesh.advance(200)
    agree(mesh)
    assert len(ann.connections) == 1
    assert len(bob.told(events.Exit)) <= 1


def test_gossip_goes_only_to_nodes_that_know_it() -> None:
    mesh = Mesh()
    hub = mesh.add(1, beacons=False, gossip=True)
    plain = mesh.add(2, beacons=False, seeds=[hub.endpoint])
    other = mesh.add(3, beacons=False, seeds=[hub.endpoint])
    mesh.settle()
    assert plain.told(events.Whisper) == other.told(events.Whisper) == []
    assert list(plain.ready) == [hub.uuid]
    # If neither side gossips, such a message is the program's.
    ours = engine()
    ours.receive(IDENTITY, hello(), NOW)
    ours.take()
    content = (b"\x00zambezi-gossip", uuid_of(7).bytes + b"tcp://10.0.0.7:1")
    ours.receive(IDENTITY, list(Whisper(2, content).encode()), NOW)
    assert ours.take() == [events.Whisper(BOB, "bob", content)]


def test_a_beacon_of_another_network_is_no_sign_of_life_on_this_one() -> None:
    ours = engine()
    ours.receive_beacon(beacon(), "10.0.0.2", NOW)
    ours.receive(IDENTITY, hello(), NOW)
    ours.receive_beacon(beacon(), "10.0.0.2", NOW)
    for second in range(1, 31):
        ours.receive_beacon(beacon(), "192.168.0.2", NOW + second)
        ours.tick(NOW + second)
    told = [output for output in ours.take() if isinstance(output, events.Event)]
    assert [type(event) for event in told] == [events.Enter, events.Evasive, events.Silent, events.Exit]
    ours.receive_beacon(beacon(), "192.168.0.2", NOW + 31)
    assert Connect(BOB.bytes, "tcp://192.168.0.2:50001") in ours.take()


def test_beacons_count_where_the_mailbox_is_advertised_elsewhere() -> None:
    ours = met(endpoint="tcp://203.0.113.9:50001")
    for second in range(1, 61):
        ours.receive_beacon(beacon(), "10.0.0.2", NOW + second)
        ours.tick(NOW + second)
    assert ours.take() == []


def test_any_node_answers_peers_that_ask_for_gossip() -> None:
    ours = engine()
    carol = UUID(int=0x0C)
    ours.receive(IDENTITY, hello(), NOW)
    ours.take()
    asks = hello(endpoint="tcp://10.0.0.3:50002", name="carol", headers={GOSSIP: "tcp://10.0.0.3:50002"})
    ours.receive(b"\x01" + carol.bytes, asks, NOW)
    told = Whisper(2, [b"\x00zambezi-gossip", BOB.bytes + b"tcp://10.0.0.2:50001"]).encode()
    assert Send(carol.bytes, told) in ours.take()
    dave = UUID(int=0x0D)
    ours.receive(b"\x01" + dave.bytes, hello(endpoint="tcp://10.0.0.4:50003", name="dave"), NOW)
    news = Whisper(3, [b"\x00zambezi-gossip", dave.bytes + b"tcp://10.0.0.4:50003"]).encode()
    sent = [output for output in ours.take() if isinstance(output, Send) and output.peer != dave.bytes]
    assert sent == [Send(carol.bytes, news)]
    ours.receive_beacon(beacon(carol, 0), "10.0.0.3", NOW)
    erin = UUID(int=0x0E)
    ours.take()
    ours.receive(b"\x01" + erin.bytes, hello(endpoint="tcp://10.0.0.5:50004", name="erin"), NOW)
    assert all(output.peer == erin.bytes for output in ours.take() if isinstance(output, Send))


def test_a_seed_that_others_tell_of_before_it_answers_is_not_greeted_twice() -> None:
    hub, where = UUID(int=0x0C), "tcp://10.0.0.3:50002"
    ours = engine(gossip=True)
    ours.rendezvous.add_seed(where, NOW)
    ours.receive(IDENTITY, hello(headers={GOSSIP: "tcp://10.0.0.2:50001"}), NOW)
    ours.take()
    ours.receive(IDENTITY, list(Whisper(2, [b"\x00zambezi-gossip", hub.bytes + where.encode()]).encode()), NOW)
    assert ours.take() == []
    ours.receive(b"\x01" + hub.bytes, hello(endpoint=where, name="hub"), NOW)
    done = ours.take()
    assert [type(output) for output in done[:2]] == [Adopt, events.Enter]
    assert not any(isinstance(output, Connect) for output in done)


def test_gossip_that_is_malformed_is_passed_over() -> None:
    ours = engine(gossip=True)
    ours.receive(IDENTITY, hello(headers={GOSSIP: "tcp://10.0.0.2:50001"}), NOW)
    ours.take()
    entries = [
        b"",
        b"short",
        uuid_of(7).bytes,
        uuid_of(7).bytes + b"udp://10.0.0.7:1",
        uuid_of(7).bytes + b"\xff\xfe",
        uuid_of(7).bytes + b"tcp://[",
        ours.uuid.bytes + b"tcp://10.0.0.1:50000",
        uuid_of(8).bytes + b"tcp://10.0.0.8:1",
    ]
    ours.receive(IDENTITY, list(Whisper(2, [b"\x00zambezi-gossip", *entries]).encode()), NOW)
    assert Connect(uuid_of(8).bytes, "tcp://10.0.0.8:1") in ours.take()
    assert ours.uuid.bytes not in ours.peers
    quiet = engine()
    quiet.receive(IDENTITY, hello(headers={GOSSIP: "tcp://10.0.0.2:50001"}), NOW)
    quiet.take()
    quiet.receive(IDENTITY, list(Whisper(2, [b"\x00zambezi-gossip", *entries]).encode()), NOW)
    assert quiet.take() == []


def test_stop_parts_from_all_and_nothing_is_due_any_more() -> None:
    ours = met()
    ours.start(50000, NOW)
    ours.rendezvous.add_seed("tcp://10.0.0.9:50000", NOW)
    ours.take()
    ours.stop()
    assert ours.take() == [
        Broadcast(b"ZRE\x01" + ours.uuid.bytes + b"\0\0"),
        Disconnect(BOB.bytes),
        Disconnect(b"seed tcp://10.0.0.9:50000"),
    ]
    ours.tick(NOW + 100)
    assert ours.take() == []


# All at once

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["deliver"] * 6
            + ["datagram", "datagram", "lose datagram", "lose", "wait", "start", "stop", "kill", "join", "leave"]
            + ["whisper", "shout", "announce", "restart", "return", "full"]
        ),
        st.integers(0, 1 << 16),
    ),
    max_size=80,
)


# A JOIN is lost while the answer to the HELLO before it is under way.
LOST_BETWEEN = [
    *(("datagram", 155), ("join", 1981), ("deliver", 683), ("kill", 301), ("datagram", 194), ("lose datagram", 277)),
    *(("lose", 146), ("deliver", 4599), ("lose", 146)),
]


@settings(max_examples=cases(100), phases=[Phase.explicit, Phase.generate])
@example(LOST_BETWEEN, ["stable"] * 4)
@given(STEPS, st.lists(st.sampled_from(["stable", "stable", "draft"]), min_size=4, max_size=4))
def test_after_any_faults_all_nodes_agree_in_the_end(steps: list[tuple[str, int]], dialects: list[str]) -> None:
    mesh = Mesh()
    here: dict[int, Member] = {}

    def start(place: int, port: int = 0, **options: Any) -> None:
        here[place] = mesh.add(**{"number": place + 1, "dialect": dialects[place], "port": port, **options})

    for number in range(3):
        start(number)
    for what, chance in steps:
        act(mesh, here, what, random.Random(chance), start)
        for member in mesh.members.values():
            check(member.story)
    mesh.advance(80)
    agree(mesh)
    # Without further faults nothing is lost, and no node gets a message that is not for it.
    for member in mesh.members.values():
        member.story.clear()
    members = list(mesh.members.values())
    for one in members:
        for other in members:
            if one is not other:
                whisper(mesh, one, other, b"%d" % one.number)
        one.engine.shout("A", (b"%d" % one.number,))
        mesh.pump(one)
    mesh.advance(40)
    for one in members:
        others = {other.uuid for other in members if other is not one}
        assert {type(event) for event in one.story} <= {events.Whisper, events.Shout}
        assert sorted(event.peer for event in one.told(events.Whisper)) == sorted(others)
        shouters = others if "A" in one.engine.profile.groups else set()
        assert {event.peer for event in one.told(events.Shout)} == shouters


def act(mesh: Mesh, here: dict[int, Member], what: str, chance: random.Random, start: Any) -> None:
    """Let one thing happen."""
    number = chance.randrange(4)
    member = here.get(number)
    if what == "deliver" and mesh.connections:
        mesh.deliver(chance.choice(mesh.connections))
    elif what in ("datagram", "lose datagram") and mesh.datagrams:
        mesh.deliver_datagram(lost=what == "lose datagram")
    elif what == "lose" and mesh.connections:
        connection = chance.choice(mesh.connections)
        for _ in range(chance.randint(1, len(connection.queue))):
            connection.queue.popleft()
        owner = connection.owner
        mesh.lose(owner, next(key for key, one in owner.connections.items() if one is connection))
    elif what == "wait":
        mesh.now += chance.choice([0.1, 1, 3, 7, 31])
        mesh.tick()
    elif member is None:
        if what == "start":
            start(number)
    elif what in ("stop", "kill", "restart", "return"):
        del here[number]
        if what == "stop":
            mesh.stop(member)
        else:
            mesh.kill(member, noticed=chance.random() < 0.5)
        if what == "restart":
            start(number, chance.choice([0, member.port]))
        elif what == "return":  # at the same endpoint, with another UUID
            start(number, member.port, number=member.number + 100, address=member.address)
    else:
        act_in(mesh, member, what, chance)


def act_in(mesh: Mesh, member: Member, what: str, chance: random.Random) -> None:
    group = chance.choice("AB")
    peer = chance.choice(list(member.ready) or [None])
    if what == "join":
        member.engine.join(group)
    elif what == "leave":
        member.engine.leave(group)
    elif what == "shout":
        member.engine.shout(group, (b"x",))
    elif what == "announce":
        member.engine.set_header("X-" + group, f"tcp://10.0.0.1:{chance.randrange(100)}", mesh.now)
    elif what == "whisper" and peer:
        member.engine.whisper(peer, (b"x",))
    elif what == "full" and peer:
        member.engine.unresponsive(peer.bytes)
    mesh.pump(member)
