"""zambezi.zmtp.peer: the queue to a peer and its bounds, posting without the lock, and pausing."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zmtp.frames import Batch, Message, Shared
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.patterns import Dealer
from zambezi.zmtp.peer import POST, POSTS, TAKE, Peer
from zambezi.zmtp.source import Framed, Source
from zambezi.zmtp.testing import Simulation
from zambezi.zmtp.transport import Transport


class QuietLink:
    """A link that records the calls of its peer."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.idle = True
        self.unsent = 0
        self.pending = False
        self.address = ""
        self.source: Source | None = None
        self.local = True
        self.paused = False

    def subscribe(self, prefix: bytes, cancel: bool) -> None:
        self.told.append("subscribe")

    def offer(self, messages: Framed) -> bool:
        self.told.append("offer")
        return False

    def wake(self) -> None:
        self.told.append("wake")

    def flush(self) -> None:
        self.nudge()

    def nudge(self) -> None:
        self.told.append("nudge")

    def pause(self) -> None:
        if not self.paused:
            self.told.append("pause")
        self.paused = True

    def resume(self) -> None:
        self.told.append("resume")
        self.paused = False

    def finish(self) -> None:
        self.told.append("finish")

    def abort(self, reason: str) -> None:
        self.told.append("abort")


def peer_of(send: Bound | None = None) -> Peer:
    options = Options(send_bound=send or Bound())
    return Peer(Dealer(Simulation(), options).transport, "inproc://nowhere")


def batch_of(*messages: bytes) -> Batch:
    return Batch(list(messages), None, sum(map(len, messages)))


# Functions, because a type checker would assume that an attribute does not change.
def full(peer: Peer) -> bool:
    return peer.full


def drained(peer: Peer) -> bool:
    return peer.drained


# Sending


def test_the_queue_is_full_by_messages_or_by_bytes() -> None:
    peer = peer_of(Bound(2, 100))
    assert not full(peer)
    peer.send(b"a")
    peer.send(b"b")
    assert full(peer)
    peer._abandon()
    peer.send((b"x" * 50, b"y" * 50))
    assert full(peer)


def test_one_message_always_fits_into_an_empty_queue() -> None:
    peer = peer_of(Bound(10, 10))
    assert not full(peer)
    assert peer.send_many([b"x" * 1000, b"y"], 0) == 1
    assert full(peer)


def test_a_link_is_nudged_when_a_message_is_queued() -> None:
    peer = peer_of(Bound(2, 100))
    link = peer._link = QuietLink()
    peer.send(b"a")
    assert peer.send_many([b"b", b"c"], 0) == 1
    assert link.told == ["nudge", "nudge"]
    assert peer.send_many([b"c"], 0) == 0
    assert link.told == ["nudge", "nudge"]


@given(
    st.lists(st.binary(max_size=20), max_size=30),
    st.integers(1, 12),
    st.integers(1, 60),
    st.integers(0, 5),
    st.lists(st.binary(max_size=20), max_size=20),
)
def test_send_many_accepts_as_many_as_single_sends(
    messages: list[bytes], count: int, octets: int, start: int, before: list[bytes]
) -> None:
    start = min(start, len(messages))
    bulk, single = peer_of(Bound(count, octets)), peer_of(Bound(count, octets))
    for peer in (bulk, single):
        peer._put_back(list(before))  # a broken link can put back more than the bound
    stop = start
    while stop < len(messages) and not single.full:
        single.send(messages[stop])
        stop += 1
    accepted = bulk.send_many(messages, start)
    assert bulk._outbox == before + messages[start:accepted]
    assert bulk.queued == sum(map(len, bulk._outbox))
    if all(messages):
        assert accepted == stop
    else:
        # Empty messages have no bytes, so a queue that is just full by bytes may accept them.
        assert stop <= accepted
        assert len(bulk._outbox) <= max(count, len(before))


@given(st.lists(st.one_of(st.binary(max_size=TAKE // 3), st.tuples(st.binary(max_size=9), st.binary(max_size=9)))))
def test_a_link_takes_all_messages_in_order_and_in_portions(messages: list[Message]) -> None:
    peer = peer_of(Bound(1000, 1 << 30))
    for message in messages:
        peer.send(message)
    taken: list[Message] = []
    while peer._outbox:
        portion, singles = peer._take()
        assert portion
        assert not singles or all(type(message) is bytes for message in portion)
        assert sum(len(message) for message in portion[:-1] if isinstance(message, bytes)) < TAKE
        taken += portion
    assert taken == messages
    assert peer.queued == 0
    assert peer._singles


def test_singles_are_known_to_be_singles_again_after_others_have_gone() -> None:
    peer = peer_of()
    peer.send((b"a", b"b"))
    assert peer._take()[1] is False
    peer.send(b"c")
    assert peer._take() == ([b"c"], True)


def test_messages_that_are_put_back_go_out_first() -> None:
    peer = peer_of()
    peer.send(b"1")
    peer.send((b"2", b"2"))
    taken, _ = peer._take()
    peer.send(b"3")
    peer._put_back(taken)
    assert peer.queued == 4
    assert peer._take() == ([b"1", (b"2", b"2"), b"3"], False)


def test_an_encoded_message_counts_by_its_bytes() -> None:
    peer = peer_of(Bound(10, 6))
    peer.send(Shared([(b"abc", b"def")]))
    assert peer.queued == 6
    assert full(peer)
    assert not peer._singles


def test_abandoning_returns_how_many_messages_were_lost() -> None:
    peer = peer_of()
    peer.send_many([b"a", b"b", b"c"], 0)
    assert peer._abandon() == 3
    assert (peer._outbox, peer.queued) == ([], 0)


def test_drained_means_that_nothing_is_left_in_this_process() -> None:
    peer = peer_of()
    assert drained(peer)
    peer.send(b"a")
    assert not drained(peer)
    link = peer._link = QuietLink()
    peer._take()
    link.idle = False
    assert not drained(peer)
    link.idle = True
    assert drained(peer)


# Receiving


class Listener:
    """A protocol that records the calls of its transport."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.on_batch: Callable[[Peer], object] = lambda _: None

    def attached(self, peer: Peer) -> None: ...

    def received(self, peer: Peer, batch: Batch) -> None:
        self.batches.append(batch)
        self.on_batch(peer)

    def writable(self, peer: Peer) -> None: ...

    def lost(self, peer: Peer, reason: str) -> None: ...


def heard() -> tuple[Peer, QuietLink, Listener]:
    listener = Listener()
    peer = Peer(Transport(Simulation(), "DEALER", listener), "inproc://nowhere")
    link = peer._link = QuietLink()
    return peer, link, listener


def test_messages_after_a_pause_are_held_and_delivered_first() -> None:
    peer, link, listener = heard()
    peer._deliver(batch_of(b"1"))
    peer.pause()
    peer.pause()
    assert link.told == ["pause"]
    peer._deliver(batch_of(b"2"))
    peer._deliver(batch_of(b"3"))
    assert (listener.batches, peer.held) == ([batch_of(b"1")], True)
    peer.resume()
    peer.resume()
    assert listener.batches == [batch_of(b"1"), batch_of(b"2"), batch_of(b"3")]
    assert link.told == ["pause", "resume"]


def test_with_slack_a_little_more_is_read_of_a_paused_peer() -> None:
    listener = Listener()
    peer = Peer(Transport(Simulation(), "DEALER", listener, slack=3), "inproc://nowhere")
    link = peer._link = QuietLink()
    peer.pause()
    peer._deliver(batch_of(b"12"))
    assert link.told == []
    peer._deliver(batch_of(b"3"))
    assert link.told == ["pause"]
    peer.resume()
    assert link.told == ["pause", "resume"]
    assert len(listener.batches) == 2


def test_a_protocol_may_pause_again_while_it_receives_held_messages() -> None:
    peer, link, listener = heard()
    peer.pause()
    for number in range(3):
        peer._deliver(batch_of(b"%d" % number))
    listener.on_batch = lambda peer: peer.pause()
    peer.resume()
    assert listener.batches == [batch_of(b"0")]
    assert peer.paused
    assert link.told == ["pause"]
    peer.resume()
    peer.resume()
    assert [*map(list, listener.batches)] == [[[b"0"]], [[b"1"]], [[b"2"]]]


# send_first


def test_send_first_overtakes_waiting_messages_in_its_own_order() -> None:
    peer, link, _ = heard()
    peer.send_first(b"alone")
    peer.send(b"message")
    peer.send_first((b"", b"answer 1"))
    peer.send_first((b"", b"answer 2"))
    assert peer.queued == 28
    assert len(link.told) == 4
    assert peer._take() == ([b"alone", (b"", b"answer 1"), (b"", b"answer 2"), b"message"], False)
    assert (peer.queued, peer.drained) == (0, True)


def test_send_first_stays_behind_messages_that_were_put_back() -> None:
    peer, _, _ = heard()
    peer.send_first(b"0")
    peer.send(b"1")
    taken, _ = peer._take()
    peer.send(b"3")
    peer._put_back(taken)
    peer.send_first(b"2")
    assert peer.take_queue() == [b"0", b"1", b"2", b"3"]


def test_send_first_keeps_its_place_when_a_part_was_taken() -> None:
    peer, _, _ = heard()
    peer.send_first(b"f" * TAKE)
    peer.send_first(b"g")
    peer.send(b"m")
    assert peer._take() == ([b"f" * TAKE], True)
    peer.send_first(b"h")
    assert peer.take_queue() == [b"g", b"h", b"m"]


def test_the_queue_can_be_taken_away_whole() -> None:
    peer, _, _ = heard()
    peer.send(b"1")
    peer.send_first(b"0")
    assert peer.take_queue() == [b"0", b"1"]
    assert (peer.queued, peer.drained) == (0, True)


# Sending without the lock


def test_nothing_is_posted_unless_the_link_is_pending() -> None:
    peer = peer_of()
    assert not peer.post(b"no link")
    link = peer._link = QuietLink()
    assert not peer.post(b"nobody will come")
    link.pending = True
    assert peer.post(b"yes")
    assert peer._mailbox == [b"yes"]
    assert peer._outbox == []
    assert link.told == []


def test_posted_messages_go_out_before_messages_that_are_sent_later() -> None:
    peer = peer_of()
    link = peer._link = QuietLink()
    link.pending = True
    peer.send(b"1")
    for message in (b"2", b"3"):
        assert peer.post(message)
    peer.send(b"4")
    assert peer.post(b"5")
    assert peer.send_many([b"6", b"7"], 0) == 2
    assert peer.post(b"8")
    peer._collect()
    assert peer._take() == ([b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8"], True)
    assert (peer._mailbox, peer.queued) == ([], 0)


def test_collecting_counts_the_bytes() -> None:
    peer = peer_of()
    link = peer._link = QuietLink()
    link.pending = True
    peer.send((b"aa", b"b"))
    peer.post(b"cccc")
    assert not drained(peer)
    peer._collect()
    peer._collect()
    assert (peer._outbox, peer.queued, peer._singles) == ([(b"aa", b"b"), b"cccc"], 7, False)


def test_a_peer_with_a_posted_message_is_not_drained() -> None:
    peer = peer_of()
    link = peer._link = QuietLink()
    assert drained(peer)
    link.pending = True
    peer.post(b"x")
    assert not drained(peer)


def test_posts_respect_the_bound_in_messages() -> None:
    peer = peer_of(Bound(4, 1 << 30))
    link = peer._link = QuietLink()
    link.pending = True
    peer.send(b"1")
    peer.send(b"2")
    assert [peer.post(b"x") for _ in range(4)] == [True, True, False, False]
    peer._collect()
    assert full(peer)
    assert not peer.post(b"x")


def test_posts_respect_the_bound_in_bytes() -> None:
    """Each post can have `POST` bytes, so near the bound every message must take the lock, and is counted exactly."""
    peer = peer_of(Bound(1_000_000, POSTS * POST + 100))
    link = peer._link = QuietLink()
    link.pending = True
    assert peer.post(b"x" * POST)
    peer.send(b"y" * 99)
    assert not peer.post(b"")
    small = peer_of(Bound(1_000_000, POSTS * POST))
    small._link = link
    assert not small.post(b"")


def test_posts_are_few_and_small() -> None:
    peer = peer_of(Bound(1_000_000, 1 << 30))
    link = peer._link = QuietLink()
    link.pending = True
    assert not peer.post(b"x" * (POST + 1))
    assert all(peer.post(b"x" * POST) for _ in range(POSTS))
    assert not peer.post(b"x")
    peer._collect()
    assert peer.post(b"x")


def test_the_last_of_equal_posts_is_taken_back() -> None:
    peer = peer_of()
    link = peer._link = QuietLink()
    link.pending = True
    same, other = b"same", b"other"
    for message in (same, other, same, other):
        peer.post(message)
    assert peer._take_back(same)
    assert peer._mailbox == [same, other, other]
    assert not peer._take_back(bytes(bytearray(b"same")))  # an equal object, but not the same
    peer._collect()
    assert not peer._take_back(same)


def test_an_abandoned_post_can_still_be_taken_back() -> None:
    peer = peer_of()
    link = peer._link = QuietLink()
    link.pending = True
    peer.send(b"queued")
    late = b"late"
    peer.post(late)
    assert peer._abandon() == 2
    assert peer._outbox == []
    assert peer._take_back(late)
    assert peer._abandon() == 0


class LateLink(QuietLink):
    """A link that has just looked into the mailbox, between the two checks of a thread that posts."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._looks = 0
        self._meanwhile = meanwhile

    @property
    def pending(self) -> bool:
        self._looks += 1
        if self._looks == 2:
            self._meanwhile()
        return self._looks == 1

    @pending.setter
    def pending(self, value: bool) -> None:
        pass


def late(meanwhile: Callable[[Peer], object] = lambda _: None) -> tuple[Transport, Peer, LateLink]:
    peer = peer_of()
    link = peer._link = LateLink(lambda: meanwhile(peer))
    return peer._transport, peer, link


def test_a_post_that_the_link_has_just_missed_is_settled_by_a_nudge() -> None:
    _, peer, link = late()
    assert peer.post(b"x")
    assert (link.told, peer._mailbox) == (["nudge"], [b"x"])


def test_a_post_to_a_peer_whose_link_was_lost_waits_for_the_next() -> None:
    def lose(peer: Peer) -> None:
        peer._link = None

    _, peer, _ = late(lose)
    assert peer.post(b"x")
    assert peer._mailbox == [b"x"]


@pytest.mark.parametrize(("attached", "closing"), [(False, False), (True, True), (False, True)])
def test_a_post_that_came_too_late_is_taken_back(attached: bool, closing: bool) -> None:
    transport, peer, link = late()
    before = b"before"
    peer._mailbox.append(before)
    peer.open = attached
    transport.closing = closing
    assert not peer.post(b"too late")
    assert (link.told, peer._mailbox) == ([], [before])


@pytest.mark.parametrize(("attached", "closing"), [(False, False), (True, True)])
def test_a_post_that_was_collected_in_time_counts_as_sent(attached: bool, closing: bool) -> None:
    transport, peer, link = late(lambda peer: peer._collect())
    peer.open = attached
    transport.closing = closing
    assert peer.post(b"just in time")
    assert (link.told, peer._outbox) == (["nudge"], [b"just in time"])


def test_the_end_of_a_peer_does_not_wait_for_a_post_that_was_taken_back() -> None:
    def leave(peer: Peer) -> None:
        peer.close()
        assert link.told == []  # the end waits for the message in the mailbox

    _, peer, link = late(leave)
    assert not peer.post(b"too late")
    assert link.told == ["finish"]


def test_closing_does_not_wait_for_a_post_that_was_taken_back() -> None:
    def close(peer: Peer) -> None:
        peer._transport._leaving[peer] = None
        peer._transport.close(None)
        assert link.told == []

    _, peer, link = late(close)
    assert not peer.post(b"too late")
    assert link.told == ["finish"]
