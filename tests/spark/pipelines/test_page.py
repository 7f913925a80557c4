"""docs/pipelines.md lists every pipeline, and its example runs."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.journal import numbered, write
from zambezi.cli.pipeline import NAMES
from zambezi.spark.limits import Limits

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()


def test_every_pipeline_is_on_the_page() -> None:
    assert re.findall(r"^\| `([a-z][a-z-]+)` \|", PAGE, re.MULTILINE) == list(NAMES)


def test_every_limit_is_on_the_page() -> None:
    listed = re.findall(r"^\| `\[pipelines\.(\w+)\]` \|[^|]*\| (.*) \|$", PAGE, re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", limits)) for name, limits in listed} == {
        table.name: {one.name for one in fields(getattr(Limits(), table.name))} for table in fields(Limits)
    }


def test_the_example_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("zambezi.spark.session", lambda: spark)  # there is one already
    write(tmp_path / "data", "readings", numbered(30))
    (block,) = re.findall(r'^```python title="Spark"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL)
    for name in ("data", "results"):
        block = block.replace(f'"{name}"', f'"{tmp_path / name}"')
    exec(block, {})
    assert "|readings|" in capsys.readouterr().out
