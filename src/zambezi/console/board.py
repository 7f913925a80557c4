"""The views of the page: for each one, the value that the page shows now."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from zambezi.console.history import History
from zambezi.console.logbook import Logbook
from zambezi.console.orders import allowed_orders
from zambezi.console.tables import FRESH, Kind, Look, LookError, Table
from zambezi.mcollective.report import TopicReport
from zambezi.server.state import client_row, id_of, log_row, name_of, peer_row, stream_row, summary_of, topic_row
from zambezi.wire.text import printable
from zambezi.zeps.broker.reports import describe_reader, describe_stream
from zambezi.zeps.broker.session import Session
from zambezi.zeps.broker.stream import BrokerStream
from zambezi.zeps.journal.segment import Segment
from zambezi.zre.log import Record, hash_of
from zambezi.zre.peer_info import PeerInfo

if TYPE_CHECKING:
    from zambezi.server import Server

NODES: Final = 120  # of the graph
PAIRS: Final = 300  # of the graph
PROBLEMS: Final = 3  # texts; a page has the number of all
SEGMENTS: Final = 50  # the latest ones of a stream
READERS: Final = 100  # of a stream
CLIENTS: Final = 50  # of a stream
TOPICS: Final = 10_000  # that can be sorted
_OF_STREAM: Final = ("stream", "first", "last", "removed", "octets", "rate", "subscribers", "readers", "reader_lag")
_OF_STREAM_TOO: Final = ("held", "sync", "multicast", "owner", "groups")


class Board:
    """The values of all views of a server."""

    def __init__(self, server: Server, history: History, logbook: Logbook, takes_orders: bool = False) -> None:
        self._takes_orders = takes_orders
        self._server = server
        self._history = history
        self._logbook = logbook
        self._summary: dict[str, Any] = {}
        self._stale_at = 0.0
        self._peers = Table(self._kind_of_peers())
        self._tables: dict[str, Table[Any]] = {
            "streams": Table(self._kind_of_streams()),
            "clients": Table(self._kind_of_clients()),
            "mesh": self._peers,
            "topics": Table(self._kind_of_topics()),
            "log": Table(self._kind_of_log()),
            "mesh-log": Table(self._kind_of_mesh_log()),
            "elsewhere": Table(self._kind_of_elsewhere()),
        }
        self._parts: dict[str, Callable[[Look], dict[str, Any]]] = {
            "mesh": self._graph,
            "elsewhere": lambda _: {"brokers": self._brokers()},
        }

    def see(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the value that a page shows. Raise `LookError` if a view or a column does not exist."""
        view = query.get("view", "overview")
        value: dict[str, Any] = {"view": view, **self.summary()}
        if view == "overview":
            return value
        if view == "stream":
            return {**value, "detail": self._detail(name_of(query.get("id", "")))}
        if view not in self._tables:
            raise LookError(f"there is no view {view[:50]!a}; the views are overview, {', '.join(self._tables)}")
        look = Look.parse(query)
        value["table"] = self._tables[view].page(look)
        part = self._parts.get(view)
        return {**value, **(part(look) if part is not None else {})}

    def summary(self) -> dict[str, Any]:
        """Return the part that every view has. All pages share it."""
        now = time.monotonic()
        if now >= self._stale_at:
            self._stale_at = now + FRESH
            summary = summary_of(self._server)
            problems = self._server.problems
            del summary["queues"]
            (summary["log"] or {}).pop("talk", None)
            (summary["zeps"] or {}).pop("latencies", None)
            self._summary = {**summary, "problems": problems[:PROBLEMS], "problem_count": len(problems)}
            self._summary["takes_orders"] = self._takes_orders
            self._summary["time"] = round(self._summary["time"], 1)
        return self._summary

    # Kinds of rows

    def _kind_of_streams(self) -> Kind[BrokerStream]:
        return Kind(
            lambda: list(self._server.broker.engine.streams) if self._server.broker is not None else [],
            lambda stream: id_of(stream.name),
            lambda stream: printable(stream.name),
            self._stream,
            {
                "stream": lambda stream: stream.name,
                "messages": lambda stream: stream.journal.last - stream.journal.first,
                "last": lambda stream: stream.journal.last,
                "octets": lambda stream: stream.journal.octets,
                "rate": lambda stream: stream.rate,
                "out": lambda stream: self._history.rates_out.get(stream.name, 0.0),
                "subscribers": lambda stream: stream.subscribers,
                "readers": lambda stream: stream.readers.largest_lag,
                "newest": lambda stream: stream.journal.last_time,
            },
        )

    def _stream(self, stream: BrokerStream) -> dict[str, Any]:
        row = describe_stream(stream)
        newest = stream.journal.last_time or 0
        return {
            **{key: row[key] for key in (*_OF_STREAM, *_OF_STREAM_TOO)},
            "newest": newest // 1_000_000,
            "out": round(self._history.rates_out.get(stream.name, 0.0), 1),
            "past": self._history.recent(stream.name),
        }

    def _kind_of_clients(self) -> Kind[Session]:
        return Kind(
            lambda: list(self._server.broker.engine.sessions) if self._server.broker is not None else [],
            lambda session: str(session.number),
            lambda session: f"{printable(session.stream_name)} {session.address} {session.user}",
            lambda session: {"id": id_of(session.stream_name), **client_row(session)},
            {
                "client": lambda session: session.number,
                "stream": lambda session: session.stream_name,
                "user": lambda session: session.user,
                "address": lambda session: session.address,
                "published": lambda session: session.published,
                "lag": lambda session: session.cursor.lag if session.cursor is not None else -1,
                "delivered": lambda session: session.cursor.delivered if session.cursor is not None else -1,
            },
        )

    def _kind_of_peers(self) -> Kind[PeerInfo]:
        return Kind(
            lambda: self._server.node.peers if self._server.node is not None else [],
            lambda peer: peer.uuid.hex,
            lambda peer: " ".join((peer.name, peer.endpoint, *peer.groups, *peer.headers)),
            peer_row,
            {
                "name": lambda peer: (peer.name, peer.uuid.hex),
                "endpoint": lambda peer: peer.endpoint,
                "groups": lambda peer: len(peer.groups),
            },
        )

    def _kind_of_topics(self) -> Kind[TopicReport]:
        return Kind(
            lambda: self._server.middleware.topics(TOPICS) if self._server.middleware is not None else [],
            lambda report: printable(report.topic),
            lambda report: printable(report.topic),
            topic_row,
            {
                "topic": lambda report: report.topic,
                "subscribers": lambda report: report.count,
                "messages": lambda report: report.messages,
                "deliveries": lambda report: report.deliveries,
            },
        )

    def _kind_of_log(self) -> Kind[dict[str, Any]]:
        return Kind(
            lambda: [*reversed(self._logbook.rows)],
            lambda row: str(row["number"]),
            lambda row: f"{row['level']} {row['logger']} {row['text']}",
            lambda row: row,
            {},
        )

    def _kind_of_mesh_log(self) -> Kind[tuple[int, Record, str, str]]:
        return Kind(
            self._mesh_logs,
            lambda one: str(one[0]),
            lambda one: f"{one[1].log.level.name} {one[1].log.event.name} {one[2]} {one[3]} {one[1].log.data}",
            lambda one: {**log_row(one[1]), "from": one[2], "to": one[3]},
            {},
        )

    def _mesh_logs(self) -> list[tuple[int, Record, str, str]]:
        """Return the logs of the mesh, the newest first: number, record, and the names of its nodes."""
        logs = self._server.logs
        if logs is None:
            return []
        names = self._names()
        last = logs.journalled + logs.lost
        return [
            (last - number, record, names.get(record.log.node, ""), names.get(record.log.peer, ""))
            for number, record in enumerate(reversed(logs.recent))
        ]

    def _names(self) -> dict[int, str]:
        """Return the names of nodes by their hash. Logs cannot tell two nodes with the same hash apart."""
        node = self._server.node
        if node is None:
            return {}
        names = {hash_of(node.uuid): node.name}
        for peer in node.peers:
            found = hash_of(peer.uuid)
            names[found] = "" if found in names else peer.name
        return names

    def _kind_of_elsewhere(self) -> Kind[tuple[str, dict[str, object]]]:
        return Kind(
            self._elsewhere,
            lambda one: id_of(one[0]),
            lambda one: f"{printable(one[0])} {one[1].get('owner', '')}",
            lambda one: one[1],
            {"stream": lambda one: one[0], "owner": lambda one: str(one[1].get("owner", ""))},
        )

    def _elsewhere(self) -> list[tuple[str, dict[str, object]]]:
        broker = self._server.broker
        return broker.engine.seeking.streams() if broker is not None and broker.engine.seeking is not None else []

    # Parts that are no tables

    def _detail(self, name: str) -> dict[str, Any] | None:
        """Return everything about one stream, or None if it is not here."""
        broker = self._server.broker
        stream = broker.engine.find(name) if broker is not None else None
        if broker is None or stream is None:
            return None
        segments = stream.journal.segments
        sessions = [one for one in broker.engine.sessions if one.stream_name == name]
        readers = [describe_reader(stream, state) for state in islice(stream.readers.all(), READERS)]
        return {
            **stream_row(stream),
            "newest": (stream.journal.last_time or 0) // 1_000_000,
            "out": round(self._history.rates_out.get(name, 0.0), 1),
            "keep_tombstones": stream.journal.policy.keep_tombstones,
            "max_readers": stream.journal.policy.readers,
            "segment_count": len(segments),
            "segments": {str(one.first): _segment(one) for one in segments[-SEGMENTS:]},
            "named": {id_of(str(one["reader"])): one for one in readers},
            "client_count": len(sessions),
            "clients": {str(one.number): client_row(one) for one in sessions[:CLIENTS]},
            "orders": allowed_orders(self._server, name) if self._takes_orders else [],
        }

    def _brokers(self) -> dict[str, dict[str, object]]:
        """Return the brokers that share the object store."""
        broker = self._server.broker
        if broker is None or broker.engine.seeking is None:
            return {}
        return {id_of(name): row for name, row in broker.engine.seeking.brokers()[:NODES]}

    def _graph(self, look: Look) -> dict[str, Any]:
        """Return the first nodes that a look finds, and the pairs of them that talk most."""
        _, found = self._peers.find(look)
        shown = {peer.uuid.hex: peer for peer in found[:NODES]}
        nodes = {key: {"name": peer.name[:50], "hash": hash_of(peer.uuid)} for key, peer in shown.items()}
        hashes = {one["hash"] for one in nodes.values()}
        if self._server.node is not None:
            hashes.add(hash_of(self._server.node.uuid))
        logs = self._server.logs
        talk = logs.talk.most_common(PAIRS) if logs is not None else []
        pairs = {f"{a} {b}": count for (a, b), count in talk if a in hashes and b in hashes}
        return {"graph": {"nodes": nodes, "order": [*nodes], "talk": pairs}}


def _segment(segment: Segment) -> dict[str, int]:
    return {
        "first": segment.first,
        "last": segment.last,
        "octets": segment.size,
        "first_time": segment.first_time // 1_000_000,
        "last_time": segment.last_time // 1_000_000,
    }
