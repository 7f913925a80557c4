"""The web server of the console.

    /              the page
    /api/state     everything that the page shows, as JSON
    /api/live      the same every second, as server-sent events
    /api/tail      a stream as it comes, as server-sent events: ?stream=...&pattern=...&since=...
    /api/history   what it did in the last three minutes
    /api/log       the last logs of the mesh
    /api/results   the latest results of the pipelines
    /metrics       for Prometheus
    /healthz       200 while the process lives
    /readyz        200 while every service can do its work; 503 and the reasons if one cannot

With a token, whoever asks for anything but the health must show it: as a bearer token, or as `?token=` once, from then
on in a cookie.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from aiohttp import web

from zambezi.console.history import History
from zambezi.console.metrics import CONTENT_TYPE, exposition
from zambezi.console.results import latest_results
from zambezi.errors import ZambeziError
from zambezi.server.errors import ServerError
from zambezi.server.state import recent_logs, state_of
from zambezi.zeps.asyncio import Client
from zambezi.zeps.face import Since

if TYPE_CHECKING:
    from zambezi.server import Server

COOKIE: Final = "zambezi-token"
EVERY: Final = 1.0  # seconds between two states
TAIL_WINDOW: Final = 256 * 1024  # octets on the way to a page
TAIL_BODY: Final = 4096  # octets of a body that are shown
_OPEN: Final = ("/healthz", "/readyz")
_PLACES: Final[Mapping[str, Since]] = {"earliest": "earliest", "latest": "latest"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Console:
    """Serves the page of a server, from `async with` until its end."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._config = server.config.console
        app = web.Application(middlewares=[self._guard, _harden])
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/api/state", self._state),
                web.get("/api/live", self._live),
                web.get("/api/tail", self._tail),
                web.get("/api/history", self._past),
                web.get("/api/log", self._log),
                web.get("/api/results", self._results),
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.static("/static", Path(str(resources.files("zambezi.console") / "static"))),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        self._stopping = asyncio.Event()
        self._history = History()
        self._sampling: asyncio.Task[None] | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._config.host, self._config.port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise ServerError(
                f"the console cannot be served at {self._config.host}:{self._config.port}: {error.strerror}; choose "
                f"another port below [console]"
            ) from error
        self._sampling = asyncio.create_task(self._sample())
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        if self._sampling is not None:
            await self._sampling
        await self._runner.cleanup()

    # Who may see it

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        token = self._config.token
        if not token or request.path in _OPEN:
            return await handler(request)
        given = request.query.get("token", "")
        shown = (
            given or request.cookies.get(COOKIE, "") or request.headers.get("Authorization", "").removeprefix("Bearer ")
        )
        if not hmac.compare_digest(shown.encode(), token.encode()):
            raise web.HTTPUnauthorized(text="This console wants its token: add ?token=... to the address.\n")
        if given and request.path == "/":
            response = web.HTTPFound("/")
            response.set_cookie(COOKIE, token, httponly=True, samesite="Strict")
            raise response
        return await handler(request)

    # The page and what it shows

    async def _page(self, _request: web.Request) -> web.Response:
        page = (resources.files("zambezi.console") / "static" / "index.html").read_text(encoding="utf-8")
        return web.Response(text=page, content_type="text/html")

    async def _state(self, _request: web.Request) -> web.Response:
        return web.json_response(state_of(self._server))

    async def _live(self, request: web.Request) -> web.StreamResponse:
        return await self._events(request, self._states())

    async def _states(self) -> AsyncIterator[dict[str, Any]]:
        while not self._stopping.is_set():
            yield state_of(self._server)
            await self._pause()

    async def _sample(self) -> None:
        while not self._stopping.is_set():
            self._history.sample(self._server, time.time())
            await self._pause()

    async def _pause(self) -> None:
        """Until the next state is due, or the end has come."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), EVERY)

    async def _past(self, _request: web.Request) -> web.Response:
        return web.json_response(self._history.told())

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        endpoint = self._server.local_zeps
        if endpoint is None:
            raise web.HTTPNotFound(text="There is no broker of streams here.\n")
        stream = request.query.get("stream", "")
        pattern = request.query.get("pattern", "")
        since = _since(request.query.get("since", "latest"))
        return await self._events(request, self._messages(endpoint, stream, pattern, since))

    async def _messages(self, endpoint: str, stream: str, pattern: str, since: Since) -> AsyncIterator[dict[str, Any]]:
        try:
            async with Client.connect(endpoint) as client:
                subscription = client.stream(stream).subscribe(pattern, since=since, window=TAIL_WINDOW)
                async for message in subscription:
                    yield {
                        "sequence": message.sequence,
                        "key": message.key.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"),
                        "body": message.body[:TAIL_BODY].decode("utf-8", "backslashreplace"),
                        "size": len(message.body),
                        "shown": min(TAIL_BODY, len(message.body)),
                    }
        except ZambeziError as error:
            yield {"error": str(error)}

    async def _events(self, request: web.Request, values: AsyncIterator[dict[str, Any]]) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        await response.prepare(request)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            async for value in values:
                await response.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        with contextlib.suppress(RuntimeError):
            await values.aclose()  # type: ignore[attr-defined]
        return response

    async def _log(self, _request: web.Request) -> web.Response:
        return web.json_response(recent_logs(self._server))

    async def _results(self, _request: web.Request) -> web.Response:
        return web.json_response(latest_results(self._config.results))

    # What machines ask

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=exposition(self._server), headers={"Content-Type": CONTENT_TYPE})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        problems = self._server.problems
        return web.Response(text="".join(f"{one}\n" for one in problems) or "ok\n", status=503 if problems else 200)


@web.middleware
async def _harden(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A page that loads nothing from elsewhere, and is shown in no other page."""
    response = await handler(request)
    if not response.prepared:
        response.headers["Content-Security-Policy"] = (
            "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
        )
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Referrer-Policy"] = "no-referrer"
    return response


def _since(text: str) -> Since:
    if text in _PLACES:
        return _PLACES[text]
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise web.HTTPBadRequest(text="since is earliest, latest, a sequence or a time in ISO 8601\n") from None
