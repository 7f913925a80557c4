"""The site of the documentation: it builds, every link works, and it needs neither a server nor a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.console.test_page import CHROMIUM, PATIENCE, QUIET
from tests.pages.blocks import PAGES, ROOT
from zambezi.cli import SUBCOMMANDS
from zambezi.zeps.client.arguments import ClientArguments

pytestmark = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    done = build(ROOT, place)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return place


def build(source: Path, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(place)],
        cwd=source,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Links(HTMLParser):
    """The targets that a page of HTML loads or links to, and its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in {"href", "src"} and value:
                self.targets.append(value)
            elif name == "id" and value:
                self.anchors.add(value)


def test_the_site_has_every_page(site: Path) -> None:
    wanted = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in PAGES if page.name != "README.md"}
    assert wanted <= {page.relative_to(site) for page in site.rglob("*.html")}


def test_every_command_has_a_page_and_is_in_the_list(site: Path) -> None:
    assert {page.stem for page in (site / "commands").glob("*.html")} == set(SUBCOMMANDS)
    assert {"zambezi-stream-trim", "zambezi-stream-list"} < Links(site / "commands" / "stream.html").anchors
    assert "--since" in (site / "commands" / "sub.html").read_text()
    listed = {target.partition("#")[0] for target in Links(site / "commands.html").targets}
    assert {f"commands/{name}.html" for name in SUBCOMMANDS} <= listed


def test_every_page_leads_to_the_previous_and_to_the_next(site: Path) -> None:
    lost = []
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue
        text = page.read_text()
        ends = {"prev": page.relative_to(site).as_posix() != "index.html", "next": page.name != "reference.html"}
        lost += [f"{page.name}: {end}" for end, wanted in ends.items() if (f'rel="{end}"' in text) != wanted]
    assert lost == []


def test_the_wave_is_the_logo_and_the_picture_is_on_the_landing_page(site: Path) -> None:
    wave = re.search(r' d="([^"]+)"', (ROOT / "src/zambezi/console/static/icon.svg").read_text())
    assert wave is not None
    for name in ("wave.svg", "icon.svg"):
        assert wave[1] in (site / "assets" / name).read_text()
    landing = Links(site / "index.html").targets
    assert {"assets/wave.svg", "assets/icon.svg", "console.png"} <= set(landing)


def test_the_reference_has_each_option_of_connect(site: Path) -> None:
    text = (site / "reference.html").read_text()
    client = text[text.index('id="zambezi.zeps.sync.Client"') : text.index('id="zambezi.zeps.sync.Client.connect"')]
    for name in ClientArguments.__annotations__:
        assert re.search(rf"^{name} ", re.sub(r"<[^>]+>", "", client), re.MULTILINE), name


@pytest.mark.parametrize("word", ["docker", "grafana", "kubernetes", "zambezi bench"])
def test_the_search_knows_what_operators_look_for(site: Path, word: str) -> None:
    assert word in (site / "search" / "search_index.json").read_text().lower()


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    outside = re.compile(r"(?:[a-z]+:)?//")
    assert [
        f"{page.name}: {target}"
        for page in site.rglob("*.html")
        for target in Links(page).targets
        if outside.match(target)
    ] == []
    assert [
        page.name for page in site.rglob("*.css") if re.search(r"url\((?:https?:)?//|@import", page.read_text())
    ] == []


def test_every_link_works(site: Path) -> None:
    """Check the links in the built pages, as a browser would follow them."""
    pages = {page.resolve(): Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    lost = []
    for page, links in pages.items():
        for target in links.targets:
            if target.startswith(("data:", "javascript:")):
                continue
            path, _, anchor = target.partition("#")
            where = (page.parent / path.partition("?")[0]).resolve() if path else page
            where = where / "index.html" if where.is_dir() else where
            if not where.exists() or (anchor and where in pages and anchor not in pages[where].anchors):
                lost.append(f"{page.name}: {target}")
    assert lost == []


def test_no_block_is_rendered_as_text(site: Path) -> None:
    """A fence that Markdown does not recognise leaves its backticks on the page."""
    assert [page.name for page in site.rglob("*.html") if "```" in page.read_text()] == []


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_the_links_of_the_repository_work(page: str) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", (ROOT / page).read_text())
    assert [target for target in targets if not (ROOT / target).exists()] == []


@pytest.mark.parametrize("link", ["no-such-page.md", "streams.md#no-such-heading", "../no-such-file.py"])
def test_a_broken_link_fails_the_build(link: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "CONTRIBUTING.md", tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "src").symlink_to(ROOT / "src")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    with (tmp_path / "docs" / "peer.md").open("a") as page:
        page.write(f"\n[somewhere]({link})\n")
    assert build(tmp_path, tmp_path / "site").returncode != 0


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (on Debian: apt-get install chromium)")
def test_the_search_works_from_a_file(site: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url) if request.url.startswith("http") else None)
        page.goto((site / "index.html").as_uri())
        page.get_by_placeholder("Search").click()
        page.get_by_placeholder("Search").press_sequentially("incarnation")
        result = page.locator(".md-search-result__link").first
        expect(result).to_be_visible(timeout=PATIENCE)
        result.click()
        page.wait_for_url("**/*.html*")
        expect(page.locator("article")).to_contain_text("incarnation", ignore_case=True)
        browser.close()
    assert requests == []
