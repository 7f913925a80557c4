"""The door of the console: how many connections are open at once, and how long one may stay silent.

The web server accepts every connection, and waits for its request for ever. A client that opens many connections and
sends nothing, or one byte at a time, could take all file descriptors of the process, which the streams need, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

MOST: Final = 512  # connections
FOLLOWERS: Final = 128  # connections that follow the state or a stream
PATIENCE: Final = 10.0  # seconds until the whole first request must have arrived
KEPT: Final = 30.0  # seconds between two requests


def is_ours(record: logging.LogRecord) -> bool:
    """Return whether a log record of the web server is about a fault of the console.

    A client that does not speak HTTP gets an error, and must not be able to fill the log.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


class _Handler(Protocol):
    """The web server's object for a connection."""

    transport: asyncio.Transport | None


class Door:
    """The limits on the connections of a console, and the tasks of its requests."""

    def __init__(self, patience: float = PATIENCE, most: int = MOST, followers: int = FOLLOWERS) -> None:
        self._patience = patience
        self._most = most
        self._followers = followers
        self._silent: dict[object, asyncio.TimerHandle] = {}  # connections without a request so far
        self._tasks: set[asyncio.Task[Any]] = set()  # of requests and of their connections
        self.following = 0
        self.turned_away = 0  # connections closed because too many were open, or because they were silent too long

    def opened(self, runner: web.AppRunner) -> asyncio.Protocol:
        """Return the protocol of a new connection, for `create_server`."""
        server = runner.server
        assert server is not None
        handler = server()
        loop = asyncio.get_running_loop()
        if len(server.connections) >= self._most:
            loop.call_soon(loop.call_soon, self._turn_away, handler)  # after it gets its transport
        else:
            self._silent[handler] = loop.call_later(self._patience, self._turn_away, handler)
        return handler

    def _turn_away(self, handler: _Handler) -> None:
        self._silent.pop(handler, None)
        if handler.transport is not None:  # else the connection has ended
            self.turned_away += 1
            handler.transport.abort()

    def came_in(self, request: web.Request) -> None:
        """Note that the whole request of a connection has arrived."""
        timer = self._silent.pop(request.protocol, None)
        if timer is not None:
            timer.cancel()
        for task in (request.task, asyncio.current_task()):
            if task is not None and task not in self._tasks:
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Stop waiting for first requests."""
        for timer in self._silent.values():
            timer.cancel()
        self._silent.clear()

    async def wait_until_empty(self) -> None:
        """Wait until the tasks of all requests have ended, also of those whose connection is lost."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Count a follower. Raise 503 if there are too many."""
        if self.following >= self._followers:
            raise web.HTTPServiceUnavailable(
                text=f"{self.following} pages already follow this console: close one, or poll /api/state instead.\n"
            )
        self.following += 1
        try:
            yield
        finally:
            self.following -= 1
