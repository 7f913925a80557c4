"""The state of a server now, as one value of plain types, for the console, for metrics, and for JSON.

Clients decide how many streams, topics and peers there are, and how long their names are. So the state has at most
`ROWS` of each, with totals over all, and at most `SOME` of the patterns, headers, groups or subscribers of a row.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_to_bytes

import psutil

from zambezi import __version__
from zambezi.mcollective.report import TopicReport
from zambezi.server.queues import queues_of
from zambezi.wire.text import as_bytes, as_text, printable
from zambezi.zeps.broker.deliveries import Deliveries, deliveries_of
from zambezi.zeps.broker.reports import describe_session, describe_stream
from zambezi.zeps.broker.session import Session
from zambezi.zeps.broker.stream import BrokerStream
from zambezi.zeps.histogram import Histogram
from zambezi.zre.log import Record, hash_of
from zambezi.zre.peer_info import PeerInfo

if TYPE_CHECKING:
    from zambezi.server.server import Server
    from zambezi.zeps.broker.service import BrokerService

ROWS: Final = 1000  # streams, clients, topics, peers
READERS: Final = 10  # named readers of a stream, and groups, up to which each has series of its own
SOME: Final = 20  # patterns, headers, groups, subscribers
LONG: Final = 200  # characters of a text that a peer chose freely


def id_of(stream: str) -> str:
    """Return the name of a stream in characters that are safe everywhere, also if the name is not UTF-8.

    >>> id_of("prices"), id_of("\\udcff"), name_of("%FF") == "\\udcff"
    ('prices', '%FF', True)
    """
    return quote(as_bytes(stream), safe="")


def name_of(id_of_stream: str) -> str:
    """Return the name of the stream with an id."""
    return as_text(unquote_to_bytes(id_of_stream))


def state_of(server: Server) -> dict[str, Any]:
    """Return everything that a program can know of a server: its summary, and the first rows of each kind."""
    state = summary_of(server)
    broker, middleware, node = server.broker, server.middleware, server.node
    if broker is not None:
        streams, sessions = broker.engine.streams, list(broker.engine.sessions)
        slowest = _slowest(sessions)
        _, delivered = deliveries_of(broker.engine)
        state["zeps"] |= {
            "streams": [
                {**stream_row(stream), **slowest.get(stream.name, {}), **_delivered(delivered[stream.name])}
                for stream in streams[:ROWS]
            ],
            "elsewhere": elsewhere_of(broker),
            "clients": [client_row(session) for session in sessions[:ROWS]],
        }
    if middleware is not None:
        state["mcollective"]["topics"] = [topic_row(report) for report in middleware.topics(ROWS)]
    if node is not None:
        state["zre"]["peers"] = [peer_row(peer) for peer in node.peers[:ROWS]]
    return state


def _delivered(counts: Deliveries) -> dict[str, int]:
    return {"delivered": counts.messages, "delivered_bytes": counts.octets}


def summary_of(server: Server) -> dict[str, Any]:
    """Return the totals and the counters of a server, without rows of streams, clients, topics and peers."""
    process = psutil.Process()
    with process.oneshot():
        usage = {
            "memory": process.memory_info().rss,
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
            "processor": sum(process.cpu_times()[:2]),
        }
    return {
        "time": time.time(),
        "started": server.started,
        "endpoints": dict(server.endpoints),
        "version": __version__,
        "process": {**usage, "loop_lag": server.loop_lag.lag, "loop_lag_worst": server.loop_lag.worst},
        "disk_free": server.disk.free,
        "disk_wanted": server.disk.wanted,
        "queues": [dataclasses.asdict(queue) for queue in queues_of(server)],
        "problems": server.problems[:ROWS],
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
    delivered, _ = deliveries_of(broker.engine)
    streams = broker.engine.streams
    sessions = broker.engine.sessions
    return {
        "totals": {
            "streams": len(streams),
            "clients": len(sessions),
            "rate": round(sum(stream.rate for stream in streams), 1),
            "octets": sum(stream.journal.octets for stream in streams),
            "held": sum(1 for stream in streams if stream.held or stream.journal.failed),
        },
        "gears": Counter(session.cursor.gear for session in sessions if session.cursor and session.cursor.selections),
        "published": counters.published,
        "fell_behind": counters.fell_behind,
        "unread": counters.unread,
        "expelled": counters.expelled,
        "streams_refused": counters.streams_refused,
        "scrub": {**dataclasses.asdict(broker.scrub.counters), "damaged": len(broker.scrub.problems)},
        "cache": broker.cache_state,
        "copies": broker.copy_state,
        "compaction": dataclasses.asdict(broker.compactor.counters),
        "dismissed": counters.dismissed,
        "fenced": counters.fenced,
        "readers_refused": counters.readers_refused,
        "readers_taken": counters.readers_taken,
        "requests": counters.requests,
        "unserved": counters.unserved,
        "unclaimed": counters.unclaimed,
        "publishers": sum(len(stream.journal.counts) for stream in streams),
        "publishers_forgotten": sum(stream.journal.counts.forgotten for stream in streams),
        "invalid": dict(counters.invalid),
        "refused": broker.socket_counters.refused,
        "handshakes_failed": broker.socket_counters.handshakes_failed,
        "cut_off": broker.socket_counters.cut_off,
        "sync_latency": server.sync_latency.mean,
        "sync_latency_worst": server.sync_latency.worst,
        "delivered": delivered.messages,
        "delivered_bytes": delivered.octets,
        "latencies": {
            "publish_to_deliver": _histogram(broker.engine.latency),
            "journal_sync": _histogram(broker.syncs),
            **({"store_put": _histogram(broker.puts)} if broker.puts is not None else {}),
        },
    }


def _histogram(histogram: Histogram) -> dict[str, Any]:
    return {"count": histogram.count, "seconds": histogram.seconds, "buckets": histogram.buckets()}


def stream_row(stream: BrokerStream) -> dict[str, Any]:
    """Return a description of a stream."""
    return {
        "feed": None,
        "id": id_of(stream.name),
        **describe_stream(stream),
        "named": _named(stream),
        "shared": _shared(stream),
    }


def elsewhere_of(broker: BrokerService) -> list[dict[str, object]]:
    """Return the streams of the object store that are not here, and their brokers."""
    seeking = broker.engine.seeking
    return [row for _, row in seeking.streams()[:ROWS]] if seeking is not None else []


def client_row(session: Session) -> dict[str, object]:
    """Return a description of a connection to the broker."""
    row = describe_session(session)
    patterns = row.get("patterns")
    return {**row, "patterns": patterns[:SOME]} if isinstance(patterns, list) else row


def _named(stream: BrokerStream) -> dict[str, dict[str, float]]:
    """Return how far each named reader is behind in messages and seconds, if the stream has few of them."""
    readers = stream.readers
    if len(readers) > READERS:
        return {}
    return {
        state.name: {"lag": readers.lag_of(state.position), "behind": readers.seconds_behind(state)}
        for state in readers.all()
    }


def _shared(stream: BrokerStream) -> dict[str, dict[str, object]]:
    """Return a description of each group of shared readers, if the stream has few of them."""
    if len(stream.groups) > READERS:
        return {}
    groups = stream.groups
    rows = {name: row for name in groups.names() if (row := groups.describe(name)) is not None}
    return {name: {key: value for key, value in row.items() if key != "shares"} for name, row in rows.items()}


def _slowest(sessions: Iterable[Session]) -> Mapping[str, dict[str, int]]:
    """Return the greatest lag and the least credit of the subscribers of each stream."""
    found: dict[str, dict[str, int]] = {}
    for session in sessions:
        cursor = session.cursor
        if cursor is not None and cursor.selections:
            row = found.setdefault(session.stream_name, {"lag": cursor.lag, "credit": cursor.credit})
            row["lag"] = max(row["lag"], cursor.lag)
            row["credit"] = min(row["credit"], cursor.credit)
    return found


def _mcollective(server: Server) -> dict[str, Any] | None:
    middleware = server.middleware
    if middleware is None:
        return None
    return {
        "clients": middleware.clients,
        "totals": {"topics": middleware.topic_count},
        "counters": dataclasses.asdict(middleware.counters),
    }


def topic_row(report: TopicReport) -> dict[str, Any]:
    """Return a description of a topic."""
    return {
        "topic": _short(printable(report.topic)),
        "subscribers": report.count,
        "clients": [{"identity": _short(printable(name)), "user": user} for name, user in report.subscribers[:SOME]],
        "messages": report.messages,
        "deliveries": report.deliveries,
        "kept": report.kept,
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
        "totals": {"peers": len(node.peers)},
        "counters": dataclasses.asdict(node.counters),
    }


def peer_row(peer: PeerInfo) -> dict[str, Any]:
    """Return a description of a peer of the mesh."""
    return {
        "uuid": peer.uuid.hex,
        "hash": hash_of(peer.uuid),
        "name": _short(peer.name),
        "endpoint": _short(peer.endpoint),
        "headers": {_short(name): _short(value) for name, value in islice(peer.headers.items(), SOME)},
        "groups": sorted(_short(group) for group in islice(peer.groups, SOME)),
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


def log_row(record: Record) -> dict[str, Any]:
    """Return a description of a log of the mesh."""
    return {
        "time": record.log.time,
        "level": record.log.level.name,
        "event": record.log.event.name,
        "node": record.log.node,
        "peer": record.log.peer,
        "text": _short(record.log.data),
    }


def recent_logs(server: Server) -> list[dict[str, Any]]:
    """Return the latest logs of the mesh, the oldest first."""
    return [log_row(record) for record in server.logs.recent] if server.logs is not None else []


def _short(text: str) -> str:
    return text if len(text) <= LONG else f"{text[:LONG]}..."
