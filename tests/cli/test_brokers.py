"""`zambezi brokers`, and `zambezi stream` at a broker that does not have the stream."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.zeps.serving import serving
from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi import cli
from zambezi.cli.brokers import broker_table
from zambezi.cli.terminal import Console
from zambezi.zeps.broker.depot import Depot, StoreOptions
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.directory import BrokerInfo, StreamInfo
from zambezi.zeps.journal import Policy
from zambezi.zeps.store.cluster import Cluster
from zambezi.zeps.sync import Client

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")


@pytest.fixture
def endpoints(tmp_path: Path) -> Iterator[list[str]]:
    """Run two brokers with a stream, and yield the endpoint of the one that has it, and the other one."""
    store = StoreOptions(url=str(tmp_path / "store"), period=0.1)
    make = partial(BrokerService, policy=Policy(sync="store"), store=store, scrub=0)
    with serving(tmp_path / "a", make) as one, serving(tmp_path / "b", make) as two:
        pairs = [one, two]
        clusters = [_cluster_of(broker) for broker, _ in pairs]
        wait_until(lambda: all(_know_each_other(cluster, [one[1], two[1]]) for cluster in clusters))
        with Client.connect([endpoint for _, endpoint in pairs]) as client:
            stream = client.stream("prices")
            stream.publish("gold", b"1")
            stream.flush(PATIENCE)
        pairs.sort(key=lambda pair: "prices" not in pair[0].engine.names())
        other = _cluster_of(pairs[1][0])
        wait_until(lambda: other.owner_of("prices") is not None)
        yield [endpoint for _, endpoint in pairs]


def _cluster_of(broker: BrokerService) -> Cluster:
    assert isinstance(broker.engine.store, Depot)
    return broker.engine.store.cluster


def _know_each_other(cluster: Cluster, endpoints: list[str]) -> bool:
    """Return whether a broker knows both endpoints. Before, it can make a stream that it then hands over."""
    return {member.endpoint for member in cluster.roll.members} == set(endpoints)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(list(arguments)) == 0
    return capsys.readouterr().out


def test_brokers_and_owners_are_shown_at_every_broker(
    endpoints: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("zambezi.zeps.administration.sync.OTHERS", PATIENCE)
    owner, other = endpoints
    for endpoint in endpoints:
        rows: list[dict[str, Any]] = []

        def has_counts(endpoint: str = endpoint, rows: list[dict[str, Any]] = rows) -> bool:
            rows[:] = map(json.loads, run(capsys, "brokers", "--json", "--endpoint", endpoint).splitlines())
            return {row["endpoint"]: row["streams"] for row in rows} == {owner: 1, other: 0}

        wait_until(has_counts)  # a broker announces its streams with its next heartbeat
        assert all(row["heartbeat_age"] >= 0 and row["since"].endswith("+00:00") for row in rows)
        shown = run(capsys, "brokers", "--endpoint", endpoint)
        assert owner in shown
        assert rows[0]["id"] in shown
        listed = run(capsys, "stream", "list", "--endpoint", endpoint)
        assert "owner" in listed
        assert owner in listed
        info = json.loads(run(capsys, "stream", "info", "prices", "--json", "--endpoint", endpoint))
        assert (info["owner"], info["last"]) == (owner, 1)


def test_a_broker_without_a_store_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path / "data", BrokerService) as (_, endpoint):
        assert cli.main(["brokers", "--endpoint", endpoint]) == 1
    assert "shares no object store" in capsys.readouterr().err


class Moving:
    """A client whose stream is between two brokers for some questions."""

    def __init__(self, questions: int) -> None:
        self.questions = questions

    def __enter__(self) -> Moving:
        return self

    def __exit__(self, *_: object) -> None: ...

    def streams(self, _timeout: float | None) -> list[StreamInfo]:
        self.questions -= 1
        found = StreamInfo(stream="prices", owner="tcp://127.0.0.1:1")
        return [found if self.questions >= 0 else replace(found, incarnation="1", last=7)]


def test_a_stream_that_goes_to_another_broker_is_asked_for_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zambezi.cli.stream.ASK_AGAIN", 0.0)
    monkeypatch.setattr("zambezi.cli.stream.MOVING", PATIENCE)
    monkeypatch.setattr("zambezi.cli.stream.client_of", lambda _: Moving(questions=2))
    assert json.loads(run(capsys, "stream", "info", "prices", "--json"))["last"] == 7


def test_a_stream_whose_broker_does_not_answer_is_no_empty_stream(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zambezi.cli.stream.MOVING", 0.0)
    monkeypatch.setattr("zambezi.cli.stream.client_of", lambda _: Moving(questions=10**9))
    assert cli.main(["stream", "info", "prices"]) == 1
    assert "its broker at tcp://127.0.0.1:1 does not answer: try again later" in capsys.readouterr().err


def test_an_endpoint_is_whole_in_a_terminal() -> None:
    broker = BrokerInfo(broker="0123456789abcdef" * 2, endpoints=("tcp://berlin.example.org:5671",), streams=1234)
    console = Console(file=io.StringIO(), width=80)
    console.print(broker_table([broker]))
    assert isinstance(console.file, io.StringIO)
    _, head, row = console.file.getvalue().splitlines()
    assert head.split() == ["broker", "endpoint", "started", "heartbeat", "streams"]
    assert "…  tcp://berlin.example.org:5671  " in row
    assert row.endswith("1,234")
