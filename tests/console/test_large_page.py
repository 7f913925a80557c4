"""The page in a real browser, with thousands of streams and hundreds of nodes that are all busy.

The tests count bytes and elements, which are the same on every machine; times are not.
"""

import asyncio
import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console import test_page
from tests.console.test_board import MANY_NODES, MANY_STREAMS, MOST_BYTES, Crowd
from tests.console.test_page import PATIENCE
from tests.server.test_server import config_for
from zambezi.console import Console
from zambezi.server import Server

browser = test_page.browser
pytestmark = test_page.pytestmark

ELEMENTS = 3000  # that a view has at most
# Note the size of each event, and each task of more than 50 ms.
SPY = """
window.sizes = [];
window.tasks = [];
const watch = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((one) => one.duration)));
watch.observe({ type: "longtask", buffered: true });
const Plain = EventSource;
window.EventSource = class extends Plain {
  set onmessage(action) { super.onmessage = (event) => { sizes.push(event.data.length); action(event); }; }
};
"""


class Large:
    """A large server, in a thread with its own event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ready = threading.Event()
        self._stop = threading.Event()
        self.url = ""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._ready.wait(PATIENCE / 1000)

    async def _run(self) -> None:
        config = config_for(self._path)
        config = dataclasses.replace(config, console=dataclasses.replace(config.console, port=0))
        async with Server(config) as server, Console(server) as console:
            with pytest.MonkeyPatch.context() as patch:
                crowd = Crowd(server, patch)
                self.url = console.url
                self._ready.set()
                while not self._stop.is_set():
                    crowd.go_on()
                    await asyncio.sleep(0.2)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE / 1000)
        assert not self._thread.is_alive()


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    server = Large(tmp_path)
    with contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        page.add_init_script(SPY)
        page.goto(server.url)
        yield page
    server.stop()


def wait_for(page: Page, events: int) -> list[int]:
    """Wait until the page has got some events, and return their sizes. The page forbids `eval` in its own world."""
    sizes: list[int] = []
    deadline = time.monotonic() + PATIENCE / 1000
    while len(sizes) < events and time.monotonic() < deadline:
        page.wait_for_timeout(100)
        sizes = page.evaluate("sizes")
    assert len(sizes) >= events
    return sizes


def test_a_page_of_a_large_server_is_small(page: Page) -> None:
    for view in ("overview", "streams", "mesh", "clients"):
        page.goto(page.url.partition("#")[0] + f"#{view}")
        page.evaluate("sizes.length = 0")
        expect(page.locator(f"#{view}")).to_be_visible()
        sizes = wait_for(page, 3)
        assert max(sizes) < MOST_BYTES
        assert page.evaluate("document.querySelectorAll('*').length") < ELEMENTS
    page.keyboard.press("4")
    expect(page.locator("#mesh-note")).to_contain_text(f"120 of {MANY_NODES} shown")
    expect(page.locator("#graph text")).to_have_count(1)  # the server; other names are shown on demand
    page.locator("#graph circle").nth(5).hover()
    expect(page.locator("#graph text")).to_have_count(2)
    page.keyboard.press("2")
    pages = page.locator("#streams-pages")
    expect(pages).to_contain_text(f"1 to 50 of {MANY_STREAMS:,}")
    page.get_by_role("button", name="Next").click()
    expect(pages).to_contain_text("51 to 100")
    page.get_by_role("button", name="in per second").click()
    expect(page.locator("#streams-table tbody tr").first).to_contain_text("line-4999.telemetry<b>")
    page.fill("#streams .filter input", "plant-3 line-49")
    expect(pages).to_contain_text("1 to 14 of 14, 5,000 in all")
