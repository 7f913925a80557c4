"""Programs in processes of their own."""

import re
import subprocess
import sys
import textwrap

from tests.zmtp.waiting import PATIENCE

# asyncio's debug mode reports what took 100 ms, which says only that the machine is busy.
_SLOW = re.compile(r"^Executing .* took [\d.]+ seconds\n", re.MULTILINE)


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program, with all warnings on, to its end."""
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    ran.stderr = _SLOW.sub("", ran.stderr)
    return ran
