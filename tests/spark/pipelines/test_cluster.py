"""A pipeline on a cluster: a master and two workers, of which one is killed in the middle. Each message counts once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.spark.cluster import Cluster
from tests.spark.jvm import QUICK
from tests.spark.kills import Driver, batches
from tests.spark.pipelines.frames import log
from tests.zeps.serving import serving
from zambezi.zeps.sync import Client
from zambezi.zre.log import What

SENT = 1000  # whispers
HEARD = 990  # of them
BATCH = 400  # messages in a batch
ON = (
    "--conf",
    "spark.driver.host=127.0.0.1",
    "--conf",
    "spark.driver.bindAddress=127.0.0.1",
    "--conf",
    "spark.executor.memory=512m",
    "--conf",
    f"spark.executor.extraJavaOptions={QUICK}",
    "--conf",
    "spark.driver.memory=768m",
    "--conf",
    "spark.sql.shuffle.partitions=2",
)


@pytest.mark.xdist_group("spark-clusters")
@pytest.mark.timeout(1200)
def test_a_worker_is_killed_and_nothing_is_missing(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "data") as (_, endpoint),
        Cluster(tmp_path) as cluster,
        Client.connect(endpoint) as client,
    ):
        talk = [log(What.SEND, 1, 2, number % 100, "WHISPER")[1:] for number in range(SENT)]
        talk += [log(What.RECV, 2, 1, number % 100, "WHISPER")[1:] for number in range(HEARD)]
        client.stream("zrelog").publish_many(talk)
        client.stream("zrelog").flush()

        out = tmp_path / "out"
        table = out / "network-health"
        options = ("--master", cluster.url, *ON, "--incremental", "--max-per-batch", str(BATCH))
        driver = Driver("network-health", endpoint, out, tmp_path, *options)
        try:
            driver.until(lambda: batches(table) >= 1)
            cluster.workers[0].kill()
            # There is more to do than was done, and the other worker does it.
            assert batches(table) < (SENT + HEARD) / BATCH - 1
            assert driver.wait() == 3, driver.said()
        finally:
            driver.kill()
        assert "the clock of node 0001 differs from the journal's by" in driver.said()
        found = json.loads((out / "results" / "health-talk.json").read_text())
        assert found["columns"][:5] == ["sender", "sender_name", "receiver", "receiver_name", "whispers_sent#"]
        assert [row[:7] for row in found["rows"]] == [["0001", "", "0002", "", SENT, HEARD, SENT - HEARD]]
