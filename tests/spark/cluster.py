"""A Spark standalone cluster on loopback: a master and workers, each a process of its own, from the pip package."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from tests.spark.jvm import QUICK
from zambezi.spark.java import find_java

HOME = Path(pyspark.__file__).parent
PATIENCE = 240.0
_STARTED = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")


class Daemon:
    """A master or a worker, with what it started, in a process group of its own."""

    def __init__(self, place: Path, kind: str, *arguments: str) -> None:
        self._log = place / f"{kind}-{time.monotonic_ns()}.log"
        environment = os.environ | {
            "SPARK_HOME": str(HOME),
            "JAVA_HOME": find_java(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
        }
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """End it, and the executors that it started, as a power failure would."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


class Cluster:
    """A master and two workers, each with one core."""

    def __init__(self, place: Path, workers: int = 2) -> None:
        self._place = place
        self.master = Daemon(place, "Master", "--port", "0")
        self.workers: list[Daemon] = []
        try:
            self.url = _until(self.master, lambda: _STARTED.search(self.master.said()))[1]
            for _ in range(workers):
                self.add()
        except BaseException:
            self.close()
            raise

    def add(self) -> Daemon:
        """One more worker; it is there when this returns."""
        place = self._place / f"worker-{len(self.workers)}"
        worker = Daemon(self._place, "Worker", "--cores", "1", "--memory", "1g", "--work-dir", str(place), self.url)
        self.workers.append(worker)
        _until(worker, lambda: re.search("Successfully registered with master", worker.said()))
        return worker

    def close(self) -> None:
        for daemon in (*self.workers, self.master):
            daemon.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _until(daemon: Daemon, condition: Callable[[], re.Match[str] | None]) -> re.Match[str]:
    deadline = time.monotonic() + PATIENCE
    while (found := condition()) is None:
        assert daemon.process.poll() is None, f"it ended: {daemon.said()[-2000:]}"
        assert time.monotonic() < deadline, f"it does not start: {daemon.said()[-2000:]}"
        time.sleep(0.05)
    return found
