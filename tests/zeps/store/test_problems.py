"""zambezi.zeps.store.problems: one line for each error of a store."""

from __future__ import annotations

import errno

import pytest

from zambezi.zeps.store.problems import as_failed, reason_of

TEXT = (
    "The operation lacked privileges for path p/k: Error performing PUT http://s/b/p/k?x=1 in 1ms - Server returned "
    'non-2xx status code: {status}: <?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>'
    "<Message>{message}</Message></Error>\n\nDebug source:\nNotFound {{ }}"
)


@pytest.mark.parametrize(
    ("status", "code", "line", "is_refusal"),
    [
        ("403 Forbidden", "SignatureDoesNotMatch", "the secret key is wrong: check the credentials", True),
        ("403 Forbidden", "InvalidAccessKeyId", "the store does not know the access key: check the credentials", True),
        ("403 Forbidden", "AccessDenied", "the store denies access: check the credentials and what they permit", True),
        ("403 Forbidden", "RequestTimeTooSkewed", "the clocks of this machine and of the store differ: set them", True),
        ("401 Unauthorized", "No", "the store refuses the credentials: check them", True),
        ("404 Not Found", "NoSuchBucket", "there is no such bucket: make it, or correct the URL", True),
    ],
)
def test_an_answer_of_a_store_becomes_one_line(status: str, code: str, line: str, is_refusal: bool) -> None:
    failed = as_failed(OSError(TEXT.format(status=status, code=code, message="No.")))
    assert failed.reason == f"{line} (http://s: {status}: {code})"
    assert failed.is_refusal is is_refusal


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (OSError("Generic LocalFileSystem error: Unable to copy data: No space left on device (os error 28)"), True),
        (OSError("Generic LocalFileSystem error: Disk quota exceeded (os error 122)"), True),
        (OSError("Generic LocalFileSystem error: Permission denied (os error 13)"), False),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EIO, "Input/output error"), False),
        (ValueError("28"), False),
    ],
)
def test_a_disk_without_room_is_known(error: Exception, is_full: bool) -> None:
    assert as_failed(error).is_full is is_full


def test_an_unknown_answer_has_its_message() -> None:
    failed = as_failed(OSError(TEXT.format(status="503 Service Unavailable", code="SlowDown", message="Less, please.")))
    assert failed.reason == "http://s: 503 Service Unavailable: SlowDown: Less, please."
    assert not failed.is_refusal


NOBODY = "nobody listens at the endpoint of the store: start the store, or correct the endpoint"
ONE_LINE = "Generic S3 error: Error performing GET http://h:1/b in 1ms - HTTP error: "
CHAIN = (
    "Kernel error -> Generic S3 error\n  \x1b[31m↳\x1b[0m Error performing GET http://h:1/b in 1ms - HTTP error\n ↳ "
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            CHAIN + "error sending request\n ↳ client error (Connect)\n ↳ Connection refused (os error 111)",
            f"{NOBODY} (http://h:1: Connection refused)",
        ),
        (
            ONE_LINE + 'error sending request\n\nDebug source:\n Os {\n kind: X,\n message: "Connection refused",\n }',
            f"{NOBODY} (http://h:1: Connection refused)",
        ),
        (
            CHAIN + "builder error\n ↳ URL scheme is not allowed",
            "only https:// is allowed: set allow_http=true to use http:// (http://h:1: URL scheme is not allowed)",
        ),
        (CHAIN + "something new\n ↳ its cause", "http://h:1: something new: its cause"),
        (
            "Generic LocalFileSystem error\n ↳ Unable to copy data\n ↳ No space left on device (os error 28)",
            "the disk is full: make room, or choose another place (Unable to copy data: No space left on device)",
        ),
        (
            'Could not create /t\nError: Os { code: 30, kind: X, message: "Read-only file system" }',
            "the disk can only be read: choose another place (Could not create /t: Read-only file system)",
        ),
        ("Something else\n   0: <unknown>\n   1: clone3", "Something else"),
        ("no space left\nmore", "no space left"),
        ("Generic S3 error", "Generic S3 error"),
        ("", "OSError"),
    ],
)
def test_the_cause_is_told_without_the_words_around_it(text: str, line: str) -> None:
    assert reason_of(OSError(text)) == line


def test_an_error_of_the_system_names_the_file() -> None:
    assert reason_of(PermissionError(13, "Permission denied", "/x")) == (
        "no permission to read or write there: change the rights, or choose another place (Permission denied: /x)"
    )
    assert reason_of(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize("attempt", ["in 223.221516ms, after 2 retries, max_retries: 2, retry_timeout: 10s", "in 1.2s"])
def test_requests_that_fail_for_one_reason_have_the_same_line(attempt: str) -> None:
    text = f"Generic S3 error: Error performing PUT http://h:1/b/{attempt[-3:]}.json {attempt} - HTTP error: no answer"
    assert reason_of(OSError(text)) == "http://h:1: no answer"
