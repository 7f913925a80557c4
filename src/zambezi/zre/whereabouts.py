"""The whereabouts of a node: its interfaces, its discovery on them, and the endpoint of its mailbox.

A node follows the interfaces of its machine. Every few beacons it reads the list of interfaces. If those that it uses
have changed, it sends its beacons on the new ones, binds its mailbox there, and greets the peers again that know an
address of the mailbox which is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.patterns import Router
from zambezi.zmtp.reactor import Reactor
from zambezi.zre import interfaces
from zambezi.zre.contact import endpoint_at, for_others, host_of
from zambezi.zre.discovery import Broadcast, Discovery, MemoryDiscovery, Receive
from zambezi.zre.errors import ZreError
from zambezi.zre.interfaces import Interface
from zambezi.zre.options import NodeOptions

_log: Final = logging.getLogger("zambezi.zre")
EPHEMERAL: Final = "49152-65535"  # MBX-01
# The node reads the list of interfaces once in so many intervals of beacons.
LOOKS: Final = 3
_ADDRESSES: Final = 1024  # of peers, for which the endpoint of the mailbox is kept


class Whereabouts:
    """The interfaces, the discovery and the endpoint of a node. `receive` is called with each beacon."""

    def __init__(self, reactor: Reactor, options: NodeOptions, receive: Receive) -> None:
        self.endpoint = ""
        self.next_look = float("inf")  # at the interfaces
        self._reactor = reactor
        self._options = options
        self._receive = receive
        self._interfaces: list[Interface] = []
        self._told: dict[str, str] = {}  # endpoints of our mailbox, by the address of a peer
        self._discovery = self._make_discovery()

    def _make_discovery(self) -> Discovery | None:
        options = self._options
        if options.network is not None:
            return options.network.discovery()
        self._interfaces = interfaces.choose(options.interface, options.ipv6)
        self._warn_if_alone()
        if not options.sends_beacons:
            return None
        named = options.interface not in (None, "*")
        if named and any(one.is_ipv6 and one.where.is_loopback for one in self._interfaces):
            raise ZreError(
                "the loopback carries no multicast, and so no beacons of IPv6: give the node seeds=..., "
                "gossip_connect=..., or beacons=False"
            )
        return Broadcast(self._interfaces, options.beacon_port)

    def _warn_if_alone(self) -> None:
        if self._options.interface in (None, "*") and all(one.where.is_loopback for one in self._interfaces):
            _log.warning(
                "no network but the loopback is up: the node finds only nodes of this machine, until another network "
                "comes up; use interface='lo' if that is what you want"
            )

    def open(self, router: Router, now: float) -> int:
        """Bind the mailbox, and begin to receive beacons; return the port of the mailbox."""
        options = self._options
        if isinstance(self._discovery, MemoryDiscovery):
            port = options.port or 0xC000
            self.endpoint = router.bind(self._discovery.network.mailbox_at(self._discovery.address, port))
        else:
            self.endpoint = router.bind(endpoint_at(self._host(self._interfaces), options.port or EPHEMERAL))
            port = self.port
            self.next_look = now + LOOKS * options.interval
        if self._discovery is not None:
            self._discovery.start(self._reactor, self._receive)
        return port

    @property
    def has_beacons(self) -> bool:
        """Whether the node sends and receives beacons."""
        return self._discovery is not None

    @property
    def port(self) -> int:
        """The port of the mailbox."""
        return int(self.endpoint.rpartition(":")[2])

    def broadcast(self, octets: bytes) -> None:
        """Send a beacon, if the node sends any."""
        if self._discovery is not None:
            self._discovery.send(octets)

    def close(self) -> None:
        """Send and receive no more beacons."""
        if self._discovery is not None:
            self._discovery.close()

    def endpoint_for(self, address: str) -> str:
        """Return the endpoint of our mailbox that a peer at an address can reach, as others are told it."""
        options = self._options
        if isinstance(self._discovery, MemoryDiscovery):
            return self.endpoint
        if "://" in options.advertise:
            return options.advertise
        told = self._told.get(address)
        if told is None:
            if len(self._told) >= _ADDRESSES:
                self._told.clear()
            reachable = options.advertise or self._reachable(address)
            told = self._told[address] = for_others(endpoint_at(reachable, self.port))
        return told

    @property
    def scope(self) -> str:
        """The only interface of the node with IPv6, which a link-local address needs; empty if there is not one."""
        names = {one.name for one in self._interfaces if one.is_ipv6}
        return names.pop() if len(names) == 1 else ""

    def _reachable(self, address: str) -> str:
        if _numeric(address):
            for interface in self._interfaces:
                if interface.reaches(address):
                    return interface.address
            if interfaces.several(self._options.interface):
                # The mailbox is bound to all addresses, so the peer can use the one from which we reach the peer.
                try:
                    found = interfaces.local_address_for(address)
                except OSError:  # the process is out of descriptors
                    found = ""
                if found and interfaces.fit_to_tell(found):
                    return found
        return self._interfaces[0].address

    def _host(self, chosen: Sequence[Interface]) -> str:
        """Return the host to which the mailbox is bound: the address of our interface, and no other."""
        if not interfaces.several(self._options.interface):
            return chosen[0].address
        return "::" if any(one.is_ipv6 for one in chosen) else "*"

    def look(self, now: float) -> list[Interface] | None:
        """Return the interfaces to `move` to: those that are up now, if they are not the same as before."""
        self.next_look = now + LOOKS * self._options.interval
        try:
            found = interfaces.interfaces()
        except OSError as error:
            _log.warning("cannot list the interfaces of this machine, will try again: %s", error)
            return None
        chosen = interfaces.follow(self._options.interface, self._interfaces, found, self._options.ipv6)
        return None if chosen == self._interfaces else chosen

    def move(self, router: Router, chosen: list[Interface]) -> bool:
        """Bind the mailbox to other interfaces, and send beacons there; return False if that is impossible now."""
        interfaces.routes_changed()
        there, here = (", ".join(map(str, some)) for some in (self._interfaces, chosen))
        try:
            self._move(router, chosen)
        except (EndpointError, ZreError, OSError) as error:
            _log.warning("cannot move from %s to %s, will try again: %s", there, here, error)
            return False
        _log.info("moved from %s to %s; the mailbox is at %s", there, here, self.endpoint)
        self._warn_if_alone()
        return True

    def _move(self, router: Router, chosen: list[Interface]) -> None:
        endpoint = self._bind_at(router, self._host(chosen))
        if self._discovery is not None:
            discovery = Broadcast(chosen, self._options.beacon_port)
            try:
                discovery.start(self._reactor, self._receive)
            except ZreError:
                if endpoint != self.endpoint:
                    router.unbind(endpoint)
                raise
            self._discovery.close()
            self._discovery = discovery
        if endpoint != self.endpoint:
            router.unbind(self.endpoint)  # connections stay
            self.endpoint = endpoint
        self._told.clear()
        self._interfaces = chosen

    def _bind_at(self, router: Router, host: str) -> str:
        """Bind the mailbox to another host, to the same port if that is free; return the endpoint."""
        if host == "*" or host == host_of(self.endpoint):
            return self.endpoint
        try:
            return router.bind(endpoint_at(host, self.port))
        except EndpointError:
            if self._options.port:
                raise
            return router.bind(endpoint_at(host, EPHEMERAL))

    def service_endpoint(self, name: str, ports: str) -> str:
        """Return an endpoint to which a service of this node can bind, so that peers reach it like the mailbox."""
        if isinstance(self._discovery, MemoryDiscovery):
            return f"{self.endpoint}/{name}"
        return endpoint_at(self._interfaces[0].address, ports)


@lru_cache(maxsize=1024)
def _numeric(address: str) -> bool:
    try:
        ip_address(address)
    except ValueError:
        return False
    return True
