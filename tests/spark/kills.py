"""Kill the driver of `archive` again and again, with messages coming all the while: each is there once in the end.

    python -m tests.spark.kills --times 20

A kill is `kill -9` of the driver, its Java and its workers, at a moment that is drawn: a while after the run has done a
batch, or right when it stages a batch, moves it, or has noted it as done. After every kill, a program that reads all
Parquet files must see no message twice; in the end, after a run that is left alone, every message once.
"""

from __future__ import annotations

import argparse
import glob
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from tests.zeps.serving import serving
from zambezi.zeps.sync import Client

PATIENCE = 240.0  # seconds; a loaded machine takes its time to start Java
STREAMS = ("readings", "alarms")
MOMENTS = ("work", "staging", "moving", "done")
SMALL = (
    "--master",
    "local[2]",
    "--conf",
    "spark.driver.memory=768m",
    "--conf",
    "spark.sql.shuffle.partitions=2",
)


class Publishing:
    """Publishes numbered messages to the streams, from a thread, until it is told to end."""

    def __init__(self, endpoint: str, pause: float = 0.02, each: int = 20) -> None:
        self._endpoint = endpoint
        self._pause = pause
        self._each = each
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._publish, name="publisher", daemon=True)
        self.published = 0  # to each stream

    def _publish(self) -> None:
        with Client.connect(self._endpoint) as client:
            while not self._ended.wait(self._pause):
                numbers = range(self.published + 1, self.published + 1 + self._each)
                for name in STREAMS:
                    client.stream(name).publish_many([(f"k{number % 10}", b"%d" % number) for number in numbers])
                self.published = numbers[-1]
            for name in STREAMS:
                client.stream(name).flush()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(PATIENCE)


class Driver:
    """`zambezi pipeline run` in a process group of its own."""

    def __init__(self, name: str, endpoint: str, out: Path, *options: str) -> None:
        command = [sys.executable, "-m", "zambezi", "pipeline", "run", name, "--endpoint", endpoint]
        command += ["--out", str(out), *options]
        self._errors = (out.parent / "driver.log").open("ab")
        # What the killed leave behind goes when the test's own directory goes.
        local = out.parent / "local"
        local.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            command,
            stdout=self._errors,
            stderr=self._errors,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"TMPDIR": str(local), "SPARK_LOCAL_DIRS": str(local)},
            start_new_session=True,
        )

    def until(self, condition: Callable[[], bool], pause: float = 0.02) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.process.poll() is not None:
                raise AssertionError(f"the driver ended by itself, with {self.process.returncode}: {self.said()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"the driver does not come so far: {self.said()}")
            time.sleep(pause)

    def said(self) -> str:
        return Path(self._errors.name).read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """End it as a crash of the machine would: all at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        self._errors.close()

    def wait(self) -> int:
        """Wait for its end."""
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.kill()


def seen(out: Path) -> dict[str, Counter[int]]:
    """Return what a program sees that reads all Parquet files: how often each sequence, by stream."""
    found: dict[str, Counter[int]] = {name: Counter() for name in STREAMS}
    for name in glob.glob(f"{out}/**/*.parquet", recursive=True):  # noqa: PTH207 - it does not look into .zambezi
        path = Path(name)
        stream = next(part.removeprefix("stream=") for part in path.parts if part.startswith("stream="))
        found[stream].update(pq.ParquetFile(path).read(columns=["sequence"]).column(0).to_pylist())
    return found


def batches(out: Path, kind: str) -> set[str]:
    """The batches that are staged, are being moved, or are done."""
    try:
        return {name for name in os.listdir(out / ".zambezi" / kind) if name[0].isdigit()}  # noqa: PTH208 - the quick way
    except FileNotFoundError:
        return set()


def kill_once(endpoint: str, out: Path, chance: random.Random) -> str:
    """Run the archive, and kill it; at which moment."""
    moment = chance.choice(MOMENTS)
    before = {kind: batches(out, kind) for kind in MOMENTS}
    driver = Driver("archive", endpoint, out, *SMALL, "--follow", "--every", "200ms")
    try:
        driver.until((out / ".zambezi").exists, pause=0.05)  # Java starts; a quick look takes its processor away
        if moment == "work":
            driver.until(lambda: bool(batches(out, "done") - before["done"]))
            time.sleep(chance.uniform(0, 1))
        else:
            driver.until(lambda: bool(batches(out, moment) - before[moment]), pause=0.001)
    finally:
        driver.kill()
    return moment


def run(times: int, seed: int, say: Callable[[str], object] = print) -> int:
    """Kill it so many times; how many messages there were. Raises AssertionError if one is missing or twice."""
    chance = random.Random(seed)
    with TemporaryDirectory(prefix="zambezi-kills-") as place:
        out = Path(place) / "archive"
        with serving(Path(place) / "data") as (_, endpoint):
            with Publishing(endpoint) as publishing:
                for number in range(1, times + 1):
                    moment = kill_once(endpoint, out, chance)
                    found = seen(out)
                    twice = {name: [one for one, count in few.items() if count > 1] for name, few in found.items()}
                    assert not any(twice.values()), f"seed {seed}, kill {number} at {moment}: twice: {twice}"
                    say(f"kill {number} ({moment}): {sum(map(len, found.values())):,} messages are there, each once")
            last = Driver("archive", endpoint, out, *SMALL)
            assert last.wait() == 0, f"seed {seed}: the last run failed: {last.said()}"
        found = seen(out)
        for name in STREAMS:
            expected = Counter(range(1, publishing.published + 1))
            wrong = sorted(((expected - found[name]) | (found[name] - expected)).items())[:10]
            assert found[name] == expected, f"seed {seed}: {name} has {found[name].total()} of {len(expected)}: {wrong}"
        say(f"after {times} kills: {publishing.published:,} messages in each stream, each once")
        return publishing.published


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 32)
    print(f"seed {seed}")
    run(arguments.times, seed)


if __name__ == "__main__":
    main()
