"""The door of the console: how many connections are open at once, and how long each may take.

The web server accepts every connection, waits for its request for ever, and keeps an answer in memory until its reader
has read it. A client that opens many connections and sends nothing, sends one byte at a time, or never reads, could
take all memory and all file descriptors of the process, which the streams need, too. So every connection always has a
deadline, and the door aborts a connection that misses it:

- the first request must have arrived `PATIENCE` seconds after the connection, and another one `KEPT` after an answer;
- an answer must have been read `ANSWER` seconds after its request, and so must each event of a follower.

A connection that sends more than `REQUEST` bytes before its request is answered is aborted, too: all requests are
short, and parsing others would take the time of the streams.

If too many connections are open, a new one takes the place of the connection that has been idle longest. Requests in
progress never take all places: `ROOM` places are left for health checks, and for some scrapes of the metrics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from zambezi.console.guard import METRICS, OPEN

MOST: Final = 512  # connections
ROOM: Final = 64  # connections that only health checks and scrapes can use
FOLLOWERS: Final = 128  # connections that follow the state or a stream
PATIENCE: Final = 10.0  # seconds until the whole first request must have arrived
ANSWER: Final = 10.0  # seconds until an answer, or an event of a follower, must have been read
KEPT: Final = 30.0  # seconds between two requests
REQUEST: Final = 16 * 1024  # bytes of a request


def is_ours(record: logging.LogRecord) -> bool:
    """Return whether a log record of the web server is about a fault of the console.

    A client that does not speak HTTP gets an error, and must not be able to fill the log.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


class Visit(asyncio.Protocol):
    """A connection: it passes everything on to the web server's handler, and can be aborted at any time.

    The handler alone is not enough: it forgets its transport when it closes it, but a transport stays open until the
    reader has read everything.
    """

    def __init__(self, door: Door, handler: web.RequestHandler) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.received = 0  # bytes since the last answer
        self.handler = handler

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.handler.connection_made(transport)
        self._door.came(self)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self.received > REQUEST:
            self._door.turn_away(self)
        else:
            self.handler.data_received(data)

    def eof_received(self) -> None:
        self.handler.eof_received()

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.set_deadline(None)
        self._door.left(self)
        self.handler.connection_lost(exc)

    def set_deadline(self, seconds: float | None) -> None:
        """Abort the connection after some seconds, unless another deadline is set first; with None, never."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._door.turn_away, self)

    def abort(self) -> None:
        """End the connection at once. Bytes that were not read are lost."""
        if self._transport is not None:
            self._transport.abort()


class Door:
    """The connections of a console with their deadlines, and the tasks of its requests."""

    def __init__(
        self,
        *,
        most: int = MOST,
        room: int = ROOM,
        followers: int = FOLLOWERS,
        patience: float = PATIENCE,
        answer: float = ANSWER,
    ) -> None:
        self._most = most
        self._limits = {"pages": most - room, "scrapes": room // 2, "followers": followers}
        self._patience = patience
        self._answer = answer
        self._visits: dict[object, Visit] = {}  # by handler
        self._idle: dict[Visit, None] = {}  # connections without a request in progress, the longest idle first
        self._tasks: set[asyncio.Task[Any]] = set()  # of requests and of their connections
        self.inside = dict.fromkeys(self._limits, 0)  # the number of requests in progress, by kind
        self.turned_away = 0  # connections that missed a deadline or made room, and requests above a limit

    def opened(self, runner: web.AppRunner) -> Visit:
        """Return the protocol of a new connection, for `create_server`."""
        server = runner.server
        assert server is not None
        return Visit(self, server())

    def came(self, visit: Visit) -> None:
        """Note a new connection. If there are too many, end the one that has been idle longest."""
        self._visits[visit.handler] = visit
        self._idle[visit] = None
        visit.set_deadline(self._patience)
        if len(self._visits) > self._most:
            self.turn_away(next(iter(self._idle)))

    def left(self, visit: Visit) -> None:
        """Note that a connection has ended."""
        self._visits.pop(visit.handler, None)
        self._idle.pop(visit, None)

    def turn_away(self, visit: Visit) -> None:
        """End a connection."""
        self.turned_away += 1
        self.left(visit)
        visit.set_deadline(None)
        visit.abort()

    @contextmanager
    def enter(self, request: web.Request) -> Iterator[None]:
        """Give a request its time for the answer. Raise 503 if too many are in progress."""
        for task in (request.task, asyncio.current_task()):
            if task is not None and task not in self._tasks:
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        visit = self._visits.get(request.protocol)
        if visit is not None:
            self._idle.pop(visit, None)
            visit.set_deadline(self._answer)
        try:
            if request.path in OPEN:
                yield
            else:
                with self._count("scrapes" if request.path == METRICS else "pages", "try again later"):
                    yield
        finally:
            if request.protocol in self._visits and visit is not None:
                self._idle[visit] = None
                visit.received = 0
                visit.set_deadline(KEPT)

    @contextmanager
    def follow(self, request: web.Request) -> Iterator[None]:
        """Let a request go on without a deadline, except for its writes. Raise 503 if too many do."""
        with self._count("followers", "close a page that follows this console, or poll /api/state"):
            self._set_deadline(request, None)
            yield

    @contextmanager
    def write(self, request: web.Request) -> Iterator[None]:
        """Give a follower its time to read one event."""
        self._set_deadline(request, self._answer)
        yield
        self._set_deadline(request, None)

    def _set_deadline(self, request: web.Request, seconds: float | None) -> None:
        visit = self._visits.get(request.protocol)
        if visit is not None:
            visit.set_deadline(seconds)

    @contextmanager
    def _count(self, kind: str, advice: str) -> Iterator[None]:
        if self.inside[kind] >= self._limits[kind]:
            self.turned_away += 1
            raise web.HTTPServiceUnavailable(
                text=f"This console already answers {self.inside[kind]} {kind}, its limit: {advice}.\n",
                headers={"Retry-After": "5"},
            )
        self.inside[kind] += 1
        try:
            yield
        finally:
            self.inside[kind] -= 1

    def close(self) -> None:
        """End all connections."""
        for visit in [*self._visits.values()]:
            visit.set_deadline(None)
            visit.abort()

    async def wait_until_empty(self) -> None:
        """Wait until the tasks of all requests have ended, also of those whose connection is lost."""
        while self._tasks:
            await asyncio.wait(self._tasks)
