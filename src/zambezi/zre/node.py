"""A node without waiting: the engine, its sockets and its beacons, put together on a reactor.

The faces (`asyncio`, `sync`) add the waiting for events, and nothing else.

A node follows the interfaces of its machine. Every few beacons it looks which there are; when those that it uses have
changed, beacons go out on the new ones, the mailbox is bound there too, and peers who would look for it at an address
that is gone are greeted anew.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address
from time import time as wall_clock
from typing import Final
from uuid import UUID, uuid4

from zambezi.zmtp import endpoint as endpoints
from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.patterns import Router
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.security import CurveClient, CurveServer, Null
from zambezi.zmtp.transport import Transport
from zambezi.zre import engine as engines
from zambezi.zre import interfaces, log
from zambezi.zre.discovery import PORT, Broadcast, Discovery, MemoryDiscovery, MemoryNetwork
from zambezi.zre.engine import Engine
from zambezi.zre.errors import NodeStopped, ZreError
from zambezi.zre.events import Enter, Event, Exit, Shout, Whisper
from zambezi.zre.interfaces import Interface
from zambezi.zre.logpublisher import LogPublisher
from zambezi.zre.mailbox import Dealers

_log: Final = logging.getLogger("zambezi.zre")
EPHEMERAL: Final = "49152-65535"  # MBX-01
# The interfaces are looked at once in so many intervals of beacons.
LOOKS: Final = 3
# When so many events wait to be read, the node stops reading from its peers until some are.
EVENTS_WAITING: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """How a node behaves. The names are those of the arguments of `Node`."""

    uuid: UUID = field(default_factory=uuid4)
    headers: Mapping[str, str] = field(default_factory=dict)
    groups: Iterable[str] = ()
    dialect: str = "stable"
    interface: str | Sequence[str] | None = None
    beacon_port: int = PORT
    port: int = 0
    advertise: str = ""
    seeds: Sequence[str] = ()
    beacons: bool | None = None
    network: MemoryNetwork | None = None
    keys: KeyPair | None = None
    interval: float = 1.0
    evasive: float = 5.0
    expired: float = 30.0
    bound: Bound = field(default_factory=Bound)
    max_peers: int = 10_000
    max_strangers: int = 1_000
    log: bool = False

    def __post_init__(self) -> None:
        if self.seeds and self.network is not None:
            raise ZreError("a node in a memory network finds its peers there, and needs no seeds")
        for name in ("interval", "evasive", "expired"):
            if getattr(self, name) <= 0:
                raise ZreError(f"{name} is a time above zero seconds, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """What a node knows of a peer."""

    uuid: UUID
    name: str
    endpoint: str
    headers: Mapping[str, str]
    groups: frozenset[str]


class NodeShell:
    """A node on a reactor. Made, then started; what happens is told by `on_event`."""

    def __init__(self, reactor: Reactor, name: str, options: NodeOptions, chance: random.Random | None = None) -> None:
        self.reactor = reactor
        self.options = options
        self.events: deque[Event] = deque()
        self.on_event: Callable[[], object] = lambda: None
        self.on_stopped: Callable[[], object] = lambda: None
        self.on_moved: list[Callable[[], object]] = []
        self.stopping = False
        self.stopped = False
        self.endpoint = ""
        self._alarm = Alarm(reactor, self._tick)
        self._goodbyes: list[bytes] = []
        self._interfaces: list[Interface] = []
        self._next_look = float("inf")  # at the interfaces
        # The seeds as they are called by sockets, which tell whom they reached.
        self._seeds = {str(endpoints.parse(seed)): seed for seed in options.seeds}
        self._discovery = self._make_discovery()
        security, guard = security_of(options.keys)
        identity = b"\x01" + options.uuid.bytes  # MBX-03
        # The mailbox says in the handshake whose it is: who has us as a seed knows then whom it found.
        mailbox = Options(identity=identity, security=security, authenticator=guard, receive_bound=options.bound)
        self._router = Router(reactor, mailbox, chance, handover=True)
        client = CurveClient(options.keys.public, options.keys) if options.keys else Null()
        self._dealers = Dealers(reactor, Options(identity=identity, security=client, send_bound=options.bound), chance)
        self._logger = LogPublisher(reactor, Options(security=client, on_full="drop"), chance) if options.log else None
        self._log_services: dict[UUID, str] = {}
        sockets = (self._router, self._dealers, self._logger)
        self._transports: list[Transport] = [socket.transport for socket in sockets if socket is not None]
        self._router.on_readable = self._mail
        self._dealers.on_lost = lambda key: reactor.call_soon(self._disturbed, key)
        if self._seeds:
            self._dealers.on_attached = self._reached
        for transport in self._transports:
            transport.on_closed = self._closed
        self.engine = Engine(
            options.uuid,
            name,
            self._endpoint_for,
            reactor.time(),
            mailbox_at=options.network.mailbox_at if options.network else None,
            source_of=self._source_of,
            headers=options.headers,
            groups=options.groups,
            dialect=options.dialect,
            interval=options.interval,
            evasive=options.evasive,
            expired=options.expired,
            gossip=bool(options.seeds) or options.beacons is False,
            max_peers=options.max_peers,
            max_strangers=options.max_strangers,
        )

    def _make_discovery(self) -> Discovery | None:
        options = self.options
        if options.network is not None:
            return options.network.discovery()
        self._interfaces = interfaces.choose(options.interface)
        self._warn_if_alone()
        # Seeds are for networks without broadcast: then no beacon is sent unless it is asked for.
        if not (options.beacons if options.beacons is not None else not options.seeds):
            return None
        return Broadcast(self._interfaces, options.beacon_port)

    def _warn_if_alone(self) -> None:
        if self.options.interface in (None, "*") and all(one.where.is_loopback for one in self._interfaces):
            _log.warning(
                "no network but the loopback is up: only nodes of this machine are found, until there is one; "
                "if that is what you want, say interface='lo'"
            )

    # The life of a node

    def start(self) -> None:
        """Open the mailbox, and begin to look for peers."""
        if self.stopping:
            raise NodeStopped("a node that was stopped does not start again; make a new one")
        if self.endpoint:
            return
        options = self.options
        now = self.reactor.time()
        if isinstance(self._discovery, MemoryDiscovery):
            port = options.port or 0xC000
            network = self._discovery.network
            self.endpoint = self._router.bind(network.mailbox_at(self._discovery.address, port))
        else:
            self.endpoint = self._router.bind(f"tcp://{self._host(self._interfaces)}:{options.port or EPHEMERAL}")
            port = int(self.endpoint.rpartition(":")[2])
            self._next_look = now + LOOKS * options.interval
        if self._discovery is not None:
            try:
                self._discovery.start(self.reactor, self._datagram)
            except ZreError:
                self.crash()  # nothing stays open
                raise
        self.engine.start(port, now, beacons=self._discovery is not None)
        for seed in options.seeds:
            self.engine.seed(seed, now)
        self._pump()

    def stop(self, linger: float) -> None:
        """Say goodbye and close; `on_stopped` is called when all is done."""
        if self.stopping:
            return
        self.stopping = True
        for peer in self.engine.peers.values():
            if not peer.ready:
                self._dealers.shut(peer.key)  # a greeting that was never answered is not worth the wait
        # The queues drain while the sockets close: only the engine forgets its peers now. The goodbye is the last word:
        # who has heard it does not listen to what is still under way. One by beacon overtakes what is in the queues,
        # and so it has to wait for their end.
        for output in self._stopped_engine():
            if isinstance(output, engines.Broadcast):
                self._goodbyes.append(output.octets)
            elif isinstance(output, engines.Send):
                self._dealers.send(output.peer, output.frames)
        self._close(linger)

    def crash(self) -> None:
        """End as a process that is killed does: no goodbye, and what is queued is lost. For simulations."""
        if not self.stopping:
            self.stopping = True
            self._stopped_engine()
            self._close(0)

    def _close(self, linger: float) -> None:
        self._alarm.end()
        for transport in self._transports:
            transport.close(linger)

    def _stopped_engine(self) -> list[engines.Output]:
        self.engine.stop()
        return self.engine.take()

    def _closed(self) -> None:
        if self.stopping and not self.stopped and all(transport.closed for transport in self._transports):
            self.stopped = True
            if self._discovery is not None:
                for goodbye in self._goodbyes:
                    self._discovery.send(goodbye)
                self._discovery.close()
            self.on_stopped()

    # What the program asks

    def checked(self) -> Engine:
        if self.stopping:
            raise NodeStopped("the node is stopped")
        return self.engine

    def join(self, group: str) -> None:
        if self.checked().join(group):
            self._report(log.What.JOIN, None, group)
        self._pump()

    def leave(self, group: str) -> None:
        if self.checked().leave(group):
            self._report(log.What.LEAVE, None, group)
        self._pump()

    def whisper(self, peer: UUID, content: tuple[bytes, ...]) -> None:
        self.checked().whisper(peer, content)
        self._report(log.What.SEND, peer, "WHISPER")
        self._pump()

    def shout(self, group: str, content: tuple[bytes, ...]) -> int:
        count = self.checked().shout(group, content)
        self._report(log.What.SEND, None, f"SHOUT {group}")
        self._pump()
        return count

    def announce(self, service: str, endpoint: str) -> None:
        self.checked().announce(service, endpoint, self.reactor.time())
        self._pump()

    @property
    def peers(self) -> list[PeerInfo]:
        """All peers that are here now."""
        return [
            PeerInfo(peer.uuid, peer.name, peer.endpoint, dict(peer.headers), frozenset(peer.groups))
            for peer in self.engine.peers.values()
            if peer.ready
        ]

    @property
    def unsent(self) -> list[UUID]:
        """The peers whose queue is not empty."""
        return [peer.uuid for peer in self.engine.peers.values() if not self._dealers.drained(peer.key)]

    def next_event(self) -> Event | None:
        if not self.events:
            return None
        event = self.events.popleft()
        if len(self.events) == EVENTS_WAITING // 2:
            self.reactor.call_soon(self._mail)
        return event

    # What the network brings

    def _mail(self) -> None:
        """Messages have come to the mailbox."""
        now = self.reactor.time()
        while not self.stopping and len(self.events) < EVENTS_WAITING:
            batch = self._router.try_recv_batch()
            if batch is None:
                break
            self._receive(batch, now)

    def _receive(self, batch: Batch, now: float) -> None:
        receive = self.engine.receive
        for message in batch:
            receive(batch.sender, message, now)
        self._pump()

    def _datagram(self, octets: bytes, address: str) -> None:
        if not self.stopping:
            self.engine.receive_beacon(octets, address, self.reactor.time())
            self._pump()

    def _tick(self) -> None:
        if not self.stopping:
            now = self.reactor.time()
            if now >= self._next_look:
                self._look(now)
            self.engine.tick(now)
            self._pump()

    def _reached(self, peer: Peer) -> None:
        if peer.endpoint in self._seeds and not self.stopping:
            self.engine.reached(self._seeds[peer.endpoint], peer.identity, peer.address)
            self._pump()

    def _disturbed(self, key: bytes) -> None:
        if not self.stopping:
            self.engine.disturbed(key)
            self._pump()

    def _source_of(self, key: bytes) -> str:
        peer = self._router.peers.get(b"\x01" + key)
        return peer.address if peer is not None else ""

    def _pump(self) -> None:
        """Do what the engine wants done."""
        happened = False
        dealers = self._dealers
        while outputs := self.engine.take():
            for output in outputs:
                if isinstance(output, engines.Send):
                    if not dealers.send(output.peer, output.frames):
                        self.engine.unresponsive(output.peer)
                elif isinstance(output, Event):
                    self.events.append(output)
                    self._note(output)
                    happened = True
                elif isinstance(output, engines.Broadcast):
                    if self._discovery is not None:
                        self._discovery.send(output.octets)
                elif isinstance(output, engines.Connect):
                    try:
                        dealers.open(output.peer, output.endpoint)
                    except EndpointError:
                        self.engine.unreachable(output.peer)
                elif isinstance(output, engines.Adopt):
                    dealers.adopt(output.seed, output.peer)
                else:
                    dealers.shut(output.peer)
        self._alarm.set(min(self.engine.deadline, self._next_look))
        if happened:
            self.on_event()

    # Which address a peer can reach

    def _endpoint_for(self, address: str) -> str:
        """Our mailbox, as the peer at an address can reach it."""
        options = self.options
        port = self.endpoint.rpartition(":")[2]
        if isinstance(self._discovery, MemoryDiscovery):
            return self.endpoint
        if "://" in options.advertise:
            return options.advertise
        host = options.advertise or self._reachable(address)
        return f"tcp://{host}:{port}"

    def _reachable(self, address: str) -> str:
        if _numeric(address):
            for interface in self._interfaces:
                if interface.reaches(address):
                    return interface.address
            if interfaces.several(self.options.interface):
                # The mailbox is bound everywhere, so that it can be reached at whatever address leads to the peer.
                found = interfaces.local_address_for(address)
                if found and interfaces.fit_to_tell(found):
                    return found
        return self._interfaces[0].address

    def _host(self, chosen: Sequence[Interface]) -> str:
        """Where the mailbox is bound: where we are seen, and nowhere else."""
        return "*" if interfaces.several(self.options.interface) else chosen[0].address

    def _look(self, now: float) -> None:
        """Interfaces come and go, and change their address: be where they are."""
        self._next_look = now + LOOKS * self.options.interval
        chosen = interfaces.follow(self.options.interface, self._interfaces, interfaces.interfaces())
        if chosen == self._interfaces:
            return
        interfaces.routes_changed()
        there, here = (", ".join(map(str, some)) for some in (self._interfaces, chosen))
        try:
            self._move(chosen, now)
        except (EndpointError, ZreError) as error:
            _log.warning("cannot move from %s to %s, and will try again: %s", there, here, error)
        else:
            _log.info("moved from %s to %s; the mailbox is at %s", there, here, self.endpoint)
            self._warn_if_alone()

    def _move(self, chosen: list[Interface], now: float) -> None:
        before = self.engine.whereabouts()
        endpoint = self._bind_at(self._host(chosen))
        if self._discovery is not None:
            discovery = Broadcast(chosen, self.options.beacon_port)
            try:
                discovery.start(self.reactor, self._datagram)
            except ZreError:
                if endpoint != self.endpoint:
                    self._router.unbind(endpoint)
                raise
            self._discovery.close()
            self._discovery = discovery
        if endpoint != self.endpoint:
            self._router.unbind(self.endpoint)  # connections that are there stay
            self.endpoint = endpoint
        self._interfaces = chosen
        self.engine.move(int(endpoint.rpartition(":")[2]), before, now)
        if self._logger is not None:
            for where in set(self._log_services.values()):
                self._logger.disconnect(where)
                self._logger.connect(where)
        for follow in list(self.on_moved):
            follow()

    def _bind_at(self, host: str) -> str:
        """The mailbox at another address, at the same port if that can be had."""
        bound, _, port = self.endpoint.rpartition(":")
        if host == "*" or bound == f"tcp://{host}":
            return self.endpoint
        try:
            return self._router.bind(f"tcp://{host}:{port}")
        except EndpointError:
            if self.options.port:
                raise
            return self._router.bind(f"tcp://{host}:{EPHEMERAL}")

    def service_endpoint(self, name: str, ports: str) -> str:
        """Where a service that this node announces can bind, so that peers reach it like the mailbox."""
        if isinstance(self._discovery, MemoryDiscovery):
            return f"{self.endpoint}/{name}"
        return f"tcp://{self._interfaces[0].address}:{ports}"

    # ZRE/LOG

    def _note(self, event: Event) -> None:
        """Report what happened to the log services, and find new ones among the peers."""
        if self._logger is None:
            return
        if isinstance(event, Enter):
            self._find_log_service(event)
            self._report(log.What.ENTER, event.peer, event.name)
        elif isinstance(event, Exit):
            self._report(log.What.EXIT, event.peer, event.reason)
            where = self._log_services.pop(event.peer, None)
            if where is not None and where not in self._log_services.values():
                self._logger.disconnect(where)
        elif isinstance(event, Whisper):
            self._report(log.What.RECV, event.peer, "WHISPER")
        elif isinstance(event, Shout):
            self._report(log.What.RECV, event.peer, f"SHOUT {event.group}")

    def _find_log_service(self, event: Enter) -> None:
        where = event.headers.get(log.SERVICE)
        if where is None or self._logger is None:
            return
        known = where in self._log_services.values()
        self._log_services[event.peer] = where
        if not known:
            try:
                self._logger.connect(where)  # LOG-02
            except EndpointError:
                del self._log_services[event.peer]

    def _report(self, what: log.What, peer: UUID | None, text: str, level: log.Level = log.Level.INFO) -> None:
        """One LOG to every service that was found. (LOG-06)"""
        if self._logger is not None and self._log_services:
            millis = int(wall_clock() * 1000)
            ours, theirs = log.hash_of(self.options.uuid), log.hash_of(peer)
            self._logger.publish(log.Log(level, what, ours, theirs, millis, log.cut(text)).encode()[0])

    def queues(self) -> list[tuple[str, int, int]]:
        """Return name, length and bound of each queue. Of queues that every peer has, the longest counts."""
        transport = self._dealers.transport
        return [
            ("peers", len(self.engine.peers), self.options.max_peers),
            ("events", len(self.events), EVENTS_WAITING),
            ("octets, to a peer", transport.longest_queue, transport.send_octets),
        ]


def security_of(keys: KeyPair | None) -> tuple[CurveServer | Null, Authenticator | None]:
    """With a mesh key, who does not have its secret half gets in nowhere."""
    if keys is None:
        return Null(), None
    return CurveServer(keys), Authenticator(keys={"mesh": keys.public})


@lru_cache(maxsize=1024)
def _numeric(address: str) -> bool:
    try:
        IPv4Address(address)
    except ValueError:
        return False
    return True
