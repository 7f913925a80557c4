"""A peer as the program sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from zambezi.zre.contact import endpoint_of
from zambezi.zre.peer import Peer


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """A peer of a node."""

    uuid: UUID
    name: str
    endpoint: str
    headers: Mapping[str, str]
    groups: frozenset[str]


def info_of(peer: Peer) -> PeerInfo:
    """Return a peer of the engine for the program."""
    return PeerInfo(peer.uuid, peer.name, endpoint_of(peer.endpoint), dict(peer.headers), frozenset(peer.groups))
