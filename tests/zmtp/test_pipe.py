"""zambezi.zmtp.pipe: the double queue and its bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.zmtp.simulation import Simulation
from zambezi.zmtp.core import Options
from zambezi.zmtp.errors import ZmtpError
from zambezi.zmtp.frames import Batch, Encoded, Message
from zambezi.zmtp.patterns import Dealer, Router
from zambezi.zmtp.pipe import POST, POSTS, TAKE, Bound, Pipe
from zambezi.zmtp.source import Framed, Source


class QuietLink:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.idle = True
        self.pending = False
        self.address = ""
        self.source: Source | None = None

    def offer(self, messages: Framed) -> bool:
        self.told.append("offer")
        return False

    def wake(self) -> None:
        self.told.append("wake")

    def nudge(self) -> None:
        self.told.append("nudge")

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")

    def finish(self) -> None:
        self.told.append("finish")

    def abort(self, reason: str) -> None:
        self.told.append("abort")


def pipe_of(send: Bound | None = None, receive: Bound | None = None, addressed: bool = False) -> Pipe:
    options = Options(send_bound=send or Bound(), receive_bound=receive or Bound())
    return Pipe((Router if addressed else Dealer)(Simulation(), options), "inproc://nowhere")


def batch_of(*messages: bytes) -> Batch:
    return Batch(list(messages), None, sum(map(len, messages)))


# Asked anew each time: of an attribute, a type checker believes that nobody changes it.
def full(pipe: Pipe) -> bool:
    return pipe.full


def drained(pipe: Pipe) -> bool:
    return pipe.drained


# Out


@pytest.mark.parametrize(("messages", "octets"), [(0, 1), (1, 0), (-1, 5)])
def test_a_bound_has_room_for_something(messages: int, octets: int) -> None:
    with pytest.raises(ZmtpError, match="at least one message of one octet"):
        Bound(messages, octets)


def test_the_queue_is_full_by_messages_or_by_octets() -> None:
    pipe = pipe_of(Bound(2, 100))
    assert not full(pipe)
    pipe.push(b"a")
    pipe.push(b"b")
    assert full(pipe)
    pipe.clear_outbox()
    pipe.push((b"x" * 50, b"y" * 50))
    assert full(pipe)


def test_one_message_always_fits_into_an_empty_queue() -> None:
    pipe = pipe_of(Bound(10, 10))
    assert not full(pipe)
    assert pipe.push_many([b"x" * 1000, b"y"], 0) == 1
    assert full(pipe)


def test_a_link_is_nudged_when_there_is_something_to_send() -> None:
    pipe = pipe_of(Bound(2, 100))
    link = pipe.link = QuietLink()
    pipe.push(b"a")
    assert pipe.push_many([b"b", b"c"], 0) == 1
    assert link.told == ["nudge", "nudge"]
    assert pipe.push_many([b"c"], 0) == 0
    assert link.told == ["nudge", "nudge"]


@given(
    st.lists(st.binary(max_size=20), max_size=30),
    st.integers(1, 12),
    st.integers(1, 60),
    st.integers(0, 5),
    st.lists(st.binary(max_size=20), max_size=20),
)
def test_many_at_once_are_accepted_like_one_by_one(
    messages: list[bytes], count: int, octets: int, start: int, before: list[bytes]
) -> None:
    start = min(start, len(messages))
    bulk, single = pipe_of(Bound(count, octets)), pipe_of(Bound(count, octets))
    for pipe in (bulk, single):
        pipe.put_back(list(before))  # a broken link may give back more than the bound
    stop = start
    while stop < len(messages) and not single.full:
        single.push(messages[stop])
        stop += 1
    accepted = bulk.push_many(messages, start)
    assert bulk.outbox == before + messages[start:accepted]
    assert bulk.out_octets == sum(map(len, bulk.outbox))
    if all(messages):
        assert accepted == stop
    else:
        # Empty messages cost no octets, so that a queue which is just full by octets may take them.
        assert stop <= accepted
        assert len(bulk.outbox) <= max(count, len(before))


@given(st.lists(st.one_of(st.binary(max_size=TAKE // 3), st.tuples(st.binary(max_size=9), st.binary(max_size=9)))))
def test_what_is_taken_is_all_in_order_and_in_portions(messages: list[Message]) -> None:
    pipe = pipe_of(Bound(1000, 1 << 30))
    for message in messages:
        pipe.push(message)
    taken: list[Message] = []
    while pipe.outbox:
        portion, singles = pipe.take()
        assert portion
        assert not singles or all(type(message) is bytes for message in portion)
        assert sum(len(message) for message in portion[:-1] if isinstance(message, bytes)) < TAKE
        taken += portion
    assert taken == messages
    assert pipe.out_octets == 0
    assert pipe.singles


def test_singles_are_known_to_be_singles_again_after_others_have_gone() -> None:
    pipe = pipe_of()
    pipe.push((b"a", b"b"))
    assert pipe.take()[1] is False
    pipe.push(b"c")
    assert pipe.take() == ([b"c"], True)


def test_what_is_put_back_goes_out_first() -> None:
    pipe = pipe_of()
    pipe.push(b"1")
    pipe.push((b"2", b"2"))
    taken, _ = pipe.take()
    pipe.push(b"3")
    pipe.put_back(taken)
    assert pipe.out_octets == 4
    assert pipe.take() == ([b"1", (b"2", b"2"), b"3"], False)


def test_an_encoded_message_counts_by_its_octets() -> None:
    pipe = pipe_of(Bound(10, 6))
    pipe.push(Encoded((b"abc", b"def")))
    assert pipe.out_octets == 6
    assert full(pipe)
    assert not pipe.singles


def test_clearing_tells_how_many_were_lost() -> None:
    pipe = pipe_of()
    pipe.push_many([b"a", b"b", b"c"], 0)
    assert pipe.clear_outbox() == 3
    assert (pipe.outbox, pipe.out_octets) == ([], 0)


def test_drained_means_that_nothing_is_left_on_this_side() -> None:
    pipe = pipe_of()
    assert drained(pipe)
    pipe.push(b"a")
    assert not drained(pipe)
    link = pipe.link = QuietLink()
    pipe.take()
    link.idle = False
    assert not drained(pipe)
    link.idle = True
    assert drained(pipe)


# In


def test_a_full_inbox_pauses_the_link_and_half_an_inbox_resumes_it() -> None:
    pipe = pipe_of(receive=Bound(4, 1000))
    link = pipe.link = QuietLink()
    for number in range(4):
        assert link.told == []
        pipe.deliver(batch_of(b"%d" % number))
    assert link.told == ["pause"]
    pipe.pop_batch()
    assert link.told == ["pause"]
    pipe.pop_batch()
    assert link.told == ["pause", "resume"]


def test_octets_pause_the_link_too() -> None:
    pipe = pipe_of(receive=Bound(1000, 100))
    link = pipe.link = QuietLink()
    pipe.deliver(batch_of(b"x" * 100))
    assert link.told == ["pause"]
    assert pipe.pop_batch() is not None
    assert link.told == ["pause", "resume"]


def test_messages_taken_one_by_one_make_room_too() -> None:
    pipe = pipe_of(receive=Bound(2, 1000))
    core = pipe.core
    link = pipe.link = QuietLink()
    pipe.deliver(batch_of(b"a", b"b"))
    assert link.told == ["pause"]
    assert [core.try_recv(), core.try_recv(), core.try_recv()] == [[b"a"], [b"b"], None]
    assert link.told == ["pause", "resume"]


MESSAGE = st.lists(st.binary(max_size=3), min_size=1, max_size=3)


@given(st.lists(st.lists(MESSAGE, min_size=1, max_size=4), max_size=6), st.lists(st.booleans()), st.booleans())
def test_single_and_bulk_receiving_mix_without_loss_or_disorder(
    batches: list[list[list[bytes]]], singly: list[bool], addressed: bool
) -> None:
    pipe = pipe_of(addressed=addressed)
    pipe.identity = b"me"
    core = pipe.core
    for messages in batches:
        frames: list[bytes] = []
        ends: list[int] = []
        for message in messages:
            frames += message
            ends.append(len(frames))
        single = all(len(message) == 1 for message in messages)
        pipe.deliver(Batch(frames, None if single else ends, 7))
    got: list[list[bytes]] = []
    before = [b"me"] if addressed else []
    choices = iter(singly)
    while True:
        if next(choices, False):
            single_message = core.try_recv()
            if single_message is None:
                break
            got.append(single_message)
        else:
            batch = core.try_recv_batch()
            if batch is None:
                break
            assert len(batch)
            assert batch.sender == b"me"
            got += [before + message for message in batch]
    assert got == [before + message for messages in batches for message in messages]
    assert (pipe.in_messages, pipe.in_octets, pipe.inbox) == (0, 0, [])
    assert not core.ready


# Out, without the lock


def looked_after(pipe: Pipe) -> bool:
    return pipe.looked_after


def test_nothing_is_posted_to_a_pipe_that_nobody_looks_after() -> None:
    pipe = pipe_of()
    assert not looked_after(pipe)
    assert not pipe.post(b"no link")
    link = pipe.link = QuietLink()
    assert not looked_after(pipe)
    assert not pipe.post(b"nobody will come")
    link.pending = True
    assert looked_after(pipe)
    assert pipe.post(b"yes")
    assert pipe.mailbox == [b"yes"]
    assert pipe.outbox == []
    assert link.told == []


def test_what_was_posted_goes_out_before_what_is_sent_after_it() -> None:
    pipe = pipe_of()
    link = pipe.link = QuietLink()
    link.pending = True
    pipe.push(b"1")
    for message in (b"2", b"3"):
        assert pipe.post(message)
    pipe.push(b"4")
    assert pipe.post(b"5")
    assert pipe.push_many([b"6", b"7"], 0) == 2
    assert pipe.post(b"8")
    pipe.collect()
    assert pipe.take() == ([b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8"], True)
    assert (pipe.mailbox, pipe.out_octets) == ([], 0)


def test_collecting_counts_the_octets() -> None:
    pipe = pipe_of()
    link = pipe.link = QuietLink()
    link.pending = True
    pipe.push((b"aa", b"b"))
    pipe.post(b"cccc")
    assert not drained(pipe)
    pipe.collect()
    pipe.collect()
    assert (pipe.outbox, pipe.out_octets, pipe.singles) == ([(b"aa", b"b"), b"cccc"], 7, False)


def test_what_is_posted_keeps_a_pipe_from_being_drained() -> None:
    pipe = pipe_of()
    link = pipe.link = QuietLink()
    assert drained(pipe)
    link.pending = True
    pipe.post(b"x")
    assert not drained(pipe)


def test_posts_respect_the_bound_in_messages() -> None:
    pipe = pipe_of(Bound(4, 1 << 30))
    link = pipe.link = QuietLink()
    link.pending = True
    pipe.push(b"1")
    pipe.push(b"2")
    assert [pipe.post(b"x") for _ in range(4)] == [True, True, False, False]
    pipe.collect()
    assert full(pipe)
    assert not pipe.post(b"x")


def test_posts_respect_the_bound_in_octets() -> None:
    """Each post may have `POST` octets, so that near the bound everything takes the way that counts."""
    pipe = pipe_of(Bound(1_000_000, POSTS * POST + 100))
    link = pipe.link = QuietLink()
    link.pending = True
    assert pipe.post(b"x" * POST)
    pipe.push(b"y" * 99)
    assert not pipe.post(b"")
    small = pipe_of(Bound(1_000_000, POSTS * POST))
    small.link = link
    assert not small.post(b"")


def test_posts_are_few_and_small() -> None:
    pipe = pipe_of(Bound(1_000_000, 1 << 30))
    link = pipe.link = QuietLink()
    link.pending = True
    assert not pipe.post(b"x" * (POST + 1))
    assert all(pipe.post(b"x" * POST) for _ in range(POSTS))
    assert not pipe.post(b"x")
    pipe.collect()
    assert pipe.post(b"x")


def test_what_is_taken_back_is_the_last_of_its_kind() -> None:
    pipe = pipe_of()
    link = pipe.link = QuietLink()
    link.pending = True
    same, other = b"same", b"other"
    for message in (same, other, same, other):
        pipe.post(message)
    assert pipe.take_back(same)
    assert pipe.mailbox == [same, other, other]
    assert not pipe.take_back(bytes(bytearray(b"same")))  # as long as one post waits, its object is that of no other
    pipe.collect()
    assert not pipe.take_back(same)


def test_what_is_cleared_can_still_be_taken_back_by_who_posted_it() -> None:
    pipe = pipe_of()
    link = pipe.link = QuietLink()
    link.pending = True
    pipe.push(b"queued")
    late = b"late"
    pipe.post(late)
    assert pipe.clear_outbox() == 2
    assert pipe.outbox == []
    assert pipe.take_back(late)
    assert pipe.clear_outbox() == 0


def settling(attached: bool = True, closing: bool = False) -> tuple[Dealer, Pipe, QuietLink]:
    core = Dealer(Simulation(), Options())
    pipe = Pipe(core, "inproc://nowhere")
    link = pipe.link = QuietLink()
    link.pending = True
    pipe.attached = attached
    core.closing = closing
    return core, pipe, link


def test_a_post_that_nobody_looked_after_any_more_is_settled_by_a_nudge() -> None:
    core, pipe, link = settling()
    message = b"x"
    assert pipe.post(message)
    assert core.settle_post(pipe, message)
    assert (link.told, pipe.mailbox) == (["nudge"], [message])


def test_a_post_to_a_pipe_whose_link_was_lost_waits_for_the_next() -> None:
    core, pipe, _ = settling()
    message = b"x"
    assert pipe.post(message)
    pipe.link = None
    assert core.settle_post(pipe, message)
    assert pipe.mailbox == [message]


@pytest.mark.parametrize(("attached", "closing"), [(False, False), (True, True), (False, True)])
def test_a_post_that_came_too_late_is_taken_back(attached: bool, closing: bool) -> None:
    core, pipe, link = settling(attached, closing)
    before, message = b"before", b"too late"
    for each in (before, message):
        assert pipe.post(each)
    assert not core.settle_post(pipe, message)
    assert (link.told, pipe.mailbox) == ([], [before])


@pytest.mark.parametrize(("attached", "closing"), [(False, False), (True, True)])
def test_a_post_that_was_collected_in_time_counts_as_sent(attached: bool, closing: bool) -> None:
    core, pipe, link = settling(attached, closing)
    message = b"just in time"
    assert pipe.post(message)
    pipe.collect()
    assert core.settle_post(pipe, message)
    assert (link.told, pipe.outbox) == (["nudge"], [message])


def test_the_end_of_a_pipe_does_not_wait_for_what_was_taken_back() -> None:
    core, pipe, link = settling()
    message = b"too late"
    core.attach(pipe)
    assert pipe.post(message)
    core.leave(pipe, None)  # it waits: there is something in the mailbox
    assert link.told == []
    assert not core.settle_post(pipe, message)
    assert link.told == ["finish"]


def test_closing_does_not_wait_for_what_was_taken_back() -> None:
    core, pipe, link = settling()
    message = b"too late"
    core.attach(pipe)
    core._leaving[pipe] = None
    assert pipe.post(message)
    core.close(None)
    assert link.told == []
    assert not core.settle_post(pipe, message)
    assert link.told == ["finish"]
