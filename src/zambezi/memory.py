"""The memory that the C library keeps for a process."""

from __future__ import annotations

import ctypes
from typing import Final

# From malloc.h: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_TOP_PAD, with their values in bytes.
_PARAMETERS: Final = {-3: 32 << 20, -1: 64 << 20, -2: 16 << 20}


def keep_memory() -> bool:
    """Ask the C library to keep the memory that a busy process frees; return whether it accepted.

    A read of 256 KiB, and the block made from it, are so large that glibc returns their memory to the kernel when they
    are freed. The kernel then maps it again page by page for the next read, which took half of the broker's time, and a
    third of the time of a task of Spark. Keeping the memory costs some tens of MiB at most.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all([mallopt(parameter, value) == 1 for parameter, value in _PARAMETERS.items()])  # noqa: C419 - set all
