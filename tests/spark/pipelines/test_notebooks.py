"""The examples run from their first cell to their last, and leave pictures."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(("example", "title"), [("rates", "Messages by prefix"), ("talk", "Who talks to whom")])
@pytest.mark.usefixtures("spark")
def test_an_example_runs_and_leaves_pictures(
    example: str, title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{example}.py"))
    told = dict(re.findall(r"^see (\S+): (.*)$", capsys.readouterr().out, re.MULTILINE))
    assert any(title in one for one in told.values())
    for picture in told:
        assert ElementTree.parse(tmp_path / picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"rates", "talk"}
