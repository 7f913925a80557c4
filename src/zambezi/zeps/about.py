"""The fields of a log record about a stream, so that programs need not take its message apart."""

from __future__ import annotations


def about(stream: str, reason: object = None) -> dict[str, str]:
    """Return the fields for `extra`: the stream, and the reason if there is one.

    >>> about("prices", OSError("no room"))
    {'stream': 'prices', 'reason': 'no room'}
    """
    return {"stream": stream} if reason is None else {"stream": stream, "reason": str(reason)}
