"""The state of a server now, as one value of plain types, for the console, for metrics, and for JSON."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import psutil

from zambezi.server.queues import queues_of
from zambezi.wire.text import printable
from zambezi.zeps.broker.reports import describe_session, describe_stream
from zambezi.zre.log import hash_of

if TYPE_CHECKING:
    from zambezi.server.server import Server


def state_of(server: Server) -> dict[str, Any]:
    """Return everything that the console shows of a server."""
    process = psutil.Process()
    with process.oneshot():
        usage = {
            "memory": process.memory_info().rss,
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
        }
    return {
        "time": time.time(),
        "started": server.started,
        "endpoints": dict(server.endpoints),
        "process": {**usage, "loop_lag": server.loop_lag.lag, "loop_lag_worst": server.loop_lag.worst},
        "queues": [dataclasses.asdict(queue) for queue in queues_of(server)],
        "problems": server.problems,
        "zeps": _zeps(server),
        "mcollective": _mcollective(server),
        "zre": _zre(server),
        "log": _log(server),
    }


def _zeps(server: Server) -> dict[str, Any] | None:
    broker = server.broker
    if broker is None:
        return None
    counters = broker.counters
    return {
        "streams": [{"feed": None, **describe_stream(stream)} for stream in broker.engine.streams],
        "clients": [describe_session(session) for session in list(broker.engine.sessions)],
        "published": counters.published,
        "fell_behind": counters.fell_behind,
        "unread": counters.unread,
        "expelled": counters.expelled,
        "streams_refused": counters.streams_refused,
        "scrub": {**dataclasses.asdict(broker.scrub.counters), "damaged": len(broker.scrub.problems)},
        "dismissed": counters.dismissed,
        "invalid": dict(counters.invalid),
        "refused": broker.socket_counters.refused,
        "handshakes_failed": broker.socket_counters.handshakes_failed,
        "cut_off": broker.socket_counters.cut_off,
        "sync_latency": server.sync_latency.mean,
        "sync_latency_worst": server.sync_latency.worst,
        "sync_seconds": broker.sync_seconds,
        "syncs": broker.syncs,
    }


def _mcollective(server: Server) -> dict[str, Any] | None:
    middleware = server.middleware
    if middleware is None:
        return None
    return {
        "clients": middleware.clients,
        "topics": [
            {
                "topic": printable(report.topic),
                "subscribers": [{"identity": printable(name), "user": user} for name, user in report.subscribers],
                "messages": report.messages,
                "deliveries": report.deliveries,
                "kept": report.kept,
            }
            for report in middleware.topics()
        ],
        "counters": dataclasses.asdict(middleware.counters),
    }


def _zre(server: Server) -> dict[str, Any] | None:
    node = server.node
    if node is None:
        return None
    return {
        "uuid": node.uuid.hex,
        "hash": hash_of(node.uuid),
        "name": node.name,
        "groups": sorted(node.groups),
        "peers": [
            {
                "uuid": peer.uuid.hex,
                "hash": hash_of(peer.uuid),
                "name": peer.name,
                "endpoint": peer.endpoint,
                "headers": dict(peer.headers),
                "groups": sorted(peer.groups),
            }
            for peer in node.peers
        ],
        "counters": dataclasses.asdict(node.counters),
    }


def _log(server: Server) -> dict[str, Any] | None:
    logs = server.logs
    if logs is None:
        return None
    return {
        "journalled": logs.journalled,
        "lost": logs.lost,
        "discarded": logs.discarded,
        "talk": [[sender, receiver, count] for (sender, receiver), count in logs.talk.most_common(500)],
    }


def recent_logs(server: Server) -> list[dict[str, Any]]:
    """Return the latest logs of the mesh, the oldest first."""
    if server.logs is None:
        return []
    return [
        {
            "time": record.log.time,
            "level": record.log.level.name,
            "event": record.log.event.name,
            "node": record.log.node,
            "peer": record.log.peer,
            "text": record.log.data,
        }
        for record in server.logs.recent
    ]
