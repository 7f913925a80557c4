"""Spark looks for modules whose names begin with `pyspark_`, and registers their `DefaultSource`: format `zeps` is
known to every session then, with nothing to import."""

from zambezi.spark.source import ZepsDataSource as DefaultSource

__all__ = ["DefaultSource"]
