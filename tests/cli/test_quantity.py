"""zambezi.cli.quantity: the texts that arguments of commands accept, and what they refuse."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta

import pytest

from zambezi.cli.quantity import bound_endpoint, console_url, endpoint, endpoints, start


def test_a_position_can_be_written_in_several_ways() -> None:
    assert start("earliest") == "earliest"
    assert start("42") == 42
    assert start("10m") == timedelta(minutes=10)
    assert start("2026-01-31T12:00:00+00:00") == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["tcp://127.0.0.1:5671", "tcp://[::1]:5671", "ipc:///run/a, b", "inproc://here"])
def test_an_endpoint_is_returned_as_it_is(text: str) -> None:
    assert endpoint(text) == text
    assert endpoints(text) == text
    assert bound_endpoint(text) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is no endpoint: write tcp://HOST:PORT"),
        ("nowhere", "'nowhere' is no endpoint: write tcp://HOST:PORT"),
        ("udp://h:1", "'udp://h:1' is no endpoint: write tcp://HOST:PORT"),
        ("tcp://h", "'tcp://h' has no port: write tcp://HOST:PORT"),
        ("tcp://h:x", "'tcp://h:x': 'x' is not a port number"),
        ("tcp://h:65536", "'tcp://h:65536': a port is 1 to 65535"),
        ("ipc://", "'ipc://' has no name after ipc://"),
    ],
)
def test_a_text_that_is_no_endpoint_is_refused(text: str, problem: str) -> None:
    for check in (endpoint, endpoints, bound_endpoint):
        with pytest.raises(ArgumentTypeError) as caught:
            check(text)
        assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("text", ["tcp://127.0.0.1:*", "tcp://*:5671", "tcp://127.0.0.1:5000-5010", "ipc://*"])
def test_a_wildcard_is_only_for_an_endpoint_to_listen_on(text: str) -> None:
    assert bound_endpoint(text) == text
    for check in (endpoint, endpoints):
        with pytest.raises(ArgumentTypeError, match="is an endpoint for bind only"):
            check(text)


def test_several_endpoints_have_commas_between_them() -> None:
    assert endpoints("tcp://a:1,tcp://b:2") == "tcp://a:1,tcp://b:2"
    assert endpoints("tcp://a:1,  ipc:///run/b") == "tcp://a:1,ipc:///run/b"
    with pytest.raises(ArgumentTypeError, match=r"^'tcp://b' has no port"):
        endpoints("tcp://a:1,tcp://b,tcp://c:3")
    for check in (endpoint, bound_endpoint):
        with pytest.raises(ArgumentTypeError):
            check("tcp://a:1,tcp://b:2")


def test_the_url_of_a_console() -> None:
    for text in ("http://127.0.0.1:8470", "https://lab/console"):
        assert console_url(text) == text
    for text in ("", "lab:8470", "ftp://lab"):
        with pytest.raises(ArgumentTypeError, match=r"is not the URL of a console: write one such as http://127"):
            console_url(text)
