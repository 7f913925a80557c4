"""`zambezi bench`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.zeps.serving import serving
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi import cli
from zambezi.cli.bench import Result, fan_out, percentile
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker.service import BrokerService


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path, BrokerService) as (broker, endpoint):
        yield endpoint
        assert broker.engine.names() == []  # the streams of the runs are gone


def measured(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert cli.main(["bench", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_publishing(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "pub", "--messages", "1234", "--size", "10", "--endpoint", endpoint)
    assert (found["work"], found["messages"], found["size"]) == ("publish", 1234, 10)
    assert "p50_ms" not in found
    found = measured(capsys, "pub", "--each", "--messages", "20", "--endpoint", endpoint)
    assert found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]


@in_loop
async def test_a_fan_that_is_interrupted_leaves_no_task_with_an_error(tmp_path: Path) -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    wanted = argparse.Namespace(messages=1000, size=10, rate=10.0, subscribers=2, timeout=PATIENCE)
    async with BrokerService(tmp_path) as broker, Client.connect(broker.bind("tcp://127.0.0.1:*")) as client:
        run = asyncio.ensure_future(fan_out(client, "s", wanted))
        await eventually(lambda: broker.counters.published >= 2)
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        del run
    gc.collect()
    assert not problems


def test_replaying(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert measured(capsys, "sub", "--messages", "2000", "--endpoint", endpoint)["messages"] == 2000


def test_fanning_out(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--messages", "50", "--subscribers", "3", "--rate", "100000", "--endpoint", endpoint)
    found = measured(capsys, "fan", *words)
    assert (found["messages"], found["subscribers"], found["deliveries"]) == (50, 3, 150)
    assert "deliveries_per_second" in found
    assert "messages_per_second" not in found
    assert cli.main(["bench", "fan", *words]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown[0] == ["publish", "to", "3", "subscribers"]
    assert ["messages", "50", "of", "100", "bytes"] in shown
    assert ["deliveries", "150"] in shown


@pytest.mark.parametrize(
    ("words", "status", "problem"),
    [
        (["pub", "--size", "100M", "--messages", "1000"], 2, "more than 10 GiB"),
        (["fan", "--subscribers", "1001"], 2, "at most 1000 subscribers"),
        (["pub", "--endpoint", "tcp://127.0.0.1:1", "--timeout", "10ms"], 1, "the client is not connected"),
    ],
)
def test_mistakes(words: list[str], status: int, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *words]) == status
    assert problem in capsys.readouterr().err


def test_percentiles() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (50, 90, 99, 99.9)] == [50, 90, 99, 100]
    assert percentile([7.0], 50) == 7.0
    assert Result("x", 10, 100, 2.0).describe()["messages_per_second"] == 5
