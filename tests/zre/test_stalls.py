"""zambezi.zre.stalls: which peers with a full queue have read nothing for their time."""

from dataclasses import dataclass
from typing import cast

from zambezi.zmtp.peer import Peer
from zambezi.zre.stalls import Stalls
from zambezi.zre.timing import Timing


@dataclass(eq=False)
class Queue:
    """The queue to a peer."""

    unsent: int = 0
    full: bool = True


def peer(unsent: int = 0) -> tuple[Queue, Peer]:
    queue = Queue(unsent)
    return queue, cast("Peer", queue)


def test_a_peer_that_reads_nothing_is_given_up_after_its_time() -> None:
    stalls = Stalls(Timing())
    _, bob = peer()
    stalls.begin(bob, 100.0)
    stalls.begin(bob, 110.0)  # another message waits
    for now in (105.0, 120.0, 129.9):
        assert stalls.due(now) == []
    assert stalls.deadline == 130.0
    assert stalls.due(130.0) == [bob]
    assert not stalls
    assert stalls.deadline == float("inf")


def test_a_peer_that_reads_a_large_message_slowly_is_not_given_up() -> None:
    stalls = Stalls(Timing())
    queue, bob = peer(unsent=10_000_000)
    stalls.begin(bob, 0.0)
    now = 0.0
    while queue.unsent:
        now = stalls.deadline
        queue.unsent -= 100_000
        assert stalls.due(now) == []
    assert now > 400
    last = now
    while not stalls.due(now):
        now = stalls.deadline
    assert now == last + 30.0


def test_messages_that_go_out_are_progress_and_room_ends_a_stall() -> None:
    stalls = Stalls(Timing())
    queue, bob = peer()
    stalls.begin(bob, 0.0)
    assert stalls.moved(bob, 29.0)  # and others were queued
    assert stalls.due(31.0) == []
    queue.full = False
    assert stalls.moved(bob, 32.0)
    assert not stalls.moved(bob, 33.0)
    assert stalls.deadline == float("inf")
    assert stalls.due(100.0) == []


def test_times_can_change_meanwhile() -> None:
    timing = Timing()
    stalls = Stalls(timing)
    _, bob = peer()
    stalls.begin(bob, 0.0)
    timing.set(1.0, 1.0, 2.0)
    assert stalls.due(5.0) == [bob]
    stalls.begin(bob, 6.0)
    stalls.end(bob)
    stalls.end(bob)
    assert stalls.deadline == float("inf")
