"""Errors of an object store, as one line that tells what was wrong and what to do; and when a broker logs them."""

from __future__ import annotations

import logging
import re
import time
from typing import Final

from zambezi.zeps.store.commands import Answer, Failed

_log: Final = logging.getLogger("zambezi.zeps")
_STATUS: Final = re.compile(r"status code: (\d\d\d[A-Za-z ]*)")
_REQUEST: Final = re.compile(r"performing ([A-Z]+) ([^\s?]+)")
_CODE: Final = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,300})</Message>")
_NO_BUCKET: Final = "NoSuchBucket"
_SKEWED: Final = "RequestTimeTooSkewed"
_REFUSALS: Final = ("401", "403")
_QUIET: Final = 5.0  # seconds of failures that are not logged: the engines repeat the requests
_PAUSE: Final = 60.0  # seconds between two lines about failures


def reason_of(error: BaseException) -> str:
    """Return an error as one line. obstore's own text has the answer of the store, and pages for its developers."""
    text = str(error).partition("\n\nDebug source")[0].strip()
    status = _STATUS.search(text)
    if status is None:
        return text.partition("\n")[0] or type(error).__name__
    said = [found.group(1).strip() for pattern in (_CODE, _MESSAGE) if (found := pattern.search(text)) is not None]
    request = _REQUEST.search(text)
    place = f" ({request.group(1)} {request.group(2)})" if request is not None else ""
    return ": ".join([status.group(1).strip(), *said]) + place + _advice(status.group(1), text)


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


class StoreWatch:
    """The log of a broker about a store that fails: a line after some seconds, and one when it answers again."""

    def __init__(self, url: str) -> None:
        self.is_on = False
        self._url = url
        self._failing_since: float | None = None
        self._told_at: float | None = None

    def note(self, answer: Answer, now: float | None = None) -> None:
        """Note the answer to a request. Any thread may call this."""
        if not self.is_on:
            return
        now = time.monotonic() if now is None else now
        if isinstance(answer, Failed):
            self._note_failure(answer, now)
        elif self._failing_since is not None:
            if self._told_at is not None and now >= self._failing_since + _QUIET:
                _log.info("the object store %s answers again, after %.0f s", self._url, now - self._failing_since)
            self._failing_since = None

    def _note_failure(self, failed: Failed, now: float) -> None:
        since = self._failing_since = now if self._failing_since is None else self._failing_since
        if not failed.is_refusal and now < since + _QUIET:
            return
        if self._told_at is None or now >= self._told_at + _PAUSE:
            self._told_at = now
            verb = "refuses a request" if failed.is_refusal else "does not answer"
            _log.warning("the object store %s %s: %s; messages wait", self._url, verb, failed.reason)
