"""What a node knows of one peer. There may be a million of these in a process, so they are small."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

from zambezi.zre.dialect import Dialect

_NO_HEADERS: Final[Mapping[str, str]] = {}


class Peer:
    """What the engine knows of one peer."""

    __slots__ = (
        "address",
        "beacon",
        "dialect",
        "due",
        "endpoint",
        "evasive",
        "greeted",
        "groups",
        "headers",
        "heard",
        "key",
        "name",
        "port",
        "ready",
        "received",
        "renewals",
        "sent",
        "status",
        "waiting",
    )

    def __init__(self, key: bytes, endpoint: str, dialect: Dialect, now: float) -> None:
        self.key = key
        self.endpoint = endpoint
        self.port = port_of(endpoint)
        self.beacon = b""  # the last one that came from where its mailbox is, or else the first one,
        self.address = ""  # and its address
        self.dialect = dialect
        self.name = key.hex()[:6]
        self.headers: Mapping[str, str] = _NO_HEADERS
        self.groups = together(())
        self.status = 0
        self.ready = False
        self.waiting = 0  # how many HELLOs of ours are unanswered
        self.renewals = 0  # how often it began anew in quick succession
        self.greeted = now  # when we greeted it last
        self.heard = now
        self.evasive = 0  # how many PINGs it has left unanswered
        self.due = now
        self.sent = 0  # the sequence of what we sent last
        self.received = 0  # and of what came last

    @property
    def uuid(self) -> UUID:
        return _uuid(self.key)


@lru_cache(maxsize=4096)
def _uuid(key: bytes) -> UUID:
    return UUID(bytes=key)


@lru_cache(maxsize=1024)
def together(groups: tuple[str, ...]) -> frozenset[str]:
    """A set of groups. Peers in the same groups share it."""
    return frozenset(groups)


def host_of(endpoint: str) -> str:
    """The host in an endpoint that a peer may have made up."""
    try:
        return urlsplit(endpoint).hostname or ""
    except ValueError:
        return ""


def port_of(endpoint: str) -> int | None:
    try:
        return urlsplit(endpoint).port
    except ValueError:
        return None
