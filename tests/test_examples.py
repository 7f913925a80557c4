"""The programs in the README, the documentation and the docstrings run, and print what the pages show.

tests/pages/ has the tests of everything else on the pages: transcripts, commands, files, pictures.
"""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import zambezi
from tests.pages.blocks import PAGES, blocks

# The program of this page needs the server that the page starts: tests/pages/test_sessions.py plays the whole page.
PLAYED = {"tutorial.md"}
PROGRAMS = [page for page in PAGES if blocks(page, "python") and page.name not in PLAYED]
MODULES = sorted(module.name for module in pkgutil.walk_packages(zambezi.__path__, "zambezi."))


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.name)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """Run all blocks of a page as one program, as a reader would type them.

    Development mode is off, because asyncio would report slow callbacks, and a busy machine has some.
    """
    program = "\n".join(block.text for block in blocks(page, "python"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_the_examples_of_a_module_run(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0
