"""Markup: nothing that a stranger writes becomes an element or an attribute."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from zambezi.spark.report.markup import LONGEST, Markup, element, escaped, joined


class Seen(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[str]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, [name for name, _ in attrs]))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text())
def test_no_text_becomes_an_element_or_an_attribute(text: str) -> None:
    seen = Seen(element("p", element("title", text), text, class_=text))
    assert seen.tags == [("p", ["class"]), ("title", [])]
    assert seen.text.isprintable()


def test_long_text_is_cut_and_markup_is_not() -> None:
    assert len(escaped("x" * 10_000)) == LONGEST + 1
    assert len(escaped(Markup("x" * 10_000))) == 10_000
    assert joined(Markup("<b>"), Markup("</b>")) == "<b></b>"


def test_a_lone_surrogate_can_be_written_to_a_file() -> None:
    assert escaped("k\udcff").encode() == b"k\\xff"


def test_an_attribute_without_a_value_is_left_out() -> None:
    assert element("td", "a", class_=None) == "<td>a</td>"
