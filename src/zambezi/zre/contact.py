"""Contacts: how a node is reached. A contact is the endpoint of a mailbox, as in `tcp://10.0.0.7:49152`.

If the node has keys of its own, its public key follows after a bar, in Z85: `tcp://10.0.0.7:49152|rq:rM>}U?@Lns47E1%...`.
Zyre writes the values of zgossip in the same way.

An endpoint with a link-local address of IPv6 (fe80::/10) means nothing without an interface of the machine that uses
it, as in `tcp://[fe80::1%eth0]:49152`. So a node tells others the address alone, and adds its own interface to what
others tell it. Zyre adds it only if the address has no brackets, so those are left out too: `tcp://fe80::1:49152`.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

from zambezi.zmtp import z85
from zambezi.zmtp.keys import KEY_CHARACTERS

PUBLIC_KEY: Final = "X-PUBLICKEY"  # the header of HELLO with the public key of a node
_BAR: Final = "|"
_LINK_LOCAL: Final = ipaddress.IPv6Network("fe80::/10")


def with_key(endpoint: str, key: bytes) -> str:
    """Return the contact of a node with a public key; without one, it is the endpoint.

    >>> contact = with_key("tcp://10.0.0.7:49152", bytes(32))
    >>> endpoint_of(contact), key_of(contact) == bytes(32), key_of("tcp://10.0.0.7:49152")
    ('tcp://10.0.0.7:49152', True, b'')
    """
    return f"{endpoint}{_BAR}{_text_of(key)}" if key else endpoint


def endpoint_of(contact: str) -> str:
    """Return the endpoint of a contact."""
    return contact.partition(_BAR)[0]


def key_of(contact: str) -> bytes | None:
    """Return the public key of a contact; empty if it has none, None if that is malformed."""
    _, bar, text = contact.partition(_BAR)
    return _key_of(text) if bar else b""


@lru_cache(maxsize=4096)  # a node tells its key in every beacon and HELLO
def _text_of(key: bytes) -> str:
    return z85.encode(key)


@lru_cache(maxsize=4096)
def _key_of(text: str) -> bytes | None:
    if len(text) != KEY_CHARACTERS:
        return None
    try:
        return z85.decode(text)
    except z85.Z85Error:
        return None


def endpoint_at(host: str, port: int | str) -> str:
    """Return the endpoint of a host and a port.

    >>> endpoint_at("10.0.0.7", 5), endpoint_at("fe80::1%eth0", 5)
    ('tcp://10.0.0.7:5', 'tcp://[fe80::1%eth0]:5')
    """
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def host_of(contact: str) -> str:
    """Return the host of a contact, without brackets; empty if the contact, which a peer can have made up, has none.

    >>> host_of("tcp://[fe80::1%eth0]:5"), host_of("tcp://fe80::1:5"), host_of("inproc://memory-1/2/3")
    ('fe80::1%eth0', 'fe80::1', '')
    """
    return _parts_of(contact)[0]


def port_of(contact: str) -> int | None:
    """Return the port of a contact; None if it has none, or is malformed."""
    port = _parts_of(contact)[1]
    if not (port.isascii() and port.isdecimal() and len(port) <= 5):
        return None
    number = int(port)
    return number if number < 1 << 16 else None


@lru_cache(maxsize=4096)  # a node that meets a peer needs its host and port several times
def _parts_of(contact: str) -> tuple[str, str]:
    scheme, _, rest = endpoint_of(contact).partition("://")
    host, colon, port = rest.rpartition(":")
    if scheme != "tcp" or not colon:
        return "", ""
    return host.removeprefix("[").removesuffix("]"), port


def is_link_local(host: str) -> bool:
    """Return whether a host is a link-local address of IPv6."""
    try:
        return ":" in host and ipaddress.IPv6Address(host.partition("%")[0]) in _LINK_LOCAL
    except ValueError:
        return False


def for_others(contact: str) -> str:
    """Return a contact as other nodes are told it: without an interface of this machine.

    >>> for_others("tcp://[fe80::1%eth0]:5"), for_others("tcp://[fd00::1]:5")
    ('tcp://fe80::1:5', 'tcp://[fd00::1]:5')
    """
    host, port = _parts_of(contact)
    if not is_link_local(host):
        return contact
    _, bar, key = contact.partition(_BAR)
    return f"tcp://{host.partition('%')[0]}:{port}{bar}{key}"
