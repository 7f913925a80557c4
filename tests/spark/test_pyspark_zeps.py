"""Spark finds the format `zeps` in a program that does not import Zambezi."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.journal import numbered, write
from tests.spark.jvm import QUICK
from tests.zeps.serving import serving
from zambezi.spark.errors import JavaMissing
from zambezi.spark.java import find_java
from zambezi.zeps.sync import Client

# Settings that make Java start quickly, and none that is for us.
PROGRAM = """
import json
import sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.memory", "512m")
    .config("spark.driver.extraJavaOptions", sys.argv[3])
    .config("spark.sql.warehouse.dir", sys.argv[2])
    .getOrCreate()
)
readings = spark.read.format("zeps").option("endpoint", sys.argv[1]).option("stream", "s")
few = readings.load().where("sequence > 3 and key like 'k%'")
told = {"rows": [tuple(row) for row in few.selectExpr("sequence", "key", "cast(body as string)").collect()]}
writer = few.select("key", "body").write.format("zeps").option("endpoint", sys.argv[1]).option("stream", "copy")
writer.mode("append").save()
for name, value in (("minPartitions", "few"), ("strem", "s")):
    try:
        readings.options(**{name: value}).load().count()
    except PySparkException as error:
        told[name] = str(error)
told["ours"] = [name for name in sys.modules if name.startswith(("zambezi", "pyspark_zeps"))]
spark.stop()
print(json.dumps(told))
"""


@pytest.mark.xdist_group("spark-processes")
@pytest.mark.timeout(600)
def test_a_plain_session_knows_the_format(tmp_path: Path) -> None:
    try:
        java = find_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    write(tmp_path / "data", "s", numbered(5))
    # Nothing of ours is set for it, and it runs where no directory of ours is.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    command = [sys.executable, "-c", PROGRAM]
    with serving(tmp_path / "data") as (_, endpoint), Client.connect(endpoint) as client:
        done = subprocess.run(
            [*command, endpoint, str(tmp_path / "warehouse"), QUICK],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=tmp_path,
            env=environment | {"JAVA_HOME": java, "PYSPARK_PYTHON": os.environ["PYSPARK_PYTHON"]},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        copied = [(one.key, one.body) for one in client.stream("copy").subscribe(since="earliest", until="now")]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["ours"] == []  # the program itself needs nothing of it
    assert told["rows"] == [[4, "k4", "4"], [5, "k5", "5"]]
    assert copied == [("k4", b"4"), ("k5", b"5")]
    assert "option 'minPartitions' is 'few': it must be a whole number of at least 1" in told["minPartitions"]
    assert "there is no option 'strem': the options are path, storeOptions, endpoint, stream" in told["strem"]
