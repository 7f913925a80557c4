"""How a group is written down: `udp://239.77.1.1:5680`, with what is to be set about it after a question mark.

    udp://239.77.1.1:5680?interface=eth1&ttl=4&rate=50M&mtu=1400&loop=0

    interface   by address or name; the system's choice if not said
    ttl         how many routers it may pass: 1, the local network, if not said
    rate        octets in a second at most: 12M if not said
    mtu         octets of a datagram: what the interface takes in one piece, if not said
    loop        whether this host's own receivers get it: 1 if not said

`norm://` and `epgm://` are the same streams over libzmq's NORM and PGM, where pyzmq has them.

What matters to the receivers is scheme, address and port, and that is what a group is told by. The rest is about one
host, and each end has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from zambezi.zeps.errors import GroupError

SCHEMES: Final = ("udp", "norm", "epgm")
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LEAST_MTU: Final = 256
_MOST_MTU: Final = 65_507  # what UDP can carry


@dataclass(frozen=True, slots=True)
class Group:
    """Where a stream is multicast, and how."""

    scheme: str
    address: str
    port: int
    interface: str = ""
    ttl: int = 1
    rate: int = 12 << 20
    mtu: int = 0  # as the interface has it
    loop: bool = True

    @classmethod
    def parse(cls, text: str) -> Group:
        """A group as it is written."""
        try:
            parts = urlsplit(text)
            address, port = parts.hostname or "", parts.port
        except ValueError:
            raise _error(text, "the port is 1 to 65535") from None
        if parts.scheme not in SCHEMES:
            raise _error(text, "it begins with udp://, norm:// or epgm://")
        try:
            if not IPv4Address(address).is_multicast:
                raise ValueError
        except ValueError:
            raise _error(text, "the address of a group is 224.0.0.0 to 239.255.255.255") from None
        if not port:
            raise _error(text, "a port is missing")
        settings: dict[str, int | str | bool] = {}
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            settings[name] = _setting(text, name, value)
        return cls(parts.scheme, address, port, **settings)  # type: ignore[arg-type]

    @property
    def by_libzmq(self) -> bool:
        """Whether it is libzmq that carries it."""
        return self.scheme != "udp"

    @property
    def endpoint(self) -> tuple[str, int]:
        return self.address, self.port

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}:{self.port}"


def _setting(text: str, name: str, value: str) -> int | str | bool:
    if name == "interface" and value:
        return value
    if name == "loop" and value in ("0", "1"):
        return value == "1"
    if name in ("ttl", "rate", "mtu"):
        number = _number(value if name == "rate" else value.lower())
        limits = {"ttl": (0, 255), "rate": (1, 1 << 40), "mtu": (_LEAST_MTU, _MOST_MTU)}[name]
        if number is not None and limits[0] <= number <= limits[1]:
            return number
        raise _error(text, f"{name} is {limits[0]} to {limits[1]}, not {value!r}")
    raise _error(text, f"{name}={value} is none of interface=NAME, ttl=1, rate=12M, mtu=1400, loop=0")


def _number(text: str) -> int | None:
    unit = _UNITS.get(text[-1:], 1)
    digits = text[:-1] if text[-1:] in _UNITS else text
    return int(digits) * unit if digits.isdecimal() else None


def _error(text: str, why: str) -> GroupError:
    return GroupError(f"{text} is no multicast group: {why}; write one such as udp://239.77.1.1:5680")
