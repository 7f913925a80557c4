"""How many connections and journals fit into this process: the limit of descriptors."""

from __future__ import annotations

import resource


def raise_limit() -> int:
    """Have as many descriptors as the system allows without asking; how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard
