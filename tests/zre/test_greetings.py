"""zambezi.zre.greetings: what a HELLO means that comes late, or twice."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Any
from uuid import UUID

import pytest

from tests.zre.mesh import Connection, Member, Mesh, check
from zambezi.zre import events
from zambezi.zre.dialect import Frames
from zambezi.zre.engine import Engine
from zambezi.zre.messages import Hello, Join, Ping, PingOk, Stable
from zambezi.zre.outputs import Output, Send

NOW = 1000.0
BOB = UUID(int=0x0B)
IDENTITY = b"\x01" + BOB.bytes


class SlowMesh(Mesh):
    """A mesh on a busy machine: every message takes `delay` seconds.

    It arrives also if its sender has closed the connection meanwhile, because the kernel has it.
    """

    def __init__(self, delay: float) -> None:
        super().__init__()
        self._delay = delay
        self._order = itertools.count()
        self._under_way: list[tuple[float, int, Connection, Frames]] = []
        self.greetings = 0

    def _do(self, member: Member, output: Output) -> None:
        super()._do(member, output)
        if isinstance(output, Send):
            connection = member.connections[output.peer]
            frames = connection.queue.pop()
            self.greetings += frames[0][2] == 1
            heapq.heappush(self._under_way, (self.now + self._delay, next(self._order), connection, frames))

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            while self.datagrams:
                self.deliver_datagram()
            deadlines = (one.engine.deadline for one in self.members.values())
            due = min(*deadlines, self._under_way[0][0] if self._under_way else math.inf)
            if due > end:
                break
            self.now = max(self.now, due)
            while self._under_way and self._under_way[0][0] <= self.now:
                *_, connection, frames = heapq.heappop(self._under_way)
                connection.queue.append(frames)
                self.deliver(connection)
            self.tick()
        self.now = end


@pytest.mark.parametrize("delay", [0.5, 3.0, 6.0, 12.0])
def test_nodes_whose_messages_come_late_greet_each_other_a_few_times_and_then_agree(delay: float) -> None:
    mesh = SlowMesh(delay)
    members = [mesh.add(number, groups=["A", "B"]) for number in range(1, 5)]
    mesh.advance(300)
    greetings, told = mesh.greetings, [len(member.story) for member in members]
    for member in members:
        others = {other.uuid: {"A", "B"} for other in members if other is not member}
        assert member.ready == check(member.story) == others
    assert greetings <= 4 * 12  # of the 12 directed links
    mesh.advance(600)
    assert mesh.greetings == greetings
    assert [len(member.story) for member in members] == told


def test_a_header_that_changes_reaches_nodes_whose_messages_come_late() -> None:
    mesh = SlowMesh(7.0)
    ann, bob = mesh.add(1), mesh.add(2)
    mesh.advance(100)
    for number in range(3):
        ann.engine.set_header("X-A", f"tcp://10.0.0.1:{number}", mesh.now)
        mesh.pump(ann)
        mesh.advance(3)
    mesh.advance(100)
    assert bob.engine.services("X-A") == {ann.uuid: "tcp://10.0.0.1:2"}
    assert check(bob.story) == bob.ready == {ann.uuid: set()}
    assert check(ann.story) == ann.ready == {bob.uuid: set()}
    greetings = mesh.greetings
    mesh.advance(300)
    assert mesh.greetings == greetings


# One engine, and a peer whose messages the test writes


def hello(**fields: Any) -> list[bytes]:
    return list(Hello(1, **{"endpoint": "tcp://10.0.0.2:50001", "name": "bob", **fields}).encode())


def met() -> Engine:
    """Return an engine that has answered the HELLO of a peer."""
    ours = Engine(UUID(int=0x0A), "ann", lambda _: "tcp://10.0.0.1:50000")
    ours.receive(IDENTITY, hello(), NOW)
    ours.take()
    return ours


def sent(ours: Engine) -> list[type]:
    """Return the kinds of the messages that an engine sends."""
    return [type(Stable.decode(output.frames)) for output in ours.take() if isinstance(output, Send)]


def renewed() -> Engine:
    """Return an engine whose peer greeted it a second time, and then once more."""
    ours = met()
    ours.receive(IDENTITY, hello(), NOW + 10)
    assert sent(ours) == [Hello]
    ours.receive(IDENTITY, hello(), NOW + 16)  # the answer to this HELLO, or a third session
    assert sent(ours) == [Ping]
    return ours


def _run(ours: Engine, begin: float, until: float) -> list[type]:
    """Let time pass, with signs of life of the peer in each second."""
    kinds = []
    now = begin
    while now < until:
        while ours.deadline <= now:
            ours.tick(ours.deadline)
        ours.receive_beacon(b"ZRE\x01" + BOB.bytes + (50001).to_bytes(2, "big"), "10.0.0.2", now)
        kinds += sent(ours)
        now += 1
    return kinds


def test_a_peer_that_answers_the_ping_has_our_hello() -> None:
    ours = renewed()
    ours.receive(IDENTITY, list(PingOk(2).encode()), NOW + 17)
    assert _run(ours, NOW + 18, NOW + 100) == []


def test_a_peer_that_lost_its_session_again_is_greeted_again() -> None:
    ours = renewed()
    assert _run(ours, NOW + 17, NOW + 48) == [Hello, Ping]
    ours.receive(IDENTITY, list(PingOk(2).encode()), NOW + 48)  # Zyre does not answer a HELLO that it waited for
    assert _run(ours, NOW + 50, NOW + 100) == []
    assert [type(one) for one in ours.take()] == []


def test_an_expected_hello_that_says_something_new_begins_a_session() -> None:
    ours = met()
    ours.receive(IDENTITY, hello(), NOW + 10)
    ours.take()
    ours.receive(IDENTITY, hello(headers={"X-A": "1"}), NOW + 16)
    outputs = ours.take()
    assert [type(one) for one in outputs if isinstance(one, events.Event)] == [events.Exit, events.Enter]
    assert [type(Stable.decode(one.frames)) for one in outputs if isinstance(one, Send)] == [Hello]


def test_groups_in_a_late_answer_are_told() -> None:
    ours = met()
    ours.receive(IDENTITY, hello(), NOW + 10)
    ours.take()
    ours.receive(IDENTITY, hello(groups=["A"], status=1), NOW + 16)
    assert [one.group for one in ours.take() if isinstance(one, events.Join)] == ["A"]
    ours.receive(IDENTITY, list(Join(2, "B", 2).encode()), NOW + 17)
    assert ours.peers[BOB.bytes].groups == {"A", "B"}


def test_a_node_that_is_late_itself_gives_its_peers_more_time_to_answer() -> None:
    ours = Engine(UUID(int=0x0A), "ann", lambda _: "tcp://10.0.0.1:50000")
    beacon = b"ZRE\x01" + BOB.bytes + (50001).to_bytes(2, "big")

    def run(*times: float) -> list[type]:
        kinds = []
        for now in times:
            ours.receive_beacon(beacon, "10.0.0.2", NOW + now)
            ours.tick(NOW + now)
            kinds += sent(ours)
        return kinds

    ours.start(50000, NOW)
    ours.receive_beacon(beacon, "10.0.0.2", NOW)
    assert sent(ours) == [Hello]
    # The answer was due after 5 s. But the event loop takes 3 s for each turn, and the answer takes several turns.
    assert run(3, 6, 9, 12, 15) == []
    assert run(*range(16, 28)) == [Hello]  # the loop has time again, and no answer came
