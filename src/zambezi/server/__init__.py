"""The services of one process, put together: what `zambezi serve` runs."""

from __future__ import annotations

from zambezi.server.server import Server, ServerOptions

__all__ = ["Server", "ServerOptions"]
