"""Errors of disks and object stores, as one line: what was wrong, what to do, and in brackets where and why.

The libraries that speak to stores (obstore, deltalake) wrap the cause in their own words, and some add pages for their
developers. The line has none of that.
"""

from __future__ import annotations

import errno
import re
from html import unescape
from typing import Final

from zambezi.zeps.store.commands import Failed

_DEVELOPERS: Final = "\n\nDebug source"
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_STATUS: Final = re.compile(r"status code[:\s↳]+(\d\d\d[A-Za-z ]*)")
_CODE: Final = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,300})</Message>")
_ADDRESS: Final = re.compile(r"Error performing [A-Z]+ (\w+://[^/\s?]+)")
_SYSTEM: Final = re.compile(r"(?:Error: )?Os \{ code: \d+, kind: \w+, message: \"([^\"]+)\" \}")
_QUOTED: Final = re.compile(r"(?:message|error): \"([^\"]+)\"")
_WRAPPINGS: Final = re.compile(  # the words of the libraries around a cause
    r"Kernel error -> |Generic \w+ error(?:: |$)|Error performing list request(?:: |$)"
    r"|Error performing [A-Z]+ \S+ in \S+?(?:, after .*?)? - |HTTP error(?:: |$)| \(os error \d+\)"
)
_NO_BUCKET: Final = "NoSuchBucket"
_REFUSALS: Final = ("401", "403")
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_CAUSES: Final = (
    # A part of the text of an error, and the cause with what to do. The first one that is found counts.
    ("No space left on device", "the disk is full: make room, or choose another place"),
    ("Disk quota exceeded", "the disk quota is used up: make room, or choose another place"),
    ("Read-only file system", "the disk can only be read: choose another place"),
    ("Permission denied", "no permission to read or write there: change the rights, or choose another place"),
    ("Not a directory", "a part of the path is a file, not a directory: choose another place"),
    ("File exists", "a file is where a directory must be: choose another place"),
    (_NO_BUCKET, "there is no such bucket: make it, or correct the URL"),
    ("InvalidAccessKeyId", "the store does not know the access key: check the credentials"),
    ("SignatureDoesNotMatch", "the secret key is wrong: check the credentials"),
    ("ExpiredToken", "the credentials have expired: get new ones"),
    ("RequestTimeTooSkewed", "the clocks of this machine and of the store differ: set them"),
    ("401 Unauthorized", "the store refuses the credentials: check them"),
    ("403 Forbidden", "the store denies access: check the credentials and what they permit"),
    ("Connection refused", "nobody listens at the endpoint of the store: start the store, or correct the endpoint"),
    ("failed to lookup address", "the host of the endpoint is unknown: correct the endpoint"),
    ("InvalidContentType", "the store does not speak TLS: write http:// instead of https:// in its endpoint"),
    ("URL scheme is not allowed", "only https:// is allowed: set allow_http=true to use http://"),
    ("BadScheme", "only https:// is allowed: set allow_http=true to use http://"),
    (
        "invalid peer certificate",
        "the certificate of the store is not trusted: correct the endpoint or the certificate",
    ),
    ("operation timed out", "the store does not answer in time: check its endpoint and the network"),
    ("TimedOut", "the store does not answer in time: check its endpoint and the network"),
    ("client error (Connect)", "the store cannot be reached: check its endpoint"),
    ("kind: Connect,", "the store cannot be reached: check its endpoint"),
)

_AWAY: Final = frozenset(
    {"Connection refused", "operation timed out", "TimedOut", "client error (Connect)", "kind: Connect,"}
)
_WORDS_OF_AWAY: Final = tuple({cause for sign, cause in _CAUSES if sign in _AWAY})


def reason_of(error: BaseException) -> str:
    """Return an error as one line.

    It is the same for all requests that fail for one reason: so a server logs it once.

    >>> reason_of(OSError(28, "No space left on device"))
    'the disk is full: make room, or choose another place (No space left on device)'
    >>> reason_of(OSError("Generic S3 error: Error performing GET http://h:1/b?list in 1ms - Server returned non-2xx "
    ...                   "status code: 404 Not Found: <Error><Code>NoSuchBucket</Code></Error>"))
    'there is no such bucket: make it, or correct the URL (http://h:1: 404 Not Found: NoSuchBucket)'
    """
    text = _COLOURS.sub("", str(error))
    cause = next((cause for sign, cause in _CAUSES if sign in text), "")
    address = _ADDRESS.search(text)
    told = _answer_of(text, is_known=bool(cause))
    if not told:
        told = _chain_of(error, text)
        if cause and address is not None:  # the words between the address and the system's own say nothing more
            told = (_QUOTED.findall(text) or told)[-1:]
    detail = ": ".join([address[1], *told] if address is not None else told) or type(error).__name__
    return f"{cause} ({detail})" if cause else detail


def _answer_of(text: str, *, is_known: bool) -> list[str]:
    """Return what a store answered: the status, the code of the error, and its message unless the cause is known."""
    status = _STATUS.search(text)
    if status is None:
        return []
    patterns = (_CODE,) if is_known else (_CODE, _MESSAGE)
    found = [match for pattern in patterns if (match := pattern.search(text)) is not None]
    return [status[1].strip(), *(unescape(match[1]).strip() for match in found)]


def _chain_of(error: BaseException, text: str) -> list[str]:
    """Return the causes that an error names, the last one at the end."""
    if isinstance(error, OSError) and error.errno is not None:
        return [str(one) for one in (error.strerror, error.filename) if one]
    first, *others = text.partition(_DEVELOPERS)[0].strip().splitlines() or [""]
    lines = [first, *(line.strip(" ↳\t") for line in others if line.lstrip().startswith(("↳", "Error: ")))]
    plain = (_WRAPPINGS.sub("", _SYSTEM.sub(r"\1", line)).strip() for line in lines)
    return [line for line in plain if line] or [line for line in lines[:1] if line]


def is_away(reason: str) -> bool:
    """Return whether a reason, which `reason_of` has given, is that the store cannot be reached at the moment.

    >>> is_away(reason_of(OSError("Connection refused"))), is_away(reason_of(OSError(28, "No space left on device")))
    (True, False)
    """
    return any(words in reason for words in _WORDS_OF_AWAY)


def is_refusal(error: BaseException) -> bool:
    """Return whether an operator must do something before the store can execute such a request."""
    status = _STATUS.search(str(error))
    return _NO_BUCKET in str(error) or (status is not None and status.group(1).startswith(_REFUSALS))


def is_full(error: BaseException) -> bool:
    """Return whether the disk of a directory has no room, or the quota of its user is used up."""
    number = _OS_ERROR.search(str(error))
    return (int(number.group(1)) if number is not None else getattr(error, "errno", None)) in _FULL


def as_failed(error: BaseException) -> Failed:
    """Return an error as the answer to a request."""
    return Failed(reason_of(error), is_refusal(error), is_full(error))
