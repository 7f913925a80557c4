"""The web server of the console.

    /              the page
    /api/state     everything about the server, as JSON
    /api/live      what one view of the page shows, every second, as server-sent events with differences:
                   ?view=...&filter=...&sort=...&page=...
    /api/tail      the messages of a stream, as server-sent events: ?stream=...&pattern=...&since=...; for a stream
                   whose name is not UTF-8, ?id= with the `id` of the state
    /api/history   rates and lags of the last hour; ?id= for those of a stream
    /api/keys      the keys that the latest messages of a stream have most: ?id=
    /api/order     POST: publish a message, or create, edit, trim or delete a stream; see `orders`
    /api/log       the latest logs of the mesh
    /api/results   the verdicts of the pipelines, and the latest results of one: ?pipeline=
    /metrics       for Prometheus
    /healthz       200 while the process lives
    /readyz        200 while every service can do its work; 503 and the reasons if one cannot

If a token is configured, every request except for the health checks must present it: as a bearer token, or once as
`?token=`, which sets a cookie. `guard` decides which requests are answered, `door` how many, and `answers` builds the
answers.

A follower is a request for /api/live or /api/tail, whose response does not end by itself. It ends when its browser
leaves or when the console stops. Each way, the task of the request ends only after the follower has closed its client
of the broker, and the console does not stop before all these tasks have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import AsyncGenerator, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from aiohttp import web

from zambezi.console.answers import Answer, encode, pieces
from zambezi.console.board import Board
from zambezi.console.door import KEPT, Door, is_ours
from zambezi.console.guard import METRICS, Guard, Handler, harden
from zambezi.console.history import History
from zambezi.console.live import Differences
from zambezi.console.logbook import Logbook
from zambezi.console.metrics import CONTENT_TYPE, exposition
from zambezi.console.orders import Orders
from zambezi.console.results import Results
from zambezi.console.tables import LookError
from zambezi.console.tail import Tails
from zambezi.server.errors import SettingError
from zambezi.server.state import name_of, recent_logs, state_of

if TYPE_CHECKING:
    from zambezi.server import Server

_log: Final = logging.getLogger("zambezi.console")
_log.addFilter(is_ours)

EVERY: Final = 1.0  # seconds between two values of a view
LONGEST_PATH: Final = 200  # bytes of the path of a request
SEND_BUFFER: Final = 128 * 1024  # bytes of a connection that the kernel keeps


class Console:
    """The web server that shows a server. It runs inside `async with`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._config = server.config.console
        self._guard = Guard(self._config, has_keys=server.keys is not None)
        self._state = Answer(lambda: encode(state_of(server)))
        self._door = Door()
        self._history = History()
        self._logbook = Logbook()
        self._board = Board(server, self._history, self._logbook, takes_orders=self._guard.takes_orders)
        self._tails = Tails(server)
        self._orders = Orders(server, self._guard)
        app = web.Application(middlewares=[self._enter, self._guard.check])
        app.on_response_prepare.append(harden)
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/api/state", self._state.send),
                web.get("/api/live", self._live, allow_head=False),
                web.get("/api/tail", self._tail, allow_head=False),
                web.get("/api/history", self._told),
                web.get("/api/keys", self._keys),
                web.post("/api/order", self._orders.handle),
                web.get("/api/log", Answer(lambda: encode(recent_logs(server))).send),
                web.get("/api/results", Results(self._config.results).handle),
                web.get(METRICS, Answer(self._metrics, CONTENT_TYPE).send),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.static("/static", Path(str(resources.files("zambezi.console") / "static"))),
            ]
        )
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=0.5,
            keepalive_timeout=2 * KEPT,  # the door is faster
            handler_cancellation=True,  # or a follower would notice that its browser has left only at its next write
            logger=_log,
        )
        self._listener: asyncio.Server | None = None
        self._stopping = asyncio.Event()
        self._followers: set[asyncio.Timeout] = set()  # each ends one follower
        self._sampling: asyncio.Task[None] | None = None
        self.url = ""

    @property
    def is_off(self) -> bool:
        """Whether only health checks are answered, because the server has keys and the console has no token."""
        return self._guard.is_off

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        host, port = self._config.host, self._config.port
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(lambda: self._door.opened(self._runner), host, port)
        except OSError as error:
            await self._runner.cleanup()
            raise SettingError(
                ("console", "host" if isinstance(error, socket.gaierror) else "port"),
                f"the console cannot listen on {host}:{port}: {_reason(error)}; choose another port or address",
            ) from error
        for one in self._listener.sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # its connections inherit it
        self._sampling = asyncio.create_task(self._sample())
        self._logbook.open()
        host, port = self._listener.sockets[0].getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        self._logbook.close()
        now = asyncio.get_running_loop().time()
        for follower in self._followers:
            follower.reschedule(now)
        if self._sampling is not None:
            await self._sampling
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()
        self._door.close()
        await self._door.wait_until_empty()

    # Access

    @web.middleware
    async def _enter(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        with self._door.enter(request):
            if len(os.fsencode(request.path)) > LONGEST_PATH:
                raise web.HTTPNotFound  # the system refuses such names of files with an error, which would be logged
            return await handler(request)

    # The page, and its data

    async def _page(self, _request: web.Request) -> web.Response:
        page = (resources.files("zambezi.console") / "static" / "index.html").read_text(encoding="utf-8")
        return web.Response(text=page, content_type="text/html")

    async def _live(self, request: web.Request) -> web.StreamResponse:
        try:
            self._board.see(request.query)
        except LookError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        return await self._events(request, self._values(request.query))

    async def _values(self, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        differences = Differences()
        while not self._stopping.is_set():
            yield encode(differences.next(self._board.see(query)))
            await self._pause()

    async def _sample(self) -> None:
        while not self._stopping.is_set():
            self._history.sample(self._server, time.time())
            await self._pause()

    async def _pause(self) -> None:
        """Wait until the next state is due, or the console stops."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), EVERY)

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        return await self._events(request, self._tails.follow(request.query))

    async def _keys(self, request: web.Request) -> web.Response:
        return web.Response(body=encode(await self._tails.top_keys(request.query)), content_type="application/json")

    async def _told(self, request: web.Request) -> web.Response:
        """Return the last hour of a stream, or of the server."""
        name = request.query.get("id")
        told = self._history.told() if name is None else self._history.of_stream(name_of(name))
        return web.Response(body=encode(told), content_type="application/json")

    async def _events(self, request: web.Request, values: AsyncGenerator[bytes, None]) -> web.StreamResponse:
        """Send values to a follower until they end, its browser leaves, or the console stops."""
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        async with contextlib.aclosing(values):
            with self._door.follow(request), contextlib.suppress(ConnectionError, TimeoutError):
                await response.prepare(request)
                async with asyncio.timeout(0 if self._stopping.is_set() else None) as follower:
                    self._followers.add(follower)
                    try:
                        async for value in values:
                            with self._door.write(request):
                                await response.write(b"data: ")
                                for piece in pieces(value):
                                    await response.write(piece)
                                await response.write(b"\n\n")
                    finally:
                        self._followers.discard(follower)
        return response

    # Metrics and health

    def _metrics(self) -> bytes:
        return exposition(self._server, self._door.turned_away)

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        problems = self._server.problems
        if problems and not self._guard.trusts(request):
            problems = ["not ready; present the token to see why"]  # the names of streams are not public
        return web.Response(text="".join(f"{one}\n" for one in problems) or "ok\n", status=503 if problems else 200)


def _reason(error: OSError) -> str:
    """Return the reason of an error without the words that asyncio adds."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
