"""Commands that use a session which runs already, instead of starting one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import zambezi.spark
from zambezi.cli import spark as spark_command

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def use_for_commands(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands use a session, and leave it running."""

    def session(*_: Any, **__: Any) -> SparkSession:
        return spark

    monkeypatch.setattr(zambezi.spark, "session", session)
    monkeypatch.setattr(spark_command, "_stop", lambda _: None)
