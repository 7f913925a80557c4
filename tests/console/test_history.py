"""The last hour of a server and of its streams."""

from pathlib import Path

import pytest

from tests.console.test_console import publish, shown
from tests.zmtp.waiting import in_loop
from zambezi.console import history
from zambezi.console.history import KEPT, STEP, History, Past, Series
from zambezi.zeps.asyncio import Client


def test_a_series_keeps_an_hour() -> None:
    series = Series()
    for number in range(5 * KEPT):
        series.add(number)
    assert len(series.last(9 * KEPT)) <= KEPT * 9 // 8
    assert series.last() == [float(number) for number in range(4 * KEPT, 5 * KEPT)]


@in_loop
async def test_streams_have_rates_in_and_out_and_lags_of_readers(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, _):
        past = History()
        await publish(server, 1)
        past.sample(server, 0.0)
        async with Client.connect(server.endpoints["zeps"]) as client:
            await client.set_reader("prices", "billing", 1)
            stream = client.stream("prices")
            async with stream.subscribe() as subscription:
                await subscription.ready()
                await publish(server, 30)
                for _ in range(30):
                    await subscription.recv()
                for second in range(1, STEP + 1):
                    past.sample(server, float(second))
        told = past.of_stream("prices")
        assert told["step"] == STEP
        assert max(told["in"]) == max(told["out"]) > 0
        assert told["lag"][-1] == told["reader:billing"][-1] == 30
        assert past.told()["in"] == [0, 3.0]
        assert past.told()["out"] == [0, 3.0]
        assert 0 < past.told()["median"][1] <= past.told()["p99"][1]
        assert past.recent("prices") == told["in"]
        for second in range(1, STEP + 1):
            past.sample(server, float(STEP + second))
        assert past.told()["median"][2] is None  # no message was published: that is no latency of 0


@in_loop
async def test_memory_is_bounded_and_gone_streams_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOST", 3)
    async with shown(tmp_path) as (server, _):
        assert server.broker is not None
        past = History()
        async with Client.connect(server.endpoints["zeps"]) as client:
            for number in range(5):
                await client.create(f"s{number}")
            past.sample(server, 0.0)
            assert past.of_stream("s4") == {
                "step": STEP,
                "in": [0],
                "out": [0],
                "lag": [0],
            }  # they need no memory
            for number in range(5):
                await client.stream(f"s{number}").publish("k", b"")
                await client.stream(f"s{number}").flush()
            for second in range(1, STEP + 1):
                past.sample(server, float(second))
            told = [past.of_stream(f"s{number}") for number in range(5)]
            assert sorted(max(one["in"]) > 0 for one in told) == [False, False, True, True, True]
            assert [one.get("cut") == 3 for one in told] == [max(one["in"]) == 0 for one in told]  # and that is told
            kept = next(number for number in range(5) if max(told[number]["in"]) > 0)
            await client.delete(f"s{kept}")
            for second in range(1, 2 * STEP + 2):
                past.sample(server, float(STEP + second))
            assert past.of_stream(f"s{kept}") == {"step": STEP}


def test_a_series_ends_after_an_hour_of_zeros() -> None:
    past = Past()
    past.add({"in": 0.0}, room=1)
    assert past.series == {}
    past.add({"in": 2.0}, room=1)
    assert past.last("in") == [0, 2.0]
    for _ in range(KEPT + 1):
        past.add({"in": 0.0}, room=0)
    assert list(past.series) == ["in"]
    past.add({"in": 0.0}, room=0)
    assert past.series == {}
    assert past.last("in") == [0] * KEPT
    past.add({"in": 1.0, "out": 1.0}, room=1)
    assert (past.last("in", 2), past.last("out", 2), past.is_cut) == ([0, 1.0], [0, 0], True)
