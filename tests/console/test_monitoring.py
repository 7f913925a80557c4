"""deploy/grafana.json, deploy/alerts.yml and the documentation name only metrics and labels that a server has."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.test_server import config_for
from tests.zmtp.waiting import in_loop
from zambezi.console import metrics
from zambezi.server import Server
from zambezi.server.config.settings import StoreConfig
from zambezi.zeps.asyncio import Client

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCS = Path(__file__).parents[2] / "docs"
OF_PROMETHEUS = {"instance"}
ELSEWHERE = {"zambezi_multicast_total", "zambezi_copies_lag", "zambezi_copies_failures_total"}  # of other servers


def queries() -> list[tuple[str, str]]:
    """Return the queries of both files, each with a text that uses its labels."""
    yaml: Any = pytest.importorskip("yaml")
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    shown = [(target["expr"], target["legendFormat"]) for panel in panels for target in panel["targets"]]
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    alerts = [(rule["expr"], rule["annotations"]["summary"].replace("$labels.", "")) for rule in group["rules"]]
    return shown + alerts


async def labels_of_metrics(path: Path) -> dict[str, set[str]]:
    """Return the names of all series of a server that does everything once, with their labels."""
    found: dict[str, set[str]] = {}
    config = config_for(path)
    fleet = replace(config.mcollective, enabled=True, endpoint="tcp://127.0.0.1:*")
    zeps = replace(config.zeps, store=StoreConfig(url=str(path / "store")))
    async with (
        Server(replace(config, mcollective=fleet, zeps=zeps)) as server,
        Client.connect(server.endpoints["zeps"]) as client,
    ):
        stream = client.stream("s")
        await stream.publish("k", b"x")
        await stream.flush()
        async with stream.subscribe(shared="g", since="earliest") as member, stream.subscribe() as subscription:
            await member.recv()
            await client.set_reader("s", "reader", 1)
            await stream.publish("k", b"x")
            await subscription.recv()
            for family in text_string_to_metric_families(metrics.exposition(server).decode()):
                counted = {f"{family.name}_total"} if family.type == "counter" else {family.name}
                for name in counted | {sample.name for sample in family.samples}:
                    found.setdefault(name, set()).update(*[sample.labels for sample in family.samples])
    found["zambezi_invalid_total"].add("kind")  # there was no mistake
    found["up"] = set()  # of Prometheus itself
    return found


@in_loop
async def test_dashboard_and_alerts_name_metrics_and_labels_that_exist(tmp_path: Path) -> None:
    known = await labels_of_metrics(tmp_path)
    for query, text in queries():
        names = re.findall(r"\b(zambezi_\w+|process_\w+|up)\b", query.replace('job="zambezi"', ""))
        assert names, query
        assert set(names) <= known.keys(), query
        labels = set.union(*(known[name] for name in names)) | OF_PROMETHEUS
        used = set(re.findall(r"\{\{ ?(\w+) ?\}\}", text)) | set(
            re.findall(r"\w+", " ".join(re.findall(r"by \(([\w, ]+)\)", query)))
        )
        assert used <= labels, (query, text)


@in_loop
async def test_the_documentation_names_metrics_that_exist(tmp_path: Path) -> None:
    known = (await labels_of_metrics(tmp_path)).keys() | ELSEWHERE
    assert all(f'"{name.removesuffix("_total")}"' in inspect.getsource(metrics) for name in ELSEWHERE)
    for page in sorted(DOCS.glob("*.md")):
        if page.name != "conformance.md":  # it has names of tests
            named = set(re.findall(r"\bzambezi_\w+", page.read_text()))
            assert named <= known, (page.name, named - known)


def test_panels_do_not_overlap() -> None:
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels]
    assert len(set(places)) == len(panels)
    assert len({one["id"] for one in panels}) == len(panels)
