"""Settings for the processes that Spark starts in tests: Java, and its Python workers.

    python -m tests.spark.jvm

writes Spark's classes as Java has them in memory into a file of the environment. A Java that maps this file starts
Spark in half of the processor time, and tests start it dozens of times. `make test` writes the file once.
"""

import os
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# Java starts faster with one compiler, one thread for garbage collection and without the verification of Spark's
# classes; and most test processes live for seconds.
_QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
_QUIET = "-Xlog:cds*=off -Xlog:class+path=off"  # classes that cannot be in the file are loaded as ever

_SETTINGS = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "1"}


def _classes() -> Path:
    """Return the path of the file of Spark's classes: one for each Spark that the environment has."""
    try:
        return Path(sys.prefix, f"spark-{version('pyspark')}.classes").resolve()
    except PackageNotFoundError:
        return Path(sys.prefix, "no-spark.classes")


CLASSES = _classes()
QUICK = f"{_QUICK} {_QUIET} -XX:SharedArchiveFile={CLASSES}" if CLASSES.exists() else _QUICK


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


def write_classes() -> None:
    """Run small queries of the kinds that tests run, and have Java write the classes that they needed."""
    from pyspark import SparkContext

    from zambezi.spark import session

    new = CLASSES.with_suffix(".new")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_QUICK} {_QUIET} -XX:ArchiveClassesAtExit={new}"
    with TemporaryDirectory() as home:
        os.environ["PYSPARK_PYTHON"] = worker_python(Path(home))
        spark = session("local[1]", settings=_SETTINGS)
        numbers = spark.range(10).selectExpr("id % 2 AS key", "cast(id AS string) AS text")
        numbers.write.parquet(f"{home}/numbers")
        numbers = spark.read.parquet(f"{home}/numbers")
        numbers.mapInArrow(lambda batches: batches, numbers.schema).groupBy("key").count().orderBy("key").collect()
        numbers.join(numbers, "key").toPandas()
        rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().writeStream
        rates = rates.foreachBatch(lambda frame, _: frame.write.parquet(f"{home}/rates", mode="append"))
        rates = rates.option("checkpointLocation", f"{home}/checkpoint").trigger(availableNow=True)
        rates.start().awaitTermination()
        spark.stop()
        gateway: Any = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
    if new.exists():  # not every Java can write it
        new.replace(CLASSES)


if __name__ == "__main__":
    write_classes()
