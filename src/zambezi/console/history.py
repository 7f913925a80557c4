"""The rates and lags of the last minutes, one sample per second, so that a newly opened page can draw its charts."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from zambezi.server.state import id_of

if TYPE_CHECKING:
    from zambezi.server import Server

KEPT: Final = 180  # samples, one per second
MOST: Final = 200  # streams whose rates are kept: the first ones


class History:
    """The latest samples of the server and of each stream."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=KEPT)  # time, messages per second, lag in ms
        self._rates: dict[str, deque[float]] = {}  # by the id of the stream

    def sample(self, server: Server, now: float) -> None:
        """Add a sample; `now` is in seconds since 1970."""
        streams = list(server.broker.engine.streams) if server.broker is not None else []
        self._samples.append((now, sum(stream.rate for stream in streams), server.loop_lag.lag * 1000))
        names = {id_of(stream.name) for stream in streams}
        for name in self._rates.keys() - names:
            del self._rates[name]
        for stream in streams:
            name = id_of(stream.name)
            rates = self._rates.get(name)
            if rates is None:
                if len(self._rates) >= MOST:
                    continue
                rates = self._rates[name] = deque(maxlen=KEPT)
            rates.append(stream.rate)

    def told(self) -> dict[str, Any]:
        """Return the samples as the page gets them."""
        time, rate, lag = zip(*self._samples, strict=True) if self._samples else ((), (), ())
        return {
            "time": time,
            "rate": [round(value, 1) for value in rate],
            "lag": [round(value, 2) for value in lag],
            "streams": {name: [round(value, 1) for value in rates] for name, rates in self._rates.items()},
        }
