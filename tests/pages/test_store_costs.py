"""bench.store_costs: the formula, and the table in docs/store.md."""

from __future__ import annotations

import pytest

from bench.report import table
from bench.store_costs import HEADS, MONTH, Load, month, rows
from tests.pages.blocks import ROOT
from zambezi.zeps.store.members import PERIOD
from zambezi.zeps.store.stream_log import LogSettings


def test_the_page_has_the_table() -> None:
    assert table(list(HEADS), rows()) in (ROOT / "docs" / "store.md").read_text()


def test_small_chunks_cost_a_put_and_a_get_each() -> None:
    costs = month(Load(1e6, commit=1.0, keep=86_400, servers=0))
    assert costs.requests == pytest.approx((MONTH + MONTH / 67.1) * 0.005 / 1000, rel=0.001)
    assert costs.reads == pytest.approx(MONTH * 0.0004 / 1000)
    assert costs.storage == pytest.approx(86.4 * 0.023)


def test_large_chunks_cost_two_puts_each_and_no_get() -> None:
    costs = month(Load(10 * (8 << 20), commit=1.0, keep=0, servers=0))
    assert costs.requests == pytest.approx(20 * MONTH * 0.005 / 1000)
    assert costs.reads == 0


def test_the_formula_has_the_defaults_of_the_broker() -> None:
    load, settings = Load(1.0), LogSettings()
    assert (load.commit, load.chunk, load.heartbeat) == (settings.commit, settings.chunk, PERIOD)
