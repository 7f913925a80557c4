"""The last hour of a server and of its streams."""

from pathlib import Path

import pytest

from tests.console.test_console import publish, shown
from tests.zmtp.waiting import in_loop
from zambezi.console import history
from zambezi.console.history import KEPT, STEP, History, Series
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
        assert past.delivered == 30
        assert past.told()["in"] == [0, 3.0]
        assert past.told()["out"] == [0, 3.0]
        assert past.recent("prices") == told["in"]


@in_loop
async def test_memory_is_bounded_and_gone_streams_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOST", 7)
    async with shown(tmp_path) as (server, _):
        assert server.broker is not None
        for number in range(5):
            server.broker.engine.find_or_make(f"s{number}")
        past = History()
        past.sample(server, 0.0)
        assert sum(len(past.of_stream(f"s{number}")) - 1 for number in range(5)) == 7
        async with Client.connect(server.endpoints["zeps"]) as client:
            await client.delete("s0")
        for second in range(1, 2 * STEP + 2):
            past.sample(server, float(second))
        assert past.of_stream("s0") == {"step": STEP}
        assert sum(len(past.of_stream(f"s{number}")) - 1 for number in range(5)) == 7
