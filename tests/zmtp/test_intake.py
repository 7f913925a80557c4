"""zambezi.zmtp.intake: the bound for the unfinished messages of all connections of a process."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.zmtp.stranger import Stranger, hello
from zambezi.zmtp import intake
from zambezi.zmtp.events import Disconnected
from zambezi.zmtp.frames import encode
from zambezi.zmtp.intake import Intake
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Dealer, Router
from zambezi.zmtp.security import CurveClient, CurveServer, Null
from zambezi.zmtp.stream import StreamLink
from zambezi.zmtp.testing import Simulation, history, received


class Link:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def cut_off_soon(self, reason: str) -> None:
        self.reasons.append(reason)


def closed(links: list[Link]) -> list[int]:
    return [number for number, link in enumerate(links) if link.reasons]


def test_the_sum_follows_the_links() -> None:
    table = Intake(1000)
    one, other = Link(), Link()
    table.note(one, 300, 0.0, began=True)
    table.note(one, 400, 0.1, began=False)
    table.note(other, 100, 0.2, began=True)
    assert table.total == 500
    table.note(one, 0, 0.3, began=False)
    table.note(one, 0, 0.3, began=False)
    assert table.total == 100
    table.note(other, 0, 0.0, began=False)
    assert table.total == 0
    assert not table._noted


def test_beyond_the_bound_the_largest_message_goes_first() -> None:
    table = Intake(1000)
    links = [Link() for _ in range(3)]
    for link, octets in zip(links, (100, 700, 150), strict=True):
        table.note(link, octets, 0.0, began=True)
    assert closed(links) == []
    table.note(links[0], 151, 0.0, began=False)
    assert closed(links) == [1]
    assert "exceeded 1000 bytes, and this one's 700 bytes" in links[1].reasons[0]
    assert table.total == 301


def test_old_small_messages_go_before_a_large_one_that_makes_progress() -> None:
    table = Intake(1000)
    idle = [Link() for _ in range(8)]
    for link in idle:
        table.note(link, 100, 0.0, began=True)
    busy = Link()
    for turn in range(100):  # message after message, and each begins when the one before it is whole
        table.note(busy, 190, 10.0 + turn, began=True)
    table.note(busy, 201, 110.0, began=False)
    assert not busy.reasons
    assert len(closed(idle)) == 2  # until an eighth is free
    assert table.total == 801


# The process


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(intake, "PROCESS", Intake(1_000_000))
    yield 1_000_000
    assert intake.PROCESS.total == 0


def part_of(size: int, whole: int) -> bytes:
    """Return the header of a frame of `whole` bytes, and `size` bytes of its body."""
    return b"\x02" + whole.to_bytes(8, "big") + bytes(size)


def test_connections_with_unfinished_messages_take_no_more_than_the_bound(sim: Simulation, bound: int) -> None:
    hub = Router(sim, Options())
    events = history(hub)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    most = 0
    with ExitStack() as strangers:
        honest = strangers.enter_context(Stranger.calling(endpoint))
        honest.say(hello(identity=b"honest"))
        for number in range(40):
            stranger = strangers.enter_context(Stranger.calling(endpoint))
            stranger.say(hello(identity=b"%d" % number))
            sim.until(lambda number=number: b"%d" % number in hub.peers)  # type: ignore[misc]
            before = intake.PROCESS.total
            stranger.say(part_of(140_000, 150_000))
            sim.until(
                lambda number=number, before=before: (  # type: ignore[misc]
                    b"%d" % number not in hub.peers or intake.PROCESS.total not in range(before, before + 140_000)
                )
            )
            most = max(most, intake.PROCESS.total)
        assert most <= bound + (1 << 18)  # one read is added before the sum is looked at
        assert hub.counters.cut_off >= 30
        honest.say(encode([b"first", b"x" * 100_000]))
        messages: list[list[bytes]] = []
        while len(messages) < 2:
            sim.until(lambda: hub.readable)
            messages += received(hub)
        assert messages == [[b"honest", b"first"], [b"honest", b"x" * 100_000]]
        lost = [event for event in events if isinstance(event, Disconnected)]
        assert all("the unfinished messages of all connections exceeded" in event.reason for event in lost)
    hub.close(0)


@pytest.mark.parametrize("version", [(3, 0), (3, 1)])
def test_a_peer_that_falls_silent_in_a_message_is_disconnected(
    sim: Simulation, bound: int, version: tuple[int, int]
) -> None:
    hub = Router(sim, Options())
    events = history(hub)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with Stranger.calling(endpoint) as stranger:
        stranger.say(hello(identity=b"s", version=version))
        sim.until(lambda: hub.peers)
        (link,) = hub.transport.links
        assert isinstance(link, StreamLink)
        stranger.say(part_of(100, 1000))
        sim.until(lambda: link.connection.unfinished >= 100)
        sim.advance(29.0)
        stranger.say(bytes(100))
        sim.until(lambda: link.connection.unfinished >= 200)
        sim.advance(29.0)
        assert hub.peers
        sim.advance(1.0)
        assert not hub.peers
        assert isinstance(events[-1], Disconnected)
        assert events[-1].reason == "the peer sent nothing for 30 s in the middle of a message"
    hub.close(0)


def test_a_peer_that_finishes_its_message_can_be_silent(sim: Simulation, bound: int) -> None:
    hub = Router(sim, Options())
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")) as stranger:
        stranger.say(hello(identity=b"s") + part_of(20_000, 30_000))
        sim.until(lambda: intake.PROCESS.total >= 20_000)
        stranger.say(bytes(10_000))
        sim.until(lambda: hub.readable)
        assert intake.PROCESS.total == 0
        sim.advance(300.0)
        assert hub.peers
        assert sim.alarms == []
    hub.close(0)


@pytest.mark.parametrize("curve", [False, True])
def test_the_memory_of_a_connection_is_free_when_it_ends(sim: Simulation, bound: int, curve: bool) -> None:
    keys, own = KeyPair.generate(), KeyPair.generate()
    hub = Router(sim, Options(security=CurveServer(keys) if curve else Null()))
    client = Dealer(sim, Options(identity=b"c", security=CurveClient(keys.public, own) if curve else Null()))
    peer = client.connect(hub.bind("tcp://127.0.0.1:*"))
    sim.until(lambda: hub.peers and peer.connected)
    (link,) = hub.transport.links
    assert isinstance(link, StreamLink)
    gone = weakref.ref(link.connection.mechanism)  # it lives as long as the decoder and its messages
    gc.disable()  # no memory may wait for the search for cycles
    try:
        del link
        client.close(0)
        sim.until(lambda: not hub.peers)
        assert gone() is None
    finally:
        gc.enable()
    hub.close(0)
