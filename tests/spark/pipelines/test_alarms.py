"""zambezi.spark.pipelines.alarms: each incident is published once, and its end too."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.zeps.serving import serving
from zambezi.spark.errors import OptionError
from zambezi.spark.lake.place import Place
from zambezi.spark.pipelines.alarms import publish_alarms
from zambezi.spark.pipelines.verdict import Reason, Verdict
from zambezi.zeps.sync import Client

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def silent(about: str, seconds: int = 240, since: str = "2025-12-31 23:56:00") -> Reason:
    return Reason(about, "silent", f"{about} was silent for {seconds} s", since, {"silent_s": seconds})


def test_each_incident_is_published_once(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as (_, endpoint), Client.connect(endpoint) as client:
        options = {"endpoint": endpoint, "stream": "alarms"}
        assert publish_alarms(Verdict("traffic", (silent("a"), silent("b"))), options, NOW) == 2
        assert publish_alarms(Verdict("traffic", (silent("a", 540), silent("c"))), options, NOW) == 1
        assert publish_alarms(Verdict("traffic"), options, NOW) == 0
        found = list(client.stream("alarms").subscribe(since="earliest", until="now"))
    assert [one.key for one in found] == ["a", "b", "c"]
    assert json.loads(found[0].body) == {
        "pipeline": "traffic",
        "healthy": False,
        "about": "a",
        "kind": "silent",
        "reason": "a was silent for 240 s",
        "since": "2025-12-31 23:56:00",
        "silent_s": 240,
        "reported": "2026-01-01T00:00:00+00:00",
    }


def test_a_wrong_key_is_refused() -> None:
    options = {"endpoint": "tcp://127.0.0.1:1", "stream": "alarms", "serverKey": "x"}
    with pytest.raises(OptionError, match="serverKey"):
        publish_alarms(Verdict("traffic", (silent("a"),)), options)


def test_the_end_of_an_incident_is_published_once(tmp_path: Path) -> None:
    memory = Place(str(tmp_path / "results"))
    with serving(tmp_path / "data") as (_, endpoint), Client.connect(endpoint) as client:
        options = {"endpoint": endpoint, "stream": "alarms"}

        def run(*reasons: Reason, more: int = 0, stream: str = "alarms") -> int:
            verdict = Verdict("traffic", reasons, more)
            return publish_alarms(verdict, options | {"stream": stream}, NOW, memory=memory)

        assert run(silent("a"), silent("b")) == 2
        assert run(silent("b"), more=1) == 0  # "a" may be among those that were left out
        assert run(silent("b")) == 1
        assert run(silent("b")) == 0
        assert run(silent("a"), silent("b")) == 1  # the same incident has come back
        assert run() == 2
        assert run() == 0
        assert run(silent("c"), stream="other") == 1
        (tmp_path / "results" / ".traffic-alarms.json").write_text("[")
        assert run(stream="other") == 0
        found = list(client.stream("alarms").subscribe(since="earliest", until="now"))
    told = [(one.key, json.loads(one.body)["healthy"]) for one in found]
    assert told == [("a", False), ("b", False), ("a", True), ("a", False), ("b", True), ("a", True)]
    assert json.loads(found[2].body) == {
        "pipeline": "traffic",
        "healthy": True,
        "about": "a",
        "kind": "silent",
        "since": "2025-12-31 23:56:00",
        "reason": "a is healthy again (silent)",
        "reported": "2026-01-01T00:00:00+00:00",
    }


def test_a_run_that_was_killed_publishes_no_end_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Place(str(tmp_path / "results"))
    with serving(tmp_path / "data") as (_, endpoint), Client.connect(endpoint) as client:
        options = {"endpoint": endpoint, "stream": "alarms"}
        publish_alarms(Verdict("traffic", (silent("a"),)), options, NOW, memory=memory)
        before = (tmp_path / "results" / ".traffic-alarms.json").read_bytes()
        assert publish_alarms(Verdict("traffic"), options, NOW, memory=memory) == 1
        (tmp_path / "results" / ".traffic-alarms.json").write_bytes(before)
        assert publish_alarms(Verdict("traffic"), options, NOW, memory=memory) == 0
        assert len(list(client.stream("alarms").subscribe(since="earliest", until="now"))) == 2
