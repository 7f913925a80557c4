"""The same pipelines on a cluster: a master and two workers, of which one is killed in the middle."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.spark.cluster import Cluster
from tests.spark.delta import DeltaReader
from tests.spark.jvm import QUICK
from tests.spark.kills import Driver, batches
from tests.spark.pipelines.frames import log
from tests.zeps.serving import serving
from zambezi.zeps.sync import Client
from zambezi.zre.log import What

COUNT = 6000  # messages in each stream
BATCH = 2000  # messages in a batch, of both streams
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
        for name in ("readings", "alarms"):
            client.stream(name).publish_many([(f"k{number % 10}", b"%d" % number) for number in range(COUNT)])
            client.stream(name).flush()
        talk = [log(What.SEND, 1, 2, number % 100, "WHISPER")[1:] for number in range(1000)]
        talk += [log(What.RECV, 2, 1, number % 100, "WHISPER")[1:] for number in range(990)]
        client.stream("zrelog").publish_many(talk)
        client.stream("zrelog").flush()

        out = tmp_path / "archive"
        streams = ("--streams", "readings,alarms", "--max-per-batch", str(BATCH))
        driver = Driver("archive", endpoint, out, tmp_path, "--master", cluster.url, *ON, "--incremental", *streams)
        try:
            driver.until(lambda: batches(out) >= 1)
            cluster.workers[0].kill()
            # There is more to do than was done, and the other worker does it.
            assert batches(out) < 2 * COUNT / BATCH - 1
            assert driver.wait() == 0, driver.said()
        finally:
            driver.kill()
        assert DeltaReader(str(out)).sequences() == {
            name: Counter(range(1, COUNT + 1)) for name in ("readings", "alarms")
        }

        health = tmp_path / "health"
        driver = Driver("network-health", endpoint, health, tmp_path, "--master", cluster.url, *ON)
        assert driver.wait() == 3, driver.said()
        assert "the clock of node 0001 differs from the journal's by" in driver.said()
        found = json.loads((health / "results" / "health-talk.json").read_text())
        assert found["columns"][:5] == ["sender", "sender_name", "receiver", "receiver_name", "whispers_sent#"]
        assert [row[:7] for row in found["rows"]] == [["0001", "", "0002", "", 1000, 990, 10]]
