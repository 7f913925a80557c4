"""The answers of the console: built at most twice per second, shared by all requests, and sent in small pieces.

However many clients ask, the server describes itself once, and however slowly they read, each of them has only a few
pieces of the answer in memory.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from aiohttp import web

FRESH: Final = 0.5  # seconds for which the same answer serves all requests
PIECE: Final = 32 * 1024  # bytes
JSON: Final = "application/json; charset=utf-8"


def _escape_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    shown = "".join(f"\\\\x{ord(char) & 0xFF:02x}" for char in error.object[error.start : error.end])
    return shown, error.end


codecs.register_error("zambezi-json", _escape_byte)


def encode(value: Any) -> bytes:
    """Return a value as JSON. Bytes of names that are not UTF-8 are shown as escapes, because JSON has only characters.

    >>> encode({"stream": "caf\\xe9 \\udcff"}).decode()
    '{"stream": "café \\\\\\\\xff"}'
    """
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "zambezi-json")


class Answer:
    """An answer that is built when it is asked for, and kept for a moment."""

    def __init__(self, build: Callable[[], bytes], kind: str = JSON) -> None:
        self._build = build
        self._kind = kind
        self._content = b""
        self._stale_at = 0.0

    def content(self) -> bytes:
        """Return the answer, built anew if it is not fresh."""
        now = asyncio.get_running_loop().time()
        if not self._content or now >= self._stale_at:
            self._content = self._build()
            self._stale_at = now + FRESH
        return self._content

    async def send(self, request: web.Request) -> web.StreamResponse:
        """Send the answer as fast as the client reads it."""
        return await send(request, self.content(), self._kind)


async def send(request: web.Request, content: bytes, kind: str = JSON) -> web.StreamResponse:
    """Send a content as fast as the client reads it."""
    response = web.StreamResponse(headers={"Content-Type": kind, "Content-Length": str(len(content))})
    await response.prepare(request)
    if request.method != "HEAD":
        for piece in pieces(content):
            await response.write(piece)
    await response.write_eof()
    return response


def pieces(content: bytes) -> Iterator[memoryview]:
    """Yield a content in pieces that share its memory."""
    view = memoryview(content)
    return (view[start : start + PIECE] for start in range(0, len(view), PIECE))
