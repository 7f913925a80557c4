"""Errors of an object store, as one line that tells what was wrong and what to do."""

from __future__ import annotations

import re
from html import unescape
from typing import Final

from zambezi.zeps.store.commands import Failed

_STATUS: Final = re.compile(r"status code: (\d\d\d[A-Za-z ]*)")
_CODE: Final = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,300})</Message>")
_ATTEMPT: Final = re.compile(r"Error performing [A-Z]+ (\w+://[^/\s]+)\S* in \S+?(?:, after .*?)? - ")
_NO_BUCKET: Final = "NoSuchBucket"
_SKEWED: Final = "RequestTimeTooSkewed"
_REFUSALS: Final = ("401", "403")


def reason_of(error: BaseException) -> str:
    """Return an error as one line. obstore's own text has the answer of the store, and pages for its developers.

    The line is the same for all requests that fail for one reason: so a server logs it once.
    """
    text = str(error).partition("\n\nDebug source")[0].strip()
    status = _STATUS.search(text)
    if status is None:
        return _ATTEMPT.sub(r"\1: ", text.partition("\n")[0]) or type(error).__name__
    said = [
        unescape(found.group(1)).strip() for pattern in (_CODE, _MESSAGE) if (found := pattern.search(text)) is not None
    ]
    return ": ".join([status.group(1).strip(), *said]) + _advice(status.group(1), text)


def _advice(status: str, text: str) -> str:
    if _NO_BUCKET in text:
        return "; make the bucket, or correct the url"
    if _SKEWED in text:
        return "; the clocks of this machine and of the store differ: set them"
    return "; check the credentials and what they permit" if status.startswith(_REFUSALS) else ""


def is_refusal(error: BaseException) -> bool:
    """Return whether an operator must do something before the store can execute such a request."""
    status = _STATUS.search(str(error))
    return _NO_BUCKET in str(error) or (status is not None and status.group(1).startswith(_REFUSALS))


def as_failed(error: BaseException) -> Failed:
    """Return an error as the answer to a request."""
    return Failed(reason_of(error), is_refusal(error))
