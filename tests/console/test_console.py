"""The console's web server: its answers, its limits, and its metrics.

It covers `console`, `guard` and `metrics`; `test_page` covers the page.
"""

import asyncio
import contextlib
import dataclasses
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from tests.server.test_server import config_for
from tests.zeps.stage import replace_method
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.console import Console, metrics, tail
from zambezi.console.guard import Guard
from zambezi.console.history import History
from zambezi.console.tail import TAIL_BODY
from zambezi.server import Server, state
from zambezi.server.config import ConsoleConfig
from zambezi.server.errors import ServerError
from zambezi.wire.text import as_text
from zambezi.zeps.asyncio import Client
from zambezi.zeps.errors import JournalFull
from zambezi.zmtp.keys import KeyPair, write_pair

HIGH_WATER = 64 * 1024  # bytes of asyncio's buffer for a connection; a writer waits when it has more


@asynccontextmanager
async def shown(path: Path, **console: object) -> AsyncIterator[tuple[Server, aiohttp.ClientSession]]:
    config = config_for(path)
    config = dataclasses.replace(config, console=dataclasses.replace(config.console, port=0, **console))  # type: ignore[arg-type]
    async with Server(config) as server, Console(server) as page:
        jar = aiohttp.CookieJar(unsafe=True)  # the default jar ignores cookies of hosts that are IP addresses
        async with aiohttp.ClientSession(page.url, cookie_jar=jar) as browser:
            yield server, browser


async def publish(server: Server, count: int) -> None:
    async with Client.connect(server.endpoints["zeps"]) as client:
        stream = client.stream("prices")
        await stream.publish_many([("tick", b"%d" % number) for number in range(count)])
        await stream.flush()


@in_loop
async def test_named_readers_have_their_lag_and_a_bounded_number_of_series(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, _):
        await publish(server, 5)

        def series() -> dict[str, float]:
            return {
                " ".join((sample.name, *sorted(sample.labels.values()))): sample.value
                for family in text_string_to_metric_families(metrics.exposition(server).decode())
                for sample in family.samples
                if "reader" in sample.name
            }

        async with Client.connect(server.endpoints["zeps"]) as client:
            await client.set_reader("prices", "billing", 3)
            found = series()
            assert found["zambezi_reader_lag billing prices"] == 2
            assert found["zambezi_reader_lag_seconds billing prices"] >= 0
            assert found["zambezi_stream_readers prices"] == 1
            assert found["zambezi_readers_refused_total"] == found["zambezi_readers_taken_total"] == 0
            for number in range(10):
                await client.set_reader("prices", f"reader-{number}", number % 3)
            found = series()
            assert found["zambezi_stream_readers prices"] == 11
            assert found["zambezi_stream_reader_lag prices"] == 5
            assert not [name for name in found if name.startswith("zambezi_reader_lag")]


@in_loop
async def test_groups_of_shared_readers_have_series(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, _):
        await publish(server, 5)
        async with Client.connect(server.endpoints["zeps"]) as client:
            stream = client.stream("prices")
            async with stream.subscribe(shared="workers", since="earliest", ack="manual", limit=1) as subscription:
                for _ in range(5):
                    message = await subscription.recv(PATIENCE)
                subscription.ack(1)
                subscription.nack(message)
                await subscription.flush(PATIENCE)
                found = {
                    sample.name: sample.value
                    for family in text_string_to_metric_families(metrics.exposition(server).decode())
                    for sample in family.samples
                    if "group" in sample.name
                }
    assert found == {
        "zambezi_stream_groups": 1,
        "zambezi_group_lag": 4,
        "zambezi_group_members": 1,
        "zambezi_group_in_flight": 3,
        "zambezi_group_returned": 0,
        "zambezi_group_dead_letters_total": 1,
    }


@in_loop
async def test_the_state_describes_all_services(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        await publish(server, 3)
        state = await (await browser.get("/api/state")).json()
        (stream,) = state["zeps"]["streams"]
        assert (stream["stream"], stream["last"]) == ("prices", 3)
        assert state["endpoints"] == server.endpoints
        assert state["zre"] is None
        assert state["process"]["memory"] > 0


@in_loop
async def test_metrics_are_in_the_format_of_prometheus(tmp_path: Path) -> None:
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
        assert samples["process_open_fds", ""] > 0
        assert samples["zambezi_publish_to_deliver_seconds_count", ""] == 3
        buckets = [
            one.value
            for family in text_string_to_metric_families(text)
            for one in family.samples
            if one.name == "zambezi_publish_to_deliver_seconds_bucket"
        ]
        assert buckets == sorted(buckets)
        assert buckets[-1] == 3


@in_loop
async def test_metrics_count_deliveries_of_each_stream(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser), Client.connect(server.endpoints["zeps"]) as client:
        await publish(server, 3)
        for _ in range(2):
            async with client.stream("prices").subscribe(since="earliest", until="now") as subscription:
                async for _ in subscription:
                    pass
        text = await (await browser.get("/metrics")).text()
        assert 'zambezi_stream_delivered_messages_total{stream="prices"} 6.0' in text
        assert "zambezi_delivered_messages_total 6.0" in text


@in_loop
async def test_a_tail_replays_and_follows(tmp_path: Path) -> None:
    began = datetime.now(UTC)
    async with shown(tmp_path) as (server, browser):
        await publish(server, 2)
        async with browser.get("/api/tail?stream=prices&since=earliest&pattern=exact:tick") as tail:

            async def next_message() -> dict[str, object]:
                while not (line := await tail.content.readline()).startswith(b"data: "):
                    pass
                found: dict[str, object] = json.loads(line[6:])
                return found

            found = [await next_message(), await next_message()]
            times = [datetime.fromisoformat(str(one.pop("time"))) for one in found]
            assert began <= times[0] <= times[1] <= datetime.now(UTC)
            assert found == [
                {"sequence": 1, "key": "tick", "body": "0", "size": 1, "shown": 1},
                {"sequence": 2, "key": "tick", "body": "1", "size": 1, "shown": 1},
            ]
            await publish(server, 1)
            assert (await next_message())["sequence"] == 3


@pytest.mark.parametrize("browser", ["waits", "leaves", "does not read"])
@in_loop
async def test_the_console_stops_after_its_followers(
    tmp_path: Path, browser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail.Budget, "wait", lambda *_: 0.0)  # or the buffers would fill slowly
    config = config_for(tmp_path)
    config = dataclasses.replace(config, console=dataclasses.replace(config.console, port=0))
    async with Server(config) as server, Client.connect(server.endpoints["zeps"]) as client:
        prices = client.stream("prices")
        # What a browser does not read must be more than the buffers of its connection hold.
        await prices.publish_many([("tick", b"x" * TAIL_BODY)] * (5000 if browser == "does not read" else 1))
        await prices.flush()
        assert server.broker is not None
        tasks, sessions = asyncio.all_tasks(), set(server.broker.engine.sessions)
        async with Console(server) as page:
            url = URL(page.url)
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(b"GET /api/tail?stream=prices&since=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"data: ")
            assert asyncio.all_tasks() > tasks
            assert set(server.broker.engine.sessions) > sessions
            if browser == "leaves":
                writer.close()
                await writer.wait_closed()
            elif browser == "does not read":
                (connection,) = page._runner.server.connections  # type: ignore[union-attr]
                await eventually(lambda: connection.transport.get_write_buffer_size() > HIGH_WATER)  # type: ignore[union-attr]
        assert asyncio.all_tasks() == tasks, "no handler is left"
        await eventually(lambda: server.broker and set(server.broker.engine.sessions) == sessions)
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@in_loop
async def test_a_follower_ends_when_its_browser_leaves(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        await publish(server, 1)
        assert server.broker is not None
        sessions = server.broker.engine.sessions
        async with browser.get("/api/tail?stream=prices&since=earliest") as tail:
            await tail.content.readline()
            assert len(sessions) == 1
        await eventually(lambda: not sessions)  # it needs no message whose write would fail


@in_loop
async def test_an_invalid_pattern_is_reported_to_the_page(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        await publish(server, 1)
        async with browser.get("/api/tail?stream=prices&pattern=regex:(") as tail:
            assert b"cannot be understood" in await tail.content.readline()


@in_loop
async def test_an_invalid_start_is_refused(tmp_path: Path) -> None:
    async with shown(tmp_path) as (_, browser):
        assert (await browser.get("/api/tail?stream=x&since=yesterday")).status == 400


@in_loop
async def test_without_the_token_only_the_health_is_shown(tmp_path: Path) -> None:
    async with shown(tmp_path, token="secret") as (_, browser):
        for path in ("/", "/api/state", "/metrics", "/static/console.js"):
            assert (await browser.get(path)).status == 401
        assert (await browser.get("/healthz")).status == 200
        assert (await browser.get("/api/state", headers={"Authorization": "Bearer secret"})).status == 200
        assert (await browser.get("/?token=wrong")).status == 401
        assert (await browser.get("/?token=secret")).status == 200
        assert (await browser.get("/api/state")).status == 200, "the token is in a cookie now"


@in_loop
async def test_a_console_without_a_token_is_off_if_the_server_has_keys(tmp_path: Path) -> None:
    write_pair(tmp_path / "keys", "server", KeyPair.generate())
    (tmp_path / "keys" / "allowed").mkdir()
    config = config_for(tmp_path)
    config = dataclasses.replace(
        config,
        server=dataclasses.replace(config.server, keys=str(tmp_path / "keys")),
        console=dataclasses.replace(config.console, port=0),
    )
    async with Server(config) as server, Console(server) as page, aiohttp.ClientSession(page.url) as browser:
        assert page.is_off
        for path in (
            "/",
            "/?token=",
            "/api/state",
            "/api/live",
            "/api/tail?stream=x",
            "/metrics",
            "/static/console.js",
        ):
            answer = await browser.get(path, headers={"Authorization": "Bearer "})
            assert (answer.status, "set token in [console]" in await answer.text()) == (403, True)
        assert (await browser.get("/healthz")).status == 200
        assert server.broker is not None
        server.broker.engine.find_or_make("prices").journal.failed = "the disk is gone"
        answer = await browser.get("/readyz")
        assert (answer.status, "prices" in await answer.text()) == (503, False)


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
            replace_method(patch, stream.journal, "append", full)
            publishing = asyncio.create_task(publish(server, 1))
            await eventually(lambda: stream.held)
            answer = await browser.get("/readyz")
            assert (answer.status, await answer.text()) == (503, "stream prices: no space left\n")
        await publishing  # there is room again
        assert (await browser.get("/readyz")).status == 200


@in_loop
async def test_a_server_whose_disk_is_nearly_full_is_not_ready(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        assert (await browser.get("/readyz")).status == 200
        server.disk.wanted = 1 << 60
        server.disk.measure()
        answer = await browser.get("/readyz")
        assert answer.status == 503
        assert 'has less free space than min_free = "1048576T"' in await answer.text()
        text = await (await browser.get("/metrics")).text()
        assert f"zambezi_disk_free_wanted_bytes {float(1 << 60)}" in text


@in_loop
async def test_the_reason_for_not_being_ready_needs_the_token(tmp_path: Path) -> None:
    async with shown(tmp_path, token="secret") as (server, browser):
        await publish(server, 1)
        assert server.broker is not None
        server.broker.engine.streams[0].journal.failed = "the disk is gone"
        answer = await browser.get("/readyz")
        assert answer.status == 503
        assert "prices" not in await answer.text()
        answer = await browser.get("/readyz", headers={"Authorization": "Bearer secret"})
        assert (answer.status, await answer.text()) == (503, "stream prices: the disk is gone\n")


@in_loop
async def test_the_page_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    async with shown(tmp_path) as (_, browser):
        page = await browser.get("/")
        assert page.headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert "http" not in (await page.text()).replace("http-equiv", "")


@in_loop
async def test_the_error_for_a_port_in_use_says_what_to_do(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        port = (await browser.get("/healthz")).url.port
        taken = dataclasses.replace(server.config, console=dataclasses.replace(server.config.console, port=port or 0))
        server.config = taken
        with pytest.raises(ServerError, match="choose another port"):
            await Console(server).__aenter__()


@in_loop
async def test_a_page_of_another_site_gets_nothing(tmp_path: Path) -> None:
    async with shown(tmp_path) as (_, browser):
        for host in ("evil.example", "evil.example:8470", "127.0.0.1.evil.example", "[2001:db8::1]:80", "10.0.0.1", ""):
            answer = await browser.get("/api/state", headers={"Host": host})
            assert answer.status == 421, "its name resolves to 127.0.0.1, but it is not a name of this machine"
        for host in ("127.0.0.1:1", "localhost:8470", "[::1]:8470"):
            assert (await browser.get("/api/state", headers={"Host": host})).status == 200
        for site in ("cross-site", "same-site"):
            assert (await browser.get("/api/state", headers={"Sec-Fetch-Site": site})).status == 403
        followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert (await browser.get("/", headers=followed)).status == 200, "another site may link to the page"
        assert (await browser.get("/api/state", headers={"Sec-Fetch-Site": "same-origin"})).status == 200


@in_loop
async def test_with_a_token_the_host_can_have_any_name(tmp_path: Path) -> None:
    async with shown(tmp_path, token="secret") as (_, browser):
        headers = {"Host": "console.example", "Authorization": "Bearer secret"}
        assert (await browser.get("/api/state", headers=headers)).status == 200


@in_loop
async def test_a_token_that_is_not_utf8_is_wrong(tmp_path: Path) -> None:
    async with shown(tmp_path, token="gehéim") as (_, browser):
        url = browser._base_url
        assert url is not None
        reader, writer = await asyncio.open_connection(url.host, url.port)
        for line in (b"Authorization: Bearer \xff\xfe", b"Cookie: zambezi-token=\xff", b"Authorization: geh"):
            writer.write(b"GET /api/state HTTP/1.1\r\nHost: x\r\n" + line + b"\r\n\r\n")
            assert b" 401 " in await reader.readline()
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(one[16:]) for one in head.split(b"\r\n") if one.startswith(b"Content-Length: "))
            await reader.readexactly(length)
        writer.close()
        assert (await browser.get("/", params={"token": "gehéim"})).status == 200
        (cookie,) = browser.cookie_jar
        assert "geh" not in cookie.value, "the cookie does not contain the token itself"
        assert (await browser.get("/api/state")).status == 200


@in_loop
async def test_every_answer_has_security_headers(tmp_path: Path) -> None:
    async with shown(tmp_path) as (_, browser):
        for path in ("/", "/nope", "/api/state", "/api/live", "/static/console.js"):
            async with browser.get(path) as answer:
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Server"] == "zambezi", "the header does not reveal versions"


@in_loop
async def test_only_static_files_are_served(tmp_path: Path) -> None:
    async with shown(tmp_path) as (_, browser):
        assert (await browser.get("/static/console.js")).status == 200
        for path in (
            "/static/../console.py",
            "/static/%2e%2e/console.py",
            "/static/..%2fconsole.py",
            "/static//etc/passwd",
            "/static/" + "a" * 5000,
            "/static/" + "%C3%A9" * 200,
            "/static/%00",
        ):
            url = URL(str(browser._base_url).rstrip("/") + path, encoded=True)
            async with aiohttp.ClientSession() as plain:
                assert (await plain.get(url)).status == 404


@in_loop
async def test_following_a_missing_stream_does_not_create_it(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        for name in ("nope", "$streams", ""):
            async with browser.get("/api/tail", params={"stream": name}) as tail:
                assert b"there is no stream" in await tail.content.readline()
        assert server.broker is not None
        assert not server.broker.engine.streams


@pytest.mark.parametrize("since", ["0001-01-01T00:00+23:59", "9999-12-31T23:59:59-23:59", "²", "9" * 5000])
@in_loop
async def test_a_time_out_of_range_is_refused(tmp_path: Path, since: str) -> None:
    async with shown(tmp_path) as (server, browser):
        await publish(server, 1)
        async with browser.get("/api/tail", params={"stream": "prices", "since": since}) as answer:
            assert answer.status == 400


@in_loop
async def test_the_state_has_the_documented_fields(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        async with Client.connect(server.endpoints["zeps"]) as client:
            stream = client.stream("prices")
            await stream.publish("k", b"x")
            await stream.flush()
            async with stream.subscribe(since="earliest") as subscription:
                await subscription.recv(timeout=PATIENCE)
                state = await (await browser.get("/api/state")).json()
        zeps = state["zeps"]
        assert {"last", "octets", "rate"} <= zeps["streams"][0].keys()
        assert any({"gear", "lag", "credit"} <= one.keys() for one in zeps["clients"])
        assert {"invalid", "sync_latency", "sync_latency_worst"} <= zeps.keys()
        assert {"loop_lag", "loop_lag_worst"} <= state["process"].keys()
        assert state["problems"] == []
        queues = {(one["service"], one["queue"]): one for one in state["queues"]}
        connections = queues["zeps", "connections"]
        assert connections == {"service": "zeps", "queue": "connections", "length": 2, "bound": 10_000}
        assert queues["zeps", "streams"]["length"] == 1
        assert all(one["queue"].isalpha() for one in state["queues"]), "labels are words"
        assert all(one["bound"] > 0 for one in state["queues"])


@in_loop
async def test_labels_are_bounded_and_valid_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "STREAMS", 2)
    async with shown(tmp_path) as (server, browser):
        assert server.broker is not None
        for name in ("a", 'b"\n\\', "c", "\udcff"):
            server.broker.engine.find_or_make(name)
        async with Client.connect(server.endpoints["zeps"]) as client, client.stream("a").subscribe() as subscription:
            await eventually(lambda: server.broker and any(one.cursor for one in server.broker.engine.sessions))
            families = list(text_string_to_metric_families(await (await browser.get("/metrics")).text()))
            del subscription
        samples = [sample for family in families for sample in family.samples]
        assert {one.labels["stream"] for one in samples if "stream" in one.labels} == {"a", 'b"\n\\'}
        assert {name for one in samples for name in one.labels} <= {
            "stream",
            "gear",
            "kind",
            "le",
            "python",
            "what",
            "queue",
            "service",
            "version",
        }
        assert next(one.value for one in samples if one.name == "zambezi_streams") == 4
    assert metrics.label("\udcff") == "\\xff"


NASTY = b'\xff[bold red]\x1b[2J"</script>'


@in_loop
async def test_a_name_that_is_not_utf8_can_be_shown_and_followed(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        async with Client.connect(server.endpoints["zeps"]) as client:
            stream = client.stream(as_text(NASTY))
            await stream.publish(as_text(NASTY), NASTY)
            await stream.flush()
        content = await (await browser.get("/api/state")).read()
        (row,) = json.loads(content.decode("utf-8"))["zeps"]["streams"]
        assert row["stream"] == '\\xff[bold red]\x1b[2J"</script>'
        assert not re.search(rb"\\ud[89a-f]", content), "half a character is no valid JSON for many programs"
        async with browser.get("/api/tail", params={"id": row["id"], "since": "earliest"}) as tail:
            message = json.loads((await tail.content.readline())[6:])
        assert message["key"] == row["stream"]
        assert r"\\xff[bold red]" in await (await browser.get("/metrics")).text()
        history = History()
        history.sample(server, 0.0)
        assert history.of_stream(as_text(NASTY))["in"] == [0.0]
        told = await (await browser.get("/api/history", params={"id": row["id"]})).json()
        assert told["step"] > 0
        async with browser.get("/api/live", params={"view": "stream", "id": row["id"]}) as live:
            whole = json.loads((await live.content.readline())[6:])["whole"]
        assert whole["detail"]["stream"] == row["stream"]


@in_loop
async def test_the_state_has_a_bounded_number_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "ROWS", 3)
    monkeypatch.setattr(state, "SOME", 0)
    async with shown(tmp_path) as (server, browser):
        assert server.broker is not None
        for number in range(5):
            server.broker.engine.find_or_make(f"s{number}")
        async with Client.connect(server.endpoints["zeps"]) as client, contextlib.AsyncExitStack() as stack:
            for _ in range(4):
                await stack.enter_async_context(client.stream("s0").subscribe("a"))
            await eventually(lambda: state.state_of(server)["zeps"]["gears"].total() == 4)
            found = (await (await browser.get("/api/state")).json())["zeps"]
        assert [row["stream"] for row in found["streams"]] == ["s0", "s1", "s2"]
        assert len(found["clients"]) == 3
        assert (found["totals"]["streams"], found["totals"]["clients"]) == (5, 4)
        assert [row["patterns"] for row in found["clients"]] == [[], [], []]
        assert {"lag", "credit"} <= found["streams"][0].keys()


@pytest.mark.parametrize(
    "query", ["stream=%ED%B0%80", "stream=%FF", "id=%25ED%25B0%2580", "stream=p&pattern=%ED%A0%80"]
)
@in_loop
async def test_a_query_that_is_not_utf8_is_no_fault_of_the_console(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, query: str
) -> None:
    async with shown(tmp_path) as (server, browser):
        assert server.broker is not None
        server.broker.engine.find_or_make("p")
        url = URL(f"{str(browser._base_url).rstrip('/')}/api/tail?{query}", encoded=True)
        async with browser.get(url) as answer:
            assert answer.status == 200
            if "pattern" not in query:
                assert b"there is no stream" in await answer.content.readline()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
@in_loop
async def test_a_supervisor_checks_by_the_address_of_the_machine(host: str) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    guard = Guard(ConsoleConfig(host=host), has_keys=True)
    with pytest.raises(web.HTTPMisdirectedRequest):
        await guard.check(make_mocked_request("GET", "/api/state", {"Host": "10.0.0.7:8470"}), answer)
    request = make_mocked_request("GET", "/readyz", {"Host": "10.0.0.7:8470"})
    if host == "127.0.0.1":
        with pytest.raises(web.HTTPMisdirectedRequest):
            await guard.check(request, answer)
    else:
        assert (await guard.check(request, answer)).status == 200
