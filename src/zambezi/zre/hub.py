"""The sockets of zgossip: a ROUTER at which the node is a hub, and a DEALER to each hub of which it is a client."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final
from uuid import UUID

from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.connection import Heartbeat, Limits
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.security import Security
from zambezi.zmtp.transport import Transport
from zambezi.zre import bounds
from zambezi.zre.contact import endpoint_of
from zambezi.zre.tuples import CutOff, Found, Send, Tuples

_LIMITS: Final = Limits(frame=2048, message=2048)
# Connections that were cut off without a word must end, because their tuples stay for as long as they last.
_HEARTBEAT: Final = Heartbeat(interval=10.0, timeout=20.0)
_QUEUE: Final = Bound(messages=4 * bounds.TUPLES)
_AT_ONCE: Final = 100  # messages of a link that are read before other sockets have their turn
_TOO_SLOW: Final = "it does not read the tuples that it is sent"


class Hub:
    """The connections of a node by zgossip. `on_found` is called with a node, and the address of the link that told it.

    `security_for` returns the security of a connection to the hub with a contact.
    """

    def __init__(
        self,
        reactor: Reactor,
        tuples: Tuples,
        security: tuple[Security, Authenticator | None],
        security_for: Callable[[str], Security],
        on_found: Callable[[UUID, str, str], object],
        chance: random.Random | None = None,
    ) -> None:
        self.endpoint = ""
        self.tuples = tuples
        self._reactor = reactor
        self._security_for = security_for
        self._on_found = on_found
        self._alarm = Alarm(reactor, self._tick)
        self._unread: dict[Peer, Iterator[list[bytes]]] = {}  # messages of links, the next link first
        self._is_reading = False  # now, or soon
        server, guard = security
        options = Options(limits=_LIMITS, heartbeat=_HEARTBEAT, send_bound=_QUEUE)
        self._hubs: list[Peer] = []
        self._clients = Transport(reactor, "DEALER", self, options, chance=chance)
        options = replace(options, security=server, authenticator=guard)
        self._server = Transport(reactor, "ROUTER", self, options, chance=chance)
        self.transports = [self._server, self._clients]

    def open(self, bind: str, hubs: Sequence[str], contact: str) -> None:
        """Publish our contact, accept clients at an endpoint, if there is one, and connect to hubs."""
        self.publish(contact)
        if bind:
            self.endpoint = self._server.bind(bind)
        for hub in hubs:
            self._hubs.append(self._clients.connect(endpoint_of(hub), self._security_for(hub)))
        self.pump()

    @property
    def missing(self) -> list[str]:
        """The endpoints of the hubs to which there is no connection now."""
        return [hub.endpoint for hub in self._hubs if not hub.connected]

    def publish(self, contact: str) -> None:
        """Tell all of our contact, which is new."""
        self.tuples.publish(contact, self._reactor.time())
        self.pump()

    def entered(self, uuid: UUID) -> None:
        """Note that a node is a peer of ours now."""
        self.tuples.entered(uuid)

    def ended(self, uuid: UUID) -> None:
        """Note that a node is no peer of ours any more."""
        self.tuples.ended(uuid, self._reactor.time())
        self.pump()

    def end(self) -> None:
        """Do nothing more by the clock."""
        self._alarm.end()

    # Called by the transports

    def attached(self, peer: Peer) -> None:
        peer.take_queue()  # a hub knows nothing of us on a new connection: HELLO must come first
        self.tuples.attached(peer, self._reactor.time(), is_hub=self._clients.is_outgoing(peer))
        self.pump()

    def received(self, peer: Peer, batch: Batch) -> None:
        peer.pause()
        self._unread[peer] = iter(batch)
        if not self._is_reading:
            self._read()

    def _read(self) -> None:
        """Read some messages of one link, and those of the others when other sockets have had their turn."""
        self._is_reading = True
        peer = next(iter(self._unread), None)
        if peer is not None:
            messages = self._unread.pop(peer)
            some = list(islice(messages, _AT_ONCE))
            now = self._reactor.time()
            for message in some:
                self.tuples.receive(peer, message, now)
            if len(some) == _AT_ONCE:
                self._unread[peer] = messages  # behind the others
            self.pump()  # the link can end by that
            if peer not in self._unread:
                peer.resume()
        if self._unread:
            self._reactor.call_soon(self._read)
        else:
            self._is_reading = False

    def writable(self, peer: Peer) -> None:
        """Do nothing: a link that has no room is cut off."""

    def lost(self, peer: Peer, reason: str) -> None:
        self._unread.pop(peer, None)
        self.tuples.lost(peer, self._reactor.time())
        self.pump()

    def _tick(self) -> None:
        self.tuples.tick(self._reactor.time())
        self.pump()

    def pump(self) -> None:
        """Do what the engine says."""
        while batch := self.tuples.take():
            for output in batch:
                link = output.link
                assert isinstance(link, Peer)
                if isinstance(output, Send):
                    if link.connected and not link.try_send(output.octets):
                        self._cut_off(link, _TOO_SLOW)
                elif isinstance(output, Found):
                    self._on_found(output.uuid, output.contact, link.address)
                elif isinstance(output, CutOff):
                    self._cut_off(link, output.reason)
        self._alarm.set(self.tuples.deadline)

    def _cut_off(self, link: Peer, reason: str) -> None:
        transport = self._clients if self._clients.is_outgoing(link) else self._server
        transport.cut_off(link, reason)
