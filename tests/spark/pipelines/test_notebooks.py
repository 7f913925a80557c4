"""The examples run from their first cell to their last, and leave pictures."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(("example", "picture"), [("rates", "rates.png"), ("talk", "talk.png")])
@pytest.mark.usefixtures("spark")
def test_an_example_runs_and_leaves_a_picture(
    example: str, picture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{example}.py"))
    made = (tmp_path / picture).read_bytes()
    assert made.startswith(PNG)
    assert len(made) > 10_000
    assert f"see {picture}" in capsys.readouterr().out


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"rates", "talk"}
