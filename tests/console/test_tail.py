"""A tail of a stream for a page: its rate, and the keys of the stream."""

import json
from pathlib import Path

import pytest

from tests.console.test_console import publish, shown
from tests.zmtp.waiting import PATIENCE, in_loop
from zambezi.console import tail
from zambezi.console.tail import Budget
from zambezi.zeps.asyncio import Client


def test_a_budget_has_a_burst_and_then_a_rate() -> None:
    now = [0.0]
    budget = Budget(lambda: now[0], rate=100, burst=1000)
    assert budget.wait(1000) == 0
    assert budget.wait(50) == 0.5
    now[0] = 0.5
    assert (budget.wait(50), budget.wait(1)) == (0, 0.01)
    now[0] = 1e9
    assert (budget.wait(5000), budget.wait(1)) == (0, 0.01), "a large message waits for the whole burst at most"


@in_loop
async def test_new_messages_above_the_rate_are_skipped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = iter([0.0, 0.0, 1.0, 1.0, 0.0])
    monkeypatch.setattr(Budget, "wait", lambda *_: next(waits))
    async with shown(tmp_path) as (server, browser):
        await publish(server, 1)
        async with browser.get("/api/tail?stream=prices&since=earliest") as answer:

            async def event() -> dict[str, object]:
                while not (line := await answer.content.readline()).startswith(b"data: "):
                    pass
                found: dict[str, object] = json.loads(line[6:])
                return found

            old = await event()
            assert (old["sequence"], "latency" in old) == (1, False)
            await publish(server, 4)
            first, second = await event(), await event()
    assert (first["sequence"], first.get("skipped")) == (2, None)
    assert isinstance(first["latency"], float)
    assert (second["sequence"], second["skipped"]) == (5, 2)


@in_loop
async def test_a_page_can_begin_with_the_newest_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "NEWEST", 2)
    async with shown(tmp_path) as (server, browser):
        await publish(server, 5)
        async with browser.get("/api/tail?stream=prices&since=newest") as answer:
            while not (line := await answer.content.readline()).startswith(b"data: "):
                pass
    assert json.loads(line[6:])["sequence"] == 4


@in_loop
async def test_old_messages_wait_for_the_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Budget, "wait", lambda *_: 0.001)
    async with shown(tmp_path) as (server, browser):
        await publish(server, 3)
        async with browser.get("/api/tail?stream=prices&since=earliest") as answer:
            found: list[int] = []
            while len(found) < 3:
                line = await answer.content.readline()
                if line.startswith(b"data: "):
                    found.append(json.loads(line[6:])["sequence"])
    assert found == [1, 2, 3]


@in_loop
async def test_the_keys_of_the_latest_messages_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "COUNTED", 6)
    monkeypatch.setattr(tail, "KEYS", 2)
    async with shown(tmp_path) as (server, browser), Client.connect(server.endpoints["zeps"]) as client:
        stream = client.stream("s")
        keys = ["old", "old", "old", "a", "b", "a", "\udcff" * 250, "a", "b"]
        await stream.publish_many([(key, b"xy") for key in keys])
        await stream.flush(PATIENCE)
        found = await (await browser.get("/api/keys?id=s")).json()
        assert found == {"messages": 6, "distinct": 3, "keys": [["a", 3, 6], ["b", 2, 4]]}
        assert await (await browser.get("/api/keys?id=nope")).json() == {"messages": 0, "keys": []}
        assert server.broker is not None
        assert server.broker.engine.find("nope") is None
