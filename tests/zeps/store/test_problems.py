"""zambezi.zeps.store.problems: one line for each error of a store."""

from __future__ import annotations

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
        ("403 Forbidden", "SignatureDoesNotMatch", "; check the credentials and what they permit", True),
        ("403 Forbidden", "RequestTimeTooSkewed", "; the clocks of this machine and of the store differ", True),
        ("404 Not Found", "NoSuchBucket", "; make the bucket, or correct the url", True),
        ("503 Service Unavailable", "SlowDown", "", False),
        ("507 Insufficient Storage", "Full", "", False),
    ],
)
def test_an_answer_of_a_store_becomes_one_line(status: str, code: str, line: str, is_refusal: bool) -> None:
    failed = as_failed(OSError(TEXT.format(status=status, code=code, message="No.")))
    assert failed.reason.startswith(f"{status}: {code}: No.{line}")
    assert "\n" not in failed.reason
    assert failed.is_refusal is is_refusal


def test_another_error_is_its_first_line() -> None:
    assert reason_of(OSError("no space left\nmore")) == "no space left"
    assert reason_of(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize("attempt", ["in 223.221516ms, after 2 retries, max_retries: 2, retry_timeout: 10s", "in 1.2s"])
def test_requests_that_fail_for_one_reason_have_the_same_line(attempt: str) -> None:
    text = f"Generic S3 error: Error performing PUT http://h:1/b/{attempt[-3:]}.json {attempt} - HTTP error: no answer"
    assert reason_of(OSError(text)) == "Generic S3 error: http://h:1: HTTP error: no answer"
