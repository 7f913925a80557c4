"""The notation of a multicast group: `udp://239.77.1.1:5680`, with optional settings after a question mark.

    udp://239.77.1.1:5680?interface=eth1&ttl=4&rate=50M&mtu=1400&loop=0

    interface   the network, by address or name; by default the kernel chooses
    ttl         how many networks a datagram may cross; by default 1, the local network
    rate        bytes per second at most; by default 12M
    mtu         bytes of a datagram; by default what the interface sends without fragmentation
    loop        whether receivers on the sending host get the datagrams; by default 1

`norm://` and `epgm://` carry the same datagrams over libzmq's NORM and PGM, if pyzmq supports them.

Sender and receivers must agree on scheme, address and port, so the text of a group has only these. The settings are for
one host, and each side has its own.
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
_MOST_MTU: Final = 65_507  # bytes that UDP can carry


@dataclass(frozen=True, slots=True)
class Group:
    """The address of a multicast group, and its settings on this host."""

    scheme: str
    address: str
    port: int
    interface: str = ""
    ttl: int = 1
    rate: int = 12 << 20
    mtu: int = 0  # 0: that of the interface
    loop: bool = True

    @classmethod
    def parse(cls, text: str) -> Group:
        """Parse the notation of a group, or raise `GroupError`."""
        try:
            parts = urlsplit(text)
            address, port = parts.hostname or "", parts.port
        except ValueError:
            raise _error(text, "the port must be 1 to 65535") from None
        if parts.scheme not in SCHEMES:
            raise _error(text, "it must begin with udp://, norm:// or epgm://")
        try:
            if not IPv4Address(address).is_multicast:
                raise ValueError
        except ValueError:
            raise _error(text, "the address must be 224.0.0.0 to 239.255.255.255") from None
        if not port:
            raise _error(text, "the port is missing")
        settings: dict[str, int | str | bool] = {}
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            settings[name] = _setting(text, name, value)
        return cls(parts.scheme, address, port, **settings)  # type: ignore[arg-type]

    @property
    def by_libzmq(self) -> bool:
        """Whether libzmq sends and receives the datagrams."""
        return self.scheme != "udp"

    @property
    def endpoint(self) -> tuple[str, int]:
        """The address and the port."""
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
        raise _error(text, f"{name} must be {limits[0]} to {limits[1]}, not {value!r}")
    raise _error(text, f"{name}={value} is not one of interface=NAME, ttl=1, rate=12M, mtu=1400, loop=0")


def _number(text: str) -> int | None:
    unit = _UNITS.get(text[-1:], 1)
    digits = text[:-1] if text[-1:] in _UNITS else text
    return int(digits) * unit if digits.isdecimal() else None


def _error(text: str, why: str) -> GroupError:
    return GroupError(f"{text} is not a multicast group: {why}; write it like udp://239.77.1.1:5680")
