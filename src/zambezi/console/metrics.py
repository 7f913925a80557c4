"""The state of a server in the format of Prometheus.

Prometheus keeps a series for each combination of labels, for months. So the labels are few and stable: streams have
their names, up to a thousand of them. Clients have no label, because each connection would make a new series: a stream
has the values of its slowest subscriber, and `/api/state` has those of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from platform import python_version
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from zambezi.server.state import state_of
from zambezi.wire.text import as_bytes

if TYPE_CHECKING:
    from zambezi.server import Server

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_PROCESS: Final = ProcessCollector(registry=None)  # memory, processor, descriptors, by the names that everybody uses
STREAMS: Final = 1000  # streams that have their own series


class _State(Collector):
    """The metrics of one state. Each scrape makes a new one, so removed streams leave no series behind."""

    def __init__(self, state: Mapping[str, Any], turned_away: int) -> None:
        self._state = state
        self._turned_away = turned_away

    def collect(self) -> Iterator[Metric]:
        state = self._state
        build = GaugeMetricFamily("zambezi_build_info", "1; the versions are labels", labels=["version", "python"])
        build.add_metric([state["version"], python_version()], 1)
        yield build
        yield from _process(state["process"])
        if state["disk_free"] is not None:
            yield GaugeMetricFamily("zambezi_disk_free_bytes", "free on the disk with data", value=state["disk_free"])
            yield GaugeMetricFamily(
                "zambezi_disk_free_wanted_bytes",
                "below this, the server is not ready (min_free); 0 is no limit",
                value=state["disk_wanted"],
            )
        yield from _queues(state["queues"])
        yield GaugeMetricFamily(
            "zambezi_problems", "problems that make the server not ready; see /readyz", value=len(state["problems"])
        )
        yield CounterMetricFamily(
            "zambezi_console_turned_away",
            "connections and requests that the console ended: too many, or too slow",
            value=self._turned_away,
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


def exposition(server: Server, turned_away: int = 0) -> bytes:
    """Return the answer to a scrape; `turned_away` is the counter of the console's door."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_State(state_of(server), turned_away))
    return generate_latest(registry)


def _process(process: Mapping[str, float]) -> Iterator[Metric]:
    yield from _PROCESS.collect()
    yield GaugeMetricFamily("process_threads", "threads of the process", value=process["threads"])
    yield GaugeMetricFamily("zambezi_loop_lag_seconds", "delay of the event loop", value=process["loop_lag"])
    yield GaugeMetricFamily(
        "zambezi_loop_lag_worst_seconds", "worst recent delay of the event loop", value=process["loop_lag_worst"]
    )


_OF_STREAMS = {
    "last": ("zambezi_stream_sequence", "the last sequence", GaugeMetricFamily),
    "first": ("zambezi_stream_first_sequence", "the oldest sequence that is kept", GaugeMetricFamily),
    "octets": ("zambezi_stream_bytes", "the size of the journal", GaugeMetricFamily),
    "delivered": ("zambezi_stream_delivered_messages", "messages delivered to readers", CounterMetricFamily),
    "delivered_bytes": ("zambezi_stream_delivered_bytes", "bytes delivered to readers", CounterMetricFamily),
    "rate": ("zambezi_stream_messages_per_second", "messages published per second, recently", GaugeMetricFamily),
    "subscribers": ("zambezi_stream_subscribers", "subscribers", GaugeMetricFamily),
    "readers": ("zambezi_stream_readers", "named readers", GaugeMetricFamily),
    "groups": ("zambezi_stream_groups", "groups of shared readers", GaugeMetricFamily),
    "reader_lag": (
        "zambezi_stream_reader_lag",
        "messages that the named reader is behind which is furthest behind",
        GaugeMetricFamily,
    ),
}
_OF_GROUPS: Final = {
    "lag": ("zambezi_group_lag", "messages that a group of shared readers is behind", GaugeMetricFamily),
    "members": ("zambezi_group_members", "members of a group of shared readers", GaugeMetricFamily),
    "in_flight": ("zambezi_group_in_flight", "messages that members have not acknowledged", GaugeMetricFamily),
    "returned": ("zambezi_group_returned", "messages that wait for their next delivery", GaugeMetricFamily),
    "letters": ("zambezi_group_dead_letters", "messages that no member could handle", CounterMetricFamily),
}
_OF_READERS: Final = (
    ("lag", "zambezi_reader_lag", "messages that a named reader is behind, in streams with few of them"),
    ("behind", "zambezi_reader_lag_seconds", "the age of the first message that a named reader has not read"),
)
_OF_SUBSCRIBERS: Final = {
    "lag": ("zambezi_subscriber_lag", "messages that the slowest subscriber is behind"),
    "credit": ("zambezi_subscriber_credit_bytes", "the least credit of any subscriber, in bytes"),
}


def _queues(queues: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    length = GaugeMetricFamily(
        "zambezi_queue_length", "length of a queue; of many alike, the longest", labels=["service", "queue"]
    )
    bound = GaugeMetricFamily("zambezi_queue_bound", "maximum length of a queue", labels=["service", "queue"])
    for queue in queues:
        length.add_metric([queue["service"], queue["queue"]], queue["length"])
        bound.add_metric([queue["service"], queue["queue"]], queue["bound"])
    yield length
    yield bound


def label(text: str) -> str:
    """Return a name as a label: bytes that are not UTF-8 are escaped, because the format is UTF-8."""
    return as_bytes(text).decode("utf-8", "backslashreplace")


def _zeps(zeps: Mapping[str, Any]) -> Iterator[Metric]:
    streams = zeps["streams"][:STREAMS]
    yield from _streams(streams)
    yield GaugeMetricFamily(
        "zambezi_streams", "number of streams, including those without series", value=zeps["totals"]["streams"]
    )
    yield from _subscribers(streams, zeps["gears"])
    yield from _counts(zeps)


def _groups(streams: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    for key, (name, text, kind) in _OF_GROUPS.items():
        metric = kind(name, f"{text}, in streams with few groups", labels=["stream", "group"])
        for stream in streams:
            for group, row in stream["shared"].items():
                metric.add_metric([label(stream["stream"]), label(group)], row.get(key, 0))
        yield metric


def _streams(streams: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    for key, (name, text, kind) in _OF_STREAMS.items():
        metric = kind(name, text, labels=["stream"])
        for stream in streams:
            metric.add_metric([label(stream["stream"])], stream[key])
        yield metric
    for key, name, text in _OF_READERS:
        metric = GaugeMetricFamily(name, text, labels=["stream", "reader"])
        for stream in streams:
            for reader, row in stream["named"].items():
                metric.add_metric([label(stream["stream"]), label(reader)], row[key])
        yield metric
    yield from _groups(streams)
    held = GaugeMetricFamily("zambezi_stream_held", "1 if the stream cannot be written now", labels=["stream"])
    for stream in streams:
        held.add_metric([label(stream["stream"])], 1 if stream["held"] else 0)
    yield held
    feeds = CounterMetricFamily("zambezi_multicast", "multicast traffic, by kind", labels=["stream", "what"])
    for stream in streams:
        for what, count in (stream["feed"] or {}).items():
            feeds.add_metric([label(stream["stream"]), what], count)
    yield feeds


def _subscribers(streams: Iterable[Mapping[str, Any]], gears: Mapping[str, int]) -> Iterator[Metric]:
    for key, (name, text) in _OF_SUBSCRIBERS.items():
        gauge = GaugeMetricFamily(name, text, labels=["stream"])
        for stream in streams:
            if key in stream:
                gauge.add_metric([label(stream["stream"])], stream[key])
        yield gauge
    by_gear = GaugeMetricFamily("zambezi_subscribers", "subscribers by gear", labels=["gear"])
    for gear in ("live", "history", "idle"):
        by_gear.add_metric([gear], gears.get(gear, 0))
    yield by_gear


def _counts(zeps: Mapping[str, Any]) -> Iterator[Metric]:
    invalid = CounterMetricFamily("zambezi_invalid", "INVALID answers to clients, by kind", labels=["kind"])
    for kind_of, count in zeps["invalid"].items():
        invalid.add_metric([kind_of], count)
    yield invalid
    yield CounterMetricFamily("zambezi_published_messages", "messages published", value=zeps["published"])
    yield CounterMetricFamily("zambezi_delivered_messages", "messages delivered to readers", value=zeps["delivered"])
    yield CounterMetricFamily("zambezi_delivered_bytes", "bytes delivered to readers", value=zeps["delivered_bytes"])
    yield CounterMetricFamily(
        "zambezi_fell_behind", "subscribers whose next message retention had removed", value=zeps["fell_behind"]
    )
    yield CounterMetricFamily(
        "zambezi_dismissed", "publishers disconnected because too much waited for the disk", value=zeps["dismissed"]
    )
    yield CounterMetricFamily(
        "zambezi_fenced", "publishers disconnected because another program had resumed them", value=zeps["fenced"]
    )
    yield CounterMetricFamily("zambezi_requests", "requests of clients", value=zeps["requests"])
    yield CounterMetricFamily("zambezi_requests_unserved", "requests that no server wanted", value=zeps["unserved"])
    yield CounterMetricFamily(
        "zambezi_replies_unclaimed", "replies whose client was gone, or did not read", value=zeps["unclaimed"]
    )
    yield CounterMetricFamily(
        "zambezi_readers_refused", "named readers that the limit refused", value=zeps["readers_refused"]
    )
    yield CounterMetricFamily(
        "zambezi_readers_taken",
        "named readers that were refused or disconnected because another client has the name",
        value=zeps["readers_taken"],
    )
    yield GaugeMetricFamily("zambezi_publishers", "publishers whose messages are counted", value=zeps["publishers"])
    yield CounterMetricFamily(
        "zambezi_publishers_forgotten",
        "publishers that were forgotten: for the limit, or because they were silent for long",
        value=zeps["publishers_forgotten"],
    )
    yield CounterMetricFamily("zambezi_unread", "clients that did not read their answers", value=zeps["unread"])
    yield CounterMetricFamily(
        "zambezi_expelled", "clients disconnected because they sent messages that are not ZEPS", value=zeps["expelled"]
    )
    yield CounterMetricFamily(
        "zambezi_streams_refused", "new streams that a limit refused", value=zeps["streams_refused"]
    )
    yield from _scrub(zeps["scrub"])
    yield from _compaction(zeps["compaction"])
    if zeps["cache"]:
        yield from _cache(zeps["cache"])
    if zeps["copies"]:
        yield from _copies(zeps["copies"])
    yield CounterMetricFamily("zambezi_refused", "connections refused", value=zeps["refused"])
    yield CounterMetricFamily("zambezi_handshakes_failed", "handshakes that failed", value=zeps["handshakes_failed"])
    yield CounterMetricFamily("zambezi_cut_off", "connections closed because of a bound", value=zeps["cut_off"])
    yield from _latencies(zeps["latencies"])


_LATENCIES: Final = {
    "publish_to_deliver": (
        "zambezi_publish_to_deliver_seconds",
        "from the receipt of a message until the broker has sent it to the subscribers that read live",
    ),
    "journal_sync": ("zambezi_journal_sync_seconds", "fsyncs of journals"),
    "store_put": ("zambezi_store_put_seconds", "puts into the object store, also those that failed"),
}


def _latencies(latencies: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    for key, found in latencies.items():
        buckets = [(str(bound), count) for bound, count in (*found["buckets"], ("+Inf", found["count"]))]
        yield HistogramMetricFamily(*_LATENCIES[key], buckets=buckets, sum_value=found["seconds"])


def _compaction(compaction: Mapping[str, int]) -> Iterator[Metric]:
    yield CounterMetricFamily("zambezi_compaction_runs", "streams that were compacted", value=compaction["runs"])
    yield CounterMetricFamily("zambezi_compaction_removed", "messages removed", value=compaction["removed"])
    yield CounterMetricFamily("zambezi_compaction_bytes", "bytes of messages removed", value=compaction["octets"])
    yield CounterMetricFamily("zambezi_compaction_failures", "failed compactions", value=compaction["failures"])


def _copies(copies: Mapping[str, int]) -> Iterator[Metric]:
    lag, size = copies["lag"], copies["octets"]
    yield GaugeMetricFamily("zambezi_copies_lag", "messages that are not copied, of the stream with most", value=lag)
    yield CounterMetricFamily("zambezi_copies_messages", "messages copied to the store", value=copies["messages"])
    yield CounterMetricFamily("zambezi_copies_bytes", "bytes copied to the store", value=size)
    yield CounterMetricFamily("zambezi_copies_failures", "failed attempts to copy a stream", value=copies["failures"])


def _cache(cache: Mapping[str, int]) -> Iterator[Metric]:
    yield GaugeMetricFamily("zambezi_cache_bytes", "bytes of streams of the store on the disk", value=cache["octets"])
    yield GaugeMetricFamily("zambezi_cache_limit_bytes", "the limit of these; 0 is none", value=cache["limit"])
    yield CounterMetricFamily("zambezi_cache_evicted_bytes", "bytes removed from the disk", value=cache["evicted"])
    yield CounterMetricFamily("zambezi_cache_loaded_bytes", "bytes read from the store", value=cache["loaded"])
    yield CounterMetricFamily("zambezi_cache_fetched", "pieces that readers waited for", value=cache["fetched"])
    yield CounterMetricFamily("zambezi_cache_ahead", "pieces read before a reader wanted them", value=cache["ahead"])
    yield GaugeMetricFamily("zambezi_cache_waiting", "readers that wait for the store now", value=cache["waiting"])
    yield CounterMetricFamily("zambezi_cache_failures", "failed attempts to read a piece", value=cache["failed"])
    yield CounterMetricFamily("zambezi_cache_damaged", "readers that met a damaged object", value=cache["damaged"])


def _scrub(scrub: Mapping[str, int]) -> Iterator[Metric]:
    segments, size = scrub["segments"], scrub["octets"]
    yield CounterMetricFamily("zambezi_scrub_segments", "closed segments that the scrub has checked", value=segments)
    yield CounterMetricFamily("zambezi_scrub_bytes", "bytes of logs that the scrub has checked", value=size)
    yield CounterMetricFamily("zambezi_scrub_passes", "passes over all streams", value=scrub["passes"])
    yield CounterMetricFamily(
        "zambezi_scrub_repaired", "damaged segments whose messages the object store has", value=scrub["repaired"]
    )
    yield GaugeMetricFamily("zambezi_scrub_damaged", "closed segments that are damaged", value=scrub["damaged"])


def _mcollective(mcollective: Mapping[str, Any]) -> Iterator[Metric]:
    yield GaugeMetricFamily("zambezi_mcollective_clients", "connected clients", value=mcollective["clients"])
    yield GaugeMetricFamily(
        "zambezi_mcollective_topics", "topics with subscribers", value=mcollective["totals"]["topics"]
    )
    metric = CounterMetricFamily("zambezi_mcollective", "counters of the middleware, by kind", labels=["what"])
    for what, count in mcollective["counters"].items():
        metric.add_metric([what], count)
    yield metric


def _zre(zre: Mapping[str, Any]) -> Iterator[Metric]:
    yield GaugeMetricFamily("zambezi_peers", "peers in the mesh", value=zre["totals"]["peers"])
    metric = CounterMetricFamily("zambezi_mesh_bad_input", "discarded input from the mesh, by kind", labels=["kind"])
    for kind, count in zre["counters"].items():
        metric.add_metric([kind], count)
    yield metric
