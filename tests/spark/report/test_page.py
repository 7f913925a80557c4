"""The page of a report."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from zambezi.spark.report.charts import Steps, strips
from zambezi.spark.report.page import MOST_ROWS, Figure, Judgement, Table, page

HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J\u202e"
FIGURE = Figure("Rates", strips({HOSTILE: {0: 1.0}}, Steps(0.0, 60.0, 3)), ("a note",))


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def made(judgement: Judgement, *tables: Table) -> str:
    return page(HOSTILE, {"read": HOSTILE}, judgement, [FIGURE], tables)


def test_the_page_asks_the_network_for_nothing_and_runs_nothing() -> None:
    table = Table(HOSTILE, [HOSTILE], [[HOSTILE]], notes=(HOSTILE,), more=True, where=HOSTILE)
    text = made(Judgement(False, (HOSTILE,)), table)
    tags = Elements(text).found
    assert not {"script", "img", "link", "iframe", "a", "object"} & {tag for tag, _ in tags}
    for _, attributes in tags:
        assert not [name for name in attributes if name in ("src", "href", "style") or name.startswith("on")]
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("judgement", "told"),
    [
        (Judgement(True, ("3 streams",)), "healthy: yes"),
        (Judgement(False, ("a was silent",)), "healthy: no"),
        (Judgement(None), "no verdict"),
    ],
)
def test_the_verdict_is_before_the_charts(judgement: Judgement, told: str) -> None:
    text = made(judgement)
    assert text.index(told) < text.index("<svg")
    assert all(reason in text for reason in judgement.reasons)


def test_a_long_table_says_that_it_is_cut_and_where_the_rest_is() -> None:
    rows = [[number] for number in range(MOST_ROWS + 20)]
    text = made(Judgement(None), Table("t", ["n"], rows, frozenset({"n"}), where="out/t.json"))
    assert f"the first {MOST_ROWS} rows; 20 more rows in out/t.json" in text
    assert f'<td class="number">{MOST_ROWS - 1}</td>' in text
    assert f'<td class="number">{MOST_ROWS}</td>' not in text
    text = made(Judgement(None), Table("t", ["n"], rows, more=True))
    assert "at least 21 more rows" in text
    assert "none" in made(Judgement(None), Table("t", ["n"], []))


def test_a_chart_scrolls_on_a_phone_instead_of_being_too_small_to_read() -> None:
    text = made(Judgement(None))
    assert '<div class="drawn"><svg' in text
    assert ".drawn { overflow-x:auto; } .drawn svg { min-width:720px; }" in text
    assert "scroll to the right" in text
