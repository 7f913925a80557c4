"""The console: a web page that shows a server at work, and metrics, health checks and JSON for programs.

It needs the extra `zambezi[console]`. The page loads nothing from other hosts, so it works offline.
"""

from __future__ import annotations

from zambezi.console.console import Console

__all__ = ["Console"]
