"""Who may see the console, and what browsers are told about it.

The console speaks to whoever reaches its port, and a browser reaches the ports of its own machine for any page that
asks it to. So a page of another site must not get at it:

- Without a token only names of this machine are answered. A page that has its own name resolve to 127.0.0.1 (DNS
  rebinding) would be of the same origin as the console, and could read it all; but it comes with its own name.
- With a token there may be a proxy with any name in front, and the name proves nothing; the token does. Its cookie is
  sent by no page of another site.
- What another site's page asks for, to embed it or to trigger something, is refused, where the browser says so.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from zambezi.server.config import ConsoleConfig
from zambezi.server.config.consistency import is_loopback

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

COOKIE: Final = "zambezi-token"
OPEN: Final = ("/healthz", "/readyz")  # for those who restart and balance, who have no token
_ELSEWHERE: Final = ("cross-site", "same-site")
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Server": "zambezi",
}


class Guard:
    """Lets those in who may see the console."""

    def __init__(self, config: ConsoleConfig) -> None:
        self._host = config.host
        self._token = config.token
        # Not the token itself: it may have characters that no cookie has, and cookies end up in files.
        self._pass = hashlib.sha256(b"zambezi console\0" + config.token.encode()).hexdigest()

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._token and not self._knows(request.host):
            raise web.HTTPMisdirectedRequest(text="This console answers by the names of its own machine only.\n")
        if request.headers.get("Sec-Fetch-Site") in _ELSEWHERE and not _is_visit(request):
            raise web.HTTPForbidden(text="This console does not answer to pages of other sites.\n")
        if not self.trusts(request) and request.path not in OPEN:
            raise web.HTTPUnauthorized(
                text="This console wants its token: add ?token=... to the address.\n",
                headers={"WWW-Authenticate": 'Bearer realm="zambezi"'},
            )
        if self._token and "token" in request.query and request.path == "/":
            response = web.HTTPFound("/")
            response.set_cookie(COOKIE, self._pass, httponly=True, samesite="Strict", secure=request.secure)
            raise response
        return await handler(request)

    def trusts(self, request: web.Request) -> bool:
        """Whether a request shows the token, where there is one."""
        if not self._token:
            return True
        given = request.query.get("token", "")
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        shown = [(given, self._token), (bearer, self._token), (request.cookies.get(COOKIE, ""), self._pass)]
        return any([_is_same(*one) for one in shown])  # noqa: C419 - all of them, so that time tells nothing

    def _knows(self, host: str) -> bool:
        """Whether the `Host` of a request is this machine."""
        name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        return name == self._host or is_loopback(name)


def _is_same(shown: str, wanted: str) -> bool:
    """Compares in the same time, however much of it is right; what comes in a header may be no text at all."""
    return hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), wanted.encode())


def _is_visit(request: web.Request) -> bool:
    """Whether a person follows a link to the page."""
    return request.path == "/" and request.headers.get("Sec-Fetch-Mode") == "navigate"


async def harden(_request: web.Request, response: web.StreamResponse) -> None:
    """A page that loads nothing from elsewhere, and is shown in no other page. For answers of every kind."""
    for name, value in _HEADERS.items():
        response.headers[name] = value
