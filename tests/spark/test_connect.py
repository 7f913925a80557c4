"""Zambezi with Spark Connect: source, sink, decoders and pipelines, through a server in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.connect_server import PATIENCE, ConnectServer
from tests.zeps.serving import serving
from zambezi.spark import sessions
from zambezi.zeps.sync import Client

MESSAGES = [(f"k{number % 3}", b'{"celsius": %d}' % number) for number in range(1, 31)]


@pytest.mark.xdist_group("spark-clusters")
@pytest.mark.timeout(600)
def test_a_server_of_spark_connect(tmp_path: Path) -> None:
    for package in ("grpc", "grpc_status", "pandas"):
        pytest.importorskip(package, reason=f"{package} missing: pip install 'zambezi[connect]'")
    with ConnectServer(tmp_path) as server, serving(tmp_path / "data") as (_, endpoint):
        with Client.connect(endpoint) as client:
            readings = client.stream("readings")
            readings.publish_many(MESSAGES)
            readings.flush()
        command = [sys.executable, "-m", "tests.spark.connected", server.url, endpoint, str(tmp_path / "out")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
        log = server.output
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    failure = found.pop("failure")
    assert found == {
        "batch": {"sum": 465.0, "published": 10},
        "stream": {"behind": 0},
        "pipelines": {"once": [30, 0], "caught": [30, 1], "reported": [["readings", 30]], "followed": [1, 31]},
    }
    assert failure.startswith(f"{tmp_path}/out/no-place/date=")
    assert ": a file is where a directory must be: choose another place (" in failure
    assert "\n" not in failure
    assert not list((tmp_path / "out").glob("*/_zambezi/notes/*"))
    assert "replaced a statically registered data source" not in log


def test_only_settings_that_a_client_may_change_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, str] = {}

    class Builder:
        def remote(self, server: str) -> Builder:
            sent["server"] = server
            return self

        def config(self, name: str, value: str) -> Builder:
            sent[name] = value
            return self

        def getOrCreate(self) -> str:  # noqa: N802 - Spark's name
            return "a session"

    monkeypatch.setattr(sessions, "SparkSession", type("Session", (), {"builder": Builder()}))
    monkeypatch.setattr(sessions, "register", lambda made: made)
    made: Any = sessions.session("sc://host:15002", settings={"spark.sql.shuffle.partitions": "3"})
    assert made == "a session"
    assert sent == {
        "server": "sc://host:15002",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "3",
    }
