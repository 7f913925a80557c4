"""Orders of the page: publish a message, and create, edit, trim or delete a stream.

An order is a POST with a JSON object: `order` is its name, and `stream` or `id` names the stream.

    publish   key, body
    create    settings: those of `Client.create`, such as {"keep_seconds": 3600}, or "1h"
    edit      settings; null is the default
    trim      before: the first sequence that stays
    delete

An order with any other field is refused, so that a field with a wrong name is not ignored.

The guard lets only requests with the token come here. The rules decide as for any other client: the name of the console
is `console`. The broker itself refuses orders about the server's own streams. The log has every order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from zambezi.console.guard import Guard
from zambezi.errors import ZambeziError
from zambezi.server.config.quantity import octets, seconds
from zambezi.server.state import name_of
from zambezi.wire.text import printable
from zambezi.zeps.asyncio import Client

if TYPE_CHECKING:
    from zambezi.server import Server

_log: Final = logging.getLogger("zambezi.console")

USER: Final = "console"
PATIENCE: Final = 8.0  # seconds; the door ends a request after 10
# The action of the rules that each order needs.
ACTIONS: Final = {"publish": "publish", "create": "create", "edit": "edit", "trim": "delete", "delete": "delete"}

# The fields of each order, besides its name and the stream.
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "publish": ("key", "body"),
    "create": ("settings",),
    "edit": ("settings",),
    "trim": ("before",),
    "delete": (),
}

# Settings that the page sends as people write them.
QUANTITIES: Final[Mapping[str, Callable[[str], float]]] = {"keep_seconds": seconds, "keep_bytes": octets}


def allowed_orders(server: Server, stream: str) -> list[str]:
    """Return the orders that the rules allow for a stream."""
    if stream in server.config.own_streams:
        return []
    return [order for order, action in ACTIONS.items() if server.rules.allow(USER, action, stream)]


class Orders:
    """The orders of all pages."""

    def __init__(self, server: Server, guard: Guard) -> None:
        self._server = server
        self._guard = guard

    async def handle(self, request: web.Request) -> web.Response:
        """Execute an order. The answer is `ok`, or the reason why not."""
        self._guard.check_order(request)
        try:
            given = await request.json()
        except (ValueError, RecursionError):
            raise web.HTTPBadRequest(text="The body is not JSON.\n") from None
        if not isinstance(given, dict):
            raise web.HTTPBadRequest(text="An order is a JSON object.\n")
        order, stream = given.get("order"), self._stream(given)
        if not isinstance(order, str) or order not in ACTIONS:
            raise web.HTTPBadRequest(text=f"order must be one of {', '.join(ACTIONS)}.\n")
        if order not in allowed_orders(self._server, stream):
            raise web.HTTPForbidden(text=f"The rules do not allow the user {USER} to {order} {printable(stream)}.\n")
        _check_fields(order, given)
        try:
            await self._execute(order, stream, given)
        except (ZambeziError, ValueError, TypeError) as error:
            raise web.HTTPConflict(text=f"{error}\n") from None
        fields = {"address": request.remote, "order": order, "stream": stream}
        _log.info("the console at %s: %s stream %s", request.remote, order, printable(stream), extra=fields)
        return web.Response(text="ok\n")

    def _stream(self, given: Mapping[str, Any]) -> str:
        name, identity = given.get("stream"), given.get("id")
        if isinstance(identity, str):
            return name_of(identity)
        if not isinstance(name, str):
            raise web.HTTPBadRequest(text="An order needs a stream: its name as stream, or its id as id.\n")
        return name

    async def _execute(self, order: str, stream: str, given: Mapping[str, Any]) -> None:
        endpoint, broker = self._server.local_zeps, self._server.broker
        if endpoint is None or broker is None:
            raise web.HTTPNotFound(text="This server has no broker of streams.\n")
        if order != "create" and broker.engine.find(stream) is None:
            raise web.HTTPNotFound(text=f"There is no stream {printable(stream)}.\n")
        async with Client.connect(endpoint) as client:
            match order:
                case "publish":
                    target = client.stream(stream)
                    await target.publish(_text(given, "key"), _text(given, "body").encode(), timeout=PATIENCE)
                    await target.flush(timeout=PATIENCE)
                case "create":
                    await client.create(stream, timeout=PATIENCE, **_settings(given))
                case "edit":
                    await client.edit(stream, timeout=PATIENCE, **_settings(given))
                case "trim":
                    await client.trim(stream, _sequence(given), timeout=PATIENCE)
                case _:
                    await client.delete(stream, timeout=PATIENCE)


def _check_fields(order: str, given: Mapping[str, Any]) -> None:
    """Raise 400 for a field that the order does not have."""
    known = ("order", "stream", "id", *FIELDS[order])
    for name in given:
        if name not in known:
            raise web.HTTPBadRequest(
                text=f"{order} has no field '{printable(name)}': its fields are {', '.join(known)}.\n"
            )


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str):
        raise web.HTTPBadRequest(text=f"{name} must be a text.\n")
    return value


def _settings(given: Mapping[str, Any]) -> Any:
    value = given.get("settings", {})
    if not isinstance(value, dict) or value.keys() & {"self", "stream", "timeout"}:
        raise web.HTTPBadRequest(text="settings must be an object with the settings of a stream.\n")
    return {name: _quantity(name, one) for name, one in value.items()}


def _quantity(name: str, value: Any) -> Any:
    """Return a setting; a time such as "7d" or a size such as "10G" as a number, read as the command line reads it."""
    read = QUANTITIES.get(name)
    return read(value) if read is not None and isinstance(value, str) else value


def _sequence(given: Mapping[str, Any]) -> int:
    value = given.get("before")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise web.HTTPBadRequest(text="before must be a sequence.\n")
    return value
