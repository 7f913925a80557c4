"""docs/architecture.md is a map of the code: every file on it exists, and every file of a protocol is on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import zambezi
from tests.pages.blocks import ROOT, prose

SOURCE = Path(zambezi.__file__).parent
PAGE = prose(ROOT / "docs" / "architecture.md")
MAPPED = ("zmtp", "zeps", "zre", "mcollective", "p2p")
# Files that every package has; the page describes them once.
EVERYWHERE = {"__init__", "asyncio", "sync", "face", "errors", "events"}


def section(package: str) -> str:
    found = re.search(rf"^## {package}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def listed(package: str) -> list[str]:
    """Return the files in the first column of a package's table."""
    rows = re.findall(r"^\| (`.*?) \|", section(package), re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([a-z0-9_]+/?)`", row)]


def exists(path: str) -> bool:
    return (SOURCE / path).is_dir() if path.endswith("/") else (SOURCE / f"{path}.py").is_file() or path in packages()


def packages() -> set[str]:
    return {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("__init__.py")}


@pytest.mark.parametrize("package", MAPPED)
def test_the_table_of_a_package_has_every_file_once(package: str) -> None:
    files = {path.stem for path in (SOURCE / package).glob("*.py")} - EVERYWHERE
    rooms = {f"{path.parent.name}/" for path in (SOURCE / package).glob("*/__init__.py")}
    named = listed(package)
    assert sorted(set(named) - EVERYWHERE) == sorted(files | rooms)
    assert len(named) == len(set(named))


def test_every_path_on_the_page_exists() -> None:
    paths = re.findall(r"`([a-z0-9]+/[a-z0-9_/]+)`", PAGE)
    assert len(paths) > 20
    assert [path for path in paths if not exists(path)] == []


def test_a_missing_path_is_found() -> None:
    assert all(map(exists, ("zeps/journal", "zeps/journal/", "zmtp/stream")))
    assert not any(map(exists, ("zeps/no_such_file", "zeps/block/")))


def test_the_walk_names_the_files_of_each_step() -> None:
    walk = section("zeps").partition("### The walk of a message")[2]
    files = re.findall(r"`([a-z0-9]+/[a-z0-9_/]+)`", walk)
    assert files[:2] == ["zeps/client/publisher", "zeps/client/publisher_connection"]
    passed = {"zmtp/frames", "zeps/broker/session", "zeps/block", "zeps/broker/stream", "zeps/broker/cursor"}
    assert passed <= set(files)
    assert len(set(files)) <= 16  # a newcomer reads them in an afternoon
    assert "sendfile" in (SOURCE / "zmtp" / "source.py").read_text()  # as step 5 says
