"""The last hour: rates, deliveries, latencies and lags, so that a newly opened page can draw its charts.

There is a value for each `STEP` seconds. Memory is bounded: at most `MOST` series of `KEPT` values of 4 bytes, about
24 MiB. A series begins with its first value that is not 0, and ends after an hour of zeros, so idle streams need none.
Each second measures a part of the streams, so that a server with thousands of them has no long pauses.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from zambezi.server.state import READERS
from zambezi.zeps.broker.engine import Engine
from zambezi.zeps.broker.stream import BrokerStream
from zambezi.zeps.histogram import BOUNDS, Histogram

if TYPE_CHECKING:
    from zambezi.server import Server

STEP: Final = 10  # seconds between two values
KEPT: Final = 360  # values: an hour
MOST: Final = 16_000  # series
RECENT: Final = 30  # values that a table shows
_OF_SERVER: Final = ("time", "in", "out", "lag", "median", "p99")
_OF_STREAM: Final = ("in", "out", "lag")


class Series:
    """The latest values of one thing. NaN stands for a step without a value."""

    __slots__ = ("_values", "zeros")

    def __init__(self, code: str = "f", zeros: int = 0) -> None:
        self._values: array[float] = array(code, [0.0] * min(zeros, KEPT))
        self.zeros = 0  # values since the last one that was not 0

    def add(self, value: float) -> None:
        """Add a value. The oldest ones go, some at a time."""
        self.zeros = 0 if value else self.zeros + 1
        self._values.append(value)
        if len(self._values) > KEPT + KEPT // 8:
            del self._values[:-KEPT]

    def last(self, count: int = KEPT) -> list[float | None]:
        """Return the latest values, the oldest first; None for a step without a value."""
        return [None if math.isnan(value) else round(value, 2) for value in self._values[-count:]]


class Past:
    """The series of one stream."""

    __slots__ = ("is_cut", "samples", "series")

    def __init__(self) -> None:
        self.samples = 0
        self.series: dict[str, Series] = {}
        self.is_cut = False  # whether a series is missing, because there are too many

    def add(self, values: dict[str, float], room: int) -> None:
        """Add a value for each name; at most `room` new series."""
        before = len(self.series)
        for gone in [name for name, one in self.series.items() if name not in values or one.zeros > KEPT]:
            del self.series[gone]
        self.is_cut = False
        for name, value in values.items():
            series = self.series.get(name)
            if series is None and value:
                if len(self.series) - before >= room:
                    self.is_cut = True
                    continue
                series = self.series[name] = Series(zeros=self.samples)
            if series is not None:
                series.add(value)
        self.samples = min(self.samples + 1, KEPT)

    def last(self, name: str, count: int = KEPT) -> list[float | None]:
        """Return the latest values of a series. A series that does not exist is 0."""
        series = self.series.get(name)
        return series.last(count) if series is not None else [0] * min(self.samples, count)


class Latencies:
    """The durations that a histogram has counted since the last look."""

    def __init__(self) -> None:
        self._before = [0] * (len(BOUNDS) + 1)

    def look(self, histogram: Histogram, shares: Sequence[float]) -> list[float]:
        """Return for each share of the durations its longest one in milliseconds; NaN if nothing was counted.

        The values are bounds of the histogram, so they are upper limits.

        >>> histogram, latencies = Histogram(), Latencies()
        >>> histogram.add(0.0003, 90)
        >>> histogram.add(0.004, 10)
        >>> latencies.look(histogram, (0.5, 0.99)), latencies.look(histogram, (0.5,))
        ([0.5, 5.0], [nan])
        """
        now = [*(count for _, count in histogram.buckets()), histogram.count]
        new = [after - before for after, before in zip(now, self._before, strict=True)]
        self._before = now
        if new[-1] <= 0:
            return [math.nan] * len(shares)
        counted = list(zip([*BOUNDS, BOUNDS[-1]], new, strict=True))
        return [1000 * next(bound for bound, count in counted if count >= share * new[-1]) for share in shares]


class History:
    """The series of the server, of each stream, and of its named readers."""

    def __init__(self) -> None:
        self._server = {name: Series("d" if name == "time" else "f") for name in _OF_SERVER}
        self._streams: dict[str, Past] = {}
        self._before: dict[str, tuple[float, int, int]] = {}  # time, published, delivered
        self._latencies = Latencies()
        self._tick = 0
        self._count = 0  # series of streams
        self.rates_out: dict[str, float] = {}  # messages delivered per second, by stream

    def sample(self, server: Server, now: float) -> None:
        """Measure a part of the streams, and at every `STEP`th call the server; `now` is in seconds since 1970."""
        if server.broker is None:
            return
        engine = server.broker.engine
        delivered = _delivered(engine)
        streams = engine.streams
        if self._tick % STEP == 0:
            self._sample_server(server, now, engine.deliveries.messages + delivered.total())
            self._forget({stream.name for stream in streams})
        for stream in streams:
            if (hash(stream.name) - self._tick) % STEP == 0 or stream.name not in self._before:
                self._sample_stream(stream, now, stream.deliveries.messages + delivered[stream.name])
        self._tick += 1

    def _sample_server(self, server: Server, now: float, delivered: int) -> None:
        assert server.broker is not None
        came, went = self._rates("", now, server.broker.counters.published, delivered)
        latencies = self._latencies.look(server.broker.engine.latency, (0.5, 0.99))
        values = (now, came, went, server.loop_lag.lag * 1000, *latencies)
        for name, value in zip(_OF_SERVER, values, strict=True):
            self._server[name].add(value)

    def _sample_stream(self, stream: BrokerStream, now: float, delivered: int) -> None:
        came, went = self._rates(stream.name, now, stream.published, delivered)
        self.rates_out[stream.name] = went
        values = {"in": came, "out": went, "lag": float(stream.readers.largest_lag)}
        if 0 < len(stream.readers) <= READERS:
            lags = {state.name: stream.readers.lag_of(state.position) for state in stream.readers.all()}
            values |= {f"reader:{name}": float(lag) for name, lag in lags.items()}
        past = self._streams.setdefault(stream.name, Past())
        before = len(past.series)
        past.add(values, MOST - self._count)
        self._count += len(past.series) - before

    def _rates(self, name: str, now: float, published: int, delivered: int) -> tuple[float, float]:
        since, came, went = self._before.get(name, (now, published, delivered))
        self._before[name] = now, published, delivered
        passed = max(now - since, 0.001)
        return max(0, published - came) / passed, max(0, delivered - went) / passed

    def _forget(self, streams: set[str]) -> None:
        for known in (self._streams, self._before, self.rates_out):
            for name in [name for name in known if name and name not in streams]:
                del known[name]
        self._count = sum(len(past.series) for past in self._streams.values())

    def told(self) -> dict[str, Any]:
        """Return the series of the server."""
        return {name: series.last() for name, series in self._server.items()}

    def of_stream(self, name: str) -> dict[str, Any]:
        """Return the series of a stream, and the seconds between two values; `cut` is the limit if some are missing."""
        past = self._streams.get(name)
        if past is None:
            return {"step": STEP}
        series = {one: past.last(one) for one in (*_OF_STREAM, *past.series)}
        return {"step": STEP, **series, **({"cut": MOST} if past.is_cut else {})}

    def recent(self, name: str) -> list[float | None]:
        """Return the latest rates of a stream."""
        past = self._streams.get(name)
        return past.last("in", RECENT) if past is not None else []


def _delivered(engine: Engine) -> Counter[str]:
    """Return the messages that open connections have got, by stream. The engine has those of the others."""
    delivered = Counter[str]()
    for session in engine.sessions:
        if session.cursor is not None:
            delivered[session.cursor.stream.name] += session.cursor.delivered
    return delivered
