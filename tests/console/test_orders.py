"""Orders of the page: only with the token, only from the console's own page, and only as the rules allow."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.console.test_console import publish, shown
from tests.server.test_server import config_for
from tests.zmtp.waiting import in_loop
from zambezi.console import Console
from zambezi.server import Server
from zambezi.server.config import Rule
from zambezi.server.state import id_of
from zambezi.wire.text import as_text

TOKEN = "a secret of the test"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def ruled(path: Path, *rules: Rule) -> AsyncIterator[tuple[Server, aiohttp.ClientSession]]:
    config = config_for(path)
    config = dataclasses.replace(
        config, rules=list(rules), console=dataclasses.replace(config.console, port=0, token=TOKEN)
    )
    async with Server(config) as server, Console(server) as page, aiohttp.ClientSession(page.url) as browser:
        yield server, browser


async def order(browser: aiohttp.ClientSession, **content: Any) -> tuple[int, str]:
    answer = await browser.post("/api/order", json=content, headers=BEARER)
    return answer.status, await answer.text()


@in_loop
async def test_a_stream_is_created_filled_edited_trimmed_and_deleted(tmp_path: Path) -> None:
    name = as_text(b"caf\xe9 <b>")
    async with ruled(tmp_path) as (server, browser):
        assert server.broker is not None
        engine = server.broker.engine
        assert (await order(browser, order="create", id=id_of(name), settings={"keep_seconds": 60}))[0] == 200
        stream = engine.find(name)
        assert stream is not None
        assert stream.journal.policy.keep_seconds == 60
        for body in ("one", "two", "three"):
            assert (await order(browser, order="publish", id=id_of(name), key="k", body=body))[0] == 200
        assert stream.journal.last == 3
        assert (await order(browser, order="edit", id=id_of(name), settings={"sync": "never"}))[0] == 200
        assert stream.journal.policy.sync == "never"
        keep = {"keep_seconds": "7d", "keep_bytes": "1.5G"}
        assert (await order(browser, order="edit", id=id_of(name), settings=keep))[0] == 200
        policy = stream.journal.policy
        assert (policy.keep_seconds, policy.keep_bytes) == (7 * 86400, 3 << 29)
        status, problem = await order(browser, order="edit", id=id_of(name), settings={"keep_seconds": "7 days"})
        assert (status, problem) == (409, "'7 days' is not a time such as 90s, 10m, 12h or 7d\n")
        assert (await order(browser, order="trim", id=id_of(name), before=3))[0] == 200
        assert stream.journal.first == 3
        assert (await order(browser, order="delete", id=id_of(name)))[0] == 200
        assert engine.find(name) is None


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ([], 400),
        ({"order": "erase", "stream": "prices"}, 400),
        ({"order": "delete"}, 400),
        ({"order": {}, "stream": "prices"}, 400),
        ({"order": "delete", "stream": "nope"}, 404),
        ({"order": "publish", "stream": "nope", "key": "k", "body": ""}, 404),
        ({"order": "publish", "stream": "prices", "key": 1, "body": ""}, 400),
        ({"order": "publish", "stream": "prices", "key": "k", "body": "\ud800"}, 409),
        ({"order": "trim", "stream": "prices", "before": "all"}, 400),
        ({"order": "trim", "stream": "prices", "before": True}, 400),
        ({"order": "edit", "stream": "prices", "settings": {"timeout": 0}}, 400),
        ({"order": "edit", "stream": "prices", "settings": {"no": 1}}, 409),
        ({"order": "edit", "stream": "prices", "settings": {"keep_seconds": "x"}}, 409),
        ({"order": "create", "stream": "prices"}, 409),
        ({"order": "create", "stream": "$streams"}, 409),
        ({"order": "create", "stream": "x" * 5000}, 409),
    ],
)
@in_loop
async def test_an_order_that_is_not_valid_changes_nothing(tmp_path: Path, content: Any, status: int) -> None:
    async with ruled(tmp_path) as (server, browser):
        await publish(server, 2)
        answer = await browser.post("/api/order", json=content, headers=BEARER)
        assert (answer.status, len(await answer.text()) > 3) == (status, True)
        assert server.broker is not None
        (prices,) = server.broker.engine.streams
        assert (prices.journal.first, prices.journal.last) == (1, 2)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({"order": "create", "stream": "new", "keep": "1d"}, "keep"),
        ({"order": "edit", "stream": "prices", "settings": {}, "keep": "1 parsec"}, "keep"),
        ({"order": "publish", "stream": "prices", "kee": "k", "body": "2d"}, "kee"),
        ({"order": "trim", "stream": "prices", "before": 2, "key": "k"}, "key"),
        ({"order": "delete", "stream": "prices", "before": 1}, "before"),
        ({"order": "delete", "stream": "prices", "\x1b\ud800": 1}, r"\x1b\ud800"),
    ],
)
@in_loop
async def test_an_order_with_an_unknown_field_is_refused(tmp_path: Path, content: Any, name: str) -> None:
    async with ruled(tmp_path) as (server, browser):
        await publish(server, 2)
        status, problem = await order(browser, **content)
        assert status == 400
        assert f"{content['order']} has no field '{name}': its fields are order, stream, id" in problem
        assert server.broker is not None
        (prices,) = server.broker.engine.streams
        assert (prices.journal.first, prices.journal.last) == (1, 2)


@in_loop
async def test_a_console_without_a_token_takes_no_orders(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        await publish(server, 1)
        answer = await browser.post("/api/order", json={"order": "delete", "stream": "prices"})
        assert (answer.status, "set token" in await answer.text()) == (403, True)
        assert server.broker is not None
        assert server.broker.engine.find("prices") is not None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        (BEARER | {"Origin": "http://evil.example"}, 403),
        (BEARER | {"Origin": "null"}, 403),
        (BEARER | {"Origin": "http://127.0.0.1:1"}, 403),
        (BEARER | {"Sec-Fetch-Site": "cross-site"}, 403),
        (BEARER | {"Sec-Fetch-Site": "same-site"}, 403),
        (BEARER | {"Sec-Fetch-Site": "none"}, 403),
        (BEARER | {"Content-Type": "text/plain"}, 415),
        (BEARER | {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (BEARER | {"Origin": "http://console.example", "Host": "console.example"}, 200),
        (BEARER | {"Origin": "https://console.example:8443", "Host": "console.example:8443"}, 200),
    ],
)
@in_loop
async def test_a_page_of_another_site_gives_no_orders(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    async with ruled(tmp_path) as (server, browser):
        await publish(server, 1)
        content = b'{"order": "delete", "stream": "prices"}'
        found = {"Content-Type": "application/json"} | headers
        assert (await browser.post("/api/order", data=content, headers=found)).status == status
        assert server.broker is not None
        assert (server.broker.engine.find("prices") is None) == (status == 200)


@in_loop
async def test_a_link_with_the_token_gives_no_orders(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (server, browser):
        await publish(server, 1)
        content = {"order": "delete", "stream": "prices"}
        answer = await browser.post("/api/order", params={"token": TOKEN}, json=content)
        assert (answer.status, "not in the address" in await answer.text()) == (403, True)
        assert (await browser.get("/api/order", headers=BEARER)).status == 405


@in_loop
async def test_the_rules_decide_what_the_console_can_do(tmp_path: Path) -> None:
    async with ruled(
        tmp_path, Rule(keys=["console"], publish=["prices"]), Rule(keys=["ann"], delete=["*"], create=["*"])
    ) as (server, browser):
        assert server.broker is not None
        server.broker.engine.find_or_make("prices")
        assert (await order(browser, order="publish", stream="prices", key="k", body="x"))[0] == 200
        for name in ("delete", "trim", "edit"):
            status, text = await order(browser, order=name, stream="prices", before=1)
            assert (status, "user console" in text) == (403, True)
        assert (await order(browser, order="create", stream="other"))[0] == 403


@in_loop
async def test_nobody_writes_the_streams_of_the_server_itself(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (server, browser):
        assert server.broker is not None
        server.broker.engine.find_or_make("zrelog")
        for name in ("publish", "trim", "delete", "edit"):
            assert (await order(browser, order=name, stream="zrelog", key="k", body="x", before=1))[0] == 403
