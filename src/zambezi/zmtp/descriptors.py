"""The number of descriptors that the connections of a process can take.

A process without free descriptors can open no file and make no connection. So accepted connections never take the last
ones: those stay in reserve, for journals, for key files, and for the connections that this process makes itself.

The kernel gives a new socket the lowest free number. So the number itself says how many descriptors are in use, at
least, whatever they are used for; no part of a program has to count its own.
"""

from __future__ import annotations

import resource
import sys
from typing import Final

_SHARE: Final = 8  # the reserve is one of so many parts,
_MOST: Final = 256  # and not more than so many descriptors


def usable() -> int:
    """Return how many descriptors can be in use before the reserve begins."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - min(limit // _SHARE, _MOST)
