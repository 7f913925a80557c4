"""The examples of docs/spark.md run one after another, in one program, with a broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.journal import write
from tests.zeps.serving import serving

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_examples_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("zambezi.spark.session", lambda: spark)  # there is one already
    bodies = [(("kitchen", "attic")[number % 2], b'{"celsius": %d}' % number) for number in range(30)]
    write(tmp_path / "data", "readings", bodies)
    blocks = re.findall(r'^```python title="Spark"\n(.*?)^```', PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    with serving(tmp_path / "data") as (_, bound):
        for block in blocks:
            program = block.replace("tcp://127.0.0.1:5555", bound)
            # Spark was started in another directory than the reader's.
            for name in ("data", "archive", "checkpoint"):
                program = program.replace(f'"{name}"', f'"{tmp_path / name}"')
            exec(program, names)
        alarms = spark.read.format("zeps").option("endpoint", bound).option("stream", "alarms").load()
        assert alarms.count() == 15
        assert spark.sql("SELECT count(*) FROM copied").collect() == [(15,)]
    for view in ("readings", "copied"):
        spark.catalog.dropTempView(view)
    told = capsys.readouterr().out
    assert "|  attic|   15|" in told
    assert "\n10\n" in told  # of the kitchen, after sequence 10
    assert "\n30\n" in told  # in the archive
    assert re.search(r"\|kitchen\| +14\.0\|", told)  # degrees
    assert ": 0 messages and 0 s behind, 0 messages lost" in told
    assert len(blocks) == 8
