"""Settings for the processes that Spark starts in tests: Java, and its Python workers."""

import os
import shlex
import sys
from pathlib import Path

# Java starts faster with one compiler, one thread for garbage collection and without the verification of Spark's
# classes; and most test processes live for seconds.
QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def worker_python(directory: Path) -> str:
    """Write the command with which Spark starts Python, and return its path.

    Spark puts an archive of its modules before the installed ones. The archive has no bytecode: each worker would
    compile it for longer than it works, and Spark gives a worker of a stream ten seconds to connect.
    """
    path = shlex.quote(os.environ.get("PYTHONPATH", ""))
    command = directory / "python"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.quote(sys.executable)} "$@"\n')
    command.chmod(0o755)
    return str(command)
