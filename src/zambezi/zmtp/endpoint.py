"""Endpoints: parsing of `tcp://`, `ipc://` and `inproc://`."""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from zambezi.zmtp.errors import EndpointError


@dataclass(frozen=True, slots=True)
class Tcp:
    """A host and a port, or a range of ports to choose from. Port 0 is any port that the system chooses.

    >>> parse("tcp://[::1]:5555")
    Tcp(host='::1', first=5555, last=5555)
    >>> str(parse("tcp://*:49152-65535", binding=True))
    'tcp://0.0.0.0:49152-65535'
    """

    host: str
    first: int
    last: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        ports = "*" if not self.last else str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"tcp://{host}:{ports}"

    @property
    def numeric(self) -> bool:
        """Whether the host is an IP address, so that no name must be resolved."""
        return _is_address(self.host)


@dataclass(frozen=True, slots=True)
class Ipc:
    """A Unix socket. A path that begins with `@` is an abstract name (Linux), not a file; `*` is a temporary file."""

    path: str

    def __str__(self) -> str:
        return f"ipc://{self.path}"

    @property
    def address(self) -> str:
        return "\0" + self.path[1:] if self.path.startswith("@") else self.path


@dataclass(frozen=True, slots=True)
class Inproc:
    """A name within this process."""

    name: str

    def __str__(self) -> str:
        return f"inproc://{self.name}"


_MAPPED: Final = "::ffff:"

Endpoint: TypeAlias = Tcp | Ipc | Inproc


@lru_cache(maxsize=4096)  # the nodes of a mesh connect to the same endpoints
def parse(text: str, *, binding: bool = False) -> Endpoint:
    """Return the endpoint that `text` names. Only `bind` accepts wildcards and port ranges."""
    scheme, found, rest = text.partition("://")
    if not found or scheme not in ("tcp", "ipc", "inproc"):
        raise EndpointError(f"{text!r} is no endpoint: write tcp://HOST:PORT, ipc://PATH or inproc://NAME")
    if not rest:
        raise EndpointError(f"{text!r} has no name after {scheme}://")
    if scheme == "inproc":
        return Inproc(rest)
    if scheme == "ipc":
        return _ipc(text, rest, binding)
    return _tcp(text, rest, binding)


def _tcp(text: str, rest: str, binding: bool) -> Tcp:
    host, colon, port = rest.rpartition(":")
    if not colon or not host:
        raise EndpointError(f"{text!r} has no port: write tcp://HOST:PORT" + (", or :* for any" if binding else ""))
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise EndpointError(f"{text!r}: write an IPv6 address in brackets, as in tcp://[::1]:5555")
    if not host:
        raise EndpointError(f"{text!r} has no host: write * for every interface")
    if host == "*":
        host = "0.0.0.0"
    if port in ("*", "0"):
        first = last = 0
    else:
        low, dash, high = port.partition("-")
        high = high if dash else low
        # int() alone would accept spaces, signs, underscores and the digits of every script.
        # A peer can send an endpoint of any length, and int() raises for thousands of digits.
        if not (port.isascii() and low.isdigit() and high.isdigit() and len(port) < 20):
            raise EndpointError(f"{text[:100]!r}: {port[:100]!r} is not a port number")
        first, last = int(low), int(high)
        if not 0 < first <= last <= 65535:
            raise EndpointError(f"{text!r}: a port is 1 to 65535, and a range begins with its lowest port")
    if not binding and (first != last or not first or host in ("0.0.0.0", "::")):
        raise EndpointError(f"{text!r} is an endpoint for bind only; connect needs one host and one port")
    return Tcp(host, first, last)


def host_in(address: Any) -> str:
    """Return the host in an address that the kernel gave; a link-local one of IPv6 with its interface.

    A socket for both families shows its peers of IPv4 in the form of IPv6.

    >>> host_in(("10.0.0.7", 5555)), host_in(("::ffff:10.0.0.7", 5555, 0, 0)), host_in("/run/socket")
    ('10.0.0.7', '10.0.0.7', '')
    """
    if not isinstance(address, tuple):
        return ""
    host = str(address[0])
    if host.startswith(_MAPPED) and "." in host:
        return host.removeprefix(_MAPPED)
    return f"{host}%{_interface(address[3])}" if len(address) == 4 and address[3] else host


def _interface(index: int) -> str:
    try:
        return socket.if_indextoname(index)
    except OSError:  # it is gone
        return str(index)


@lru_cache(maxsize=1024)
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _ipc(text: str, path: str, binding: bool) -> Ipc:
    if path == "*" and not binding:
        raise EndpointError(f"{text!r} is an endpoint for bind only; connect needs a path")
    if "\0" in path:
        raise EndpointError(f"{text!r}: a path cannot contain a zero byte; write @ for the one of an abstract name")
    # The kernel's address has 108 bytes, including a zero byte at the end.
    if len(os.fsencode(path)) > 107:
        raise EndpointError(f"{text!r}: the path of a Unix socket has at most 107 bytes")
    return Ipc(path)
