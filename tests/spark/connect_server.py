"""A server of Spark Connect on loopback, a process of its own, from the pip package."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from tests.spark.jvm import QUICK
from zambezi.spark.java import find_java

HOME = Path(pyspark.__file__).parent
PATIENCE = 240.0
_STARTED = re.compile(r"Spark Connect server started at: \S*?:(\d+)")
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.sql.shuffle.partitions": "1",
}


class ConnectServer:
    """A server with two cores. `url` is its address."""

    def __init__(self, place: Path) -> None:
        self._log = place / "connect.log"
        environment = os.environ | {"SPARK_HOME": str(HOME), "JAVA_HOME": find_java(), "SPARK_SUBMIT_OPTS": QUICK}
        command = [str(HOME / "bin" / "spark-submit"), "--master", "local[2]"]
        for name, value in _SETTINGS.items():
            command += ["--conf", f"{name}={value}"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
                cwd=place,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def url(self) -> str:
        """The address, when the server has started."""
        deadline = time.monotonic() + PATIENCE
        while (found := _STARTED.search(self.output)) is None:
            assert self._process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.05)
        return f"sc://127.0.0.1:{found[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)
