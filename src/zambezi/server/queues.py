"""The queues of a server, how full they are, and where they end: nothing in it grows without a bound.

Of queues that every client has, the longest counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zambezi.zeps.stream import WAITING
from zambezi.zre.node import EVENTS_WAITING

if TYPE_CHECKING:
    from zambezi.server.server import Server
    from zambezi.zmtp.core import Core


@dataclass(frozen=True, slots=True)
class Queue:
    """So much is in it, of so much that it holds."""

    queue: str
    length: int
    bound: int


def queues_of(server: Server) -> list[Queue]:
    """All of them."""
    return [*_zeps(server), *_mcollective(server), *_zre(server)]


def _zeps(server: Server) -> Iterator[Queue]:
    broker = server.broker
    if broker is None:
        return
    engine, limits = broker.engine, broker.engine.limits
    streams = engine.streams
    yield Queue("zeps connections", len(engine.sessions), limits.connections)
    yield Queue("zeps streams", len(streams), limits.streams)
    waiting = max((stream.pending_octets for stream in streams), default=0)
    yield Queue("zeps octets that wait for the disk, of a stream", waiting, WAITING)
    yield Queue("zeps octets of answers, to a client", *_longest(broker.core))


def _mcollective(server: Server) -> Iterator[Queue]:
    middleware = server.middleware
    if middleware is None:
        return
    core = middleware._core
    yield Queue("mcollective connections", len(core.engine.sessions), core.options.limits.connections)
    yield Queue("mcollective topics", len(core.engine.topics), core.engine.bounds.topics)
    yield Queue("mcollective octets, to a client", *_longest(core))


def _zre(server: Server) -> Iterator[Queue]:
    node = server.node
    if node is None:
        return
    core = node._core
    yield Queue("zre peers", len(core.engine.peers), core.options.max_peers)
    yield Queue("zre events", len(core.events), EVENTS_WAITING)
    yield Queue("zre octets, to a peer", *_longest(core._dealers))


def _longest(core: Core) -> tuple[int, int]:
    """What waits for the one for whom most waits, and how much may."""
    return max((link.pipe.out_octets for link in core.links), default=0), core.send_octets
