"""Errors of disks and object stores, in one line that names the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from zambezi.spark.errors import SparkError

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_HTTP_STATUS: Final = re.compile(r"\b([45]\d\d [A-Z][A-Za-z ]+[a-z])\b")
_CAUSES: Final = (
    # A part of the text of an error, and the cause in plain words. The first one that is found counts.
    ("No space left on device", "the disk is full"),
    ("Disk quota exceeded", "the disk quota is used up"),
    ("Read-only file system", "the disk can only be read"),
    ("Permission denied", "no permission to read or write there"),
    ("PermissionDenied", "no permission to read or write there"),
    ("Not a directory", "a part of the path is a file, not a directory"),
    ("File exists", "a file is where a directory must be"),
    ("NotADirectory", "a part of the path is a file, not a directory"),
    ("NoSuchBucket", "there is no such bucket"),
    ("InvalidAccessKeyId", "the store does not know the access key: check the credentials"),
    ("SignatureDoesNotMatch", "the store refuses the credentials: the secret key is wrong"),
    ("ExpiredToken", "the store refuses the credentials: they have expired"),
    ("AccessDenied", "the store denies access: check the credentials and their rights"),
    ("403 Forbidden", "the store denies access: check the credentials and their rights"),
    ("401 Unauthorized", "the store refuses the credentials"),
    ("client error (Connect)", "the store cannot be reached: check its endpoint"),
    ("Connection refused", "the store cannot be reached: check its endpoint"),
    ("dns error", "the store cannot be reached: its name is not known"),
    ("operation timed out", "the store does not answer in time"),
)


class TableError(SparkError):
    """A table that cannot be read or written. The text says why, and what to do."""


class InUse(TableError):
    """A table that another run has written to at the same time. The text says which run, and what to do."""


def cause_of(error: BaseException) -> str:
    """Return the cause of an error of a disk or a store in one line.

    >>> cause_of(OSError(28, "No space left on device"))
    'the disk is full ([Errno 28] No space left on device)'
    >>> cause_of(OSError("Generic S3 error\\n ↳ Error performing GET http://h/b?list in 1ms\\n ↳ 404 Not Found\\n ↳ "
    ...                  "<Error><Code>NoSuchBucket</Code></Error>"))
    'there is no such bucket (Generic S3 error: NoSuchBucket)'
    """
    lines = [line.strip(" ↳\t") for line in _COLOURS.sub("", str(error)).splitlines()]
    text = "\n".join(lines)
    first = next((line for line in lines if line), type(error).__name__)
    detail = _CODE.search(text) or _HTTP_STATUS.search(text)
    shown = f"{first}: {detail[1]}" if detail is not None and detail[1] not in first else first
    for sign, cause in _CAUSES:
        if sign in text:
            system = next((line for line in lines if sign in line and len(line) < 200), "")
            return f"{cause} ({shown if detail is not None or not system else system})"
    return shown


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Raise errors of a disk or a store as TableError, with the place and the cause in one line."""
    try:
        yield
    except SparkError:
        raise
    except Exception as error:
        if isinstance(error, OSError) or type(error).__module__.startswith(("deltalake", "_internal", "pyarrow")):
            raise TableError(f"{place}: {cause_of(error)}") from error
        raise
