"""The reports of a node: what it does and sees goes to the log services of the mesh, by ZRE/LOG."""

from __future__ import annotations

import random
from collections.abc import Callable
from time import time as wall_clock
from uuid import UUID

from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.options import Options
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.security import Security
from zambezi.zmtp.transport import Transport
from zambezi.zre import log
from zambezi.zre.events import Enter, Event, Exit, Shout, Whisper
from zambezi.zre.logpublisher import LogPublisher


class Reporter:
    """Reports what a node does to every log service among its peers.

    `locate` returns the contact to connect to for an endpoint that a peer named; empty if it is refused.
    """

    def __init__(
        self,
        uuid: UUID,
        reactor: Reactor,
        options: Options,
        security_for: Callable[[str], Security],
        locate: Callable[[UUID, str], str],
        chance: random.Random | None = None,
    ) -> None:
        self._hash = log.hash_of(uuid)
        self._locate = locate
        self._publisher = LogPublisher(reactor, options, security_for, chance)
        self._services: dict[UUID, str] = {}  # the contacts of services, by the peer that offers one

    @property
    def transport(self) -> Transport:
        """The connections to the services."""
        return self._publisher.transport

    def note(self, event: Event) -> None:
        """Report an event; a peer that enters can offer a service, which then gets this report too."""
        match event:
            case Enter():
                self._find_service(event)
                self.report(log.What.ENTER, event.peer, event.name)
            case Exit():
                self.report(log.What.EXIT, event.peer, event.reason)
                self._lose_service(event.peer)
            case Whisper():
                self.report(log.What.RECV, event.peer, "WHISPER")
            case Shout():
                self.report(log.What.RECV, event.peer, f"SHOUT {event.group}")

    def report(self, what: log.What, peer: UUID | None, text: str) -> None:
        """Send one LOG to every service. (LOG-06)"""
        if self._services:
            millis = int(wall_clock() * 1000)
            record = log.Log(log.Level.INFO, what, self._hash, log.hash_of(peer), millis, log.cut(text))
            self._publisher.publish(record.encode()[0])

    def reconnect(self) -> None:
        """Make new connections to all services: the node has another address."""
        for endpoint in set(self._services.values()):
            self._publisher.disconnect(endpoint)
            self._publisher.connect(endpoint)

    def _find_service(self, event: Enter) -> None:
        endpoint = self._locate(event.peer, event.headers.get(log.SERVICE, ""))
        if not endpoint:
            return
        known = endpoint in self._services.values()
        self._services[event.peer] = endpoint
        if not known:
            try:
                self._publisher.connect(endpoint)  # LOG-02
            except EndpointError:
                del self._services[event.peer]

    def _lose_service(self, peer: UUID) -> None:
        endpoint = self._services.pop(peer, None)
        if endpoint is not None and endpoint not in self._services.values():
            self._publisher.disconnect(endpoint)
