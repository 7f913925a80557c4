"""SIGKILLs of a broker under load, and of a publisher: each message is in the stream once, and in order."""

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
from tests.campaign.load import LARGEST, Load, Published, check_journal, count_refused
from tests.campaign.mortal import MortalPublisher
from tests.zeps.broker_process import BrokerProcess

PROGRESS = 300  # messages that must be confirmed before the next kill


@dataclass(frozen=True)
class KillsResult:
    """The figures of a run; a run in which something did not hold raises instead."""

    sync: str
    kills: int
    publisher_kills: int
    messages: int
    refused: int
    dropped: int
    full: int  # times that a publisher raised QueueFull
    seconds: float
    recovery: float  # the longest time in seconds that a broker took to start again


@dataclass
class _Story:
    """The events of a run."""

    published: list[Published]
    publisher_kills: int
    full: int
    longest: float


async def _run(
    broker: BrokerProcess, data: Path, kills: int, chance: random.Random, progress: Callable[[str], object]
) -> _Story:
    load = Load(broker.endpoint)
    mortal = MortalPublisher(broker.endpoint)
    longest = 0.0
    try:
        for number in range(kills):
            progress(f"{number:,} kills")
            await load.progress(PROGRESS)
            await asyncio.sleep(chance.random() * 0.02)
            if chance.random() < 0.5:
                await asyncio.to_thread(mortal.kill)
            broker.kill()
            began = time.monotonic()
            await asyncio.to_thread(broker.start)
            longest = max(longest, time.monotonic() - began)
        published = [*await load.finish(), await asyncio.to_thread(mortal.finish)]
        await load.finish_reading(data)
        return _Story(published, mortal.kills, load.full, longest)
    finally:
        mortal.close()
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
        with BrokerProcess(data, largest=LARGEST, sync=sync, segment=1 << 20) as broker:
            story = asyncio.run(_run(broker, data, kills, random.Random(seed), progress))
        messages, _ = check_journal(data, story.published)
    return KillsResult(
        sync,
        kills,
        story.publisher_kills,
        messages,
        count_refused(story.published),
        sum(one.dropped for one in story.published),
        story.full,
        time.monotonic() - began,
        story.longest,
    )


def report(results: list[KillsResult]) -> str:
    """Return the figures as a table."""
    heads = ["sync", "kills", "of a publisher", "messages", "twice", "lost", "refused", "dropped", "`QueueFull`"]
    return table(
        [*heads, "longest start", "seconds"],
        [
            [
                one.sync,
                f"{one.kills:,}",
                f"{one.publisher_kills:,}",
                f"{one.messages:,}",
                "0",
                "0",
                f"{one.refused:,}",
                f"{one.dropped:,}",
                f"{one.full:,}",
                f"{one.recovery * 1000:.0f} ms",
                f"{one.seconds:.0f}",
            ]
            for one in results
        ],
    )
