"""A node without waiting: the engine, its sockets and its beacons, put together on a reactor.

The faces (`asyncio`, `sync`) add the waiting for events, and nothing else.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from time import time as wall_clock
from typing import Final
from uuid import UUID, uuid4

from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.core import Core, Options
from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.patterns import Router
from zambezi.zmtp.pipe import Bound
from zambezi.zmtp.reactor import Reactor, Timer
from zambezi.zmtp.security import CurveClient, CurveServer, Null
from zambezi.zre import engine as engines
from zambezi.zre import log
from zambezi.zre.discovery import PORT, Broadcast, Discovery, MemoryDiscovery, MemoryNetwork
from zambezi.zre.engine import Engine
from zambezi.zre.errors import NodeStopped, ZreError
from zambezi.zre.events import Enter, Event, Exit, Shout, Whisper
from zambezi.zre.interfaces import Interface, choose, local_address_for
from zambezi.zre.logpublisher import LogPublisher
from zambezi.zre.mailbox import Dealers

EPHEMERAL: Final = "49152-65535"  # MBX-01
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


class NodeCore:
    """A node on a reactor. Made, then started; what happens is told by `on_event`."""

    def __init__(self, reactor: Reactor, name: str, options: NodeOptions, chance: random.Random | None = None) -> None:
        self.reactor = reactor
        self.options = options
        self.events: deque[Event] = deque()
        self.on_event: Callable[[], object] = lambda: None
        self.on_stopped: Callable[[], object] = lambda: None
        self.stopping = False
        self.stopped = False
        self.endpoint = ""
        self._timer: Timer | None = None
        self._goodbyes: list[bytes] = []
        self._armed = float("inf")  # when the timer fires
        self._interfaces: list[Interface] = []
        self._discovery = self._make_discovery()
        security, guard = security_of(options.keys)
        identity = b"\x01" + options.uuid.bytes  # MBX-03
        self._router = Router(
            reactor, Options(security=security, authenticator=guard, receive_bound=options.bound), chance, handover=True
        )
        client = CurveClient(options.keys.public, options.keys) if options.keys else Null()
        self._dealers = Dealers(reactor, Options(identity=identity, security=client, send_bound=options.bound), chance)
        self._logger = LogPublisher(reactor, Options(security=client, on_full="drop"), chance) if options.log else None
        self._log_services: dict[UUID, str] = {}
        self._cores: list[Core] = [core for core in (self._router, self._dealers, self._logger) if core is not None]
        self._router.on_readable = self._mail
        for core in self._cores:
            core.on_closed = self._closed
        self.engine = Engine(
            options.uuid,
            name,
            self._endpoint_for,
            reactor.time(),
            mailbox_at=options.network.mailbox_at if options.network else None,
            headers=options.headers,
            groups=options.groups,
            dialect=options.dialect,
            interval=options.interval,
            evasive=options.evasive,
            expired=options.expired,
            gossip=bool(options.seeds) or options.beacons is False,
        )

    def _make_discovery(self) -> Discovery | None:
        options = self.options
        if options.network is not None:
            return options.network.discovery()
        self._interfaces = choose(options.interface)
        if not self._interfaces:
            raise ZreError("no network interface is up; name one with interface=..., as in interface='lo'")
        # Seeds are for networks without broadcast: then no beacon is sent unless it is asked for.
        if not (options.beacons if options.beacons is not None else not options.seeds):
            return None
        return Broadcast(self._interfaces, options.beacon_port)

    # The life of a node

    def start(self) -> None:
        options = self.options
        now = self.reactor.time()
        if isinstance(self._discovery, MemoryDiscovery):
            port = options.port or 0xC000
            network = self._discovery.network
            self.endpoint = self._router.bind(network.mailbox_at(self._discovery.address, port))
        else:
            host = self._interfaces[0].address if len(self._interfaces) == 1 else "*"
            self.endpoint = self._router.bind(f"tcp://{host}:{options.port or EPHEMERAL}")
            port = int(self.endpoint.rpartition(":")[2])
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
        # who has heard it does not listen to what is still under way.
        self._goodbyes = [output.octets for output in self._stopped_engine() if isinstance(output, engines.Broadcast)]
        self._close(linger)

    def crash(self) -> None:
        """End as a process that is killed does: no goodbye, and what is queued is lost. For simulations."""
        if not self.stopping:
            self.stopping = True
            self._stopped_engine()
            self._close(0)

    def _close(self, linger: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for core in self._cores:
            core.close(linger)

    def _stopped_engine(self) -> list[engines.Output]:
        self.engine.stop()
        return self.engine.take()

    def _closed(self) -> None:
        if self.stopping and not self.stopped and all(core.closed for core in self._cores):
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
        return [
            PeerInfo(peer.uuid, peer.name, peer.endpoint, dict(peer.headers), frozenset(peer.groups))
            for peer in self.engine.peers.values()
            if peer.ready
        ]

    @property
    def unsent(self) -> list[UUID]:
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
        self._timer = None
        self._armed = float("inf")
        if not self.stopping:
            self.engine.tick(self.reactor.time())
            self._pump()

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
        self._arm()
        if happened:
            self.on_event()

    def _arm(self) -> None:
        """Be called when the engine wants to be. An early tick does no harm, so a timer is only moved forward."""
        deadline = self.engine.deadline
        if deadline >= self._armed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed = deadline
        self._timer = self.reactor.call_at(deadline, self._tick)

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
        for interface in self._interfaces:
            if address and _numeric(address) and interface.reaches(address):
                return interface.address
        found = local_address_for(address) if _numeric(address) else ""
        ours = [interface.address for interface in self._interfaces]
        return found if found and (len(ours) > 1 or found in ours) else ours[0]

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
                self._logger.disconnect(where, 0)
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

    @property
    def logs_dropped(self) -> int:
        """How many logs a service was too slow for."""
        return self._logger.counters.dropped if self._logger is not None else 0


def security_of(keys: KeyPair | None) -> tuple[CurveServer | Null, Authenticator | None]:
    """With a mesh key, who does not have its secret half gets in nowhere."""
    if keys is None:
        return Null(), None
    return CurveServer(keys), Authenticator(keys={"mesh": keys.public})


def _numeric(address: str) -> bool:
    try:
        IPv4Address(address)
    except ValueError:
        return False
    return True
