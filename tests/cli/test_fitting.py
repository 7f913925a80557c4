"""Tables that fit into the terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console

from zambezi.cli.fitting import FittingTable

WORDS = ["node", "state", "recent restarts", "last flap", "seen by"]
ROWS = [["server", "here", "1", "-", "20"], ["sensor-1", "gone", "12", "-", "19"]]


def drawn(table: FittingTable, width: int) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    return [line.rstrip() for line in console.export_text().splitlines()]


def table(rows: Sequence[Sequence[str]] = ROWS) -> FittingTable:
    return FittingTable(WORDS, {2, 4}, rows, "a.json has all columns")


def test_a_wide_terminal_shows_all_columns() -> None:
    assert drawn(table(), 80) == [
        "node      state  recent restarts  last flap  seen by",
        "server    here                 1  -               20",
        "sensor-1  gone                12  -               19",
    ]


def test_headings_are_wrapped_before_a_column_is_left_out() -> None:
    assert drawn(table(), 37) == [
        "                   recent  last  seen",
        "node      state  restarts  flap    by",
        "server    here          1  -       20",
        "sensor-1  gone         12  -       19",
    ]


def test_a_column_that_says_nothing_gives_way_first() -> None:
    assert drawn(table(), 31) == [
        "                   recent  seen",
        "node      state  restarts    by",
        "server    here          1    20",
        "sensor-1  gone         12    19",
        "no room for: last flap (a.json",
        "has all columns)",
    ]


def test_a_column_without_room_leaves_it_to_narrow_ones() -> None:
    assert drawn(table(), 22)[:3] == [
        "                 seen",
        "node      state    by",
        "server    here     20",
    ]


def test_long_texts_are_folded_rather_than_columns_left_out() -> None:
    rows = [["a name that is longer than the terminal has room for", "here", "1", "-", "20"]]
    assert drawn(table(rows), 60) == [
        "                                          recent  last  seen",
        "node                             state  restarts  flap    by",
        "a name that is longer than the   here          1  -       20",
        "terminal has room for",
    ]


def test_the_first_column_is_shown_in_any_terminal() -> None:
    assert drawn(FittingTable(["name", "count"], {1}, [["abcdefghijkl", "1"]], "x"), 6)[:3] == [
        "name",
        "abcdef",
        "ghijkl",
    ]


def test_a_table_without_columns() -> None:
    assert drawn(FittingTable([], set(), [], "x"), 80) == []


def test_a_long_name_is_cut_so_that_all_columns_stay() -> None:
    rows = [["x" * 120, "here", "1", "2s", "20"], ["sensor-1", "gone", "12", "3s", "19"]]
    assert drawn(FittingTable(WORDS, {2, 4}, rows, "x", cut={0}), 80) == [
        "node                                  state  recent restarts  last flap  seen by",
        f"{'x' * 35}…  here                 1  2s              20",
        "sensor-1                              gone                12  3s              19",
    ]
    assert drawn(FittingTable(WORDS, {2, 4}, rows, "x", cut={0}), 45)[2].startswith(f"{'x' * 15}…")
    assert "x" * 120 in drawn(FittingTable(WORDS, {2, 4}, rows, "x", cut={0}), 10_000)[1]


def test_a_title_is_above_the_table_and_notes_are_below_it() -> None:
    rows = [["prices", "held"]]
    assert drawn(
        FittingTable(["name", "state"], (), rows, "x", title="streams", notes=["prices is [b]held[/b]"]), 80
    ) == [
        "streams",
        "name    state",
        "prices  held",
        "prices is [b]held[/b]",
    ]


def test_a_cell_of_several_lines_is_as_wide_as_its_longest_line() -> None:
    rows = [["prices", "sensor-1\nserver"]]
    assert drawn(FittingTable(["topic", "clients"], (), rows, "x"), 80) == [
        "topic   clients",
        "prices  sensor-1",
        "        server",
    ]


def test_columns_of_texts_can_be_narrower() -> None:
    rows = [["prices", "a text of many words"]]
    assert drawn(FittingTable(["name", "text"], (), rows, "x", folded=10), 20) == [
        "name    text",
        "prices  a text of",
        "        many words",
    ]
