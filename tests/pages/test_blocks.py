"""Every block of code on every page has a test, and a new block without one fails here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages.blocks import PAGES, SPARK, all_blocks, prose, split
from tests.pages.commands import check, words
from tests.pages.test_commands import KINDS as CHECKED
from tests.pages.test_sessions import SESSIONS
from tests.pages.test_texts import TEXTS


def test_every_block_has_a_test() -> None:
    run = {"python", SPARK, "console"}
    untested = [f"{block}: {block.kind}" for block in all_blocks() if block.kind not in run | CHECKED | TEXTS.kinds]
    assert untested == [], "these blocks have no test; tests/pages/blocks.py lists the kinds of blocks"


def test_every_kind_of_block_is_found() -> None:
    text = "words\n\n    indented\n    more\n\n- a list\n    - in a list\n\n```ruby\nputs 1\n```\n\n~~~\nplain\n~~~\n"
    found = [(block.line, block.kind, block.text) for block in split("page.md", text)]
    assert found == [(3, "indented", "    indented\n    more\n"), (9, "ruby", "puts 1\n"), (13, "", "plain\n")]


def test_every_page_with_a_console_is_played() -> None:
    assert {block.page for block in all_blocks("console")} == set(SESSIONS)


def test_every_text_is_compared() -> None:
    assert sorted(str(block) for block in all_blocks(*TEXTS.kinds) if not TEXTS.knows(block)) == []


def test_every_page_with_spark_is_run_by_the_tests_of_spark() -> None:
    assert {block.page for block in all_blocks(SPARK)} == {"docs/spark.md", "docs/pipelines.md"}


def test_a_transcript_begins_with_a_command() -> None:
    assert [str(block) for block in all_blocks("console") if not block.text.startswith("$ ")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_text_exist(page: Path) -> None:
    """The parser accepts `zambezi ...` in a sentence or a table, with its placeholders; targets and modules exist."""
    text = prose(page)
    for span in re.findall(r"(?<!`)`((?:zambezi|make|python -m) [^`]+)`(?!`)", text):
        for command in alternatives(" ".join(span.split())):
            if not command.endswith(("--help", "...")) and len(command.split()) > 1:
                check(words(command), partial=True)


def alternatives(span: str) -> list[str]:
    """Return the commands that a shorthand means: `journal info|verify`, and with or without `[--curve DIR]`."""
    without, with_it = re.sub(r" \[[^]]*\]", "", span), re.sub(r"[\[\]]", "", span)
    found = [with_it] if without == with_it else [without, with_it]
    for one in list(found):
        if choice := re.search(r"\S*\|\S*", one):
            found.remove(one)
            found += [one.replace(choice[0], word) for word in choice[0].split("|")]
    return found
