"""tools.smoke: what `make dist` tries with the installed packages."""

import tomllib
from pathlib import Path

from tools import smoke

FOR_DEVELOPERS = {"bench", "dev", "dist", "docs"}


def test_each_extra_for_users_is_tried() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert smoke.PARTS.keys() - {"core"} == project["optional-dependencies"].keys() - FOR_DEVELOPERS


def test_the_trial_of_the_core_works_here() -> None:
    smoke.core()
