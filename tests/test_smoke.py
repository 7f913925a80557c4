"""tools.smoke: what `make dist` tries with the installed packages."""

import re
import tomllib
from pathlib import Path

from tools import smoke
from zambezi import __version__

ROOT = Path(__file__).parents[1]

FOR_DEVELOPERS = {"bench", "dev", "dist", "docs"}


def test_each_extra_for_users_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert smoke.PARTS.keys() - {"core"} == project["optional-dependencies"].keys() - FOR_DEVELOPERS


def test_the_trial_of_the_core_works_here() -> None:
    smoke.core()


def test_the_version_is_written_once_and_has_its_changes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/zambezi/__init__.py"
    versions = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == __version__
