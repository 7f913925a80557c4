"""bench.report: rows with a bar, and the file in which `python -m bench` collects them."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from bench.processor_clock import ProcessorLoop
from bench.report import FILE, HOLDS, MISSED, NO_BAR, NOT_MEASURED, Bars, Usage, read_rows, verdicts

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_row_says_if_its_bar_holds() -> None:
    bars = Bars("zeps")
    bars.at_most("cost", 0.25, 0.25, " us")
    bars.at_most("latency", 1.01, 1)
    bars.at_least("rate", 4.9, 5)
    bars.at_least("replay", 0.5, 0.5)
    bars.at_least("NATS", math.nan, 3)
    bars.at_least("directory", 1.5, math.nan)
    assert [row.verdict for row in bars.rows] == [HOLDS, MISSED, MISSED, HOLDS, NOT_MEASURED, NO_BAR]


def test_a_ratio_has_its_figures_beside_it_and_a_figure_has_its_unit() -> None:
    bars = Bars("zeps")
    bars.at_least("rate", 3.054, 5, result="290 k/s", beside="Redis 95 k/s", processor="2.1 us")
    bars.at_most("cost", 0.4123, 0.25, " us")
    bars.at_most("rows", 1234.5, 2000, " rows")
    bars.at_most("directory", 1.5, math.nan)
    assert [row.cells() for row in bars.rows] == [
        ["zeps: rate", "290 k/s", "Redis 95 k/s", "3.05x", ">= 5x", "2.1 us", MISSED],
        ["zeps: cost", "0.412 us", "", "", "<= 0.25 us", "", MISSED],
        ["zeps: rows", "1,234 rows", "", "", "<= 2,000 rows", "", HOLDS],
        ["zeps: directory", "", "", "1.5x", "", "", NO_BAR],
    ]


def test_rows_of_several_benchmarks_are_collected_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILE, str(tmp_path / "rows"))
    first, second = Bars("zre"), Bars("peer")
    first.at_most("mesh", 0.3, 0.4, " s", processor="0.29 s")
    second.at_most("round trip", math.nan, 1.1)
    assert str(read_rows(tmp_path / "rows")) == str(first.rows + second.rows)  # not a number is not equal to itself


def test_the_table_begins_with_the_bars_that_do_not_hold() -> None:
    bars = Bars("zre")
    bars.at_most("holds", 1, 2)
    bars.at_most("absent", math.nan, 2)
    bars.at_most("missed", 3, 2)
    lines = verdicts(bars.rows).splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == ["zre: missed", "zre: absent", "zre: holds"]


def test_the_processors_of_other_programs_are_those_of_the_machine_without_the_own_ones() -> None:
    used = Usage(110.0, 30.0, 55.0).since(Usage(100.0, 20.0, 30.0))
    assert used == (10.0, 10.0, 25.0)
    assert used.others == 1.5
    assert "other programs 1.5 of" in str(used)
    assert "other programs" not in str(Usage(10.0, 10.0, math.nan))


def test_the_processor_clock_jumps_when_nothing_is_left_to_do() -> None:
    async def sleep() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(10_000)
        return loop.time() - began

    loop = ProcessorLoop()
    try:
        assert 10_000 <= loop.run_until_complete(sleep()) < 10_060
    finally:
        loop.close()
