"""What a month of streams in an object store costs, on paper: requests and storage.

    python -m bench.store_costs

The prices are those that Amazon publishes for S3 Standard in us-east-1; transfers inside the region are free, and so
are DELETEs. The formula, for streams that always have messages:

    chunks/s  = streams x max(1 / commit, rate of a stream / chunk)
    names/s   = chunks/s                                       if a chunk has at least half the size `chunk`
    merges/s  = max(rate / 64 MiB, chunks/s / 512)             if not: small chunks are read, and put once more
    beats/s   = servers / heartbeat                            each is a PUT and a LIST, which cost the same

    requests  = (chunks/s + names/s or merges/s + 2 x beats/s) x month x price of a PUT
    reads     = (chunks/s if they are merged) x month x price of a GET
    storage   = rate x time that messages are kept x price of a GB for a month
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bench.report import table

MONTH: Final = 30 * 86_400  # seconds
PUT: Final = 0.005 / 1000  # dollars; a LIST costs the same
GET: Final = 0.0004 / 1000
STORAGE: Final = 0.023  # for a GB and a month
SEGMENT: Final = 64 << 20  # bytes of small chunks that become one segment
CHUNKS: Final = 512  # small chunks that become one segment, whatever their size
GB: Final = 1e9


class Load(NamedTuple):
    """The streams of a prefix, and the settings that matter."""

    rate: float  # bytes/s of all streams
    commit: float = 0.05  # seconds
    chunk: int = 8 << 20  # bytes
    keep: float = 7 * 86_400  # seconds
    streams: int = 1
    servers: int = 3
    heartbeat: float = 3.0  # seconds


class Costs(NamedTuple):
    """Dollars in a month."""

    requests: float  # PUT and LIST
    reads: float  # GET
    storage: float

    @property
    def total(self) -> float:
        return sum(self)


def month(load: Load) -> Costs:
    """Return what a month costs."""
    chunks = load.streams * max(1 / load.commit, load.rate / load.streams / load.chunk)
    is_merged = load.rate / chunks < load.chunk / 2
    others = max(load.rate / SEGMENT, chunks / CHUNKS) if is_merged else chunks
    beats = load.servers / load.heartbeat
    return Costs(
        (chunks + others + 2 * beats) * MONTH * PUT,
        (chunks if is_merged else 0.0) * MONTH * GET,
        load.rate * load.keep / GB * STORAGE,
    )


LOADS: Final = (
    Load(1e6),
    Load(1e6, commit=0.25),
    Load(1e6, commit=1.0),
    Load(1e6, streams=20, commit=1.0),
    Load(100e6),
    Load(100e6, commit=1.0),
    Load(100e6, commit=1.0, chunk=16 << 20),
)
HEADS: Final = ("rate", "streams", "`commit`", "`chunk`", "PUT, LIST", "GET", "storage, 7 days", "a month")


def rows() -> list[list[str]]:
    """Return the rows of the table in docs/store.md."""
    found = []
    for load in LOADS:
        costs = month(load)
        commit = f"{load.commit * 1000:.0f} ms" if load.commit < 1 else f"{load.commit:.0f} s"
        found.append(
            [
                f"{load.rate / 1e6:.0f} MB/s",
                str(load.streams),
                commit,
                f"{load.chunk >> 20} MiB",
                *(f"${dollars:,.0f}" for dollars in (*costs, costs.total)),
            ]
        )
    return found


def main() -> None:
    print(table(list(HEADS), rows()))


if __name__ == "__main__":
    main()
