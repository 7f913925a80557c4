"""The services of one process, put together: what `zambezi serve` runs."""

from __future__ import annotations

from zambezi.server.config import Config
from zambezi.server.server import Server

__all__ = ["Config", "Server"]
