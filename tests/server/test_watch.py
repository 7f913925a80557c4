"""Troubles are logged when they begin and when they end."""

import logging

import pytest

from zambezi.server.watch import Watch


def test_each_trouble_is_logged_once_when_it_begins_and_once_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    troubles: dict[str, dict[str, str]] = {}
    watch = Watch(lambda: troubles)
    with caplog.at_level(logging.INFO, "zambezi.server"):
        watch.look()
        troubles["stream prices: no room"] = {"stream": "prices", "reason": "no room"}
        watch.look()
        watch.look()
        troubles.clear()
        watch.look()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "stream prices: no room"),
        ("INFO", "resolved: stream prices: no room"),
    ]
    assert [record.__dict__["stream"] for record in caplog.records] == ["prices"] * 2
    assert [record.__dict__["state"] for record in caplog.records] == ["begun", "resolved"]


def test_a_look_that_fails_is_a_trouble_and_the_watch_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    failures = [OSError("too many open files")] * 2

    def troubles() -> dict[str, dict[str, str]]:
        if failures:
            raise failures.pop()
        return {}

    watch = Watch(troubles)
    with caplog.at_level(logging.INFO, "zambezi.server"):
        for _ in range(4):
            watch.look()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
