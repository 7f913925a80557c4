"""Mirrors: a stream of one broker is followed into a stream of another one, each message once.

`Mirror` blocks; `zambezi.zeps.mirror.asyncio.Mirror` has the same methods for asyncio. `target` explains how a mirror
finds its position again.
"""

from __future__ import annotations

from zambezi.zeps.mirror.sync import Mirror
from zambezi.zeps.mirror.target import MirrorCounters

__all__ = ["Mirror", "MirrorCounters"]
