"""zambezi.zmtp.inbox: bounds for each peer, turns between peers, single messages and batches."""

from hypothesis import given
from hypothesis import strategies as st

from zambezi.zmtp.frames import Batch
from zambezi.zmtp.inbox import FairInbox
from zambezi.zmtp.options import Bound
from zambezi.zmtp.patterns import Dealer
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.testing import Simulation


def peer() -> Peer:
    return Peer(Dealer(Simulation()).transport, "inproc://nowhere")


def inbox_of(messages: int = 1000, octets: int = 1 << 20, addressed: bool = False) -> FairInbox[list[bytes]]:
    return FairInbox(Bound(messages, octets), lambda _, batch: batch.addressed() if addressed else iter(batch))


def batch_of(*messages: bytes) -> Batch:
    return Batch(list(messages), None, sum(map(len, messages)))


def test_a_full_inbox_pauses_the_peer_and_half_an_inbox_resumes_it() -> None:
    inbox, ann, bob = inbox_of(messages=4), peer(), peer()
    inbox.add(bob, batch_of(b"x"))
    for number in range(4):
        assert not ann.paused
        inbox.add(ann, batch_of(b"%d" % number))
    paused = []
    while inbox.next_batch() is not None:
        paused.append((ann.paused, bob.paused))
    # bob has the first turn; then ann's batches: with the second, half of hers are left.
    assert paused == [(True, False), (True, False), (False, False), (False, False), (False, False)]


def test_bytes_pause_the_peer_too() -> None:
    inbox, ann = inbox_of(octets=100), peer()
    inbox.add(ann, batch_of(b"x" * 100))
    assert (ann.paused, inbox.octets) == (True, 100)
    inbox.next_batch()
    assert (ann.paused, inbox.octets) == (False, 0)


def test_messages_received_one_by_one_make_room_too() -> None:
    inbox, ann = inbox_of(messages=2), peer()
    inbox.add(ann, batch_of(b"a", b"b"))
    assert ann.paused
    assert [inbox.next(), inbox.next(), inbox.next()] == [[b"a"], [b"b"], None]
    assert (ann.paused, bool(inbox)) == (False, False)


def test_peers_take_turns() -> None:
    inbox, ann, bob = inbox_of(), peer(), peer()
    inbox.add(ann, batch_of(b"a1", b"a2", b"a3"))
    inbox.add(bob, batch_of(b"b1"))
    inbox.add(ann, batch_of(b"a4"))
    got = [inbox.next() for _ in range(5)]
    assert got == [[b"a1"], [b"b1"], [b"a2"], [b"a3"], [b"a4"]]


def test_discarded_messages_are_counted_and_the_peer_is_resumed() -> None:
    inbox, ann, bob = inbox_of(messages=4), peer(), peer()
    inbox.add(ann, batch_of(b"1", b"2", b"3"))
    inbox.add(ann, batch_of(b"4"))
    inbox.add(bob, batch_of(b"b"))
    assert inbox.next() == [b"1"]
    assert inbox.discard(ann) == 3
    assert inbox.discard(ann) == 0
    assert not ann.paused
    assert inbox.peers == [bob]


def test_the_messages_of_one_peer_can_be_taken_even_in_part() -> None:
    inbox, ann, bob = inbox_of(), peer(), peer()
    inbox.add(ann, batch_of(b"1", b"2"))
    inbox.add(ann, batch_of(b"3"))
    inbox.add(bob, batch_of(b"b"))
    assert inbox.next() == [b"1"]
    assert [list(batch) for batch in inbox.take(ann)] == [[[b"2"]], [[b"3"]]]
    assert inbox.take(ann) == []
    assert inbox.next() == [b"b"]


MESSAGE = st.lists(st.binary(max_size=3), min_size=1, max_size=3)


@given(st.lists(st.lists(MESSAGE, min_size=1, max_size=4), max_size=6), st.lists(st.booleans()), st.booleans())
def test_single_and_bulk_receiving_mix_without_loss_or_disorder(
    batches: list[list[list[bytes]]], singly: list[bool], addressed: bool
) -> None:
    inbox, ann = inbox_of(addressed=addressed), peer()
    for messages in batches:
        frames: list[bytes] = []
        ends: list[int] = []
        for message in messages:
            frames += message
            ends.append(len(frames))
        single = all(len(message) == 1 for message in messages)
        inbox.add(ann, Batch(frames, None if single else ends, 7, b"me"))
    got: list[list[bytes]] = []
    before = [b"me"] if addressed else []
    choices = iter(singly)
    while True:
        if next(choices, False):
            single_message = inbox.next()
            if single_message is None:
                break
            got.append(single_message)
        else:
            batch = inbox.next_batch()
            if batch is None:
                break
            assert len(batch)
            assert batch.sender == b"me"
            got += [before + message for message in batch]
    assert got == [before + message for messages in batches for message in messages]
    assert (inbox.octets, bool(inbox), inbox.peers) == (0, False, [])


def test_the_last_message_of_a_peer_is_reported() -> None:
    emptied: list[Peer] = []
    inbox: FairInbox[list[bytes]] = FairInbox(Bound(), lambda _, batch: iter(batch), emptied.append)
    ann, bob = peer(), peer()
    inbox.add(ann, batch_of(b"a", b"b"))
    inbox.add(bob, batch_of(b"c"))
    assert (inbox.waiting(ann), inbox.octets_of(ann), inbox.octets_of(peer())) == (2, 2, 0)
    assert [inbox.next() for _ in range(4)] == [[b"a"], [b"c"], [b"b"], None]
    assert emptied == [bob, ann]
    inbox.add(ann, batch_of(b"d"))
    assert inbox.discard(ann) == 1
    assert emptied == [bob, ann]  # discarded messages were not received
