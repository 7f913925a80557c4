"""A node with the habits of Zyre in elections, for a `Mesh` of engines: what it counts, relays and forgets.

Written after the observed behaviour of Zyre 2.0.1 with drafts.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.zre.mesh import Member, Mesh, address_of
from zambezi.wire import Message, WireError
from zambezi.zre import events
from zambezi.zre.beacon import Beacon
from zambezi.zre.messages import Elect, Goodbye, Hello, Join, Leader, Leave, Ping, PingOk, Shout, Stable, Whisper
from zambezi.zre.outputs import Broadcast, Connect, Disconnect, Output, Send


class Wave:
    """The election that a Zyre node takes part in: the claim that it supports, and what it has counted."""

    def __init__(self, challenger: bytes | None = None) -> None:
        self.challenger = challenger
        self.father: bytes | None = None
        self.elects = 0
        self.leaders = 0


class Other:
    def __init__(self, key: bytes, endpoint: str) -> None:
        self.key = key
        self.endpoint = endpoint
        self.ready = False
        self.sent = 0
        self.received = 0
        self.groups: set[str] = set()


class Others(dict[bytes, Other]):
    @property
    def strangers(self) -> int:
        return sum(not other.ready for other in self.values())


class Rendezvous:
    def reached(self, *_: object) -> None:
        """Do nothing: Zyre has no seeds."""


class ZyreEngine:
    """The rules of a Zyre node, behind the interface of `Engine` as far as a `Mesh` uses it."""

    deadline = float("inf")

    def __init__(self, uuid: UUID, endpoint: str, groups: set[str], contests: set[str]) -> None:
        self.key = uuid.bytes
        self.uuid = uuid
        self.endpoint = endpoint
        self.groups = set(groups)
        self.contests = set(contests)
        self.status = len(groups)
        self.peers = Others()
        self.rendezvous = Rendezvous()
        self.waves: dict[str, Wave] = {}
        self.leaders: dict[str, bytes | None] = {}
        self.out: list[Output] = []
        self.port = 0

    def take(self) -> list[Output]:
        out, self.out = self.out, []
        return out

    def start(self, port: int, now: float, beacons: bool = True) -> None:
        self.port = port
        self.tick(now)

    def tick(self, now: float) -> None:
        self.out.append(Broadcast(Beacon(self.uuid, self.port).encode()))

    def stop(self) -> None:
        self.out.append(Broadcast(Beacon(self.uuid, 0).encode()))

    def send(self, other: Other, kind: type[Stable], *fields: Any) -> None:
        other.sent = (other.sent + 1) & 0xFFFF
        self.out.append(Send(other.key, kind(other.sent, *fields).encode()))

    def members(self, group: str) -> list[Other]:
        return [other for other in self.peers.values() if group in other.groups]

    def receive_beacon(self, octets: bytes, address: str, now: float) -> None:
        beacon = Beacon.decode(octets)
        if beacon is None or beacon.uuid == self.uuid:
            return
        if beacon.port:
            self.require(beacon.uuid.bytes, f"tcp://{address}:{beacon.port}")
        elif other := self.peers.get(beacon.uuid.bytes):
            self.remove(other)

    def require(self, key: bytes, endpoint: str) -> Other:
        if key not in self.peers:
            self.peers[key] = other = Other(key, endpoint)
            self.out.append(Connect(key, endpoint))
            self.send(other, Hello, self.endpoint, sorted(self.groups), self.status, "zyre", {})
        return self.peers[key]

    def remove(self, other: Other) -> None:
        self.out += [Disconnect(other.key), events.Exit(UUID(bytes=other.key), "", "")]
        left = other.groups
        del self.peers[other.key]
        for group in self.groups & left:
            self.restart_without(other.key, group, is_running=group in self.waves)

    def join(self, group: str) -> None:
        self.groups.add(group)
        self.status += 1
        for other in self.peers.values():
            self.send(other, Join, group, self.status)

    def leave(self, group: str) -> None:
        self.groups.discard(group)
        self.status += 1
        for other in self.peers.values():
            self.send(other, Leave, group, self.status)

    def receive(self, identity: bytes, frames: list[bytes], now: float) -> None:
        try:
            message: Message = Stable.decode(frames)
        except WireError:
            return  # not counted: the next message then looks like a gap
        other = self.peers.get(identity[1:])
        if isinstance(message, Hello):
            if other is not None and other.ready:
                self.remove(other)
            other = self.require(identity[1:], message.endpoint)
            other.ready, other.received = True, 0
        if other is None or not other.ready:
            return
        other.received = (other.received + 1) & 0xFFFF
        assert isinstance(message, Stable)
        if message.sequence != other.received:
            self.remove(other)
            return
        self.obey(other, message)

    def obey(self, other: Other, message: Message) -> None:
        match message:
            case Hello():
                self.out.append(events.Enter(UUID(bytes=other.key), message.name, message.endpoint, {}))
                for group in message.groups:
                    other.groups.add(group)
                    self.contest(group)
            case Join():
                other.groups.add(message.group)
                if message.group in self.groups:
                    self.contest(message.group)
            case Leave():
                other.groups.discard(message.group)
                if message.group in self.groups:
                    self.restart_without(other.key, message.group)
            case Ping():
                self.send(other, PingOk)
            case Elect():
                self.receive_elect(other, message.group, bytes.fromhex(message.challenger))
            case Leader():
                self.receive_leader(other, message.group, bytes.fromhex(message.leader))
            case Goodbye() | PingOk() | Whisper() | Shout():
                pass

    # Elections

    def contest(self, group: str) -> None:
        """Begin an election anew, whatever was before."""
        if group in self.contests:
            self.waves[group] = Wave(self.key)
            self.leaders[group] = None
            for member in self.members(group):
                self.elect(member, group)

    def restart_without(self, key: bytes, group: str, is_running: bool = False) -> None:
        if group in self.contests and (is_running or self.leaders.get(group) == key):
            self.contest(group)
            if not self.members(group):
                del self.waves[group]
                self.lead(group, self.key)

    def elect(self, other: Other, group: str) -> None:
        challenger = self.waves[group].challenger
        assert challenger is not None
        self.send(other, Elect, group, challenger.hex().upper())

    def receive_elect(self, other: Other, group: str, challenger: bytes) -> None:
        wave = self.waves.setdefault(group, Wave())
        if wave.challenger is None or challenger < wave.challenger:
            wave = self.waves[group] = Wave(challenger)
            wave.father = other.key
            for member in self.members(group):
                if member is not other:
                    self.elect(member, group)
        if challenger == wave.challenger:
            wave.elects += 1
            if wave.elects == len(self.members(group)):
                self.complete(group, wave)

    def complete(self, group: str, wave: Wave) -> None:
        if wave.challenger == self.key:
            for member in self.members(group):
                self.send(member, Leader, group, self.key.hex().upper())
        elif wave.father is not None and wave.father in self.peers:
            self.elect(self.peers[wave.father], group)

    def receive_leader(self, other: Other, group: str, leader: bytes) -> None:
        wave = self.waves.setdefault(group, Wave())
        if wave.challenger is None:
            return  # the tagged release 2.0.1 aborts here
        if leader != self.key and not wave.leaders:
            for member in self.members(group):
                self.send(member, Leader, group, wave.challenger.hex().upper())
        wave.leaders += 1
        if wave.leaders == len(self.members(group)):
            if leader == self.key or leader in self.peers:
                self.lead(group, leader)
            del self.waves[group]

    def lead(self, group: str, leader: bytes) -> None:
        self.leaders[group] = leader
        self.out.append(events.Leader(UUID(bytes=leader), "", group, leader == self.key))


class ZyreMember(Member):
    """A Zyre node in a `Mesh`."""

    def __init__(self, mesh: Mesh, number: int, groups: set[str], contests: set[str]) -> None:
        super().__init__(mesh, number, 0xB000 + number, address_of(number), encrypted=False)
        self.engine = ZyreEngine(self.uuid, self.endpoint, groups, contests)  # type: ignore[assignment]


def add_zyre(mesh: Mesh, number: int, groups: set[str], contests: set[str] | None = None) -> ZyreMember:
    """Start a Zyre node in a mesh."""
    member = ZyreMember(mesh, number, groups, contests or set())
    mesh.members[member.endpoint] = member
    member.engine.start(member.port, mesh.now)
    mesh.pump(member)
    return member
