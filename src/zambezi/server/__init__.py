"""The services of one process, as `zambezi serve` runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zambezi.lazy import exports

if TYPE_CHECKING:
    from zambezi.server.config import Config
    from zambezi.server.server import Server

__all__ = ["Config", "Server"]

__getattr__ = exports(__name__, {"Config": "config", "Server": "server"})
