"""Endpoints: `tcp://`, `ipc://` and `inproc://`, as people write them."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from zambezi.zmtp.errors import EndpointError


@dataclass(frozen=True, slots=True)
class Tcp:
    """A host and a port, or a range of ports to choose from. Port 0 is any that the system gives.

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
        """Whether the host is an address, so that no name has to be looked up."""
        return _is_address(self.host)


@dataclass(frozen=True, slots=True)
class Ipc:
    """A Unix socket; a name that begins with `@` is abstract (Linux), and leaves no file; `*` is a temporary one."""

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


Endpoint: TypeAlias = Tcp | Ipc | Inproc


def parse(text: str, *, binding: bool = False) -> Endpoint:
    """The endpoint that `text` means. Wildcards and port ranges make sense only where a socket binds."""
    scheme, found, rest = text.partition("://")
    if not found or scheme not in ("tcp", "ipc", "inproc"):
        raise EndpointError(f"{text!r} is no endpoint: write tcp://HOST:PORT, ipc://PATH or inproc://NAME")
    if not rest:
        raise EndpointError(f"{text!r} names nothing behind {scheme}://")
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
        raise EndpointError(f"{text!r}: an IPv6 address stands in brackets, as in tcp://[::1]:5555")
    if not host:
        raise EndpointError(f"{text!r} names no host: write * for every interface")
    if host == "*":
        host = "0.0.0.0"
    if port in ("*", "0"):
        first = last = 0
    else:
        low, dash, high = port.partition("-")
        high = high if dash else low
        # int() alone would take spaces, signs, underscores and the digits of every script.
        if not (port.isascii() and low.isdigit() and high.isdigit()):
            raise EndpointError(f"{text!r}: {port!r} is no port number")
        first, last = int(low), int(high)
        if not 0 < first <= last <= 65535:
            raise EndpointError(f"{text!r}: a port is 1 to 65535, and a range goes up")
    if not binding and (first != last or not first or host in ("0.0.0.0", "::")):
        raise EndpointError(f"{text!r} is where a socket could bind; connecting needs one host and one port")
    return Tcp(host, first, last)


@lru_cache(maxsize=1024)
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _ipc(text: str, path: str, binding: bool) -> Ipc:
    if path == "*" and not binding:
        raise EndpointError(f"{text!r} is where a socket could bind; connecting needs a path")
    if "\0" in path:
        raise EndpointError(f"{text!r}: a path has no zero octet in it; @ stands for that of an abstract name")
    # The kernel's address has 108 octets, one of them for the end.
    if len(os.fsencode(path)) > 107:
        raise EndpointError(f"{text!r}: the path of a Unix socket has at most 107 octets")
    return Ipc(path)
