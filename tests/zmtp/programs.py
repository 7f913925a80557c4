"""Programs in processes of their own."""

import subprocess
import sys
import textwrap

from tests.zmtp.waiting import PATIENCE


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program, with all warnings on, to its end."""
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
