"""SIGKILLs of a broker under load: nothing that was confirmed is lost, no sequence is used twice, the order is kept."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.report import table
from tests.campaign.load import Load, check_journal
from tests.zeps.broker_process import BrokerProcess
from tests.zeps.killed import Kill, written

PROGRESS = 300  # messages that must be confirmed before the next kill


@dataclass(frozen=True)
class KillsResult:
    """The figures of a run; a run in which something did not hold raises instead."""

    sync: str
    kills: int
    messages: int
    repeated: int
    seconds: float
    recovery: float  # the longest time in seconds that a broker took to start again


async def _run(
    broker: BrokerProcess, data: Path, kills: int, chance: random.Random, progress: Callable[[str], object]
) -> tuple[list[int], list[Kill], float]:
    load = Load(broker.endpoint)
    done: list[Kill] = []
    longest = 0.0
    try:
        for number in range(kills):
            progress(f"{number:,} kills")
            await load.progress(PROGRESS)
            await asyncio.sleep(chance.random() * 0.02)
            broker.kill()
            done.append(Kill(written(data), load.confirmed))
            began = time.monotonic()
            await asyncio.to_thread(broker.start)
            longest = max(longest, time.monotonic() - began)
        return await load.finish(data), done, longest
    finally:
        await load.close()


def run_kills(
    kills: int,
    seed: int,
    sync: Literal["always", "interval", "never"] = "interval",
    progress: Callable[[str], object] = lambda _: None,
) -> KillsResult:
    """Kill a broker so many times, and check its journal."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zambezi-campaign-") as name:
        data = Path(name)
        with BrokerProcess(data, sync=sync, segment=1 << 20) as broker:
            published, done, longest = asyncio.run(_run(broker, data, kills, random.Random(seed), progress))
        messages, repeated = check_journal(data, published, done)
    return KillsResult(sync, kills, messages, repeated, time.monotonic() - began, longest)


def report(results: list[KillsResult]) -> str:
    """Return the figures as a table."""
    heads = ["sync", "kills", "messages", "published twice", "lost", "longest start", "seconds"]
    return table(
        heads,
        [
            [
                one.sync,
                f"{one.kills:,}",
                f"{one.messages:,}",
                f"{one.repeated:,}",
                "0",
                f"{one.recovery * 1000:.0f} ms",
                f"{one.seconds:.0f}",
            ]
            for one in results
        ],
    )
