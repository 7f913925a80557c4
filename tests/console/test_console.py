"""The console's server: what it tells, to whom, and in which form."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.test_server import config_for
from tests.zmtp.waiting import eventually, in_loop
from zambezi.console import Console
from zambezi.console.results import latest_results
from zambezi.server import Server
from zambezi.server.errors import ServerError
from zambezi.zeps.asyncio import Client
from zambezi.zeps.errors import JournalFull


@asynccontextmanager
async def shown(path: Path, **console: object) -> AsyncIterator[tuple[Server, aiohttp.ClientSession]]:
    config = config_for(path)
    config = dataclasses.replace(config, console=dataclasses.replace(config.console, port=0, **console))  # type: ignore[arg-type]
    async with Server(config) as server, Console(server) as page:
        jar = aiohttp.CookieJar(unsafe=True)  # or it would keep no cookies of a host without a name
        async with aiohttp.ClientSession(page.url, cookie_jar=jar) as browser:
            yield server, browser


async def publish(server: Server, count: int) -> None:
    async with Client.connect(server.endpoints["zeps"]) as client:
        stream = client.stream("prices")
        await stream.publish_many([("tick", b"%d" % number) for number in range(count)])
        await stream.flush()


@in_loop
async def test_the_state_tells_of_all_services(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        await publish(server, 3)
        state = await (await browser.get("/api/state")).json()
        (stream,) = state["zeps"]["streams"]
        assert (stream["stream"], stream["last"]) == ("prices", 3)
        assert state["endpoints"] == server.endpoints
        assert state["zre"] is None
        assert state["process"]["memory"] > 0


@in_loop
async def test_metrics_are_in_prometheus_form(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        await publish(server, 3)
        text = await (await browser.get("/metrics")).text()
        samples = {
            (sample.name, sample.labels.get("stream", "")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert samples["zambezi_stream_sequence", "prices"] == 3
        assert samples["zambezi_published_messages_total", ""] == 3
        assert ("zambezi_loop_lag_seconds", "") in samples


@in_loop
async def test_a_tail_replays_and_follows(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        await publish(server, 2)
        async with browser.get("/api/tail?stream=prices&since=earliest&pattern=exact:tick") as tail:

            async def next_message() -> dict[str, object]:
                while not (line := await tail.content.readline()).startswith(b"data: "):
                    pass
                found: dict[str, object] = json.loads(line[6:])
                return found

            assert [await next_message(), await next_message()] == [
                {"sequence": 1, "key": "tick", "body": "0", "size": 1},
                {"sequence": 2, "key": "tick", "body": "1", "size": 1},
            ]
            await publish(server, 1)
            assert (await next_message())["sequence"] == 3


@in_loop
async def test_a_pattern_that_is_none_is_told_on_the_page(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        await publish(server, 1)
        async with browser.get("/api/tail?stream=prices&pattern=regex:(") as tail:
            assert b"cannot be understood" in await tail.content.readline()


@in_loop
async def test_a_start_that_is_none_is_refused(tmp_path: Path) -> None:
    async with shown(tmp_path) as (_, browser):
        assert (await browser.get("/api/tail?stream=x&since=yesterday")).status == 400


@in_loop
async def test_without_the_token_there_is_nothing_but_health(tmp_path: Path) -> None:
    async with shown(tmp_path, token="secret") as (_, browser):
        for path in ("/", "/api/state", "/metrics", "/static/console.js"):
            assert (await browser.get(path)).status == 401
        assert (await browser.get("/healthz")).status == 200
        assert (await browser.get("/api/state", headers={"Authorization": "Bearer secret"})).status == 200
        assert (await browser.get("/?token=wrong")).status == 401
        assert (await browser.get("/?token=secret")).status == 200
        assert (await browser.get("/api/state")).status == 200, "the token is in a cookie now"


@in_loop
async def test_a_server_that_cannot_journal_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise JournalFull("no space left")

    async with shown(tmp_path) as (server, browser):
        await publish(server, 1)
        assert (await browser.get("/readyz")).status == 200
        assert server.broker is not None
        stream = server.broker.engine.streams[0]
        with monkeypatch.context() as patch:
            patch.setattr(stream.journal, "append", full)
            publishing = asyncio.create_task(publish(server, 1))
            await eventually(lambda: stream.held)
            answer = await browser.get("/readyz")
            assert (answer.status, await answer.text()) == (503, "stream prices: no space left\n")
        await publishing  # there is room again
        assert (await browser.get("/readyz")).status == 200


@in_loop
async def test_the_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    async with shown(tmp_path) as (_, browser):
        page = await browser.get("/")
        assert page.headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert "http" not in (await page.text()).replace("http-equiv", "")


@in_loop
async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        port = (await browser.get("/healthz")).url.port
        taken = dataclasses.replace(server.config, console=dataclasses.replace(server.config.console, port=port or 0))
        server.config = taken
        with pytest.raises(ServerError, match="choose another port"):
            await Console(server).__aenter__()


def test_results_are_the_newest_first_and_what_is_no_result_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "traffic.json").write_text('{"title": "Traffic", "columns": ["key"], "rows": [["a"]]}')
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    (result,) = latest_results(str(tmp_path))
    assert (result["name"], result["title"]) == ("traffic", "Traffic")
    assert latest_results("") == []
