"""The pipelines of the demo, as a process of its own: they share one Java, which needs some seconds to start.

python -m demo.analysis ENDPOINT DIRECTORY [--plots]
"""

from __future__ import annotations

import sys
from pathlib import Path

from demo.told import say
from zambezi import cli
from zambezi.spark.pipelines.verdict import NOT_HEALTHY

PIPELINES = {"traffic": (), "network-health": (), "fleet-audit": ("--patience", "2s")}  # db2 had longer to answer


def main(endpoint: str, directory: Path, *options: str) -> int:
    for name, settings in PIPELINES.items():
        say(f"zambezi pipeline run {name}")
        command = ["pipeline", "run", name, "--rows", "5", "--endpoint", endpoint, "--out", str(directory / "tables")]
        command += ["--results", str(directory / "results"), *settings, *options]
        status = cli.main(command)
        if status not in (0, NOT_HEALTHY):  # a pipeline that has found something has worked
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
