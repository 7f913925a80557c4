"""The contacts of other nodes to which a node connects.

HELLO, gossip and zgossip name contacts, and any host can send them. A node connects only where a mailbox of its own
network can be: to `tcp://` on a real network, never to a Unix socket or to a name within the process.

36/ZRE does not say that the host in HELLO is the address from which HELLO came, and on machines with several addresses,
or behind a router, it is another one. So any host is accepted, except those that mean "this machine" (loopback and
unspecified addresses) or many machines (multicast). A loopback address is accepted from peers on loopback.

A link-local address of IPv6 is accepted together with the interface of ours by which the teller reaches us: the one in
the address of the teller, or else the only one that the node uses. An interface that the teller named is its own, and
does not count.

If our node has keys of its own, a contact must have a public key, and the operator must have allowed that key. If our
node has none, a contact must have none.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from zambezi.zmtp import endpoint as endpoints
from zambezi.zmtp.endpoint import Inproc, Tcp
from zambezi.zmtp.errors import EndpointError
from zambezi.zre.contact import endpoint_at, endpoint_of, host_of, is_link_local, key_of, port_of, with_key

_LOCAL_NAMES: Final = ("localhost", "ip6-localhost", "ip6-loopback")


class Reach:
    """The contacts that a node accepts. With `memory`, its network is in memory, and so are all mailboxes.

    `scope` returns the only interface of the node that has IPv6, or nothing. `allows` decides about public keys, if the
    node has keys of its own.
    """

    def __init__(
        self,
        memory: bool = False,
        scope: Callable[[], str] = lambda: "",
        allows: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._memory = memory
        self._scope = scope
        self._allows = allows

    def locate(self, contact: str, source: str) -> str:
        """Return the contact to connect to for one that a peer at the address `source` named; empty if it is refused.

        >>> reach = Reach(scope=lambda: "eth0")
        >>> reach.locate("tcp://10.0.0.7:49152", "10.0.0.9"), reach.locate("ipc:///run/docker.sock", "10.0.0.9")
        ('tcp://10.0.0.7:49152', '')
        >>> reach.locate("tcp://127.0.0.1:22", "10.0.0.9"), reach.locate("tcp://127.0.0.1:49152", "127.0.0.1")
        ('', 'tcp://127.0.0.1:49152')
        >>> reach.locate("tcp://fe80::7:49152", "fe80::7%eth1"), reach.locate("tcp://fe80::7:49152", "10.0.0.9")
        ('tcp://[fe80::7%eth1]:49152', 'tcp://[fe80::7%eth0]:49152')
        """
        endpoint = endpoint_of(contact)
        # Only an address of IPv6 needs an interface.
        endpoint = _located(endpoint, source, self._memory, self._scope() if endpoint.count(":") > 2 else "")
        key = key_of(contact)
        if not endpoint or key is None or bool(key) != (self._allows is not None):
            return ""
        return with_key(endpoint, key)

    def allows(self, contact: str) -> bool:
        """Return whether the operator has allowed the key of a contact; if our node has no keys of its own, always."""
        return self._allows is None or self._allows(key_of(contact) or b"")


@lru_cache(maxsize=1024)  # a node says the same endpoint in every HELLO
def _located(endpoint: str, source: str, memory: bool, scope: str) -> str:
    try:
        parsed = endpoints.parse(_repaired(endpoint))
    except EndpointError:
        return ""
    if memory:
        return endpoint if isinstance(parsed, Inproc) else ""
    if not isinstance(parsed, Tcp) or not (_is_elsewhere(parsed.host) or _is_loopback(parsed.host, source)):
        return ""
    if not is_link_local(parsed.host):
        return str(parsed)
    scope = source.partition("%")[2] or scope
    return endpoint_at(f"{parsed.host.partition('%')[0]}%{scope}", parsed.first) if scope else ""


def _repaired(endpoint: str) -> str:
    """Return an endpoint with brackets around an address of IPv6: Zyre leaves out both of them, or the second one."""
    host, port = host_of(endpoint), port_of(endpoint)
    if port is None or ":" not in host:
        return endpoint
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return endpoint
    return endpoint_at(host, port)


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


@lru_cache(maxsize=1024)
def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address without its interface; an IPv4 address in the form of IPv6 is the IPv4 address."""
    address = ipaddress.ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address
