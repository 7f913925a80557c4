"""`make demo` without Spark: it runs to its end, shows every step, and leaves no files behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "demo", "--without-spark"]
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
    done = subprocess.run(
        COMMAND,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
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


@pytest.mark.timeout(300)
def test_a_demo_that_is_ended_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        COMMAND, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        while "2. 20 sensors" not in (line := demo.stdout.readline()):
            assert line, "the demo ended"
        demo.terminate()
        _, errors = demo.communicate(timeout=PATIENCE)  # the pipe is open as long as a process of the demo runs
        assert demo.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []
