"""The page in a real browser, with a real server and real traffic: what a person sees."""

import asyncio
import dataclasses
import json
import logging
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.cli.mesh_processes import free_port
from tests.server.test_server import config_for
from zambezi.console import Console
from zambezi.mcollective.asyncio import Connector
from zambezi.server import Server
from zambezi.spark.lake.place import Place
from zambezi.spark.pipelines.pipeline import Rows
from zambezi.spark.pipelines.results import Result, save, save_plots
from zambezi.spark.pipelines.verdict import Reason, Verdict
from zambezi.spark.report.charts import Bar, Chart, Steps, distribution, matrix, strips, timeline
from zambezi.spark.report.markup import Markup
from zambezi.spark.report.page import Figure
from zambezi.wire.text import as_text
from zambezi.zeps.asyncio import Client
from zambezi.zre.asyncio import Node

CHROMIUM = shutil.which("chromium")
# The browser must not send requests of its own to other machines.
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
QUIET += ["--disable-sync", "--no-first-run", "--disable-quic"]
PATIENCE = 60_000  # milliseconds
TOKEN = "a token of the tests"
HOSTILE = as_text(b"zz\xff<b>[bold red]\x1b[2J")

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (on Debian: apt-get install chromium)"),
    pytest.mark.xdist_group("browser"),
]


def console_with_token(server: Server) -> Console:
    """Return another console of the same server, which takes orders."""
    config = server.config
    server.config = dataclasses.replace(config, console=dataclasses.replace(config.console, token=TOKEN))
    try:
        return Console(server)
    finally:
        server.config = config


LONG_NAME = "readings: building-12.floor-3.humidity"


def write_results(directory: Path) -> None:
    """Write results of pipelines: all kinds of plots, one that is none, and a file that is none."""
    now = 1_700_049_600
    reasons = [Reason("sensor-7", "silent", "sensor-7 was silent for 12 min"), Reason("x", "few", "x has few messages")]
    heard = [Bar(now, now + 60), Bar(now + 300, now + 360)]
    charts = [
        strips({"readings": {1: 5.0, 7: 2.0}}, Steps(now, 60, 10), unknown=[4]),
        timeline([("lamp", heard, "silent 12 min"), (LONG_NAME, heard, "")], now, now + 600, {"plot": "heard"}),
        distribution({-8: 3, -7: 5, 0: 1}, 8, {"median": 0.12}),
        matrix({("lamp", "<b>hall"): 5, ("hall", "lamp"): 2}, "sender", "receiver", [("hall", "lamp")], "lost"),
        Chart(Markup(), (), {"kind": "film"}),
    ]
    rows = Rows(["key", "of_all"], [[f"key-{number}", number] for number in range(20)], False, frozenset({"of_all"}))
    place = Place(str(directory))
    save([Result("traffic-keys", "Busy keys", rows, ("so far",))], Verdict.of("traffic", reasons), place)
    save_plots([Figure(f"plot {number}", chart) for number, chart in enumerate(charts)], "traffic", place)
    save([], Verdict("network-health", judged="2 nodes"), place)
    (directory / "broken.json").write_text("{")


class Shown:
    """A server with traffic, in a thread with its own event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self.url = ""
        self.ordering_url = ""
        self.server: Server
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))
        self._thread.start()
        assert self._ready.wait(PATIENCE / 1000)

    async def _run(self) -> None:
        config = config_for(self._path)
        config = dataclasses.replace(
            config,
            console=dataclasses.replace(config.console, port=0, results=str(self._path)),
            mcollective=dataclasses.replace(config.mcollective, enabled=True, endpoint="tcp://127.0.0.1:*"),
            zre=dataclasses.replace(config.zre, enabled=True, interface="lo", beacon_port=free_port()),
        )
        write_results(self._path)
        async with (
            Server(config) as server,
            Console(server) as console,
            console_with_token(server) as ordering,
            Client.connect(server.endpoints["zeps"]) as client,
            Connector(server.endpoints["mcollective"]) as fleet,
            Node("lamp", interface="lo", beacon_port=config.zre.beacon_port, groups=["lights"], log=True) as lamp,
            Node("door", interface="lo", beacon_port=config.zre.beacon_port, groups=["entrance"], log=True) as door,
        ):
            await fleet.subscribe("mcollective discovery")
            await self._meet(lamp, door)
            constant = client.stream("unchanging")  # the page shows only the latest 500 messages of a tail
            await constant.publish_many([("sensor-1", b"other"), ("sensor-2", b"<b>reading 2</b>\x07")])
            await constant.flush()
            objects = client.stream("json")
            await objects.publish_many([("k", b'{"a":[1,2]}'), ("k", b"{broken")])
            await objects.flush()
            hostile = client.stream(HOSTILE)
            await hostile.publish("k", b"from a hostile stream")
            await hostile.flush()
            reading = asyncio.create_task(self._read(client))
            stream = client.stream("telemetry")
            self.server, self.url, self.ordering_url = server, console.url, f"{ordering.url}?token={TOKEN}"
            number = 0
            while not self._stop.is_set():
                number += 1
                await stream.publish(f"sensor-{number % 3}", f"<b>reading {number}</b>\x07".encode())
                if number % 20 == 0:
                    await lamp.whisper(door.uuid, b"who is there?")
                if number == 50:
                    await stream.flush()
                    await client.set_reader("telemetry", "billing", 10)
                    self._ready.set()
                await asyncio.sleep(0.005)
            reading.cancel()

    async def _meet(self, *nodes: Node) -> None:
        async with asyncio.timeout(PATIENCE / 1000):
            while any(len(node.peers) < len(nodes) for node in nodes):  # noqa: ASYNC110 - the server is a peer, too
                await asyncio.sleep(0.02)

    async def _read(self, client: Client) -> None:
        async for _ in client.stream("telemetry").subscribe("glob:*-1", since="earliest"):
            pass

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE / 1000)
        assert not self._thread.is_alive()
        self._loop.close()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    server = Shown(tmp_path_factory.mktemp("console"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser, shown: Shown) -> Iterator[Page]:
    context = browser.new_context(color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: troubles.append(request.url) if not request.url.startswith(shown.url) else None)
    page.goto(shown.url)
    expect(page.locator("#link")).to_have_text("live")
    yield page
    context.close()
    assert troubles == []


def follow(page: Page, pattern: str, since: str = "earliest") -> None:
    expect(page.locator("#tail-go")).to_have_text("Stop")
    page.fill("#tail-pattern", pattern)
    page.select_option("#tail-since", since)


def test_the_overview_shows_the_services(page: Page) -> None:
    expect(page.locator(".card").first).to_be_visible()
    expect(page.locator("#services")).to_contain_text("zeps")
    expect(page.locator("#rate-chart canvas")).to_be_visible()


def test_the_overview_counts_problems_by_kind(page: Page) -> None:
    page.goto(page.url + "#stream/telemetry")
    follow(page, "regex:[")
    expect(page.locator("#tail-note")).to_contain_text("cannot be understood")
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    expect(page.locator("#troubles tbody tr").first).to_contain_text(re.compile("zeps *refused: "))


def test_every_view_says_why_the_server_is_not_ready(page: Page, shown: Shown) -> None:
    disk = shown.server.disk
    expect(page.locator("#alert")).to_be_hidden()
    wanted, disk.wanted = disk.wanted, 1 << 60
    try:
        expect(page.locator("#link")).to_have_text("not ready")
        expect(page.locator("#link")).to_have_class("down")
        for number in range(1, 9):
            page.keyboard.press(str(number))
            expect(page.locator("#alert")).to_contain_text("less free space than min_free")
        page.set_viewport_size({"width": 390, "height": 700})
        page.goto(f"{shown.url}#overview")
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        expect(page.locator("#alert")).to_be_in_viewport(ratio=1)
    finally:
        disk.wanted = wanted
    expect(page.locator("#alert")).to_be_hidden()
    expect(page.locator("#link")).to_have_text("live")


def test_a_new_page_gets_the_history(page: Page, shown: Shown) -> None:
    with urlopen(f"{shown.url}api/history") as answer:
        told = json.load(answer)
    assert len(told["time"]) == len(told["in"]) == len(told["out"]) == len(told["lag"]) > 0
    with urlopen(f"{shown.url}api/history?id=telemetry") as answer:
        told = json.load(answer)
    assert told["step"] * len(told["in"]) >= told["step"]


def test_the_mesh_shows_nodes_and_their_messages(page: Page) -> None:
    page.keyboard.press("4")
    for name in ("lamp", "door"):
        expect(page.locator("#graph text", has_text=name)).to_be_visible()
        expect(page.locator("#mesh-table")).to_contain_text(name)
    expect(page.locator("#mesh-table")).to_contain_text("lights")
    expect(page.locator("#graph line.talk").first).to_be_attached()


def test_a_node_can_be_selected_by_keyboard(page: Page) -> None:
    page.keyboard.press("4")
    lamp = page.locator("#mesh-table tbody button", has_text="lamp")
    lamp.focus()
    page.keyboard.press("Enter")
    expect(lamp).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#mesh-note")).to_have_text(re.compile("lamp: [1-9].* recent messages, 1 peer$"))
    expect(page.locator("#graph line.away").first).to_be_attached()
    expect(lamp).to_be_focused()  # although the table was replaced
    page.locator("#graph circle.chosen").click()
    expect(page.locator("#mesh-note")).to_contain_text("select a node")


def test_the_log_has_names_and_filters(page: Page) -> None:
    page.keyboard.press("7")
    page.select_option("#log-source", "mesh-log")
    expect(page.locator("#log-table")).to_contain_text("SEND")
    page.fill("#log .filter input", "recv door whisper")
    expect(page.locator("#log-table")).not_to_contain_text("SEND")
    row = page.locator("#log-table tbody tr").first
    expect(row).to_contain_text("door")
    expect(row).to_contain_text("lamp")
    expect(row).to_contain_text("WHISPER")
    page.fill("#log .filter input", "no such name")
    expect(page.locator("#log-pages")).to_contain_text("none")


def test_the_log_of_the_server_is_shown_as_text(page: Page) -> None:
    logging.getLogger("zambezi.test").warning("a name from the network: <b>%s", "\x1b[2J")
    page.keyboard.press("7")
    expect(page.locator("#log-table")).to_contain_text("a name from the network: <b>\\x1b[2J")


def test_streams_and_clients_are_filtered_and_sorted(page: Page) -> None:
    page.keyboard.press("2")
    rows = page.locator("#streams-table tbody tr")
    expect(rows.filter(has_text="telemetry")).to_be_visible()
    expect(page.locator("#streams-table canvas.spark").first).to_be_visible()
    page.get_by_role("button", name="messages").click()
    expect(rows.first).to_contain_text("telemetry")
    page.fill("#streams .filter input", "UNCHANG")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("unchanging")
    expect(page.locator("#streams-pages")).to_contain_text("in all")
    page.reload()
    expect(rows.first).to_contain_text("unchanging")  # the address has the filter
    page.keyboard.press("3")
    expect(page.locator("#clients-table")).to_contain_text("glob:*-1")
    expect(page.locator("#clients-table .pill.live").first).to_be_visible()


def test_a_tail_follows_a_stream_and_shows_bodies_as_text(page: Page) -> None:
    page.goto(page.url + "#stream/unchanging")
    follow(page, "exact:sensor-2")
    first = page.locator("#tail-table tbody tr").first
    expect(first).to_contain_text("<b>reading 2</b>\\x07")
    expect(first).to_contain_text("sensor-2")
    expect(first.locator("td").nth(1)).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}$"))
    expect(page.locator("#tail-table")).not_to_contain_text("sensor-1")
    page.click("#tail-go")
    expect(page.locator("#tail-go")).to_have_text("Follow")


def test_a_stream_whose_name_is_not_utf8_has_a_page(page: Page) -> None:
    page.keyboard.press("2")
    page.locator("#streams-table a", has_text=r"zz\xff<b>[bold red]\x1b[2J").click()
    expect(page.locator("#tail-table")).to_contain_text("from a hostile stream")
    expect(page.locator("#stream-name")).to_contain_text(r"zz\xff<b>[bold red]\x1b[2J")
    expect(page.locator("#stream-name b")).to_have_count(0)


def test_a_stream_has_a_page_with_everything_about_it(page: Page) -> None:
    page.keyboard.press("2")
    page.locator("#streams-table a", has_text="telemetry").click()
    expect(page.locator("#tail-table")).to_contain_text(re.compile(r"reading \d+"))
    expect(page.locator("#stream-policy")).to_contain_text("for ever")
    expect(page.locator("#stream-segments tbody tr")).to_have_count(1)
    expect(page.locator("#stream-readers")).to_contain_text("billing")
    expect(page.locator("#stream-clients")).to_contain_text("glob:*-1")
    expect(page.locator("#stream-keys")).to_contain_text("sensor-1")
    expect(page.locator("#stream-rates canvas")).to_be_visible()
    expect(page.locator("#stream-cards")).to_contain_text(re.compile(r"\d+(\.\d)? / \d+(\.\d)?"))  # the latency
    expect(page.locator("#stream-orders")).to_contain_text("read only")


def test_json_is_shown_as_json(page: Page) -> None:
    page.goto(page.url + "#stream/json")
    expect(page.locator("#tail-table pre").first).to_have_text('{ "a": [ 1, 2 ] }')
    expect(page.locator("#tail-table tbody tr").last).to_contain_text("{broken")


def test_an_invalid_pattern_is_reported_beside_the_form(page: Page) -> None:
    page.goto(page.url + "#stream/telemetry")
    follow(page, "regex:(")
    expect(page.locator("#tail-note")).to_contain_text("cannot be understood")


def test_a_missing_stream_says_so(page: Page) -> None:
    page.goto(page.url + "#stream/nope")
    expect(page.locator("#stream-name")).to_contain_text("This stream is not here")


def test_the_header_of_a_phone_is_low(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for number in range(1, 9):
        page.keyboard.press(str(number))
        assert page.evaluate("document.querySelector('header').offsetHeight") <= 64
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_phone_has_a_button_for_the_theme(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.click("#theme")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("document.querySelector('header').offsetHeight") <= 64
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_topics_are_shown(page: Page) -> None:
    page.keyboard.press("5")
    expect(page.locator("#topics-table")).to_contain_text("mcollective discovery")


def test_pipelines_have_verdicts_plots_and_tables(page: Page) -> None:
    page.keyboard.press("8")
    listed = page.locator("#pipeline-table tbody tr")
    expect(listed).to_have_count(2)
    expect(listed.first).to_contain_text("sensor-7 was silent for 12 min, and 1 more")  # the worst is first
    expect(page.locator("#pipeline-problems")).to_contain_text("broken.json: is not JSON")
    figures = page.locator("#pipeline-details figure")
    expect(figures).to_have_count(5)
    # Four kinds of plots, with an element for each value: a step without messages has none.
    expect(figures.nth(0).locator("path.plot")).to_have_attribute("d", re.compile(r"^(M[^M]+z){2}$"))
    expect(figures.nth(0).locator(".unknown")).to_have_count(1)
    expect(figures.nth(1).locator("svg > .plot")).to_have_count(5)  # two bars of each line, and the legend
    expect(figures.nth(1)).to_contain_text("silent 12 min")
    expect(figures.nth(2).locator(".plot")).to_have_count(3)
    expect(figures.nth(2).locator(".limit")).to_have_count(1)
    expect(figures.nth(3).locator(".plot")).to_have_count(2)
    expect(figures.nth(3).locator(".framed")).to_have_count(1)
    expect(figures.nth(3)).to_contain_text("<b>hall")
    expect(figures.nth(4)).to_contain_text("the data of this plot is not understood")
    table = page.locator("#pipeline-details .panel", has_text="Busy keys")
    expect(table.locator("th.n")).to_have_text("of all")
    expect(table.locator("tbody tr")).to_have_count(8)
    page.get_by_role("button", name="all 20 rows").click()
    expect(table.locator("tbody tr")).to_have_count(20)
    page.get_by_role("button", name="network-health").click()
    expect(page.locator("#pipeline-details h2")).to_contain_text("network-health")
    expect(page.locator("#pipeline-details")).to_contain_text("--plots")


def test_texts_have_the_width_of_a_phone(page: Page, shown: Shown) -> None:
    """The last cell of a message, a record or a verdict is below the others, not in a column of a few letters."""
    logging.getLogger("zambezi.zeps").warning("a text of a log that is longer than a phone is wide")
    page.set_viewport_size({"width": 375, "height": 700})
    for address, table in (
        ("#log", "log-table"),
        ("#stream/telemetry", "tail-table"),
        ("#pipelines", "pipeline-table"),
    ):
        page.goto(f"{shown.url}{address}")
        cell = f"#{table} tbody tr:not(:has(.empty)) td:last-child"
        # The views draw their tables again and again: measure a cell that is there now.
        page.wait_for_function("(cell) => document.querySelector(cell)?.clientWidth > 280", arg=cell)


def test_plots_fit_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 375, "height": 700})
    page.goto(f"{page.url.split('#')[0]}#pipelines")
    page.wait_for_selector(".drawing")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    widths = page.evaluate("[...document.querySelectorAll('.drawing')].map((one) => one.clientWidth)")
    assert len(widths) == 4
    assert max(widths) <= 375
    drawn = page.evaluate("[...document.querySelectorAll('.drawing text')].map((one) => one.firstChild?.data)")
    assert LONG_NAME in drawn


def test_the_page_can_be_used_with_the_keyboard_alone(page: Page) -> None:
    page.keyboard.press("7")
    expect(page.locator("#log")).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#log .filter input")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    page.keyboard.press("1")
    expect(page.locator("#overview")).to_be_visible()


def test_the_theme_is_remembered(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.keyboard.press("t")
    assert page.evaluate(ground) != light
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_a_stream_is_administrated_with_the_token(browser: Browser, shown: Shown) -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    page.goto(shown.ordering_url)
    page.keyboard.press("2")
    page.click("#stream-create")
    page.fill("#order [name=name]", "<i>new")
    page.fill("#order [name=keep_seconds]", "an hour")
    page.click("#order [type=submit]")
    expect(page.locator("#order .problem")).to_contain_text("a time such as 90s, 10m, 12h or 7d")
    page.fill("#order [name=keep_seconds]", "60m")
    page.click("#order [type=submit]")
    page.locator("#streams-table a", has_text="<i>new").click()
    expect(page.locator("#stream-policy")).to_contain_text("1.0 h")
    page.click("[data-order=publish]")
    page.fill("#order [name=key]", "k")
    page.fill("#order [name=body]", "hello")
    page.click("#order [type=submit]")
    expect(page.locator("#tail-table")).to_contain_text("hello")
    page.keyboard.press("Escape")
    page.click("[data-order=edit]")
    expect(page.locator("#order [name=keep_seconds]")).to_have_value("1h")
    page.fill("#order [name=keep_seconds]", "2h")
    page.click("#order [type=submit]")
    expect(page.locator("#stream-policy")).to_contain_text("2.0 h")
    page.click("[data-order=trim]")
    page.fill("#order [name=before]", "99")
    page.click("#order [type=submit]")
    expect(page.locator("#order .problem")).not_to_be_empty()
    page.keyboard.press("Escape")
    page.click("[data-order=delete]")
    page.fill("#order [name=confirm]", "new")
    page.click("#order [type=submit]")
    expect(page.locator("#order .problem")).to_contain_text("not the name")
    page.fill("#order [name=confirm]", "<i>new")
    page.click("#order [type=submit]")
    expect(page.locator("#stream-name")).to_contain_text("This stream is not here")
    page.close()


def test_a_page_whose_token_was_replaced_says_what_to_do(browser: Browser, shown: Shown) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    page.goto(shown.ordering_url)
    expect(page.locator("#link")).to_have_text("live")
    context.clear_cookies()  # the console answers 401, as to the old token
    page.keyboard.press("2")
    expect(page.locator("#alert")).to_contain_text(
        "does not accept the token of this page any more: open http://127.0.0.1"
    )
    expect(page.locator("#link")).to_have_text("refused")
    context.new_page().goto(shown.ordering_url)
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("#alert")).to_be_hidden()
    context.close()
