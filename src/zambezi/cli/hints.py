"""Hints: the option that helps against a reason of the library, which does not know the command line."""

from __future__ import annotations

import re
from typing import Final

_NEXT: Final = {
    ": [Cc]onnection refused($|[;.] | \\(tried for )": "nothing listens there: is zambezi serve running?",
    "wants CURVE security": "give its public key with --server-key FILE, or with $ZAMBEZI_SERVER_KEY",
    "does not let us in": "--key FILE, or $ZAMBEZI_KEY, is a key pair; the server must have its public key in allowed/",
    "no ZMTP at all": "is this the port of another service, such as the console?",
    "sent a message of several frames": "is this the port of another service, such as the middleware of fleets?",
    "does not answer as a middleware$": "is this the port of another service, such as the broker of streams?",
}


def with_hint(problem: str) -> str:
    """Return a problem, and what to do about it if that is known.

    >>> with_hint("no connection to tcp://127.0.0.1:1: connection refused")
    'no connection to tcp://127.0.0.1:1: connection refused (nothing listens there: is zambezi serve running?)'
    """
    return next((f"{problem} ({advice})" for sign, advice in _NEXT.items() if re.search(sign, problem)), problem)
