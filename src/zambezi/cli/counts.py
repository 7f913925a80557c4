"""Numbers of things in sentences."""

from __future__ import annotations


def so_many(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    >>> so_many(1, "message"), so_many(0, "message"), so_many(2000, "batch", "batches")
    ('1 message', '0 messages', '2,000 batches')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
