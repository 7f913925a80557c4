"""The description of a node in text: what Zyre prints of a node, for people who look for a fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zambezi.wire.text import printable
from zambezi.zre.contact import endpoint_of
from zambezi.zre.engine import Engine
from zambezi.zre.peer import Peer


def describe(engine: Engine, endpoint: str) -> str:
    """Return a description of a node with a mailbox at an endpoint, and of its peers and groups."""
    return "\n".join(map(printable, _lines(engine, endpoint)))


def _lines(engine: Engine, endpoint: str) -> Iterator[str]:
    profile, timing = engine.profile, engine.timing
    ready = sorted((peer for peer in engine.peers.values() if peer.ready), key=lambda peer: (peer.name, peer.key))
    yield f"node {profile.name} {engine.uuid}"
    yield f"  mailbox   {endpoint or 'closed'}"
    yield f"  dialect   {engine.dialect.name}"
    yield f"  times     interval {timing.interval:g} s, evasive {timing.evasive:g} s, expired {timing.expired:g} s"
    yield f"  headers   {_headers(profile.headers)}"
    yield f"  groups    {', '.join(_group(engine, group) for group in sorted(profile.groups)) or 'none'}"
    yield f"  peers     {len(ready)}, and {engine.peers.strangers} that have not greeted this node"
    for peer in ready:
        yield from _lines_of(peer)


def _group(engine: Engine, group: str) -> str:
    leader = engine.elections.leader(group)
    return f"{group} (leader {leader})" if leader is not None else group


def _lines_of(peer: Peer) -> Iterator[str]:
    yield f"  peer {peer.name} {peer.uuid}"
    yield f"    mailbox {endpoint_of(peer.endpoint)}"
    yield f"    groups  {', '.join(sorted(peer.groups)) or 'none'}"
    yield f"    headers {_headers(peer.headers)}"
    yield f"    last    sent {peer.sent}, received {peer.received}"


def _headers(headers: Mapping[str, str]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in sorted(headers.items())) or "none"
