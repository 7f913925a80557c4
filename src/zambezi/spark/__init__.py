"""A data source and a sink for Spark, and the pipelines that use them. Needs the extra `zambezi[spark]`, and Java.

from zambezi.spark import session
spark = session()
spark.read.format("zeps").option("path", "data").option("stream", "readings").load().show()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zambezi.lazy import exports

if TYPE_CHECKING:
    from zambezi.spark.sessions import register, session

__all__ = ["register", "session"]

__getattr__ = exports(__name__, dict.fromkeys(__all__, "sessions"))
