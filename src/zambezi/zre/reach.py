"""The endpoints of other nodes to which a node connects.

HELLO and gossip name endpoints, and any host can send them. A node connects only where a mailbox of its own network
can be: to `tcp://` on a real network, never to a Unix socket or to a name within the process.

36/ZRE does not say that the host in HELLO is the address from which HELLO came, and on machines with several addresses,
or behind a router, it is another one. So any host is accepted, except those that mean "this machine" (loopback and
unspecified addresses) or many machines (multicast). A loopback address is accepted from peers on loopback.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

from zambezi.zmtp import endpoint as endpoints
from zambezi.zmtp.endpoint import Inproc, Tcp
from zambezi.zmtp.errors import EndpointError

_LOCAL_NAMES: Final = ("localhost", "ip6-localhost", "ip6-loopback")


class Reach:
    """The endpoints that a node accepts. With `memory`, its network is in memory, and so are all mailboxes."""

    def __init__(self, memory: bool = False) -> None:
        self._memory = memory

    def accepts(self, endpoint: str, source: str) -> bool:
        """Return whether the node connects to an endpoint that a peer at the address `source` named.

        >>> reach = Reach()
        >>> reach.accepts("tcp://10.0.0.7:49152", "10.0.0.9"), reach.accepts("ipc:///run/docker.sock", "10.0.0.9")
        (True, False)
        >>> reach.accepts("tcp://127.0.0.1:22", "10.0.0.9"), reach.accepts("tcp://127.0.0.1:49152", "127.0.0.1")
        (False, True)
        """
        return _accepts(endpoint, source, self._memory)


@lru_cache(maxsize=1024)  # a node says the same endpoint in every HELLO
def _accepts(endpoint: str, source: str, memory: bool) -> bool:
    try:
        parsed = endpoints.parse(endpoint)
    except EndpointError:
        return False
    if memory:
        return isinstance(parsed, Inproc)
    return isinstance(parsed, Tcp) and (_is_elsewhere(parsed.host) or _is_loopback(parsed.host, source))


def _is_elsewhere(host: str) -> bool:
    """Return whether a host can be another machine. The resolver decides what a name means."""
    try:
        address = _address(host)
    except ValueError:
        return not host.lower().rstrip(".").endswith(_LOCAL_NAMES)
    return not (address.is_loopback or address.is_unspecified or address.is_multicast)


def _is_loopback(host: str, source: str) -> bool:
    """Return whether a host is on loopback, as is the peer that named it."""
    try:
        local = host.lower() in _LOCAL_NAMES or _address(host).is_loopback
        return local and _address(source).is_loopback
    except ValueError:
        return False


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address; an IPv4 address in the form of IPv6 is the IPv4 address."""
    address = ipaddress.ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address
