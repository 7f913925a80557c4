"""The state of a server in Prometheus' form.

Who scrapes keeps a series for each combination of labels, for months. So labels are few, and the same tomorrow: streams
by name, the first thousand of them; and no clients, of which each connection would be a new one. Of the subscribers of
a stream the one that is worst off is told; `/api/state` has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from zambezi.server.state import state_of
from zambezi.wire.text import as_bytes

if TYPE_CHECKING:
    from zambezi.server import Server

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
STREAMS: Final = 1000  # that have series of their own


class _State(Collector):
    """Made anew from the state at each scrape: nothing is counted twice, and nothing is kept for what is gone."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        state = self._state
        yield from _process(state["process"])
        yield from _queues(state["queues"])
        yield GaugeMetricFamily(
            "zambezi_problems", "why the server is not ready, as /readyz tells", value=len(state["problems"])
        )
        if state["zeps"] is not None:
            yield from _zeps(state["zeps"])
        if state["mcollective"] is not None:
            yield from _mcollective(state["mcollective"])
        if state["zre"] is not None:
            yield from _zre(state["zre"])
        if state["log"] is not None:
            for name in ("journalled", "lost", "discarded"):
                value = state["log"][name]
                yield CounterMetricFamily(f"zambezi_log_{name}", f"logs of the mesh that were {name}", value=value)


def exposition(server: Server) -> bytes:
    """What a scrape of the server gets."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_State(state_of(server)))
    return generate_latest(registry)


def _process(process: Mapping[str, float]) -> Iterator[Metric]:
    yield GaugeMetricFamily("zambezi_memory_bytes", "resident memory", value=process["memory"])
    yield GaugeMetricFamily("zambezi_descriptors", "open descriptors", value=process["descriptors"])
    yield GaugeMetricFamily("zambezi_loop_lag_seconds", "how late the event loop was", value=process["loop_lag"])
    yield GaugeMetricFamily(
        "zambezi_loop_lag_worst_seconds", "how late it was at worst, of late", value=process["loop_lag_worst"]
    )


_OF_STREAMS = {
    "last": ("zambezi_stream_sequence", "the last sequence", GaugeMetricFamily),
    "first": ("zambezi_stream_first_sequence", "the oldest sequence that is kept", GaugeMetricFamily),
    "octets": ("zambezi_stream_bytes", "the size of the journal", GaugeMetricFamily),
    "rate": ("zambezi_stream_messages_per_second", "messages published of late", GaugeMetricFamily),
    "subscribers": ("zambezi_stream_subscribers", "subscribers", GaugeMetricFamily),
}
_OF_SUBSCRIBERS: Final[Mapping[str, tuple[str, str, Callable[[Iterable[int]], int]]]] = {
    "lag": ("zambezi_subscriber_lag", "messages that the slowest subscriber is behind", max),
    "credit": ("zambezi_subscriber_credit_bytes", "octets that may be sent to the subscriber with least credit", min),
}


def _queues(queues: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    length = GaugeMetricFamily("zambezi_queue_length", "what is in a queue; the longest, of many", labels=["queue"])
    bound = GaugeMetricFamily("zambezi_queue_bound", "what it holds at most", labels=["queue"])
    for queue in queues:
        length.add_metric([queue["queue"]], queue["length"])
        bound.add_metric([queue["queue"]], queue["bound"])
    yield length
    yield bound


def label(text: str) -> str:
    """A name as a label: octets that are no UTF-8 are escaped, for they could not be written."""
    return as_bytes(text).decode("utf-8", "backslashreplace")


def _zeps(zeps: Mapping[str, Any]) -> Iterator[Metric]:
    yield from _streams(zeps["streams"][:STREAMS])
    yield GaugeMetricFamily("zambezi_streams", "streams, also those without series", value=len(zeps["streams"]))
    yield from _subscribers(zeps["clients"], {one["stream"] for one in zeps["streams"][:STREAMS]})
    yield from _counts(zeps)


def _streams(streams: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    for key, (name, text, kind) in _OF_STREAMS.items():
        metric = kind(name, text, labels=["stream"])
        for stream in streams:
            metric.add_metric([label(stream["stream"])], stream[key])
        yield metric
    held = GaugeMetricFamily("zambezi_stream_held", "1 if nothing can be journalled now", labels=["stream"])
    for stream in streams:
        held.add_metric([label(stream["stream"])], 1 if stream["held"] else 0)
    yield held
    feeds = CounterMetricFamily("zambezi_multicast", "what went to groups", labels=["stream", "what"])
    for stream in streams:
        for what, count in (stream["feed"] or {}).items():
            feeds.add_metric([label(stream["stream"]), what], count)
    yield feeds


def _subscribers(clients: Iterable[Mapping[str, Any]], told: Container[str]) -> Iterator[Metric]:
    followed: dict[str, list[Mapping[str, Any]]] = {}
    for client in clients:
        if "lag" in client and client["stream"] in told:
            followed.setdefault(client["stream"], []).append(client)
    for key, (name, text, worst) in _OF_SUBSCRIBERS.items():
        gauge = GaugeMetricFamily(name, text, labels=["stream"])
        for stream, readers in followed.items():
            gauge.add_metric([label(stream)], worst(reader[key] for reader in readers))
        yield gauge
    gears = GaugeMetricFamily("zambezi_subscribers", "subscribers by gear", labels=["gear"])
    for gear in ("live", "history", "idle"):
        gears.add_metric([gear], sum(client["gear"] == gear for client in clients))
    yield gears


def _counts(zeps: Mapping[str, Any]) -> Iterator[Metric]:
    invalid = CounterMetricFamily("zambezi_invalid", "what was answered INVALID, by kind", labels=["kind"])
    for kind_of, count in zeps["invalid"].items():
        invalid.add_metric([kind_of], count)
    yield invalid
    yield CounterMetricFamily("zambezi_published_messages", "messages published", value=zeps["published"])
    yield CounterMetricFamily("zambezi_fell_behind", "readers that retention has passed", value=zeps["fell_behind"])
    yield CounterMetricFamily("zambezi_dismissed", "publishers let go: too much waits", value=zeps["dismissed"])
    yield CounterMetricFamily("zambezi_unread", "clients that did not read their answers", value=zeps["unread"])
    yield CounterMetricFamily("zambezi_refused", "connections refused", value=zeps["refused"])
    yield CounterMetricFamily("zambezi_handshakes_failed", "handshakes that failed", value=zeps["handshakes_failed"])
    yield CounterMetricFamily("zambezi_journal_syncs", "journals brought onto the disk", value=zeps["syncs"])
    yield CounterMetricFamily("zambezi_journal_sync_seconds", "and how long it took", value=zeps["sync_seconds"])
    yield GaugeMetricFamily(
        "zambezi_journal_sync_latency_seconds", "how long the last ones took", value=zeps["sync_latency"]
    )


def _mcollective(mcollective: Mapping[str, Any]) -> Iterator[Metric]:
    yield GaugeMetricFamily("zambezi_mcollective_clients", "connected clients", value=mcollective["clients"])
    yield GaugeMetricFamily("zambezi_mcollective_topics", "topics with subscribers", value=len(mcollective["topics"]))
    metric = CounterMetricFamily("zambezi_mcollective", "what the middleware did, by kind", labels=["what"])
    for what, count in mcollective["counters"].items():
        metric.add_metric([what], count)
    yield metric


def _zre(zre: Mapping[str, Any]) -> Iterator[Metric]:
    yield GaugeMetricFamily("zambezi_peers", "peers in the mesh", value=len(zre["peers"]))
    metric = CounterMetricFamily("zambezi_mesh_bad_input", "what was discarded, by kind", labels=["kind"])
    for kind, count in zre["counters"].items():
        metric.add_metric([kind], count)
    yield metric
