"""The last hour: rates, deliveries and lags, so that a newly opened page can draw its charts.

There is a value for each `STEP` seconds. Memory is bounded: at most `MOST` series of `KEPT` values of 4 bytes, about
12 MiB. Each second measures a part of the streams, so that a server with thousands of them has no long pauses.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

from zambezi.server.state import READERS
from zambezi.zeps.broker.deliveries import Deliveries, deliveries_of
from zambezi.zeps.broker.stream import BrokerStream

if TYPE_CHECKING:
    from zambezi.server import Server

STEP: Final = 10  # seconds between two values
KEPT: Final = 360  # values: an hour
MOST: Final = 8000  # series
RECENT: Final = 30  # values that a table shows
_OF_SERVER: Final = ("time", "in", "out", "lag")
_NONE: Final = Deliveries()


class Series:
    """The latest values of one thing."""

    __slots__ = ("_values",)

    def __init__(self, code: str = "f") -> None:
        self._values: array[float] = array(code)

    def add(self, value: float) -> None:
        """Add a value. The oldest ones go, some at a time."""
        self._values.append(value)
        if len(self._values) > KEPT + KEPT // 8:
            del self._values[:-KEPT]

    def last(self, count: int = KEPT) -> list[float]:
        """Return the latest values, the oldest first."""
        return [round(value, 1) for value in self._values[-count:]]


class History:
    """The series of the server, of each stream, and of its named readers."""

    def __init__(self) -> None:
        self._server = {name: Series("d" if name == "time" else "f") for name in _OF_SERVER}
        self._streams: dict[str, dict[str, Series]] = {}  # by the name of the stream and of the series
        self._before: dict[str, tuple[float, int, int]] = {}  # time, published, delivered
        self._delivered: dict[str, Deliveries] = {}  # by stream
        self.delivered = 0  # messages delivered by the broker
        self._tick = 0
        self._count = 0  # series of streams
        self.rates_out: dict[str, float] = {}  # messages delivered per second, by stream

    def sample(self, server: Server, now: float) -> None:
        """Measure a part of the streams, and at every `STEP`th call the server; `now` is in seconds since 1970."""
        if server.broker is None:
            return
        engine = server.broker.engine
        total, self._delivered = deliveries_of(engine)
        self.delivered = total.messages
        streams = engine.streams
        if self._tick % STEP == 0:
            self._sample_server(server, now)
            self._forget({stream.name for stream in streams})
        for stream in streams:
            if (hash(stream.name) - self._tick) % STEP == 0 or stream.name not in self._before:
                self._sample_stream(stream, now)
        self._tick += 1

    def _sample_server(self, server: Server, now: float) -> None:
        assert server.broker is not None
        came, went = self._rates("", now, server.broker.counters.published, self.delivered)
        for name, value in zip(_OF_SERVER, (now, came, went, server.loop_lag.lag * 1000), strict=True):
            self._server[name].add(value)

    def _sample_stream(self, stream: BrokerStream, now: float) -> None:
        delivered = self._delivered.get(stream.name, _NONE)
        came, went = self._rates(stream.name, now, stream.published, delivered.messages)
        self.rates_out[stream.name] = went
        values = {"in": came, "out": went, "lag": stream.readers.largest_lag}
        if 0 < len(stream.readers) <= READERS:
            lags = {state.name: stream.readers.lag_of(state.position) for state in stream.readers.all()}
            values |= {f"reader:{name}": lag for name, lag in lags.items()}
        known = self._streams.setdefault(stream.name, {})
        before = len(known)
        for gone in known.keys() - values.keys():
            del known[gone]
        for name, value in values.items():
            if name not in known and self._count + len(known) - before >= MOST:
                break
            known.setdefault(name, Series()).add(value)
        self._count += len(known) - before

    def _rates(self, name: str, now: float, published: int, delivered: int) -> tuple[float, float]:
        since, came, went = self._before.get(name, (now, published, delivered))
        self._before[name] = now, published, delivered
        passed = max(now - since, 0.001)
        return max(0, published - came) / passed, max(0, delivered - went) / passed

    def _forget(self, streams: set[str]) -> None:
        for known in (self._streams, self._before, self.rates_out):
            for name in [name for name in known if name and name not in streams]:
                del known[name]
        self._count = sum(map(len, self._streams.values()))

    def told(self) -> dict[str, Any]:
        """Return the series of the server."""
        return {name: series.last() for name, series in self._server.items()}

    def of_stream(self, name: str) -> dict[str, Any]:
        """Return the series of a stream, and the seconds between two values."""
        return {"step": STEP, **{key: series.last() for key, series in self._streams.get(name, {}).items()}}

    def recent(self, name: str) -> list[float]:
        """Return the latest rates of a stream."""
        series = self._streams.get(name, {}).get("in")
        return series.last(RECENT) if series is not None else []
