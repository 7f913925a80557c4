"""The guard of the console: which requests are answered, and the security headers of every response.

Every program that reaches the port can send requests, and a browser sends requests to ports of its own machine for any
web page. So the guard must keep pages of other sites out:

- Without a token, the guard answers only requests whose `Host` is a name of this machine. A page of another site can
  make its own name resolve to 127.0.0.1 (DNS rebinding); its requests would then have the same origin as the console
  and could read everything, but they carry that name.
- If the server has keys but the console has no token, the guard answers only the health checks: the console reads every
  stream, so without a token every user of the machine could read what the keys protect.
- With a token, a proxy with any name can be in front of the console, so the name proves nothing; the token does. A
  browser does not send the token's cookie with requests of other sites.
- If the browser says that a page of another site made the request, to embed the answer or to trigger something, the
  guard refuses it.

Orders change streams, so they need more than looking does:

- A console without a token takes none: every program of the machine could give them.
- The token must be a bearer token or the cookie. A link with `?token=` gives no order.
- The body must be JSON. A form of another site cannot send that, and a script of another site would have to ask first
  (a CORS preflight), which the console never allows.
- The `Origin` that a browser adds must be the console's own.
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
OPEN: Final = ("/healthz", "/readyz")  # for supervisors and load balancers, which have no token
METRICS: Final = "/metrics"
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
    """The check of every request."""

    def __init__(self, config: ConsoleConfig, has_keys: bool = False) -> None:
        self.is_off = has_keys and not config.token
        self._host = config.host
        self._token = config.token
        # Not the token itself: it can contain characters that a cookie cannot, and browsers write cookies to files.
        self._pass = hashlib.sha256(b"zambezi console\0" + config.token.encode()).hexdigest()

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not (self._token or self._knows(request.host) or self._is_check(request)):
            raise web.HTTPMisdirectedRequest(
                text="Without a token, this console answers only to names of its own machine, such as localhost.\n"
            )
        if request.headers.get("Sec-Fetch-Site") in _ELSEWHERE and not _is_visit(request):
            raise web.HTTPForbidden(text="This console does not answer to pages of other sites.\n")
        if self.is_off and request.path not in OPEN:
            raise web.HTTPForbidden(
                text="This console is off, because the server has keys and the console has no token: set token in "
                "[console].\n"
            )
        if not self.trusts(request) and request.path not in OPEN:
            raise web.HTTPUnauthorized(
                text="This console needs its token: add ?token=... to the address.\n",
                headers={"WWW-Authenticate": 'Bearer realm="zambezi"'},
            )
        if self._token and "token" in request.query and request.path == "/":
            response = web.HTTPFound("/")
            response.set_cookie(COOKIE, self._pass, httponly=True, samesite="Strict", secure=request.secure)
            raise response
        return await handler(request)

    @property
    def takes_orders(self) -> bool:
        """Whether a browser can change streams: only with a token."""
        return bool(self._token)

    def check_order(self, request: web.Request) -> None:
        """Raise 403 or 415 if a request that passed the guard must not give orders."""
        if not self.takes_orders:
            raise web.HTTPForbidden(text="This console takes no orders without a token: set token in [console].\n")
        if not self._presents(request):
            raise web.HTTPForbidden(
                text="An order needs the token as a bearer token or a cookie, not in the address.\n"
            )
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="The body of an order must be application/json.\n")
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != request.host:
            raise web.HTTPForbidden(text="This console takes no orders from pages of other sites.\n")
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            raise web.HTTPForbidden(text="This console takes no orders from pages of other sites.\n")

    def trusts(self, request: web.Request) -> bool:
        """Return whether a request presents the token, or needs none."""
        if not self._token:
            return not self.is_off
        in_address = _is_same(request.query.get("token", ""), self._token)
        return self._presents(request) or in_address

    def _presents(self, request: web.Request) -> bool:
        """Return whether a request has the token in a header."""
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        shown = [(bearer, self._token), (request.cookies.get(COOKIE, ""), self._pass)]
        return any([_is_same(*one) for one in shown])  # noqa: C419 - compare all, in constant time

    def _is_check(self, request: web.Request) -> bool:
        """Return whether a request is a health check that may come by any name: every machine can send it anyway.

        A supervisor such as Kubernetes uses the address of the machine as the name.
        """
        return request.path in OPEN and not is_loopback(self._host)

    def _knows(self, host: str) -> bool:
        """Return whether the `Host` of a request is a name of this machine."""
        name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        return name == self._host or is_loopback(name)


def _is_same(shown: str, wanted: str) -> bool:
    """Compare in constant time. The bytes of a header need not be UTF-8."""
    return hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), wanted.encode())


def _is_visit(request: web.Request) -> bool:
    """Return whether the browser opens the page itself, as for a link."""
    return request.path == "/" and request.headers.get("Sec-Fetch-Mode") == "navigate"


async def harden(_request: web.Request, response: web.StreamResponse) -> None:
    """Add headers to every response: the page loads nothing from other hosts, and no other page can embed it."""
    for name, value in _HEADERS.items():
        response.headers[name] = value
