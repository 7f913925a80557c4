"""The console: a page that shows a server at work, and what machines ask of it: metrics, health, JSON.

It needs the extra `zambezi[console]`. Nothing on the page comes from another host, and it works offline.
"""

from __future__ import annotations

from zambezi.console.console import Console

__all__ = ["Console"]
