"""Links whose bytes are much work take turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from tests.zmtp.stranger import Stranger, hello
from zambezi.zmtp.busy_links import MUCH, TURN, BusyLinks
from zambezi.zmtp.connection import Connection, Event
from zambezi.zmtp.frames import encode_command
from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Router
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.stream import READ_LEAST, READ_SLOW, TIMED, StreamLink
from zambezi.zmtp.testing import Simulation


class Loop:
    """An event loop that turns when the test says so."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.calls.append(callback)

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Link:
    """A link that has something to read for some turns. A read takes `seconds`."""

    def __init__(self, name: str, clock: list[float], seconds: float, reads: list[str]) -> None:
        self.name, self.clock, self.seconds, self.reads = name, clock, seconds, reads
        self.left = 3
        self.queue: BusyLinks | None = None

    def read_in_turn(self) -> None:
        self.reads.append(self.name)
        self.clock[0] += self.seconds
        self.left -= 1
        if self.queue is not None and self.left:
            self.queue.add(cast("StreamLink", self), self.seconds)


@pytest.mark.parametrize(
    ("seconds", "turns"),
    [
        (2 * TURN, [["a"], ["b"], ["c"], ["a"], ["b"], ["c"], ["a"], ["b"], ["c"]]),
        (0.6 * TURN, [["a", "b"], ["c", "a"], ["b", "c"], ["a", "b"], ["c"]]),
        (0.0, [["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c"]]),
    ],
)
def test_links_read_one_after_the_other_for_a_time_in_each_turn(
    seconds: float, turns: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, clock = Loop(), [0.0]
    monkeypatch.setattr("zambezi.zmtp.busy_links.thread_time", lambda: clock[0])
    queue = BusyLinks(cast("Reactor", loop))
    reads: list[str] = []
    for name in "abc":
        link = Link(name, clock, seconds, reads)
        link.queue = queue
        queue.add(cast("StreamLink", link), seconds)
    found = []
    while loop.calls:
        assert len(loop.calls) == 1
        reads.clear()
        loop.turn()
        found.append(reads.copy())
    assert found == turns


def test_a_link_that_is_over_reads_no_more() -> None:
    loop = Loop()
    queue = BusyLinks(cast("Reactor", loop))
    reads: list[str] = []
    gone, other = (cast("StreamLink", Link(name, [0.0], 0.0, reads)) for name in "ab")
    queue.add(gone, 0.0)
    queue.add(other, 0.0)
    queue.discard(gone)
    queue.discard(gone)
    assert gone not in queue
    assert other in queue
    loop.turn()
    assert reads == ["b"]
    queue.add(gone, 0.0)
    queue.discard(gone)
    loop.turn()
    assert reads == ["b"]
    assert not loop.calls


def flood(octets: int) -> bytes:
    return encode_command(b"\x01X") * (octets // 4)


def set_time_of_reads(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each read take so much processor time."""
    clock = itertools.count(0.0, seconds)
    monkeypatch.setattr("zambezi.zmtp.stream.thread_time", lambda: next(clock))


@contextmanager
def attached(sim: Simulation) -> Iterator[tuple[Stranger, BusyLinks, StreamLink]]:
    """A stranger that is connected to a socket, the queue of the socket, and the link between them."""
    hub = Router(sim, Options())
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")) as stranger:
        stranger.say(hello(identity=b"s"))
        sim.until(lambda: hub.peers)
        (link,) = hub.transport.links
        assert isinstance(link, StreamLink)
        yield stranger, hub.transport.busy, link
    hub.close(0)


def record_reads(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object] = lambda: None) -> list[int]:
    """Return the list to which the size of each read is added; `then` is called after that."""
    reads: list[int] = []
    receive = Connection.receive

    def noted(connection: Connection, data: bytes, now: float) -> list[Event]:
        reads.append(len(data))
        then()
        return receive(connection, data, now)

    monkeypatch.setattr(Connection, "receive", noted)
    return reads


def test_other_links_read_little_in_a_turn_with_many_links_that_became_busy(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with attached(sim) as (stranger, busy, link):
        reads = record_reads(monkeypatch, lambda: setattr(busy, "spent", 0.0))  # the turn is over
        stranger.say(flood(2 * TIMED))
        busy.spent = 2 * MUCH
        sim.until(lambda: sum(reads) == 2 * TIMED)
        assert reads[0] == TIMED
        assert link._read == READ_LEAST  # a read that was made small says nothing about the next one


def test_a_link_that_is_busy_alone_is_not_limited_by_its_own_time(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_time_of_reads(1.0, monkeypatch)
    sim.threaded = False  # as the sockets of asyncio
    with attached(sim) as (stranger, _, _):
        reads = record_reads(monkeypatch)
        stranger.say(flood(2 * READ_LEAST))
        sim.until(lambda: sum(reads) == 2 * READ_LEAST)
        assert reads[:2] == [READ_LEAST, READ_SLOW]


def test_what_was_spent_counts_for_one_turn() -> None:
    loop = Loop()
    queue = BusyLinks(cast("Reactor", loop))
    queue.add(cast("StreamLink", Link("a", [0.0], 0.0, [])), MUCH)
    assert queue.spent == MUCH
    loop.turn()
    assert queue.spent == 0.0


def test_a_link_whose_reads_are_slow_is_not_watched_until_they_are_quick(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_time_of_reads(1.0, monkeypatch)
    sim.threaded = False  # as the sockets of asyncio
    with attached(sim) as (stranger, busy, link):
        waits: list[bool] = []
        original = StreamLink._note_time

        def note(one: StreamLink, took: float, is_full: bool) -> None:
            original(one, took, is_full)
            waits.append(one in busy and one._sock not in sim.watched)

        monkeypatch.setattr(StreamLink, "_note_time", note)
        stranger.say(flood(READ_LEAST))
        sim.until(lambda: waits)
        assert all(waits)
        sim.until(lambda: link._sock in sim.watched)  # it has read everything
        assert link not in busy
        set_time_of_reads(0.0, monkeypatch)
        waits.clear()
        stranger.say(flood(READ_LEAST))
        sim.until(lambda: waits)
        assert not any(waits)


@pytest.mark.parametrize("is_over", [False, True])
def test_a_link_that_is_paused_or_over_leaves_the_queue(
    is_over: bool, sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_time_of_reads(1.0, monkeypatch)
    sim.threaded = False  # as the sockets of asyncio
    with attached(sim) as (stranger, busy, link):
        original = StreamLink._note_time

        def note(one: StreamLink, took: float, is_full: bool) -> None:
            original(one, took, is_full)
            assert one in busy
            if is_over:
                one.abort("test")
            else:
                one.pause()

        monkeypatch.setattr(StreamLink, "_note_time", note)
        stranger.say(flood(READ_LEAST))
        sim.until(lambda: link._paused or link._gone)
        sim.run()
        assert link not in busy
        assert link._sock not in sim.watched
        if not is_over:
            monkeypatch.setattr(StreamLink, "_note_time", original)
            link.resume()
            sim.until(lambda: link._sock in sim.watched)
