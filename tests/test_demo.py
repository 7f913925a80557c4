"""`make demo`, without Spark: it shows what it says, stops by itself, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATIENCE = 240.0
TOLD = (
    "zambezi serve is up: zeps, mcollective, zre, log, console",
    "each of the 20 nodes sees the 19 others and the server",
    "has caught up, and missed nothing",
    "temperatures of the past",
    "every sequence once, in order",
    "no answer from db2",
    "That was it. Nothing was left behind.",
)


@pytest.mark.timeout(300)
def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("DEMO_")}
    surroundings |= {"DEMO_SPARK": "0", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "demo"],
        cwd=ROOT,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in TOLD:
        assert line in done.stdout
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
