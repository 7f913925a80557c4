"""zambezi.zeps.client.arguments: arguments are checked, and both faces have the same names."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from zambezi.zeps import asyncio as streams
from zambezi.zeps import sync
from zambezi.zeps.client import arguments
from zambezi.zeps.client.connection import ClientOptions
from zambezi.zeps.errors import ZepsError
from zambezi.zeps.messages import EARLIEST, LATEST, TIME
from zambezi.zmtp import EndpointError

WHEN = datetime(2026, 1, 2, tzinfo=UTC)
MILLISECONDS = int(WHEN.timestamp() * 1000)


@pytest.mark.parametrize(
    ("since", "place"),
    [("earliest", EARLIEST), ("latest", LATEST), (0, 0), (7, 7), (WHEN, TIME | MILLISECONDS)],
)
def test_where_to_begin(since: Any, place: int) -> None:
    assert arguments.start_of(since) == place


def test_how_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "wall_clock", lambda: 1000.0)
    assert arguments.start_of(timedelta(minutes=10)) == TIME | 400_000


@pytest.mark.parametrize(("until", "place"), [(None, None), ("now", LATEST), (7, 7), (WHEN, TIME | MILLISECONDS)])
def test_where_to_end(until: Any, place: int | None) -> None:
    assert arguments.end_of(until) == place


@pytest.mark.parametrize("since", [-1, 1 << 63, 1.5, "yesterday", None, True])
def test_places_that_are_none(since: Any) -> None:
    with pytest.raises(ZepsError, match="since"):
        arguments.start_of(since)
    if since is not None:
        with pytest.raises(ZepsError, match="until"):
            arguments.end_of(since)


def test_a_broker_is_found_by_its_endpoint() -> None:
    assert arguments.locator("tcp://127.0.0.1:5671")() == "tcp://127.0.0.1:5671"
    with pytest.raises(EndpointError):
        arguments.locator("127.0.0.1:5671")


def test_a_broker_is_found_by_a_node() -> None:
    class Node:
        found: dict[UUID, str] = {}

        def services(self, service: str) -> dict[UUID, str]:
            assert service == "X-ZEPS"
            return self.found

    node = Node()
    locate = arguments.locator(node)
    assert locate() is None
    node.found[uuid4()] = "tcp://127.0.0.1:5671"
    assert locate() == "tcp://127.0.0.1:5671"
    node.found[uuid4()] = "tcp://127.0.0.1:5672"
    assert locate() == ("tcp://127.0.0.1:5671", "tcp://127.0.0.1:5672")
    assert arguments.client_options(node, {}).heartbeat == arguments.QUICK_HEARTBEAT


def test_a_broker_is_found_by_a_function() -> None:
    assert arguments.locator(lambda: "inproc://broker")() == "inproc://broker"
    with pytest.raises(ZepsError, match="int"):
        arguments.locator(7)


def test_names_and_patterns() -> None:
    assert arguments.check_stream_name("prices") == "prices"
    for name in ("", "x" * 256, 7, "\ud800"):
        with pytest.raises(ZepsError):
            arguments.check_stream_name(name)
    for pattern in ("x" * 256, 7):
        with pytest.raises(ZepsError):
            arguments.check_pattern(pattern)


def test_bodies() -> None:
    mutable = bytearray(b"abc")
    body = arguments.as_body(mutable)
    mutable[0] = 0
    assert body == b"abc"
    assert arguments.as_body(memoryview(b"abc")) == b"abc"
    with pytest.raises(ZepsError, match="encode text"):
        arguments.as_body("abc")
    assert arguments.as_items(iter([("k", bytearray(b"x"))])) == [("k", b"x")]
    for items in ([("k",)], [7], [("k", "text")]):
        with pytest.raises(ZepsError):
            arguments.as_items(items)  # type: ignore[arg-type]


def test_options_are_those_that_can_be_given() -> None:
    assert set(arguments.ClientArguments.__annotations__) == set(ClientOptions.__dataclass_fields__)
    own = set(arguments.StreamArguments.__annotations__) - {"publisher"}
    assert own <= set(arguments.ClientArguments.__annotations__)


@pytest.mark.parametrize("name", ["Client", "Stream", "Subscription"])
def test_both_faces_have_the_same_names_and_arguments(name: str) -> None:
    waiting = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}

    def shown(kind: type) -> dict[str, list[str]]:
        return {
            waiting.get(each, each): list(inspect.signature(value).parameters)
            for each, value in inspect.getmembers(kind, inspect.isroutine)
            if not each.startswith("_") or each in waiting or each in waiting.values()
        }

    assert shown(getattr(streams, name)) == shown(getattr(sync, name))


@pytest.mark.parametrize("given", [["tcp://a:1", "tcp://b:1"], ("tcp://a:1", "tcp://b:1"), "tcp://a:1,tcp://b:1"])
def test_several_brokers_are_given_as_a_list_or_with_commas(given: object) -> None:
    assert arguments.locator(given)() == ("tcp://a:1", "tcp://b:1")
    assert arguments.client_options(given, {}).heartbeat == arguments.QUICK_HEARTBEAT
    assert arguments.client_options(given, {"heartbeat": None}).heartbeat is None
    assert arguments.client_options("tcp://a:1", {}).heartbeat != arguments.QUICK_HEARTBEAT


def test_each_of_several_endpoints_is_checked() -> None:
    with pytest.raises(EndpointError, match="no endpoint"):
        arguments.locator(["tcp://a:1", "nowhere"])
    with pytest.raises(ZepsError, match="a list of them"):
        arguments.locator([1])
