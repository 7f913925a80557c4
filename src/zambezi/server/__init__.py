"""The services of one process, as `zambezi serve` runs them."""

from __future__ import annotations

from zambezi.server.config import Config
from zambezi.server.server import Server

__all__ = ["Config", "Server"]
