"""zambezi.p2p.pattern: the rules of 51/P2P on a simulated clock, in memory and over loopback."""

import itertools
import random
from collections import Counter
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.zmtp.stranger import Stranger, hello
from zambezi.p2p import NoSuchPeer, PeerConnected, PeerDisconnected
from zambezi.p2p.pattern import PeerPattern
from zambezi.zmtp.errors import QueueFull, ZmtpError
from zambezi.zmtp.events import HandshakeFailed, Listening, Retrying, SocketEvent
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.patterns import Dealer
from zambezi.zmtp.testing import Simulation, closed, history

_names = itertools.count()

E = TypeVar("E", bound=SocketEvent)


@pytest.fixture
def name() -> str:
    return f"inproc://peer-{next(_names)}"


def of(kind: type[E], events: list[SocketEvent]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def received(engine: PeerPattern) -> list[tuple[int, bytes]]:
    messages = []
    while (message := engine.try_recv()) is not None:
        messages.append(message)
    return messages


def pair(
    sim: Simulation, endpoint: str, receive_bound: Bound | None = None
) -> tuple[PeerPattern, int, PeerPattern, int]:
    """Return a socket that bound and one that connected, each with its routing id of the other."""
    options = Options(receive_bound=receive_bound or Bound())
    bound, connected = PeerPattern(sim, options), PeerPattern(sim, options)
    to_bound = connected.connect(bound.bind(endpoint))
    sim.until(lambda: bound.peers and connected.peers[to_bound].connected)
    (to_connected,) = bound.peers
    return bound, to_connected, connected, to_bound


# Messages


def test_messages_go_both_ways_with_their_routing_ids(sim: Simulation, name: str) -> None:
    ann, to_bob, bob, to_ann = pair(sim, name)
    assert ann.try_send(to_bob, b"hello bob")
    assert bob.try_send(to_ann, b"hello ann")
    assert bob.try_send(to_ann, b"")
    sim.run()
    assert received(bob) == [(to_ann, b"hello bob")]
    assert received(ann) == [(to_bob, b"hello ann"), (to_bob, b"")]


def test_one_socket_is_both_bound_and_connected(sim: Simulation, name: str) -> None:
    hub, to_first, first, first_to_hub = pair(sim, name)
    other = PeerPattern(sim, Options())
    hub_to_other = hub.connect(other.bind(name + "-other"))
    sim.run()
    (other_to_hub,) = other.peers
    first.try_send(first_to_hub, b"1")
    other.try_send(other_to_hub, b"2")
    sim.run()
    assert sorted(received(hub)) == sorted([(to_first, b"1"), (hub_to_other, b"2")])
    for routing_id in (to_first, hub_to_other):
        hub.try_send(routing_id, b"to %d" % routing_id)
    sim.run()
    assert received(first) == [(first_to_hub, b"to %d" % to_first)]
    assert received(other) == [(other_to_hub, b"to %d" % hub_to_other)]


def test_two_connections_between_the_same_two_are_two_peers(sim: Simulation, name: str) -> None:
    bob, _, ann, first = pair(sim, name)
    second = ann.connect(name)
    sim.run()
    ann.try_send(first, b"1")
    ann.try_send(second, b"2")
    sim.run()
    got = received(bob)
    assert sorted(text for _, text in got) == [b"1", b"2"]
    assert len({routing_id for routing_id, _ in got}) == 2


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=20)), max_size=60), st.integers(1, 5))
def test_each_peer_gets_its_own_messages_in_order(words: list[tuple[int, bytes]], bound: int) -> None:
    sim = Simulation()
    hub = PeerPattern(sim, Options(send_bound=Bound(bound, 1000)))
    others = [PeerPattern(sim, Options(receive_bound=Bound(bound, 1000))) for _ in range(3)]
    ids = [hub.connect(other.bind(f"inproc://property-{next(_names)}")) for other in others]
    got: list[list[bytes]] = [[], [], []]
    for to, data in words:
        while not hub.try_send(ids[to], data):
            sim.run()
            got[to] += [text for _, text in received(others[to])]
    for _ in words:
        sim.run()
        for to, other in enumerate(others):
            got[to] += [text for _, text in received(other)]
    assert got == [[data for to, data in words if to == one] for one in range(3)]


# Routing ids


def test_the_first_id_is_random_and_the_next_is_the_next(sim: Simulation, name: str) -> None:
    start = random.Random(7).getrandbits(32)
    engine = PeerPattern(sim, Options(), random.Random(7))
    ids = [engine.connect(name) for _ in range(3)]
    assert ids == [start + 1, start + 2, start + 3]
    assert engine.connect(name) not in {PeerPattern(sim, Options()).connect(name) for _ in range(3)}


def test_ids_wrap_around_zero_and_skip_those_in_use(sim: Simulation, name: str) -> None:
    engine = PeerPattern(sim, Options())
    engine._last_id = 0xFFFFFFFD
    assert [engine.connect(name) for _ in range(3)] == [0xFFFFFFFE, 0xFFFFFFFF, 1]
    engine._last_id = 0xFFFFFFFD
    assert [engine.connect(name) for _ in range(2)] == [2, 3]


def test_an_id_is_not_used_again_while_others_are_free(sim: Simulation, name: str) -> None:
    engine = PeerPattern(sim, Options())
    seen = set()
    for _ in range(200):
        routing_id = engine.connect(name)
        assert routing_id not in seen
        seen.add(routing_id)
        engine.disconnect(routing_id, 0)


def test_a_peer_cannot_choose_its_id(sim: Simulation) -> None:
    engine = PeerPattern(sim, Options())
    events = history(engine)
    endpoint = engine.bind("tcp://127.0.0.1:*")
    with Stranger.calling(endpoint) as one, Stranger.calling(endpoint) as other:
        for stranger in (one, other):
            stranger.say(hello("PEER", identity=b"\x01\x02\x03\x04"))
        sim.until(lambda: len(engine.peers) == 2)
        assert 0x01020304 not in engine.peers
        assert [event.routing_id for event in of(PeerConnected, events)] == list(engine.peers)
        assert {peer.identity for peer in engine.peers.values()} == {b""}
    engine.close(0)


# Queues that connect makes


def test_an_outgoing_peer_has_its_queue_at_once(sim: Simulation, name: str) -> None:
    ann = PeerPattern(sim, Options())
    to_bob = ann.connect(name)
    assert list(ann.peers) == [to_bob]
    for number in range(3):
        assert ann.try_send(to_bob, b"%d" % number)
    sim.advance(1000)
    bob = PeerPattern(sim, Options())
    bob.bind(name)
    sim.run()
    assert [text for _, text in received(bob)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("transport", ["tcp", "inproc"])
def test_an_outgoing_peer_keeps_its_queue_and_id_across_reconnects(sim: Simulation, name: str, transport: str) -> None:
    ann = PeerPattern(sim, Options())
    events = history(ann)
    endpoint = name if transport == "inproc" else "tcp://127.0.0.1:*"
    to_bob = 0
    for text in (b"first", b"second", b"third"):
        bob = PeerPattern(sim, Options())
        endpoint = bob.bind(endpoint)
        to_bob = to_bob or ann.connect(endpoint)
        assert ann.try_send(to_bob, text)
        sim.advance(1.0)
        sim.until(lambda bob=bob: bob.readable)  # type: ignore[misc]
        ((to_ann, got),) = received(bob)
        assert got == text
        bob.try_send(to_ann, b"answer to " + text)
        sim.until(lambda: ann.readable)
        assert received(ann) == [(to_bob, b"answer to " + text)]
        bob.close(0)
        sim.until(lambda: of(Retrying, events))
        events.clear()
        assert list(ann.peers) == [to_bob]
    ann.close(0)


def test_messages_from_before_a_lost_connection_can_still_be_received(sim: Simulation, name: str) -> None:
    bob, to_ann, ann, to_bob = pair(sim, name)
    bob.try_send(to_ann, b"last words")
    sim.run()
    bob.close(0)
    sim.run()
    assert received(ann) == [(to_bob, b"last words")]


# Queues that a peer makes


def test_an_incoming_peer_takes_its_queues_with_it(sim: Simulation, name: str) -> None:
    bob, to_ann, ann, to_bob = pair(sim, name, receive_bound=Bound(1, 1000))
    for number in range(4):
        bob.try_send(to_ann, b"to ann %d" % number)
        ann.try_send(to_bob, b"to bob %d" % number)
        sim.run()
    queued = len(bob.peers[to_ann]._outbox)
    assert queued
    assert bob.readable
    ann.close(0)
    sim.run()
    assert not bob.peers
    assert received(bob) == []
    assert (bob.transport.counters.abandoned, bob.transport.counters.unread) == (queued, 1)
    with pytest.raises(NoSuchPeer, match=f"{to_ann}: the peer disconnected"):
        bob.try_send(to_ann, b"x")


def test_the_queues_of_the_others_stay(sim: Simulation, name: str) -> None:
    hub, to_first, first, first_to_hub = pair(sim, name)
    second = PeerPattern(sim, Options())
    second_to_hub = second.connect(name)
    sim.run()
    first.try_send(first_to_hub, b"from the first")
    second.try_send(second_to_hub, b"from the second")
    sim.run()
    first.close(0)
    sim.run()
    (to_second,) = hub.peers
    assert to_second != to_first
    assert received(hub) == [(to_second, b"from the second")]


def test_the_rest_of_a_batch_is_discarded_too(sim: Simulation, name: str) -> None:
    bob, to_ann, ann, to_bob = pair(sim, name)
    for number in range(10):
        ann.try_send(to_bob, b"%d" % number)
    sim.run()
    assert [bob.try_recv() for _ in range(3)] == [(to_ann, b"%d" % number) for number in range(3)]
    ann.close(0)
    sim.run()
    assert received(bob) == []
    assert (bob.transport.counters.abandoned, bob.transport.counters.unread) == (0, 7)


# Disconnecting


def test_disconnecting_sends_queued_messages_and_ends_the_id(sim: Simulation, name: str) -> None:
    bob, _, ann, to_bob = pair(sim, name, receive_bound=Bound(1, 1000))
    for number in range(5):
        ann.try_send(to_bob, b"%d" % number)
        sim.run()
    ann.disconnect(to_bob, None)
    with pytest.raises(NoSuchPeer):
        ann.try_send(to_bob, b"x")
    with pytest.raises(NoSuchPeer):
        ann.disconnect(to_bob, None)
    got = []
    while messages := received(bob):
        got += [text for _, text in messages]
        sim.run()
    assert got == [b"0", b"1", b"2", b"3", b"4"]
    sim.advance(60)
    assert not bob.peers
    assert not ann.transport.links
    assert not ann.transport.connectors
    assert not closed(ann)


def test_disconnecting_an_incoming_peer_closes_its_connection(sim: Simulation, name: str) -> None:
    bob, to_ann, ann, to_bob = pair(sim, name)
    told = history(ann)
    bob.disconnect(to_ann, None)
    sim.run()
    assert of(PeerDisconnected, told)[0].routing_id == to_bob
    sim.advance(1.0)
    (again,) = bob.peers  # ann reconnects, and is a new peer
    assert again != to_ann
    assert list(ann.peers) == [to_bob]


def test_disconnecting_discards_messages_that_were_not_received(sim: Simulation, name: str) -> None:
    bob, to_ann, ann, to_bob = pair(sim, name, receive_bound=Bound(2, 1000))
    for number in range(6):
        bob.try_send(to_ann, b"%d" % number)
        sim.run()
        ann.try_send(to_bob, b"%d" % number)
        sim.run()
    assert ann.try_recv() == (to_bob, b"0")
    ann.disconnect(to_bob, None)
    assert ann.transport.links  # a message is left to send, so the connection lasts a little longer
    assert received(ann) == []
    sim.advance(10)
    assert received(ann) == []
    while received(bob):
        sim.run()
    assert not ann.transport.links


def test_messages_that_arrive_while_a_disconnect_lingers_are_discarded(sim: Simulation, name: str) -> None:
    bob, to_ann, ann, to_bob = pair(sim, name, receive_bound=Bound(1, 1000))
    for number in range(4):
        ann.try_send(to_bob, b"%d" % number)
        sim.run()
    ann.disconnect(to_bob, None)
    assert ann.transport.links  # a message is left to send
    for _ in range(3):
        bob.try_send(to_ann, b"too late")
        sim.run()
    assert not ann.readable
    assert ann.transport.counters.unread == 3
    assert received(ann) == []


def test_disconnecting_gives_up_when_the_linger_is_over(sim: Simulation, name: str) -> None:
    ann = PeerPattern(sim, Options())
    to_nobody = ann.connect(name)
    ann.try_send(to_nobody, b"x")
    ann.disconnect(to_nobody, 2.0)
    sim.advance(1.9)
    assert ann.transport.connectors
    sim.advance(0.2)
    assert not ann.transport.connectors
    assert ann.transport.counters.abandoned == 1


# Bounds


@pytest.mark.parametrize(
    ("bound", "data", "fit"),
    [(Bound(3, 1000), b"x", 3), (Bound(100, 10), b"xxxx", 3), (Bound(100, 10), b"x" * 50, 1)],
)
def test_the_outgoing_queue_is_bounded_per_peer(
    sim: Simulation, name: str, bound: Bound, data: bytes, fit: int
) -> None:
    ann = PeerPattern(sim, Options(send_bound=bound))
    first, second = ann.connect(name), ann.connect(name + "-other")
    assert [ann.try_send(first, data) for _ in range(fit + 2)] == [True] * fit + [False] * 2
    assert [ann.try_send(second, data) for _ in range(fit + 2)] == [True] * fit + [False] * 2
    bob = PeerPattern(sim, Options())
    bob.bind(name)
    sim.run()
    assert [text for _, text in received(bob)] == [
        data
    ] * fit  # refused messages were not queued, and no other was lost
    assert ann.try_send(first, data)


def test_the_policy_error_raises_and_names_the_peer(sim: Simulation, name: str) -> None:
    ann = PeerPattern(sim, Options(send_bound=Bound(1, 1000), on_full="error"))
    to_nobody = ann.connect(name)
    ann.try_send(to_nobody, b"x")
    with pytest.raises(QueueFull, match=f"peer {to_nobody} .*1 messages or 1000 bytes"):
        ann.try_send(to_nobody, b"x")


def test_no_policy_drops_messages(sim: Simulation) -> None:
    with pytest.raises(ZmtpError, match="never drops"):
        PeerPattern(sim, Options(on_full="drop"))


def test_the_incoming_queue_is_bounded_and_nothing_is_lost(sim: Simulation, name: str) -> None:
    ann = PeerPattern(sim, Options(send_bound=Bound(5, 1000)))
    bob = PeerPattern(sim, Options(receive_bound=Bound(5, 1000)))
    to_bob = ann.connect(bob.bind(name))
    sim.run()
    sent = 0
    while ann.try_send(to_bob, b"%d" % sent):
        sent += 1
        sim.run()
    (peer,) = bob.peers.values()
    assert bob._inbox.waiting(peer) == 5
    # Five in the inbox, including the one that is not acknowledged yet, and five in the outbox.
    assert sent == 10
    got = []
    while messages := received(bob):
        got += [text for _, text in messages]
        sim.run()
    assert got == [b"%d" % number for number in range(sent)]


def test_a_full_queue_of_one_peer_does_not_keep_another_from_sending(sim: Simulation, name: str) -> None:
    hub = PeerPattern(sim, Options(send_bound=Bound(1, 1000)))
    nobody = hub.connect(name + "-nobody")
    other = PeerPattern(sim, Options())
    somebody = hub.connect(other.bind(name))
    assert hub.try_send(nobody, b"x")
    assert not hub.try_send(nobody, b"x")
    for _ in range(10):
        assert hub.try_send(somebody, b"x")
        sim.run()
    assert len(received(other)) == 10


def test_waiting_senders_are_woken_by_room_and_by_the_end_of_the_queue(sim: Simulation, name: str) -> None:
    ann = PeerPattern(sim, Options(send_bound=Bound(1, 1000)))
    woken: list[str] = []
    to_bob = ann.connect(name)
    ann.try_send(to_bob, b"x")
    ann.on_writable = lambda: woken.append("room")
    bob = PeerPattern(sim, Options())
    bob.bind(name)
    sim.run()
    assert woken
    woken.clear()
    ann.disconnect(to_bob, None)
    assert woken


# Fairness


def test_a_flood_from_one_peer_does_not_starve_the_others(sim: Simulation, name: str) -> None:
    hub = PeerPattern(sim, Options(receive_bound=Bound(1000, 1 << 20)))
    hub.bind(name)
    senders = [PeerPattern(sim, Options()) for _ in range(4)]
    ids = [sender.connect(name) for sender in senders]
    sim.run()
    counts = [5000, 20, 20, 20]
    for sender, routing_id, count in zip(senders, ids, counts, strict=True):
        for number in range(count):
            assert sender.try_send(routing_id, b"%d" % number)
    sim.run()
    order = []
    for _ in range(80):
        message = hub.try_recv()
        assert message is not None
        order.append(message[0])
    # While messages of all four wait, each peer has its turn in every round of four.
    for start in range(0, 80, 4):
        assert len(set(order[start : start + 4])) == 4
    assert set(Counter(order).values()) == {20}


def test_a_peer_that_comes_in_during_a_flood_has_its_turn_at_once(sim: Simulation, name: str) -> None:
    hub, to_loud, loud, loud_to_hub = pair(sim, name)
    for number in range(3000):
        loud.try_send(loud_to_hub, b"%d" % number)
    sim.run()
    assert [hub.try_recv() for _ in range(100)] == [(to_loud, b"%d" % number) for number in range(100)]
    quiet = PeerPattern(sim, Options())
    quiet.try_send(quiet.connect(name), b"a word")
    sim.run()
    assert b"a word" in [message[1] for message in (hub.try_recv(), hub.try_recv()) if message]


# Refused messages and peers


def test_a_multipart_message_is_discarded_whole_and_its_sender_disconnected(sim: Simulation) -> None:
    engine = PeerPattern(sim, Options())
    events = history(engine)
    with Stranger.calling(engine.bind("tcp://127.0.0.1:*")) as stranger:
        stranger.say(hello("PEER"))
        sim.until(lambda: engine.peers)
        (routing_id,) = engine.peers
        stranger.say(b"\x00\x05whole")
        sim.until(lambda: engine.readable)
        assert received(engine) == [(routing_id, b"whole")]
        stranger.say(b"\x01\x05part1\x00\x05part2\x00\x05after")
        sim.until(lambda: of(PeerDisconnected, events))
        stranger.listen_to_the_end()
    (event,) = of(PeerDisconnected, events)
    assert event.routing_id == routing_id
    assert "multipart" in event.reason
    assert received(engine) == []
    assert not engine.peers
    engine.close(0)


@pytest.mark.parametrize("socket_type", ["DEALER", "ROUTER", "SERVER", "CLIENT", "peer", "PEERS", "PAIR", ""])
def test_any_other_socket_type_is_refused(sim: Simulation, socket_type: str) -> None:
    engine = PeerPattern(sim, Options())
    events = history(engine)
    endpoint = engine.bind("tcp://127.0.0.1:*")
    with Stranger.calling(endpoint) as stranger:
        stranger.say(hello(socket_type) + b"\x00\x01x")
        sim.until(lambda: of(HandshakeFailed, events))
        stranger.listen_to_the_end()
    assert [type(event) for event in events] == [Listening, HandshakeFailed]
    assert of(HandshakeFailed, events)[0].reason.endswith("cannot talk to a PEER")
    assert not engine.peers
    assert received(engine) == []
    engine.close(0)


def test_another_socket_type_is_refused_in_memory_too(sim: Simulation, name: str) -> None:
    engine = PeerPattern(sim, Options())
    events = history(engine)
    engine.bind(name)
    dealer = Dealer(sim, Options())
    theirs = history(dealer)
    dealer.connect(name)
    dealer.try_send(b"x")
    sim.run()
    assert of(HandshakeFailed, events)[0].reason == "a DEALER cannot talk to a PEER"
    assert of(HandshakeFailed, theirs)[0].reason == "a DEALER cannot talk to a PEER"
    assert not engine.peers


# Events


def test_both_sides_tell_the_story_of_a_connection(sim: Simulation) -> None:
    bob, ann = PeerPattern(sim, Options()), PeerPattern(sim, Options())
    ours, theirs = history(bob), history(ann)
    endpoint = bob.bind("tcp://127.0.0.1:*")
    to_bob = ann.connect(endpoint)
    sim.until(lambda: of(PeerConnected, ours) and of(PeerConnected, theirs))
    (to_ann,) = bob.peers
    ann.disconnect(to_bob, None)
    sim.until(lambda: of(PeerDisconnected, ours))
    assert ours == [
        Listening(endpoint),
        PeerConnected(endpoint, to_ann, "127.0.0.1", ""),
        PeerDisconnected(endpoint, to_ann, "127.0.0.1", "the peer closed the connection"),
    ]
    assert theirs == [
        PeerConnected(endpoint, to_bob, "127.0.0.1", ""),
        PeerDisconnected(endpoint, to_bob, "127.0.0.1", "closed by this side"),
    ]
    ann.close(0)
    bob.close(0)


# The end


def test_closing_delivers_accepted_messages(sim: Simulation, name: str) -> None:
    ann = PeerPattern(sim, Options())
    to_bob = ann.connect(name)
    for number in range(5):
        ann.try_send(to_bob, b"%d" % number)
    ann.close(None)
    sim.advance(1000)
    assert not closed(ann)
    bob = PeerPattern(sim, Options(receive_bound=Bound(1, 1000)))
    bob.bind(name)
    sim.run()
    assert not closed(ann)  # it waits until the other side has room
    assert [text for _, text in received(bob)] == [b"0", b"1", b"2", b"3", b"4"]
    sim.run()
    assert closed(ann)
    assert ann.transport.counters.abandoned == 0


def test_closing_gives_up_after_its_linger_and_counts(sim: Simulation, name: str) -> None:
    ann = PeerPattern(sim, Options())
    to_nobody = ann.connect(name)
    ann.try_send(to_nobody, b"x")
    ann.close(5.0)
    sim.advance(4.9)
    assert not closed(ann)
    sim.advance(0.2)
    assert closed(ann)
    assert ann.transport.counters.abandoned == 1


def test_abandoned_messages_are_counted_once(sim: Simulation, name: str) -> None:
    _, _, ann, to_bob = pair(sim, name, receive_bound=Bound(1, 1000))
    for number in range(6):
        ann.try_send(to_bob, b"%d" % number)
        sim.run()
    peer = ann.peers[to_bob]
    assert peer.post(b"in the mailbox")
    queued = len(peer._outbox) + 1
    ann.close(1.0)
    sim.advance(1.1)
    assert closed(ann)
    assert ann.transport.counters.abandoned == queued
