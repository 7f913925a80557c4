"""The messages of a stream, for a page that follows it, and the keys that it has most.

A page gets at most `RATE` bytes per second, after a first burst. Old messages wait for that; new ones do not: those
above the rate are skipped and counted, because a person cannot read them, and the page must stay near the end.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from zambezi.console.answers import encode
from zambezi.errors import ZambeziError
from zambezi.server.state import name_of
from zambezi.wire.text import printable
from zambezi.zeps.asyncio import Client
from zambezi.zeps.client.arguments import Since
from zambezi.zeps.client.batch import Message

if TYPE_CHECKING:
    from zambezi.server import Server

RATE: Final = 40_000  # bytes per second that a page gets
BURST: Final = 256_000  # bytes that a page gets at once
FRAME: Final = 150  # bytes of an event besides key and body
SEQUENCE: Final = 20  # digits
TAIL_WINDOW: Final = 256 * 1024  # bytes that the broker may send ahead of a page
TAIL_BODY: Final = 4096  # bytes of a body that the page gets
COUNTED: Final = 5000  # messages whose keys are counted
READ: Final = 4 << 20  # bytes that are read for that
PATIENCE: Final = 3.0  # seconds for that
KEYS: Final = 20  # keys that are shown
LONG: Final = 200  # characters of a key that are shown
NEWEST: Final = 200  # messages before the end with which a page begins
_PLACES: Final[Mapping[str, Since]] = {"earliest": "earliest", "latest": "latest"}


class Budget:
    """The bytes that a page can get now.

    >>> now = [0.0]
    >>> budget = Budget(lambda: now[0], rate=10, burst=20)
    >>> budget.wait(20), budget.wait(5)
    (0.0, 0.5)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, rate: int = RATE, burst: int = BURST) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._left = float(burst)
        self._at = clock()

    def wait(self, size: int) -> float:
        """Take so many bytes and return 0, or return the seconds until they can be taken."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        size = min(size, self._burst)
        if self._left < size:
            return (size - self._left) / self._rate
        self._left -= size
        return 0.0


class Tails:
    """The followers of streams, and the counts of keys."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._counting = asyncio.Lock()  # one count at a time: each reads megabytes

    def follow(self, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Return the events for a page. Raise 404 or 400 if the query is not valid."""
        endpoint = self._endpoint()
        stream, since = _stream(query), query.get("since", "latest")
        return self._messages(endpoint, stream, query.get("pattern", ""), self._start(stream, since))

    def _start(self, stream: str, since: str) -> Since:
        """Return where a page begins: `NEWEST` messages before the end, or as the query says."""
        if since != "newest":
            return _since(since)
        journal = self._journal(stream)
        return "latest" if journal is None else max(0, journal.last - NEWEST)

    async def top_keys(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the keys that the latest messages of a stream have most, each with its messages and bytes."""
        endpoint, stream = self._endpoint(), _stream(query)
        async with self._counting:
            return await self._count_keys(endpoint, stream)

    async def _count_keys(self, endpoint: str, stream: str) -> dict[str, Any]:
        journal = self._journal(stream)
        if journal is None or journal.last < journal.first:
            return {"messages": 0, "keys": []}
        last = journal.last
        counts, sizes, read = Counter[str](), Counter[str](), 0
        try:
            async with asyncio.timeout(PATIENCE), Client.connect(endpoint) as client:
                since = max(journal.first - 1, last - COUNTED)  # the last sequence that is not wanted
                async for message in client.stream(stream).subscribe(since=since, window=TAIL_WINDOW):
                    counts[message.key] += 1
                    sizes[message.key] += len(message.body)
                    read += len(message.body) + len(message.key)
                    if message.sequence >= last or read >= READ:
                        break
        except (TimeoutError, ZambeziError):
            pass  # the counts so far are true
        top = [[key[:LONG], count, sizes[key]] for key, count in counts.most_common(KEYS)]
        return {"messages": counts.total(), "keys": top, "distinct": len(counts)}

    def _endpoint(self) -> str:
        endpoint = self._server.local_zeps
        if endpoint is None:
            raise web.HTTPNotFound(text="This server has no broker of streams.\n")
        return endpoint

    def _journal(self, stream: str) -> Any:
        broker = self._server.broker
        found = broker.engine.find(stream) if broker is not None else None
        return found.journal if found is not None else None

    async def _messages(self, endpoint: str, stream: str, pattern: str, since: Since) -> AsyncGenerator[bytes, None]:
        journal = self._journal(stream)
        if journal is None:
            yield _error(f"there is no stream {printable(stream)}")  # a subscription would create it
            return
        old, skipped, budget = journal.last, 0, Budget()
        try:
            async with Client.connect(endpoint) as client:
                messages = client.stream(stream).subscribe(pattern, since=since, window=TAIL_WINDOW, times=True)
                async for message in messages:
                    is_new = message.sequence > old
                    size = FRAME + len(message.key) + min(TAIL_BODY, len(message.body))
                    wait = budget.wait(size)
                    if wait and is_new:
                        skipped += 1
                        continue
                    if wait:
                        await asyncio.sleep(wait)
                        budget.wait(size)
                    yield _shown(message, is_new, skipped)
                    skipped = 0
        except ZambeziError as error:
            yield _error(str(error))


def _stream(query: Mapping[str, str]) -> str:
    name = query.get("id")
    return query.get("stream", "") if name is None else name_of(name)


def _error(text: str) -> bytes:
    return encode({"error": text})


def _shown(message: Message, is_new: bool, skipped: int) -> bytes:
    """Return a message as the page gets it. A new one has the milliseconds since the broker has written it."""
    assert message.time is not None
    shown: dict[str, Any] = {
        "sequence": message.sequence,
        "time": message.time.isoformat(timespec="microseconds"),
        "key": message.key,
        "body": message.body[:TAIL_BODY].decode("utf-8", "backslashreplace"),
        "size": len(message.body),
        "shown": min(TAIL_BODY, len(message.body)),
    }
    if is_new:
        shown["latency"] = round((datetime.now(UTC) - message.time).total_seconds() * 1000, 2)
    if skipped:
        shown["skipped"] = skipped
    return encode(shown)


def _since(text: str) -> Since:
    if text in _PLACES:
        return _PLACES[text]
    if text.isdecimal() and len(text) <= SEQUENCE:
        return int(text)
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise web.HTTPBadRequest(
            text="since must be newest, earliest, latest, a sequence or a time in ISO 8601\n"
        ) from None
