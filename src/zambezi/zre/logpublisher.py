"""The PUB socket by which a node reports to log services. (LOG-02)

A PUB drops messages to peers that have not subscribed, and a service that was just found has not subscribed yet. But
the logs of that moment are the most interesting ones. So up to 500 of them are kept for the service until it
subscribes.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Final

from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Pub
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.security import Security
from zambezi.zmtp.transport import Transport
from zambezi.zre.contact import endpoint_of

BACKLOG: Final = 500


class LogPublisher:
    """A PUB that keeps logs for services that have not subscribed yet."""

    def __init__(
        self,
        reactor: Reactor,
        options: Options,
        security_for: Callable[[str], Security],
        chance: random.Random | None = None,
    ) -> None:
        self._pub = Pub(reactor, options, chance)
        self._pub.on_subscribed = self._subscribed
        self._pub.on_unsubscribed = self._unsubscribed
        self._security_for = security_for
        self._backlogs: dict[Peer, deque[bytes]] = {}

    @property
    def transport(self) -> Transport:
        """The connections to the services."""
        return self._pub.transport

    def connect(self, contact: str) -> None:
        """Report to the service with a contact from now on."""
        peer = self.transport.connect(endpoint_of(contact), self._security_for(contact))
        self._backlogs[peer] = deque(maxlen=BACKLOG)

    def disconnect(self, contact: str) -> None:
        """Stop reporting to the service with a contact."""
        endpoint = endpoint_of(contact)
        self._backlogs.pop(self.transport.connected_to(endpoint), None)
        self._pub.disconnect(endpoint, 0)

    def publish(self, log: bytes) -> None:
        """Send a log to all services: now, or as soon as they have subscribed."""
        for backlog in self._backlogs.values():
            if len(backlog) == BACKLOG:
                self.transport.counters.dropped += 1
            backlog.append(log)
        self._pub.try_send(log)

    def _subscribed(self, peer: Peer, _prefix: bytes) -> None:
        for log in self._backlogs.pop(peer, ()):
            peer.send(log)

    def _unsubscribed(self, peer: Peer) -> None:
        """Keep logs again for a service whose connection is lost."""
        if self.transport.is_outgoing(peer) and peer.open:
            self._backlogs[peer] = deque(maxlen=BACKLOG)
