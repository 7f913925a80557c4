"""The format `zeps` for every Spark session, without an import in the program.

Spark looks for modules whose names begin with `pyspark_`, and registers their `DefaultSource`.
"""

from zambezi.spark.source import ZepsDataSource as DefaultSource

__all__ = ["DefaultSource"]
