"""Pipelines: they turn streams into tables and reports. docs/pipelines.md explains them.

from zambezi.spark import session
from zambezi.spark.pipelines import PIPELINES, Run

run = Run(session(), PIPELINES["traffic"], "results", {"endpoint": "tcp://127.0.0.1:5671"})
run.once()
for report in run.reports():
    report.frame.show()
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zambezi.spark.pipelines.archive import ARCHIVE
from zambezi.spark.pipelines.fleet_audit import FLEET_AUDIT
from zambezi.spark.pipelines.join import JOIN
from zambezi.spark.pipelines.network_health import NETWORK_HEALTH
from zambezi.spark.pipelines.pipeline import Pipeline, Report, Settings
from zambezi.spark.pipelines.quality import QUALITY
from zambezi.spark.pipelines.restore import restore
from zambezi.spark.pipelines.running import Progress, Run
from zambezi.spark.pipelines.sessions import SESSIONS
from zambezi.spark.pipelines.traffic import TRAFFIC

__all__ = ["PIPELINES", "Pipeline", "Progress", "Report", "Run", "Settings", "restore"]

PIPELINES: Final[Mapping[str, Pipeline]] = {
    one.name: one for one in (ARCHIVE, TRAFFIC, NETWORK_HEALTH, FLEET_AUDIT, QUALITY, SESSIONS, JOIN)
}
