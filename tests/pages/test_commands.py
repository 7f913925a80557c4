"""Commands on the pages that no test can run (installation, clusters) exist and have these options."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages.blocks import Block, all_blocks
from tests.pages.commands import check, lines, words

KINDS = {"sh"}
# One process knows the options of Spark's programs: to print them, each starts Java.
WITH_SPARK = pytest.mark.xdist_group("spark-options")


@pytest.mark.parametrize(
    "block",
    [pytest.param(one, marks=[WITH_SPARK] if "spark-" in one.text else []) for one in all_blocks(*KINDS)],
    ids=str,
)
def test_the_commands_of_a_block_exist(block: Block) -> None:
    for command in lines(block.text):
        if command.startswith("export "):
            check_setting(command)
        else:
            check(words(command.replace("$SPARK_HOME/bin/", "")))


def check_setting(command: str) -> None:
    """Check that the command sets SPARK_HOME to a directory of Spark."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f'{command}; echo "$SPARK_HOME"'],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (Path(done.stdout.strip()) / "bin" / "spark-class").exists()


@pytest.mark.parametrize(
    "command",
    [
        "zambezi serve --no-such-option",
        "zambezi no-such-command",
        "zambezi pipeline run no-such-pipeline",
        "make no-such-target",
        "pip install 'zambezi[no-such-extra]'",
        "no-such-program",
        pytest.param("spark-submit --no-such-option x deploy/submit.py pipeline list", marks=WITH_SPARK),
        pytest.param(
            "spark-submit --master yarn deploy/submit.py pipeline run archive --no-such-option", marks=WITH_SPARK
        ),
    ],
)
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    with pytest.raises(AssertionError):
        check(words(command))
