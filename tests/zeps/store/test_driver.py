"""zambezi.zeps.store.driver: engines on a real store, in processes that are killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.zeps.store.shelf import PLACE, Shelf, piece
from tests.zeps.store.test_shell import read_all
from zambezi.zeps.store.commands import Failed, Get, Put, get
from zambezi.zeps.store.driver import Driver
from zambezi.zeps.store.runner import Runner
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings, State, Stored, StreamLog

ROUNDS = 4


@contextmanager
def writer(url: str, options: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run a process that takes the stream and writes."""
    command = [sys.executable, "-m", "tests.zeps.store.writer_process", url, json.dumps(options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


@pytest.mark.xdist_group("weed")
def test_writers_that_are_killed_or_deposed_lose_nothing_that_they_confirmed(tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    confirmed = 0
    with writer(url, {}) as first:
        assert lines(first, 1) == ["owned 0"]
        lines(first, 5)
        for turn in range(ROUNDS):
            with writer(url, {}) as other:  # it takes the stream while the one before writes
                (owned,) = lines(other, 1)
                base = int(owned.removeprefix("owned "))
                if turn == 0:
                    assert first.stdout is not None
                    told = [line.strip() for line in first.stdout]
                    assert told[-1] == "deposed"
                    confirmed = int(told[-2]) if len(told) > 1 else 0
                assert base >= confirmed
                confirmed = max(map(int, lines(other, 3 + turn)))
                other.kill()  # at any moment of its work
                assert other.stdout is not None
                confirmed = max([confirmed, *(int(line) for line in other.stdout if line.endswith("\n"))])
    store = ObjectStore(url)
    found = [number for _, (_, number) in store.run(read_all())]
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= confirmed > 0
    store.close()


def test_an_engine_goes_on_by_itself_after_failures() -> None:
    shelf = Shelf()
    shelf.failures = 2

    async def run() -> list[object]:
        driver = Driver(shelf.execute, threads=1)
        log = StreamLog(PLACE, b"m" * 16, b"I" * 16, LogSettings(commit=0.001))
        stored: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        events: list[object] = []

        def look() -> None:
            events.extend(log.take_events())
            if log.state is State.OWNER and len(events) == 1:
                log.append(piece(1, b"1"))
                driver.advance(log)
            elif events and isinstance(events[-1], Stored) and not stored.done():
                stored.set_result(events)

        log.take(asyncio.get_running_loop().time())
        driver.add(log, look)
        async with asyncio.timeout(30):
            found = await stored
        await driver.close()
        driver.advance(log)  # it is not run any more
        return found

    assert asyncio.run(run())[-1] == Stored(1, 1)


def test_an_engine_that_was_removed_gets_no_answers() -> None:
    async def run() -> list[object]:
        driver = Driver(lambda request: Failed("down") if isinstance(request, Put) else b"", threads=1)
        runner = Runner()
        results: list[object] = []
        runner.start(get("key"), 0.0, results.append, results.append)
        driver.add(runner)
        driver.remove(runner)
        await driver.close()
        return results

    assert asyncio.run(run()) == []
    assert Get("key") == Get("key")
