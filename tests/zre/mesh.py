"""Engines that talk to each other in memory: a clock that is moved by hand, datagrams and connections that can fail.

A connection is a queue that its owner fills and that is delivered message by message, in order. A reset loses messages
that are under way, or none; the owner does not notice. When the owner disconnects, the queue is gone. As with a ROUTER,
the connection of an owner to a mailbox replaces the one that it had there, which is made again when it has messages.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from zambezi.zre import events
from zambezi.zre.dialect import Frames
from zambezi.zre.engine import Engine
from zambezi.zre.outputs import Adopt, Broadcast, Connect, Disconnect, Output, Send

MANY = 20_000


def uuid_of(number: int) -> UUID:
    return UUID(int=number)


def address_of(number: int) -> str:
    return f"10.0.0.{number}"


class Member:
    """A node of a mesh: its engine, its connections, and the events of its program."""

    def __init__(self, mesh: Mesh, number: int, port: int, address: str, encrypted: bool, **options: Any) -> None:
        self.number = number
        self.port = port
        self.address = address
        self.endpoint = f"tcp://{self.address}:{port}"
        self.uuid = uuid_of(number)
        self.identity = b"\x01" + self.uuid.bytes
        self.alive = True
        self.beacons = True
        self.connections: dict[bytes, Connection] = {}
        self.story: list[events.Event] = []
        self.engine = Engine(
            self.uuid,
            f"node{number}",
            lambda _: self.endpoint,
            source_of=mesh.source_of,
            connects_to_us=lambda key: mesh.is_connected(key, self),
            proves=self.proves if encrypted else None,
            **options,
        )

    def proves(self, key: bytes) -> bool:
        """Return whether our connection to a peer has reached that peer, in a mesh with keys."""
        connection = self.connections.get(key)
        return connection is not None and connection.reached == b"\x01" + key

    @property
    def ready(self) -> dict[UUID, set[str]]:
        """The peers that are ready for it, and their groups."""
        return {peer.uuid: set(peer.groups) for peer in self.engine.peers.values() if peer.ready}

    def told(self, *kinds: type[events.Event]) -> list[events.Event]:
        return [event for event in self.story if isinstance(event, kinds)]


class Connection:
    def __init__(self, owner: Member, endpoint: str) -> None:
        self.owner = owner
        self.endpoint = endpoint
        self.queue: deque[Frames] = deque()
        self.open = True
        self.was_lost = False
        self.reached = b""  # the identity of the member at the other end


class Mesh:
    """A mesh. `identities` says whether mailboxes give their identity in the handshake, like those of our nodes."""

    def __init__(self, identities: bool = True) -> None:
        self.now = 1000.0
        self.identities = identities
        self.cut: set[frozenset[int]] = set()  # pairs of members that cannot connect to each other
        self.members: dict[str, Member] = {}  # by the endpoint of the mailbox
        self.names: dict[str, str] = {}  # endpoints by the names of their hosts
        self.datagrams: deque[tuple[bytes, str]] = deque()
        self._addresses: dict[bytes, str] = {}  # of all members that ever were, by their keys
        self._ports = iter(range(0xC000, 0x10000))

    def add(
        self,
        number: int,
        *,
        beacons: bool = True,
        seeds: Iterable[str] = (),
        port: int = 0,
        address: str = "",
        encrypted: bool = False,
        **options: Any,
    ) -> Member:
        """Start a node now. The options are those of its engine."""
        address = address or address_of(number)
        member = Member(self, number, port or next(self._ports), address, encrypted, **options)
        self._addresses[member.uuid.bytes] = address
        member.beacons = beacons
        self.members[member.endpoint] = member
        member.engine.start(member.port, self.now, beacons=beacons)
        for seed in seeds:
            member.engine.rendezvous.add_seed(seed, self.now)
        self.pump(member)
        return member

    def stop(self, member: Member) -> None:
        """Let a node say goodbye, after its earlier messages are delivered."""
        connections = list(member.connections.values())
        member.engine.stop()
        self.pump(member)
        for connection in connections:
            while connection.queue and self.leads_somewhere(connection):
                self.deliver(connection)
        self.kill(member)

    def kill(self, member: Member, noticed: bool = False) -> None:
        """End a node without a goodbye. Its peers can notice that their connections to it are lost."""
        member.alive = False
        member.connections.clear()
        del self.members[member.endpoint]
        for other in self.members.values():
            for key, connection in list(other.connections.items()):
                if connection.reached == member.identity and noticed:
                    self.lose(other, key)

    def lose(self, owner: Member, key: bytes) -> None:
        """Let a member notice that a connection of its is lost."""
        connection = owner.connections[key]
        connection.reached = b""
        connection.was_lost = True
        owner.engine.connection_lost(key, self.now)
        self.pump(owner)

    def source_of(self, key: bytes) -> str:
        return self._addresses.get(key, "")

    def is_connected(self, key: bytes, to: Member) -> bool:
        """Return whether a member has a connection to another."""
        return any(
            connection.reached == to.identity
            for member in self.members.values()
            if member.uuid.bytes == key
            for connection in member.connections.values()
        )

    @property
    def connections(self) -> list[Connection]:
        """The connections with messages that can be delivered."""
        return [
            connection
            for member in self.members.values()
            for connection in member.connections.values()
            if connection.queue and self.leads_somewhere(connection)
        ]

    def at(self, endpoint: str) -> Member | None:
        """Return the member that has its mailbox at an endpoint."""
        return self.members.get(self.names.get(endpoint, endpoint))

    def leads_somewhere(self, connection: Connection) -> bool:
        target = self.at(connection.endpoint)
        return target is not None and frozenset((connection.owner.number, target.number)) not in self.cut

    def pump(self, member: Member) -> None:
        """Carry out the outputs of an engine."""
        for output in member.engine.take():
            self._do(member, output)
        assert member.engine.peers.strangers == sum(not peer.ready for peer in member.engine.peers.values())

    def _do(self, member: Member, output: Output) -> None:
        match output:
            case Send():
                member.connections[output.peer].queue.append(output.frames)
            case Connect():
                assert output.peer not in member.connections, "a second DEALER to one peer"
                member.connections[output.peer] = Connection(member, output.endpoint)
            case Disconnect():
                member.connections.pop(output.peer).open = False
            case Adopt():
                member.connections[output.peer] = member.connections.pop(output.seed)
            case Broadcast():
                self.datagrams.append((output.octets, member.address))
            case events.Event():
                member.story.append(output)

    def deliver_datagram(self, lost: bool = False) -> None:
        octets, address = self.datagrams.popleft()
        if not lost:
            for member in list(self.members.values()):
                if member.beacons:
                    member.engine.receive_beacon(octets, address, self.now)
                    self.pump(member)

    def deliver(self, connection: Connection) -> None:
        target = self.members[self.names.get(connection.endpoint, connection.endpoint)]
        if connection.open and not connection.reached:
            self._attach(connection, target)
            if connection not in connection.owner.connections.values():
                return
        frames = connection.queue.popleft()
        target.engine.receive(connection.owner.identity, list(frames), self.now)
        self.pump(target)

    def _attach(self, connection: Connection, target: Member) -> None:
        owner = connection.owner
        for key, other in list(owner.connections.items()):
            if other is not connection and other.reached == target.identity:
                self.lose(owner, key)
        connection.reached = target.identity
        identity = target.identity if self.identities else b""
        key = next((key for key, one in owner.connections.items() if one is connection), b"")
        owner.engine.rendezvous.reached(connection.endpoint, identity, target.address)
        if connection.was_lost or (identity and identity[1:] != key):
            owner.engine.reached(key, identity, self.now)
        connection.was_lost = False
        self.pump(owner)

    def settle(self) -> None:
        """Deliver all messages under way, and those that they cause. That must come to an end."""
        for _ in range(MANY):
            if self.datagrams:
                self.deliver_datagram()
            elif connections := self.connections:
                self.deliver(connections[0])
            else:
                return
        raise AssertionError("the engines do not stop talking")

    def advance(self, seconds: float) -> None:
        """Let time pass, deadline by deadline."""
        end = self.now + seconds
        self.settle()
        while (due := min((one.engine.deadline for one in self.members.values()), default=math.inf)) <= end:
            self.now = max(self.now, due)
            for member in list(self.members.values()):
                if member.engine.deadline <= self.now:
                    member.engine.tick(self.now)
                    self.pump(member)
            self.settle()
        self.now = end

    def tick(self) -> None:
        for member in list(self.members.values()):
            member.engine.tick(self.now)
            self.pump(member)


def check(story: Iterable[events.Event]) -> dict[UUID, set[str]]:
    """Check that a program got its events in a possible order; return the peers at the end, with their groups."""
    here: dict[UUID, set[str]] = {}
    for event in story:
        match event:
            case events.Enter():
                assert event.peer not in here, "it entered twice"
                here[event.peer] = set()
            case events.Exit():
                assert event.peer in here, "it left without having entered"
                del here[event.peer]
            case events.Join():
                assert event.group not in here[event.peer], "it joined twice"
                here[event.peer].add(event.group)
            case events.Leave():
                assert event.group in here[event.peer], "it left a group that it was not in"
                here[event.peer].remove(event.group)
            case _:
                assert event.peer in here, f"{event} from a peer that has not entered"
    return here
