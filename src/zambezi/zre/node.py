"""The shell of a node: the engine, its sockets and its beacons, on a reactor. It never waits; the faces do."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

from zambezi.zmtp import endpoint as endpoints
from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.options import Options
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.transport import Transport
from zambezi.zre import bounds, log
from zambezi.zre.bell import Bell
from zambezi.zre.contact import endpoint_of, key_of, with_key
from zambezi.zre.counters import Refusals
from zambezi.zre.discovery import Datagram
from zambezi.zre.ending import Ending
from zambezi.zre.engine import Engine
from zambezi.zre.errands import Errands
from zambezi.zre.errors import NodeStopped, ZreError
from zambezi.zre.events import Event
from zambezi.zre.hub import Hub
from zambezi.zre.mailbox import Dealers, Mailbox, dealer_options
from zambezi.zre.options import SMALL, NodeOptions
from zambezi.zre.peer_info import PeerInfo, info_of
from zambezi.zre.reach import Reach
from zambezi.zre.reporter import Reporter
from zambezi.zre.security import NodeSecurity
from zambezi.zre.sending import Sender, Shouting
from zambezi.zre.stalls import Stalls
from zambezi.zre.trace import Trace
from zambezi.zre.tuples import Tuples
from zambezi.zre.unread import EVENTS_WAITING, Unread
from zambezi.zre.whereabouts import Whereabouts

_log: Final = logging.getLogger("zambezi.zre")


class NodeShell:
    """A node on a reactor. It calls `on_event` when `next_event` has something new."""

    def __init__(self, reactor: Reactor, name: str, options: NodeOptions, chance: random.Random | None = None) -> None:
        self.reactor = reactor
        self.options = options
        self.events = Unread(options.bound.octets)
        self.on_event: Callable[[], object] = lambda: None
        self.on_stopped: Callable[[], object] = lambda: None
        self.on_room: Callable[[], object] = lambda: None  # for messages that wait for room
        self.on_moved: list[Callable[[], object]] = []
        self.stopped = False
        self._bell: Bell | None = None
        self._alarm = Alarm(reactor, self._tick)
        # The seeds by their endpoints as sockets write them.
        self._seeds = {str(endpoints.parse(endpoint_of(seed))): seed for seed in options.seeds}
        self.security = security = NodeSecurity(options.keys, options.node_keys, options.allowed)
        for contact in (*options.seeds, *options.gossip_connect):
            security.client(contact)  # raises an error now if the contact has no key, but needs one
        self._whereabouts = whereabouts = Whereabouts(reactor, options, self._receive_beacons)
        self.endpoint_for = whereabouts.endpoint_for
        self.service_endpoint = whereabouts.service_endpoint
        self._mailbox = Mailbox(reactor, options, security, chance, self._admits)
        self._dealers = Dealers(reactor, dealer_options(options), security.client, chance)
        self._reach = Reach(
            memory=options.network is not None,
            scope=lambda: whereabouts.scope,
            allows=security.allows if security.has_node_keys else None,
        )
        self._reporter = (
            Reporter(
                options.uuid,
                reactor,
                Options(on_full="drop", limits=SMALL),
                security.client,
                self._locate_service,
                chance,
            )
            if options.log
            else None
        )
        sockets = (self._mailbox, self._dealers, self._reporter)
        self._transports: list[Transport] = [socket.transport for socket in sockets if socket is not None]
        self._mailbox.read = self._read
        self._mailbox.on_readable = self._read_waiting
        self._dealers.on_room = self._has_room_again
        self._dealers.on_lost = lambda key: reactor.call_soon(self._connection_lost, key)
        self._dealers.on_reached = lambda key, identity: reactor.call_soon(self._mailbox_reached, key, identity)
        if self._seeds:
            self._dealers.on_attached = self._reached
        for transport in self._transports:
            transport.on_closed = self._closed
        self.engine = Engine(
            options.uuid,
            name,
            self.endpoint_for,
            mailbox_at=options.network.mailbox_at if options.network else None,
            source_of=self._mailbox.source_of,
            connects_to_us=self._mailbox.is_connected,
            has_unread=lambda key: self.events.held_back or self._mailbox.has_unread(key),
            reach=self._reach,
            is_connected=self._dealers.is_connected,
            public_key=security.public_key,
            key_of=self._mailbox.key_of if security.has_node_keys else None,
            proves=self._proves if security.is_encrypted else None,
            headers=options.headers,
            groups=[*options.groups, *options.contest],
            dialect=options.dialect,
            interval=options.interval,
            evasive=options.evasive,
            expired=options.expired,
            gossip=not options.sends_beacons or bool(options.seeds),
            max_peers=options.max_peers,
            max_strangers=options.max_strangers,
            # Pyre, which does not know Zyre's commands, finds others by beacons alone.
            all_elect=options.all_elect or (options.uses_zgossip and not options.sends_beacons),
        )
        self._errands = Errands(self.engine, self._dealers, whereabouts.broadcast, self.events, self._reporter)
        self._ending = Ending(reactor, self.engine, self._dealers, self._close)
        self.set_trace(options.trace)
        self._dealers.stalls = Stalls(self.engine.timing)
        self._sender = Sender(self.engine, options, self._dealers.has_room)
        self._refusals = Refusals(self.engine.counters)
        self._generation = security.generation
        if security.public_key[:1] == b"\0" and options.sends_beacons:
            _log.warning(
                "the public key of %s begins with a zero byte: Zyre nodes ignore beacons with such a key; make another",
                name,
            )
        self._hub = self._errands.hub = self._make_hub(chance) if options.uses_zgossip else None

    def _make_hub(self, chance: random.Random | None) -> Hub:
        """Return the connections by zgossip, which are not open yet."""
        engine, security = self.engine, self.security
        tuples = Tuples(
            engine.uuid,
            engine.counters,
            most=min(self.options.max_peers, bounds.TUPLES),
            grace=self.options.expired,
            is_peer=lambda uuid: uuid.bytes in engine.peers and engine.peers[uuid.bytes].ready,
        )
        guarded = (security.server, security.authenticator)
        hub = Hub(self.reactor, tuples, guarded, security.client, self._told, chance)
        for transport in hub.transports:
            transport.on_closed = self._closed
        self._transports += hub.transports
        return hub

    def _told(self, uuid: UUID, contact: str, source: str) -> None:
        """Meet a node of which a hub or a client told us."""
        if not self.stopping:
            self.engine.meetings.told(uuid, contact, source, self.reactor.time())
            self._pump()

    @property
    def endpoint(self) -> str:
        """The endpoint of the mailbox; empty before the start."""
        return self._whereabouts.endpoint

    # The life of a node

    def start(self) -> None:
        """Open the mailbox, and begin to look for peers. A node that runs already is left alone."""
        if self.stopping:
            raise NodeStopped("the node was stopped, and cannot start again; make a new one")
        if self.endpoint:
            return
        now = self.reactor.time()
        try:
            port = self._whereabouts.open(self._mailbox, now)
            if self._hub is not None:
                self._hub.open(self.options.gossip_bind, self.options.gossip_connect, self._contact())
        except (ZreError, EndpointError):
            self.crash()  # so that nothing stays open
            raise
        self.engine.start(port, now, beacons=self._whereabouts.has_beacons)
        for seed in self.options.seeds:
            self.engine.rendezvous.add_seed(seed, now)
        for group in self.options.contest:
            self.engine.elections.contest(group)
        self._pump()

    def _contact(self) -> str:
        """Return our contact, as zgossip tells it to all."""
        return with_key(self.endpoint_for(""), self.security.public_key)

    @property
    def gossip_endpoint(self) -> str:
        """The endpoint at which this node is a hub of zgossip; empty if it is none."""
        return self._hub.endpoint if self._hub is not None else ""

    @property
    def missing_hubs(self) -> list[str]:
        """The endpoints of the hubs of zgossip to which there is no connection now."""
        return self._hub.missing if self._hub is not None else []

    @property
    def missing_seeds(self) -> list[str]:
        """The endpoints of the seeds that have not answered yet."""
        return [seed.endpoint for seed in self.engine.rendezvous.seeds if seed.key is None]

    def stop(self, linger: float | None = None) -> None:
        """Let peers read the last messages, say goodbye and close, within `linger` seconds.

        `on_stopped` is called when everything is closed.
        """
        if self.stopping:
            return
        wanted = self.options.linger if linger is None else linger
        self._ending.begin(wanted if self.endpoint else 0)
        self._ring()
        if not self._ending.closing:
            self._pump()

    def crash(self) -> None:
        """End like a killed process: without a goodbye, and with the queues lost. For simulations."""
        if not self.stopping:
            self._ending.crash()
            self._ring()

    @property
    def stopping(self) -> bool:
        """Whether the end of the node has begun, so that the program can do nothing more."""
        return self._ending.begun

    def _ring(self) -> None:
        """Wake a program that polls the node: there are events, or the node is stopped."""
        if self._bell is not None:
            self._bell.ring()

    def _close(self, linger: float) -> None:
        self._alarm.end()
        if self._hub is not None:
            self._hub.end()
        for transport in self._transports:
            transport.close(linger)

    def _closed(self) -> None:
        if self.stopping and not self.stopped and all(transport.closed for transport in self._transports):
            self.stopped = True
            for goodbye in self._ending.goodbyes:
                self._whereabouts.broadcast(goodbye)
            self._whereabouts.close()
            self.on_stopped()

    # For the program

    def checked(self) -> Engine:
        """Return the engine; raise `NodeStopped` if the node is stopped."""
        if self.stopping:
            raise NodeStopped("the node is stopped")
        return self.engine

    def join(self, group: str, contest: bool = False) -> None:
        """Join a group, and tell all peers; claim its lead if `contest` says so."""
        if self.checked().join(group, contest):
            self._report(log.What.JOIN, None, group)
        self._pump()

    def leave(self, group: str) -> None:
        """Leave a group, and tell all peers."""
        if self.checked().leave(group):
            self._report(log.What.LEAVE, None, group)
        self._pump()

    def whisper(self, uuid: UUID, content: tuple[bytes, ...]) -> bool | None:
        """Send a message to one peer; return None if it must wait for room, and False if it was dropped."""
        self.checked()
        sent = self._sender.whisper(uuid, content)
        if sent:
            self._report(log.What.SEND, uuid, "WHISPER")
        self._pump()
        return sent

    def shout(self, group: str, content: tuple[bytes, ...]) -> Shouting:
        """Send a message to all peers in a group; `go_on` sends it to those that have no room yet."""
        self.checked()
        shouting = self._sender.shout(group, content)
        self._report(log.What.SEND, None, f"SHOUT {group}")
        self._pump()
        return shouting

    def go_on(self, shouting: Shouting) -> int | None:
        """Send a SHOUT to the peers that have room now; return the number of peers that got it, or None to wait."""
        self.checked()
        shouting.forget_those_gone()
        shouting.send()
        self._pump()
        return None if shouting.waiting else shouting.count

    def _has_room_again(self) -> None:
        self.on_room()

    def change(self, action: Callable[..., None], *arguments: object) -> None:
        """Let a method of the engine change something; raise `NodeStopped` if the node is stopped."""
        self.checked()
        action(*arguments, self.reactor.time())
        self._pump()

    def announce(self, service: str, endpoint: str) -> None:
        """Offer a service at an endpoint."""
        self.change(self.engine.set_header, service, endpoint)

    def set_timing(self, interval: float | None, evasive: float | None, expired: float | None) -> None:
        """Change the times that are given."""
        now = self.engine.timing
        self.change(
            self.engine.set_timing,
            now.interval if interval is None else interval,
            now.evasive if evasive is None else evasive,
            now.expired if expired is None else expired,
        )

    def add_seed(self, contact: str) -> None:
        """Add a seed to those of the options."""
        endpoint = str(endpoints.parse(endpoint_of(contact)))
        if self.options.network is not None:
            raise ZreError("a node in a memory network finds its peers there, and has no seeds")
        self.security.client(contact)  # raises an error if the contact has no key, but needs one
        self._seeds[endpoint] = contact
        self._dealers.on_attached = self._reached
        self.change(self.engine.add_seed, contact)

    def require_peer(self, uuid: UUID, contact: str) -> None:
        """Meet a node that the program knows by other means, again and again if it is lost."""
        self.security.client(contact)
        endpoints.parse(endpoint_of(contact))
        self.change(self.engine.rendezvous.require, uuid, contact)

    def forget(self, uuid: UUID) -> None:
        """Forget the contact of a node that is gone."""
        self.engine.rendezvous.forget(uuid)
        if self._hub is not None:
            self._hub.tuples.forget(uuid)

    def set_trace(self, on: bool) -> None:
        """Begin or end the trace."""
        self._errands.trace = Trace(self.engine.profile.name, self.engine.peers) if on else None

    def fileno(self) -> int:
        """Return a descriptor that is readable while events wait, and when the node has stopped."""
        if self._bell is None:
            self._bell = Bell()
            if self.events or self.stopping:
                self._bell.ring()
        return self._bell.fileno()

    @property
    def peers(self) -> list[PeerInfo]:
        """All peers that are ready now."""
        return [info_of(peer) for peer in self.engine.peers.values() if peer.ready]

    def peer(self, uuid: UUID) -> PeerInfo | None:
        """Return a peer that is ready now; None if it is not."""
        peer = self.engine.peers.get(uuid.bytes)
        return info_of(peer) if peer is not None and peer.ready else None

    @property
    def unsent(self) -> list[UUID]:
        """The peers whose queue is not empty."""
        return [peer.uuid for peer in self.engine.peers.values() if not self._dealers.drained(peer.key)]

    def next_event(self) -> Event | None:
        """Return the next event, or None; read from peers again when half of the events are read."""
        if not self.events:
            return None
        event = self.events.popleft()
        if self._bell is not None and not self.events and not self.stopping:
            self._bell.silence()
        if self.events.held_back and self.events.release():
            self.reactor.call_soon(self._read_waiting)
        return event

    # From the network

    def _read(self, batch: Batch) -> bool:
        """Receive messages that came to the mailbox; return False if they must wait for room for events."""
        if self._ending.closing or (self.events.hold_back() and not self.stopping):
            return False
        now = self.reactor.time()
        self._receive(batch, now)
        self._log_refusals(now)
        return True

    def _read_waiting(self) -> None:
        """Receive the messages that wait in the mailbox, as long as there is room for events."""
        inbox = self._mailbox.inbox
        while not (self._ending.closing or (self.events.hold_back() and not self.stopping)):
            batch = inbox.next_batch()
            if batch is None:
                break
            self._receive(batch, self.reactor.time())
        self._log_refusals(self.reactor.time())

    def _log_refusals(self, now: float) -> None:
        if news := self._refusals.news(now):
            _log.warning("%s: %s", self.engine.profile.name, news)

    def _receive(self, batch: Batch, now: float) -> None:
        receive = self.engine.receive
        self.events.note(batch.octets)
        for message in batch:
            if self._errands.trace is not None:
                self._errands.trace.received(batch.sender, message)
            receive(batch.sender, message, now)
        self._pump()

    def _receive_beacons(self, beacons: list[Datagram]) -> None:
        if self._ending.closing:
            return
        receive, trace, now = self.engine.receive_beacon, self._errands.trace, self.reactor.time()
        news = False
        for octets, address in beacons:
            if trace is not None:
                trace.received_beacon(octets, address)
            if receive(octets, address, now):
                news = True
        if news:
            self._pump()

    def _tick(self) -> None:
        if not self._ending.closing:
            now = self.reactor.time()
            try:
                if now >= self._whereabouts.next_look:
                    self._look_at_interfaces(now)
                    self._look_at_keys()
            finally:
                self.engine.tick(now)
                for key in self._dealers.unresponsive(now):
                    self.engine.unresponsive(key)
                self._pump()
                self._log_refusals(now)

    def _look_at_interfaces(self, now: float) -> None:
        """Move to the interfaces that are up now, if they are not the same as before."""
        chosen = self._whereabouts.look(now)
        if chosen is None:
            return
        before = self.engine.endpoints_told()
        if self._whereabouts.move(self._mailbox, chosen):
            self.engine.move(self._whereabouts.port, before, now)
            if self._hub is not None:
                self._hub.publish(self._contact())
            if self._reporter is not None:
                self._reporter.reconnect()
            for follow in list(self.on_moved):
                follow()

    def _look_at_keys(self) -> None:
        """End the peers whose keys are no longer allowed. (The mailbox reads a directory of keys once in a second.)"""
        if self.security.has_node_keys and self.security.generation != self._generation:
            self._generation = self.security.generation
            self.engine.meetings.end_refused()

    def _reached(self, peer: Peer) -> None:
        if peer.endpoint in self._seeds and not self._ending.closing:
            self.engine.rendezvous.reached(self._seeds[peer.endpoint], peer.identity, peer.address)
            self._pump()

    def _connection_lost(self, key: bytes) -> None:
        if self._ending.closing:
            self._ending.lost(key)
        else:
            if not self.stopping:  # a PING would wait for a connection that will not come
                self.engine.connection_lost(key, self.reactor.time())
            self._pump()

    def _mailbox_reached(self, key: bytes, identity: bytes) -> None:
        if not self._ending.closing:
            self.engine.reached(key, identity, self.reactor.time())
            self._pump()

    def _locate_service(self, peer: UUID, endpoint: str) -> str:
        """Return the contact to connect to for a service that a peer named; empty if it is refused."""
        key = self._mailbox.key_of(peer.bytes) if self.security.has_node_keys else b""
        return self._reach.locate(with_key(endpoint, key), self._mailbox.source_of(peer.bytes))

    def _admits(self, connection: Peer, identity: bytes) -> bool:
        """Return whether a connection may speak for a peer: it must have the key that the peer had in its HELLO."""
        peer = self.engine.peers.get(identity[1:]) if self.security.has_node_keys else None
        allowed = peer is None or not peer.ready or key_of(peer.endpoint) == connection.key
        self.engine.counters.refused_keys += not allowed
        return allowed

    def _proves(self, key: bytes) -> bool:
        """Return whether our encrypted connection to a peer has reached that peer."""
        if self.security.has_node_keys:
            return bool(self._mailbox.key_of(key)) and self._dealers.proved_key(key) == self._mailbox.key_of(key)
        return self._dealers.reached(key)

    def _pump(self) -> None:
        """Do what the engine says."""
        stopping = self._ending.begun
        happened, closed = self._errands.run(stopping)
        self._alarm.set(min(self.engine.deadline, self._whereabouts.next_look, self._dealers.stalls.deadline))
        if happened:
            if self._bell is not None:
                self._bell.ring()
            self.on_event()
        if stopping:
            self._ending.go_on()
        if closed:
            self.on_room()  # nothing waits any more for peers that are gone

    def _report(self, what: log.What, peer: UUID | None, text: str) -> None:
        if self._reporter is not None:
            self._reporter.report(what, peer, text)

    def queues(self) -> list[tuple[str, int, int]]:
        """Return name, length and bound of each queue. Of queues that every peer has, the longest counts."""
        transport = self._dealers.transport
        return [
            ("peers", len(self.engine.peers), self.options.max_peers),
            ("events", len(self.events), EVENTS_WAITING),
            *([("tuples", len(self._hub.tuples), bounds.TUPLES)] if self._hub is not None else []),
            ("outgoing", transport.longest_queue, transport.send_bytes),
        ]
