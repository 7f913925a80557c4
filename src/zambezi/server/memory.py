"""Memory that stays: the C library is told to keep what a busy server frees, for it is needed again at once.

A read of 256 KiB and the block that is made of it are large enough for glibc to return their memory to the system when
they are freed, and to have it faulted in, page by page, at the next read. Half of the broker's time went there.
"""

from __future__ import annotations

import ctypes
from typing import Final

# From malloc.h: which parameter, and its value in octets.
_PARAMETERS: Final = {-3: 32 << 20, -1: 64 << 20, -2: 16 << 20}  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD


def keep_memory() -> bool:
    """Ask the C library, where it understands, to keep what is freed. It costs some tens of MiB at most."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all([mallopt(parameter, value) == 1 for parameter, value in _PARAMETERS.items()])  # noqa: C419 - tell all
