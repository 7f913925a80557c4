"""A mesh of many nodes in one process: they join groups, talk, crash and come back, and every delivery is checked.

The nodes are real, engine and sockets, on the memory transport and a network in memory. Only their time is **virtual**:
it passes as fast as the machine gets the work done. So a run depends on its seed alone, and half a minute of five
hundred nodes is the same half minute on a slow machine. The beacon interval grows with the number of nodes, as it would
have to on a real network: N nodes receive N * N beacons per interval.

The simulation checks, from knowledge that the nodes do not have:

- A message from a live node to one that it sees, and that stays alive (and, for a SHOUT, stays in the group), arrives
  exactly once, and after earlier messages of the same sender.
- No node receives a message that was not for it: a whisper to another node, or a shout to a group that it is not in.
- In the end, when the mesh has settled, every node sees exactly the live nodes, in exactly the groups that they are in.

>>> report = simulate(Plan(nodes=5, seconds=5, seed=1))
>>> report.ok, report.live == 5, report.links
(True, True, 20)
"""

from __future__ import annotations

import gc
import itertools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import psutil

from zambezi.zmtp.testing import Simulation
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.errors import ZreError
from zambezi.zre.events import Enter, Event, Exit, Shout, Whisper
from zambezi.zre.node import NodeShell
from zambezi.zre.options import NodeOptions

# So many nodes send a beacon every second. Four times as many send one every four seconds.
_NODES_PER_SECOND: Final = 100
_STEP: Final = 0.1  # virtual seconds
# In beacon intervals: the longest time in which the mesh must settle, and the two times of silence.
_SETTLING: Final = 40
_EVASIVE: Final = 3
_EXPIRED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a simulation. Rates are per node and virtual second."""

    nodes: int = 100
    seconds: float = 30.0
    seed: int = 0
    interval: float | None = None  # between beacons; by default it grows with the number of nodes
    groups: int | None = None  # the number of groups; by default one for ten nodes
    talk: float = 1.0  # messages
    moves: float = 0.04  # groups joined or left
    crashes: float = 0.005

    def __post_init__(self) -> None:
        if self.nodes < 2:
            raise ZreError(f"a mesh needs two nodes at least, not {self.nodes}")
        if self.seconds < 0:
            raise ZreError(f"a simulation must last zero seconds or more, not {self.seconds:g}")
        if self.interval is not None and self.interval <= 0:
            raise ZreError(f"interval must be more than zero seconds, not {self.interval:g}")

    @property
    def beacon_interval(self) -> float:
        return self.interval if self.interval is not None else max(1.0, self.nodes / _NODES_PER_SECOND)

    @property
    def group_names(self) -> list[str]:
        return [f"G{number}" for number in range(self.groups if self.groups is not None else max(2, self.nodes // 10))]


@dataclass(slots=True)
class Report:
    """The results of a simulation."""

    plan: Plan
    formed_after: float = 0.0  # virtual seconds, with the beacon interval over which the nodes start
    formed_in: float = 0.0  # seconds of this machine
    took: float = 0.0  # seconds of this machine, for the whole simulation
    ended_at: float = 0.0  # virtual seconds
    live: int = 0
    links: int = 0  # directed: pairs of a node and another one that it sees
    enters: int = 0
    exits: int = 0
    joins: int = 0
    leaves: int = 0
    crashes: int = 0
    returns: int = 0
    whispers: int = 0
    shouts: int = 0
    sent: int = 0  # copies: one for each receiver
    delivered: int = 0
    excused: int = 0  # need not arrive: the sender or the receiver crashed, or the receiver left the group, meanwhile
    lost: int = 0
    strayed: int = 0  # received by a node for which they were not
    repeated: int = 0
    disordered: int = 0
    wrong_views: int = 0  # nodes that in the end do not see exactly the live nodes and their groups
    discarded: int = 0  # by the nodes' own counters, without shouts to a group that the receiver had left
    memory: int = 0  # bytes of the process, when the mesh had formed
    memory_per_link: float = 0.0
    descriptors: int = 0

    @property
    def ok(self) -> bool:
        """Whether all checks passed."""
        return not (self.lost or self.strayed or self.repeated or self.disordered or self.wrong_views or self.discarded)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a simulation."""

    phase: str  # "forming", "talking", "settling"
    now: float
    done: float  # the share of the phase, 0 to 1
    links: int
    delivered: int


@dataclass(slots=True, eq=False)
class _Life:
    """A node from its start to its crash, and the messages that it must still receive."""

    node: NodeShell
    name: str
    number: int
    groups: set[str]
    sees: int = 0
    # The sender and the group ("" for a whisper) of each message that must arrive, by its number.
    awaited: dict[int, tuple[_Life, str]] = field(default_factory=dict)
    excused: set[int] = field(default_factory=set)
    # The number of the last message of each sender: later messages have a greater one.
    newest: dict[UUID, int] = field(default_factory=dict)


class MeshSimulation:
    """A mesh on a virtual clock, and the plan that it carries out."""

    def __init__(self, plan: Plan, progress: Callable[[Progress], object] = lambda _: None) -> None:
        self.plan = plan
        self.report = Report(plan)
        self.reactor = Simulation(0.0)
        self._progress = progress
        self._network = MemoryNetwork()
        self._chance = random.Random(plan.seed)
        self._names = plan.group_names
        self._lives: dict[UUID, _Life] = {}
        self._absent = 0  # nodes that crashed and will come back
        self._numbers = itertools.count(1)
        self._links = 0

    def run(self) -> Report:
        """Run all phases (forming, talking, settling); return the report."""
        began = time.perf_counter()
        with _patient_collector():
            self._form()
            self.report.formed_in = time.perf_counter() - began
            self._live()
            self._settle()
            self._judge()
            for life in self._lives.values():
                life.node.crash()
            self.reactor.run_until(self.reactor.time() + 1)
        self.report.took = time.perf_counter() - began
        return self.report

    # The phases

    def _form(self) -> None:
        """Start the nodes, spread over one interval, and wait until they have found each other."""
        plan, report = self.plan, self.report
        process = psutil.Process()
        before = process.memory_info().rss
        for number in range(plan.nodes):
            start = plan.beacon_interval * number / plan.nodes
            self.reactor.call_at(start, self._start, number, self._uuid())
        self._absent = plan.nodes
        wanted = plan.nodes * (plan.nodes - 1)
        while self._links < wanted:
            self._step("forming", self._links / wanted)
            if self.reactor.time() > _SETTLING * plan.beacon_interval:
                break
        report.formed_after = self.reactor.time()
        report.memory = process.memory_info().rss
        report.memory_per_link = (report.memory - before) / max(1, self._links)
        report.descriptors = process.num_fds() if hasattr(process, "num_fds") else 0

    def _live(self) -> None:
        began = self.reactor.time()
        while (passed := self.reactor.time() - began) < self.plan.seconds - _STEP / 2:
            self._act()
            self._step("talking", passed / self.plan.seconds)

    def _settle(self) -> None:
        """Wait, without further messages and crashes, until all is delivered and crashed nodes are forgotten."""
        began = self.reactor.time()
        longest = _SETTLING * self.plan.beacon_interval
        while not self._settled() and (passed := self.reactor.time() - began) < longest:
            self._step("settling", passed / longest)

    def _settled(self) -> bool:
        others = len(self._lives) - 1
        quiet = not self._absent and all(life.sees == others and not life.awaited for life in self._lives.values())
        return quiet and not self._wrong_views()

    def _wrong_views(self) -> int:
        truth = {uuid: (life.name, frozenset(life.groups)) for uuid, life in self._lives.items()}
        wrong = 0
        for uuid, life in self._lives.items():
            seen = {peer.uuid: (peer.name, peer.groups) for peer in life.node.engine.peers.values() if peer.ready}
            seen[uuid] = truth[uuid]
            wrong += seen != truth
        return wrong

    def _step(self, phase: str, done: float) -> None:
        self.reactor.run_until(self.reactor.time() + _STEP)
        self._progress(Progress(phase, self.reactor.time(), done, self._links, self.report.delivered))

    # The actions of the nodes

    def _start(self, number: int, uuid: UUID) -> None:
        plan = self.plan
        groups = set(self._chance.sample(self._names, min(2, len(self._names))))
        interval = plan.beacon_interval
        options = NodeOptions(
            uuid=uuid,
            groups=groups,
            network=self._network,
            interval=interval,
            evasive=interval * _EVASIVE,
            expired=interval * _EXPIRED,
            max_peers=10_000 + plan.nodes,
            max_strangers=1_000 + plan.nodes,
        )
        name = f"node-{number}"
        life = _Life(NodeShell(self.reactor, name, options, self._chance), name, number, groups)
        life.node.on_event = lambda: self._hear(life)
        self._lives[uuid] = life
        self._absent -= 1
        life.node.start()

    def _act(self) -> None:
        """Let every node act for one step."""
        plan, chance = self.plan, self._chance
        for life in list(self._lives.values()):
            luck = chance.random()
            if luck < plan.crashes * _STEP:
                self._crash(life)
            elif luck < (plan.crashes + plan.moves) * _STEP:
                self._move(life)
            elif luck < (plan.crashes + plan.moves + plan.talk) * _STEP:
                self._talk(life)

    def _crash(self, life: _Life) -> None:
        """Kill a node. It comes back after a while: with its old UUID in half of the cases, else with a new one."""
        self.report.crashes += 1
        del self._lives[life.node.engine.uuid]
        self._links -= life.sees
        self.report.excused += len(life.awaited)
        for other in self._lives.values():
            gone = [number for number, (sender, _) in other.awaited.items() if sender is life]
            self._excuse(other, gone)
        life.node.crash()
        self._absent += 1
        uuid = life.node.engine.uuid if self._chance.random() < 0.5 else self._uuid()
        back = self.reactor.time() + self._chance.uniform(0.5, 3.0) * self.plan.beacon_interval
        self.reactor.call_at(back, self._return, life.number, uuid)

    def _return(self, number: int, uuid: UUID) -> None:
        self.report.returns += 1
        self._start(number, uuid)

    def _move(self, life: _Life) -> None:
        new = sorted(set(self._names) - life.groups)
        if new and (not life.groups or self._chance.random() < 0.5):
            group = self._chance.choice(new)
            self.report.joins += 1
            life.groups.add(group)
            life.node.join(group)
        else:
            group = self._chance.choice(sorted(life.groups))
            self.report.leaves += 1
            life.groups.discard(group)
            self._excuse(life, [number for number, (_, where) in life.awaited.items() if where == group])
            life.node.leave(group)

    def _talk(self, life: _Life) -> None:
        peers = [peer for peer in life.node.engine.peers.values() if peer.ready]
        number = next(self._numbers)
        if not peers:
            return
        if self._chance.random() < 0.25:
            peer = self._chance.choice(peers)
            self.report.whispers += 1
            self._await(life, peer.uuid, peer.endpoint, number, "")
            life.node.whisper(peer.uuid, (b"%d" % number,))
            return
        group = self._chance.choice(sorted(life.groups) or self._names)
        self.report.shouts += 1
        for peer in peers:
            if group in peer.groups:
                self._await(life, peer.uuid, peer.endpoint, number, group)
        life.node.shout(group, (b"%d" % number,))

    def _await(self, sender: _Life, uuid: UUID, endpoint: str, number: int, group: str) -> None:
        """Note a copy that goes out. It must arrive if its receiver is still the node that the sender sees."""
        self.report.sent += 1
        receiver = self._lives.get(uuid)
        if receiver is None or receiver.node.endpoint != endpoint or (group and group not in receiver.groups):
            self.report.excused += 1
            if receiver is not None:
                receiver.excused.add(number)
        else:
            receiver.awaited[number] = sender, group

    def _excuse(self, life: _Life, numbers: list[int]) -> None:
        self.report.excused += len(numbers)
        life.excused.update(numbers)
        for number in numbers:
            del life.awaited[number]

    # The events of the nodes

    def _hear(self, life: _Life) -> None:
        while (event := life.node.next_event()) is not None:
            match event:
                case Enter():
                    self.report.enters += 1
                    life.sees += 1
                    self._links += 1
                case Exit():
                    self.report.exits += 1
                    life.sees -= 1
                    self._links -= 1
                case Whisper():
                    self._check(life, event, "", event.data)
                case Shout():
                    self._check(life, event, event.group, event.data)

    def _check(self, life: _Life, event: Event, group: str, data: bytes) -> None:
        number = int(data)
        sender, meant = life.awaited.pop(number, (None, ""))
        if sender is None and number in life.excused:
            # It can arrive although it need not, for example if the receiver has left the group and joined it again.
            life.excused.discard(number)
            self.report.strayed += bool(group) and group not in life.groups
            return
        if sender is None:
            known = number <= life.newest.get(event.peer, 0)
            self.report.repeated += known
            self.report.strayed += not known
            return
        self.report.delivered += 1
        self.report.strayed += meant != group or sender.node.engine.uuid != event.peer
        self.report.disordered += life.newest.get(event.peer, 0) > number
        life.newest[event.peer] = number

    # The verdict

    def _judge(self) -> None:
        report = self.report
        report.live = len(self._lives)
        report.links = self._links
        report.ended_at = self.reactor.time()
        report.lost = sum(len(life.awaited) for life in self._lives.values())
        report.wrong_views = self._wrong_views()
        for life in self._lives.values():
            counters = life.node.engine.counters
            report.discarded += counters.bad_beacons + counters.bad_messages + counters.bad_identities
            report.discarded += counters.gaps + counters.status_mismatches + counters.unknown_commands
            report.discarded += counters.refused_strangers + counters.refused_peers

    def _uuid(self) -> UUID:
        return UUID(int=self._chance.getrandbits(128), version=4)


def simulate(plan: Plan, progress: Callable[[Progress], object] = lambda _: None) -> Report:
    """Run a simulation; return its report."""
    return MeshSimulation(plan, progress).run()


@contextmanager
def _patient_collector() -> Iterator[None]:
    """Collect garbage rarely: a mesh has millions of objects, and nearly all of them stay alive."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
