"""The names of streams as names of directories: no name escapes the data directory, and no two share a directory.

Letters, digits, `-` and `_` stand for themselves; every other byte, also a dot, is written as `%` and two digits. If
that is longer than 200 bytes it is cut, and a dot and the SHA-256 of the true name follow: no other name has a dot.
Directories that begin with a dot are never streams: the journal uses them for work that a crash can leave behind.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final
from urllib.parse import unquote_to_bytes

from zambezi.wire.text import as_bytes, as_text
from zambezi.zeps.errors import JournalError

LONGEST: Final = 255  # bytes of a name: those of a string on the wire
LIMIT: Final = 200
_PREFIX: Final = 120
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def name_of(directory: str) -> str | None:
    """Return the name of the stream in a directory, or None if the directory's name does not contain all of it."""
    if not directory.isascii():
        return None  # no stream has such a directory
    name = as_text(unquote_to_bytes(directory))
    return name if name and directory_of(name) == directory else None


def directory_of(name: str) -> str:
    """Return the name of the directory of the stream `name`."""
    try:
        octets = as_bytes(name)
    except UnicodeEncodeError:
        raise JournalError(f"stream {name!a}: the name cannot be encoded: it contains a lone surrogate") from None
    if not octets:
        raise JournalError("a stream needs a name; this one is empty")
    if len(octets) > LONGEST:
        raise JournalError(f"the name of a stream has at most {LONGEST} bytes, and this one has {len(octets)}")
    encoded = "".join([chr(octet) if octet in _PLAIN else f"%{octet:02X}" for octet in octets])
    if len(encoded) <= LIMIT:
        return encoded
    return f"{encoded[:_PREFIX]}.{sha256(octets).hexdigest()}"
