"""zambezi.zeps.store.problems: one line for each error of a store, in words and in the log."""

from __future__ import annotations

import logging

import pytest

from zambezi.zeps.store.commands import DONE, Failed
from zambezi.zeps.store.problems import StoreWatch, as_failed, reason_of

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
    assert failed.reason.startswith(f"{status}: {code}: No. (PUT http://s/b/p/k){line}")
    assert "\n" not in failed.reason
    assert failed.is_refusal is is_refusal


def test_another_error_is_its_first_line() -> None:
    assert reason_of(OSError("no space left\nmore")) == "no space left"
    assert reason_of(TimeoutError()) == "TimeoutError"


def test_a_failure_is_logged_when_it_lasts_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zambezi.zeps")
    watch = StoreWatch("s3://b/p")
    watch.note(Failed("x"), 0.0)
    assert not caplog.messages  # a program says so itself
    watch.is_on = True
    for now in (10.0, 12.0, 15.0, 16.0, 30.0):
        watch.note(Failed("503"), now)
    watch.note(DONE, 40.0)
    watch.note(Failed("503"), 41.0)
    watch.note(DONE, 42.0)
    assert caplog.messages == [
        "the object store s3://b/p does not answer: 503; messages wait",
        "the object store s3://b/p answers again, after 30 s",
    ]


def test_a_refusal_is_logged_at_once_and_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    watch = StoreWatch("s3://b/p")
    watch.is_on = True
    for now in range(0, 100, 10):
        watch.note(Failed("403", is_refusal=True), now)
        watch.note(DONE, now)
    assert caplog.messages == ["the object store s3://b/p refuses a request: 403; messages wait"] * 2
