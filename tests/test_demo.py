"""`make demo` without Spark: it runs to its end, shows every step, and leaves no files behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATIENCE = 240.0
SHOWN = (
    "zambezi serve runs these services: zeps, mcollective, zre, log, console",
    "each of the 20 nodes has found the 19 others and the server",
    "has caught up, and missed no message",
    "past temperatures",
    "every sequence once, in order",
    "the other server has taken the stream",
    "no answer from db2",
    "The demo is over, and its files are removed.",
)


@pytest.mark.timeout(300)
def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEMO_")}
    environment |= {"DEMO_SPARK": "0", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "demo"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in SHOWN:
        assert line in done.stdout
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
