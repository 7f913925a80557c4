"""Bytes as text, and text as bytes.

The specifications call names, keys and topics printable characters, and real ones are any bytes. So two forms are
needed: `as_text` loses nothing and can be turned back, and `printable` is fit for a terminal, a log or an error.
"""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 60  # characters in an error


def as_text(data: bytes) -> str:
    """Return bytes as text that `as_bytes` turns back into the same bytes.

    >>> as_text(b"caf\\xc3\\xa9"), as_bytes(as_text(b"\\xff")) == b"\\xff"
    ('café', True)
    """
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """Return the bytes of a text; raise `UnicodeEncodeError` for a surrogate that stands for no byte."""
    return text.encode("utf-8", "surrogateescape")


def is_encodable(text: str) -> bool:
    """Return whether `as_bytes` has bytes for a text: JSON can contain surrogates that stand for none.

    >>> is_encodable(as_text(b"caf\\xe9")), is_encodable("\\ud800")
    (True, False)
    """
    try:
        as_bytes(text)
    except UnicodeEncodeError:
        return False
    return True


def is_utf8(data: bytes) -> bool:
    """Return whether bytes are text in UTF-8.

    >>> is_utf8(b"caf\\xc3\\xa9"), is_utf8(b"caf\\xe9")
    (True, False)
    """
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def printable(data: bytes | str) -> str:
    """Return data from a peer in a form that is fit for a terminal: control characters would be commands to it.

    Bytes and their text by `as_text` have the same form.

    >>> printable(b"a\\x1b[2J\\xff") == printable(as_text(b"a\\x1b[2J\\xff"))
    True
    >>> print(printable(b"a\\x1b[2J\\xff"))
    a\\x1b[2J\\xff
    """
    text = data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else data
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte, as `as_text` has it
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()


def quoted(data: bytes) -> str:
    """Return data from a peer for one line of an error: printable, quoted, and not too long.

    >>> print(quoted(b"agent\\n"), quoted(b"x" * 100)[-5:])
    'agent\\n' x'...
    """
    return f"'{printable(data[:_LONGEST])}'{'...' if len(data) > _LONGEST else ''}"
