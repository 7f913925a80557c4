"""The door of the console: how many come in at once, and how long one may stand in it without a word.

The web server takes as many connections as it gets, and waits for a request for ever. Who opens connections and says
nothing, or a letter at a time, would have all descriptors of the process, and so those of the streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

MOST: Final = 512  # connections
FOLLOWERS: Final = 128  # of them those that stay, to be told what changes
PATIENCE: Final = 10.0  # seconds until the first request is there, whole
KEPT: Final = 30.0  # seconds between two requests


def is_ours(record: logging.LogRecord) -> bool:
    """Whether what the web server logs is a fault of ours. What is no HTTP is answered, and fills no log."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


class _Handler(Protocol):
    """What the web server makes of a connection."""

    transport: asyncio.Transport | None


class Door:
    """Counts those who are in."""

    def __init__(self, patience: float = PATIENCE, most: int = MOST, followers: int = FOLLOWERS) -> None:
        self._patience = patience
        self._most = most
        self._followers = followers
        self._silent: dict[object, asyncio.TimerHandle] = {}  # those who have not asked for anything yet
        self.following = 0
        self.turned_away = 0  # too many were there, or it took too long

    def opened(self, runner: web.AppRunner) -> asyncio.Protocol:
        """A new connection, as `create_server` wants it."""
        server = runner.server
        assert server is not None
        handler = server()
        loop = asyncio.get_running_loop()
        if len(server.connections) >= self._most:
            loop.call_soon(loop.call_soon, self._turn_away, handler)  # when it has its transport
        else:
            self._silent[handler] = loop.call_later(self._patience, self._turn_away, handler)
        return handler

    def _turn_away(self, handler: _Handler) -> None:
        self._silent.pop(handler, None)
        if handler.transport is not None:  # it is none if the connection is over
            self.turned_away += 1
            handler.transport.abort()

    def came_in(self, request: web.Request) -> None:
        """A request was read."""
        timer = self._silent.pop(request.protocol, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Nobody is waited for any more."""
        for timer in self._silent.values():
            timer.cancel()
        self._silent.clear()

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Be one who stays."""
        if self.following >= self._followers:
            raise web.HTTPServiceUnavailable(
                text=f"{self.following} follow this console already: close a page, or ask /api/state now and then.\n"
            )
        self.following += 1
        try:
            yield
        finally:
            self.following -= 1
