"""Spark: streams as tables, tables as streams, and the pipelines between. Needs the extra `zambezi[spark]`, and Java.

from zambezi.spark import session
spark = session()
spark.read.format("zeps").option("path", "data").option("stream", "readings").load().show()
"""

from zambezi.spark.sessions import register, session

__all__ = ["register", "session"]
