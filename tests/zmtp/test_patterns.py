"""zambezi.zmtp.patterns: which peer receives which message; in memory, on a simulated clock."""

import itertools
import random

import pytest

from zambezi.zmtp.connection import Limits
from zambezi.zmtp.errors import MessageError, QueueFull, Unroutable, ZmtpError
from zambezi.zmtp.events import Connected, Disconnected, HandshakeFailed, Retrying
from zambezi.zmtp.options import Bound, Options, Policy
from zambezi.zmtp.patterns import Dealer, Pub, Router, Sub, Unroutables, XPub, XSub
from zambezi.zmtp.testing import Simulation, history, received

_names = itertools.count()


@pytest.fixture
def name() -> str:
    """An inproc endpoint for this test alone: all tests of a process share the names."""
    return f"inproc://patterns-{next(_names)}"


def dealer(
    sim: Simulation,
    identity: bytes = b"",
    send: Bound | None = None,
    policy: Policy = "block",
    receive: Bound | None = None,
) -> Dealer:
    options = Options(identity=identity, send_bound=send or Bound(), receive_bound=receive or Bound(), on_full=policy)
    return Dealer(sim, options, random.Random(1))


def router(
    sim: Simulation,
    unroutable: Unroutables = "drop",
    handover: bool = False,
    send: Bound | None = None,
    policy: Policy = "drop",
    receive: Bound | None = None,
) -> Router:
    options = Options(send_bound=send or Bound(), receive_bound=receive or Bound(), on_full=policy)
    return Router(sim, options, random.Random(2), unroutable, handover)


# DEALER


def test_a_dealer_sends_to_its_peers_in_turn(sim: Simulation) -> None:
    sender = dealer(sim)
    peers = [dealer(sim) for _ in range(3)]
    for peer in peers:
        sender.connect(peer.bind(f"inproc://turn-{next(_names)}"))
    sim.run()
    for number in range(9):
        assert sender.try_send(b"%d" % number)
    sim.run()
    assert [received(peer) for peer in peers] == [
        [[b"%d" % number] for number in range(first, 9, 3)] for first in range(3)
    ]


def test_a_dealer_skips_peers_without_room(sim: Simulation, name: str) -> None:
    sender = dealer(sim, send=Bound(2, 1000), policy="error")
    sender.connect("inproc://patterns-nobody-there")  # its queue has room for two, and never empties
    peer = dealer(sim)
    sender.connect(peer.bind(name))
    sim.run()
    for number in range(20):
        assert sender.try_send(b"%d" % number)
        sim.run()
    assert len(received(peer)) == 18


def test_a_dealer_queues_for_a_peer_before_the_connection_exists(sim: Simulation, name: str) -> None:
    sender = dealer(sim)
    sender.connect(name)
    assert sender.try_send((b"a", b"b"))
    sim.run()
    peer = dealer(sim)
    peer.bind(name)
    sim.run()
    assert received(peer) == [[b"a", b"b"]]


@pytest.mark.parametrize("batched", [False, True])
def test_a_full_queue_follows_the_policy(sim: Simulation, batched: bool) -> None:
    def send(core: Dealer, message: bytes) -> bool:
        return core.try_send_batch([message], 0) == 1 if batched else core.try_send(message)

    blocking = dealer(sim, send=Bound(1, 1000))
    raising = dealer(sim, send=Bound(1, 1000), policy="error")
    dropping = dealer(sim, send=Bound(1, 1000), policy="drop")
    for core in (blocking, raising, dropping):
        core.connect("inproc://patterns-nobody-there")
        assert send(core, b"fits")
    assert not send(blocking, b"more")
    with pytest.raises(QueueFull, match="1 messages or 1000 bytes"):
        send(raising, b"more")
    assert send(dropping, b"more")
    assert [core.counters.dropped for core in (blocking, raising, dropping)] == [0, 0, 1]


def test_without_any_peer_the_policy_applies_too(sim: Simulation) -> None:
    assert not dealer(sim).try_send(b"")
    with pytest.raises(QueueFull, match="no peer"):
        dealer(sim, policy="error").try_send(b"")


def test_a_batch_over_the_bound_is_accepted_in_part(sim: Simulation) -> None:
    core = dealer(sim, send=Bound(3, 1000))
    core.connect("inproc://patterns-nobody-there")
    messages = [b"%d" % number for number in range(5)]
    assert core.try_send_batch(messages, 0) == 3
    assert core.try_send_batch(messages, 3) == 3
    dropping = dealer(sim, send=Bound(3, 1000), policy="drop")
    dropping.connect("inproc://patterns-nobody-there")
    assert dropping.try_send_batch(messages, 0) == 5
    assert dropping.counters.dropped == 2


def test_batches_go_round_between_several_peers(sim: Simulation) -> None:
    sender = dealer(sim)
    peers = [dealer(sim) for _ in range(2)]
    for peer in peers:
        sender.connect(peer.bind(f"inproc://turn-{next(_names)}"))
    sim.run()
    assert sender.try_send_batch([b"0", (b"1", b"x"), b"2", b"3"], 0) == 4
    sim.run()
    assert [received(peer) for peer in peers] == [[[b"0"], [b"2"]], [[b"1", b"x"], [b"3"]]]


# ROUTER


def test_a_router_answers_by_identity(sim: Simulation, name: str) -> None:
    hub = router(sim)
    hub.bind(name)
    ann, bob = dealer(sim, b"ann"), dealer(sim, b"bob")
    for client in (ann, bob):
        client.connect(name)
        client.try_send(b"hi")
    sim.run()
    assert received(hub) == [[b"ann", b"hi"], [b"bob", b"hi"]]
    assert hub.try_send((b"bob", b"x", b"y"))
    assert hub.try_send((b"ann", b""))
    sim.run()
    assert received(ann) == [[b""]]
    assert received(bob) == [[b"x", b"y"]]


def test_identities_that_a_router_assigns_begin_with_zero_and_are_unique(sim: Simulation, name: str) -> None:
    hub = router(sim)
    events = history(hub)
    hub.bind(name)
    clients = [dealer(sim) for _ in range(50)]
    for client in clients:
        client.connect(name)
        client.try_send(b"x")
    sim.run()
    identities = [message[0] for message in received(hub)]
    assert all(len(identity) == 5 and identity[0] == 0 for identity in identities)
    assert len(set(identities)) == 50
    assert {event.identity for event in events if isinstance(event, Connected)} == set(identities)


def test_a_peer_without_an_identity_keeps_the_assigned_one(sim: Simulation, name: str) -> None:
    hub = router(sim)
    hub.connect(name)
    identities = []
    for _ in range(2):
        peer = dealer(sim)
        peer.bind(name)
        sim.advance(1)
        identities += list(hub.peers)
        peer.close(0)
        sim.advance(1)
    assert len(identities) == 2
    assert len(set(identities)) == 1


def test_a_peer_without_an_identity_does_not_inherit_one(sim: Simulation, name: str) -> None:
    hub = router(sim)
    hub.connect(name)
    peer = dealer(sim, b"ann")
    peer.bind(name)
    sim.advance(1)
    assert list(hub.peers) == [b"ann"]
    peer.close(0)
    sim.advance(1)
    dealer(sim).bind(name)
    sim.advance(1)
    assert [identity[:1] for identity in hub.peers] == [b"\0"]


def test_unroutable_messages_are_dropped_and_counted_or_raise(sim: Simulation) -> None:
    quiet = router(sim)
    assert quiet.try_send((b"nobody", b"x"))
    assert quiet.counters.unroutable == 1
    assert quiet.try_send_to(b"nobody", [b"x", b"y", b"z"], 0) == 3
    assert quiet.counters.unroutable == 4
    strict = router(sim, unroutable="error")
    with pytest.raises(Unroutable, match="nobody"):
        strict.try_send((b"nobody", b"x"))
    with pytest.raises(Unroutable, match="nobody"):
        strict.try_send_to(b"nobody", [b"x"], 0)


def test_an_identity_alone_is_no_message(sim: Simulation) -> None:
    for message in (b"ann", (b"ann",)):
        with pytest.raises(MessageError, match="identity"):
            router(sim).try_send(message)


def test_unroutable_has_two_values() -> None:
    with pytest.raises(ZmtpError, match="unroutable"):
        Router(Simulation(), Options(), None, "explode")  # type: ignore[arg-type]


def test_a_router_drops_messages_to_full_peers_and_serves_the_others(sim: Simulation, name: str) -> None:
    hub = router(sim, send=Bound(5, 1000))
    hub.bind(name)
    slow = dealer(sim, b"slow", receive=Bound(5, 1000))
    fast = dealer(sim, b"fast")
    slow.connect(name)
    fast.connect(name)
    sim.run()
    for number in range(100):
        assert hub.try_send((b"slow", b"%d" % number))
        assert hub.try_send((b"fast", b"%d" % number))
        sim.run()
    assert received(fast) == [[b"%d" % number] for number in range(100)]
    seen = []
    while messages := received(slow):
        seen += messages
        sim.run()
    assert len(seen) + hub.counters.dropped == 100
    assert seen == [[b"%d" % number] for number in range(len(seen))]


@pytest.mark.parametrize("parts", [1, 2])
def test_send_to_is_send_many_times(sim: Simulation, name: str, parts: int) -> None:
    hub = router(sim, send=Bound(3, 1000))
    hub.bind(name)
    client = dealer(sim, b"ann")
    client.connect(name)
    sim.run()
    messages = [b"%d" % number if parts == 1 else (b"%d" % number, b"x") for number in range(3)]
    assert hub.try_send_to(b"ann", messages, 1) == 3
    sim.run()
    assert received(client) == [[b"1", b"x"][:parts], [b"2", b"x"][:parts]]
    assert hub.try_send_to(b"ann", messages * 3, 0) == 9
    # The link takes some at once, which makes room for more: singles are queued all together.
    assert hub.counters.dropped == (3 if parts == 1 else 5)
    sim.run()
    assert len(received(client)) == 9 - hub.counters.dropped


def test_a_second_peer_of_an_identity_is_refused_until_the_first_has_gone(sim: Simulation, name: str) -> None:
    hub = router(sim)
    hub.bind(name)
    events = history(hub)
    first, second = dealer(sim, b"ann"), dealer(sim, b"ann")
    theirs = history(second)
    first.connect(name)
    sim.run()
    second.connect(name)
    second.try_send(b"let me in")
    sim.advance(5)
    assert HandshakeFailed(name, "", "the identity is in use by another connection") in events
    assert [event for event in theirs if isinstance(event, Retrying)]
    assert hub.try_send((b"ann", b"still the first"))
    sim.run()
    assert received(first) == [[b"still the first"]]
    first.close(0)
    sim.advance(11)
    hub.try_send((b"ann", b"the second"))
    sim.run()
    assert received(second) == [[b"the second"]]


def test_a_handover_keeps_received_messages_in_order(sim: Simulation, name: str) -> None:
    hub = router(sim, handover=True)
    hub.bind(name)
    events = history(hub)
    old, new = dealer(sim, b"ann"), dealer(sim, b"ann")
    old.connect(name)
    for number in range(3):
        old.try_send(b"old %d" % number)
        sim.run()
    assert hub.try_recv() == [b"ann", b"old 0"]  # the rest of the batch, and of the queue, is still there
    new.connect(name)
    for number in range(3):
        new.try_send(b"new %d" % number)
        sim.run()
    assert Disconnected(name, "", b"ann", "its identity was taken over by a newer connection") in events
    texts = [b"old 1", b"old 2", b"new 0", b"new 1", b"new 2"]
    assert received(hub) == [[b"ann", text] for text in texts]
    hub.try_send((b"ann", b"hello"))
    sim.run()
    assert received(new) == [[b"hello"]]


def test_messages_of_a_lost_connection_come_before_those_of_the_next(sim: Simulation, name: str) -> None:
    hub = router(sim)
    hub.bind(name)
    old, new = dealer(sim, b"ann"), dealer(sim, b"ann")
    old.connect(name)
    for number in range(3):
        old.try_send(b"old %d" % number)
        sim.run()
    old.close(0)
    sim.run()
    assert hub.try_recv() == [b"ann", b"old 0"]
    new.connect(name)
    for number in range(3):
        new.try_send(b"new %d" % number)
        sim.run()
    texts = [b"old 1", b"old 2", b"new 0", b"new 1", b"new 2"]
    assert received(hub) == [[b"ann", text] for text in texts]


def test_a_handover_of_a_paused_peer_resumes_when_the_inbox_has_room(sim: Simulation, name: str) -> None:
    hub = router(sim, handover=True, receive=Bound(4, 10_000))
    hub.bind(name)
    old, new = dealer(sim, b"ann"), dealer(sim, b"ann")
    old.connect(name)
    old.try_send_batch([b"old"] * 4, 0)
    sim.run()
    new.connect(name)
    for number in range(20):
        new.try_send(b"%d" % number)
        sim.run()
    got = []
    while messages := received(hub):
        got += messages
        sim.run()
    assert got == [[b"ann", b"old"]] * 4 + [[b"ann", b"%d" % number] for number in range(20)]


# PUB and SUB


def subscriber(sim: Simulation, name: str, *prefixes: bytes, receive: Bound | None = None) -> Sub:
    core = Sub(sim, Options(receive_bound=receive or Bound()), random.Random(3))
    for prefix in prefixes:
        core.subscribe(prefix)
    core.connect(name)
    return core


def publisher(sim: Simulation, name: str, send: Bound | None = None, policy: Policy = "drop") -> Pub:
    core = Pub(sim, Options(send_bound=send or Bound(), on_full=policy), random.Random(4))
    core.bind(name)
    return core


def test_a_message_goes_to_the_subscribers_of_its_prefixes(sim: Simulation, name: str) -> None:
    pub = publisher(sim, name)
    everything, weather, both = (subscriber(sim, name, *prefixes) for prefixes in ([b""], [b"we"], [b"w", b"sport"]))
    nothing = subscriber(sim, name)
    sim.run()
    for message in (b"weather", (b"sports", b"3:2"), b"we", b"w", b""):
        assert pub.try_send(message)
    sim.run()
    assert received(everything) == [[b"weather"], [b"sports", b"3:2"], [b"we"], [b"w"], [b""]]
    assert received(weather) == [[b"weather"], [b"we"]]
    assert received(both) == [[b"weather"], [b"sports", b"3:2"], [b"we"], [b"w"]]
    assert received(nothing) == []


def test_a_message_that_matches_two_subscriptions_arrives_once(sim: Simulation, name: str) -> None:
    pub = publisher(sim, name)
    sub = subscriber(sim, name, b"", b"a", b"ab")
    sim.run()
    pub.try_send(b"abc")
    sim.run()
    assert received(sub) == [[b"abc"]]


def test_a_late_subscriber_receives_later_messages(sim: Simulation, name: str) -> None:
    pub = publisher(sim, name)
    sub = subscriber(sim, name)
    sim.run()
    pub.try_send(b"before")
    sub.subscribe(b"")
    sim.run()
    pub.try_send(b"after")
    sim.run()
    assert received(sub) == [[b"after"]]


def test_subscriptions_count(sim: Simulation, name: str) -> None:
    pub = publisher(sim, name)
    sub = subscriber(sim, name, b"a", b"a")
    sim.run()
    sub.unsubscribe(b"a")
    sim.run()
    pub.try_send(b"a1")
    sim.run()
    assert received(sub) == [[b"a1"]]
    sub.unsubscribe(b"a")
    sim.run()
    pub.try_send(b"a2")
    sim.run()
    assert received(sub) == []
    with pytest.raises(ZmtpError, match="not subscribed"):
        sub.unsubscribe(b"a")


@pytest.mark.parametrize("parts", [1, 2])
def test_messages_under_way_when_a_subscription_is_cancelled_are_not_received(
    sim: Simulation, name: str, parts: int
) -> None:
    pub = publisher(sim, name)
    sub = subscriber(sim, name, b"a", b"b")
    sim.run()
    for topic in (b"a1", b"b1", b"a2"):
        pub.try_send(topic if parts == 1 else (topic, b"x"))
    sub.unsubscribe(b"a")  # the publisher does not know it yet
    sim.run()
    assert [message[0] for message in received(sub)] == [b"b1"]


def test_unwanted_messages_do_not_block_the_inbox(sim: Simulation, name: str) -> None:
    pub = publisher(sim, name)
    sub = subscriber(sim, name, b"a", b"b", receive=Bound(4, 10_000))
    sim.run()
    for _ in range(10):
        pub.try_send(b"a")
    sub.unsubscribe(b"a")
    sim.run()
    for _ in range(3):
        pub.try_send(b"b")
        sim.run()
    assert received(sub) == [[b"b"]] * 3


def test_a_slow_subscriber_misses_messages_and_the_others_none(sim: Simulation, name: str) -> None:
    pub = publisher(sim, name, send=Bound(5, 10_000))
    slow = subscriber(sim, name, b"", receive=Bound(5, 10_000))
    others = [subscriber(sim, name, b"") for _ in range(3)]
    sim.run()
    for number in range(100):
        assert pub.try_send(b"%d" % number)
        sim.run()
    for other in others:
        assert received(other) == [[b"%d" % number] for number in range(100)]
    seen = []
    while messages := received(slow):
        seen += messages
        sim.run()
    assert 10 <= len(seen) <= 20
    assert pub.counters.dropped == 100 - len(seen)
    assert seen == [[b"%d" % number] for number in range(len(seen))]


def test_a_publisher_can_wait_for_the_slowest_or_raise(sim: Simulation) -> None:
    for policy in ("block", "error"):
        name = f"inproc://slowest-{next(_names)}"
        pub = publisher(sim, name, send=Bound(1, 10_000), policy=policy)
        slow = subscriber(sim, name, b"", receive=Bound(1, 10_000))
        fast = subscriber(sim, name, b"")
        sim.run()
        sent = 0
        while True:
            try:
                if not pub.try_send(b"%d" % sent):
                    break
            except QueueFull:
                assert policy == "error"
                break
            sent += 1
            sim.run()
        # A message that was not accepted went to no subscriber.
        assert len(received(fast)) == sent
        assert received(slow)
        sim.run()
        assert pub.try_send(b"room again")


@pytest.mark.parametrize(
    ("limits", "prefixes", "reason"),
    [
        (Limits(prefixes=100), [b"%d" % number for number in range(101)], "more than 100 prefixes"),
        (Limits(prefix=5), [b"12345", b"123456"], "a prefix of 6 bytes; the limit is 5"),
    ],
)
def test_a_subscriber_with_too_many_prefixes_is_cut_off(
    sim: Simulation, name: str, limits: Limits, prefixes: list[bytes], reason: str
) -> None:
    pub = Pub(sim, Options(limits=limits))
    pub.bind(name)
    greedy, modest = Sub(sim, Options()), Sub(sim, Options())
    events = history(pub)
    for sub in (greedy, modest):
        sub.connect(name)
        for _ in range(2):  # subscriptions count, but the same prefix takes its room once
            for prefix in prefixes[:-1]:
                sub.subscribe(prefix)
        sim.run()
    assert pub.counters.cut_off == 0
    greedy.subscribe(prefixes[-1])
    sim.run()
    assert pub.counters.cut_off == 1
    lost = [event for event in events if isinstance(event, Disconnected)]
    assert len(lost) == 1
    assert reason in lost[0].reason
    assert len(pub.subscriptions) == len(prefixes) - 1  # those of the other subscriber
    assert pub.try_send(prefixes[0])
    sim.run()
    assert received(modest) == [[prefixes[0]]]


def test_if_all_prefixes_are_too_many_the_subscriber_with_the_most_is_cut_off(sim: Simulation, name: str) -> None:
    pub = Pub(sim, Options(limits=Limits(all_prefixes=100)))
    pub.bind(name)
    greedy, modest = Sub(sim, Options()), Sub(sim, Options())
    for sub, count in ((greedy, 60), (modest, 40)):
        sub.connect(name)
        for number in range(count):
            sub.subscribe(b"%d" % number)
        sim.run()
    assert pub.subscriptions.size == 100
    modest.subscribe(b"one more")
    sim.run()
    assert (pub.counters.cut_off, pub.subscriptions.size) == (1, 41)
    pub.try_send(b"one more")
    sim.run()
    assert received(modest) == [[b"one more"]]


def test_a_subscriber_that_leaves_is_forgotten(sim: Simulation, name: str) -> None:
    pub = publisher(sim, name)
    sub = subscriber(sim, name, b"a", b"b")
    sim.run()
    assert len(pub.subscriptions) == 2
    sub.close(0)
    sim.run()
    assert len(pub.subscriptions) == 0


def test_subscriptions_are_sent_again_after_a_reconnect(sim: Simulation, name: str) -> None:
    sub = subscriber(sim, name, b"a")
    for text in (b"a first", b"a second"):
        pub = publisher(sim, name)
        sim.advance(1)
        pub.try_send(text)
        sim.run()
        assert received(sub) == [[text]]
        pub.close(0)
        sim.advance(1)


def test_a_subscriber_can_bind_and_publishers_connect(sim: Simulation, name: str) -> None:
    sub = Sub(sim, Options())
    sub.subscribe(b"a")
    sub.bind(name)
    pubs = [Pub(sim, Options()) for _ in range(2)]
    for pub in pubs:
        pub.connect(name)
    sim.run()
    for number, pub in enumerate(pubs):
        pub.try_send(b"a%d" % number)
        pub.try_send(b"b%d" % number)
    sim.run()
    assert sorted(received(sub)) == [[b"a0"], [b"a1"]]


def test_a_publisher_that_disconnects_sends_queued_messages_first(sim: Simulation, name: str) -> None:
    sub = Sub(sim, Options(receive_bound=Bound(2, 1000)))
    sub.subscribe(b"")
    sub.bind(name)
    pub = Pub(sim, Options())
    pub.connect(name)
    sim.run()
    for number in range(10):
        pub.try_send(b"%d" % number)
        sim.run()
    pub.disconnect(name, None)
    pub.try_send(b"too late")
    got = []
    while messages := received(sub):
        got += messages
        sim.run()
    assert got == [[b"%d" % number] for number in range(10)]
    assert not pub.transport.links
    assert len(pub.subscriptions) == 0


def test_a_subscription_to_a_publisher_that_is_leaving_leaves_nothing_behind(sim: Simulation, name: str) -> None:
    sub = Sub(sim, Options(receive_bound=Bound(1, 1000)))
    sub.subscribe(b"a")
    sub.bind(name)
    pub = Pub(sim, Options())
    pub.connect(name)
    sim.run()
    for _ in range(3):
        pub.try_send(b"a")
        sim.run()
    pub.disconnect(name, None)
    sub.subscribe(b"b")
    sim.run()
    while received(sub):
        sim.run()
    assert not pub.transport.links
    assert len(pub.subscriptions) == 0


def test_pub_does_not_receive_and_sub_does_not_send(sim: Simulation, name: str) -> None:
    with pytest.raises(ZmtpError, match="PUB socket does not receive"):
        publisher(sim, name).try_recv()
    with pytest.raises(ZmtpError, match="PUB socket does not receive"):
        Pub(sim, Options()).try_recv_batch()
    with pytest.raises(ZmtpError, match="SUB socket does not send"):
        Sub(sim, Options()).try_send(b"x")


def test_a_pub_discards_upstream_messages(sim: Simulation, name: str) -> None:
    pub = publisher(sim, name)
    sub = XSub(sim, Options())
    sub.connect(name)
    sim.run()
    for _ in range(100):
        sub.try_send(b"upstream")
        sim.run()
    assert not pub.readable


# XPUB and XSUB


def test_an_xpub_receives_the_first_and_the_last_subscription(sim: Simulation, name: str) -> None:
    pub = XPub(sim, Options())
    pub.bind(name)
    first, second = subscriber(sim, name, b"a"), subscriber(sim, name, b"a", b"b")
    sim.run()
    assert received(pub) == [[b"\x01a"], [b"\x01b"]]
    first.unsubscribe(b"a")
    sim.run()
    assert received(pub) == []
    second.unsubscribe(b"a")
    sim.run()
    assert received(pub) == [[b"\x00a"]]
    second.close(0)
    sim.run()
    assert received(pub) == [[b"\x00b"]]


def test_an_xsub_subscribes_by_sending_and_sends_upstream(sim: Simulation, name: str) -> None:
    pub = XPub(sim, Options())
    pub.bind(name)
    sub = XSub(sim, Options())
    sub.connect(name)
    sim.run()
    sub.try_send(b"\x01a")
    sub.try_send(b"\x01a")
    sub.try_send(b"hello")
    sub.try_send((b"\x01a", b"two frames are no subscription"))
    sim.run()
    assert sorted(received(pub)) == [[b"\x01a"], [b"\x01a", b"two frames are no subscription"], [b"hello"]]
    pub.try_send(b"abc")
    sim.run()
    assert received(sub) == [[b"abc"]]
    sub.try_send(b"\x00a")
    sub.try_send(b"\x00a")
    sub.try_send(b"\x00never subscribed")
    sim.run()
    assert received(pub) == [[b"\x00a"]]


def test_a_proxy_of_xsub_and_xpub_carries_subscriptions_up_and_messages_down(sim: Simulation, name: str) -> None:
    pub = publisher(sim, name)
    front, back = XSub(sim, Options()), XPub(sim, Options())
    front.connect(name)
    back.bind(name + "-down")
    sub = subscriber(sim, name + "-down", b"a")
    sim.run()
    for message in received(back):
        front.try_send(message[0])
    sim.run()
    pub.try_send(b"abc")
    pub.try_send(b"b")
    sim.run()
    for message in received(front):
        back.try_send(message[0])
    sim.run()
    assert received(sub) == [[b"abc"]]


def test_upstream_messages_to_a_full_queue_are_counted(sim: Simulation, name: str) -> None:
    pub = XPub(sim, Options(receive_bound=Bound(1, 1000)))
    pub.bind(name)
    sub = XSub(sim, Options(send_bound=Bound(1, 1000)))
    sub.connect(name)
    sim.run()
    for _ in range(10):
        sub.try_send(b"up")
        sim.run()
    seen = 0
    while messages := received(pub):
        seen += len(messages)
        sim.run()
    assert seen + sub.counters.dropped == 10
    assert sub.counters.dropped


# Fairness


def test_a_flood_does_not_starve_the_others(sim: Simulation, name: str) -> None:
    hub = router(sim)
    hub.bind(name)
    flood, drip = dealer(sim, b"flood"), dealer(sim, b"drip")
    flood.connect(name)
    drip.connect(name)
    flood.try_send_batch([b"x"] * 5000, 0)
    sim.run()
    drip.try_send_batch([b"y"] * 10, 0)
    sim.run()
    first = [hub.try_recv() for _ in range(20)]
    assert sum(message == [b"drip", b"y"] for message in first) == 10


def test_batches_are_fair_too(sim: Simulation, name: str) -> None:
    hub = router(sim)
    hub.bind(name)
    flood, drip = dealer(sim, b"flood"), dealer(sim, b"drip")
    flood.connect(name)
    drip.connect(name)
    sim.run()
    for _ in range(50):
        flood.try_send_batch([b"x"] * 10, 0)
        sim.run()
    for _ in range(3):
        drip.try_send(b"y")
        sim.run()
    senders = []
    for _ in range(6):
        batch = hub.try_recv_batch()
        assert batch is not None
        senders.append(batch.sender)
    assert senders.count(b"drip") == 3


def test_incompatible_sockets_are_refused(sim: Simulation, name: str) -> None:
    pub = publisher(sim, name)
    ours = history(pub)
    client = dealer(sim)
    theirs = history(client)
    client.connect(name)
    sim.run()
    reason = "a DEALER cannot talk to a PUB"
    assert ours == [HandshakeFailed(name, "", reason)]
    assert theirs[0] == HandshakeFailed(name, "", reason)
    assert isinstance(theirs[1], Retrying)
    assert theirs[1].reason == reason
